//! Receives and sends frames over links.

use std::time::Instant;

use tributary_kernel_path::Arrival;
use tributary_protocol::node::{Event, FrameError, PortId};
use tributary_protocol::{Carrier, Reachability};
use tributary_transport::{Frame, ReceiveError, SendError, Sent};

use super::kernel::hand;
use super::{DIRECT_TCP_MAX, DataLoop};
use crate::node::links::{Entry, Stage};
use crate::node::refusals::Reason;

/// Frames handled from one link before the next link is served.
const BURST_FRAMES: u32 = 64;

/// Payload handled from one link before the next link is served: a stream's chunks must not delay
/// short frames. At the speed of memory this takes some 20 us.
const BURST_BYTES: usize = 128 << 10;

/// The outcome of one attempt to receive a frame.
enum Taken {
    Nothing,
    Frame { payload_bytes: usize },
    Lost(ReceiveError),
    Refused(FrameError),
}

impl DataLoop {
    /// Serves every link once. True if any of them had something.
    pub(super) fn serve_links(&mut self) -> bool {
        // While data travel by datagram, links carry almost nothing.
        let ask_every_socket = self.links.tcp_count() <= DIRECT_TCP_MAX && self.datagrams.is_none();
        let mut worked = false;
        for port in 0..self.links.ports_end() {
            let port = PortId(port);
            let Some(entry) = self.links.entry(port) else { continue };
            if entry.link.is_tcp() && !entry.is_signalled && !ask_every_socket {
                continue;
            }
            worked |= self.serve_link(port);
        }
        worked
    }

    fn serve_link(&mut self, port: PortId) -> bool {
        let mut worked = self.push_on(port);
        let mut burst_bytes = 0;
        for _ in 0..BURST_FRAMES {
            match self.take_frame(port) {
                Taken::Nothing => return self.finish(port) || worked,
                Taken::Frame { payload_bytes } => {
                    self.drain();
                    burst_bytes += payload_bytes;
                    if burst_bytes >= BURST_BYTES {
                        return true;
                    }
                }
                Taken::Lost(error) => {
                    self.on_lost(port, error);
                    self.drain();
                    return true;
                }
                Taken::Refused(error) => {
                    self.refuse(port, Reason::of_frame(&error), &error);
                    self.drain();
                    return true;
                }
            }
            worked = true;
        }
        worked
    }

    /// Passes one frame to the machine, without copying its payload.
    fn take_frame(&mut self, port: PortId) -> Taken {
        let now = self.time(Instant::now());
        let Some(entry) = self.links.entry(port) else { return Taken::Nothing };
        // The link itself authenticates all frames after the first.
        let is_unproven = entry.stage == Stage::Unjoined && entry.link.is_tcp();
        let frame = match entry.link.receive() {
            Ok(Some(frame)) => frame,
            Ok(None) => {
                entry.is_signalled = false;
                return Taken::Nothing;
            }
            Err(error) => return Taken::Lost(error),
        };
        self.counters.frames_received += 1;
        if is_unproven && !self.installed.admits(&frame) {
            return Taken::Lost(ReceiveError::NotAuthentic { peer: entry.link.peer_address() });
        }
        let edge = frame.header.edge;
        let payload_bytes = frame.payload.len();
        self.counters.payload_bytes_received += payload_bytes as u64;
        let Frame { header, payload, .. } = &frame;
        let arrival = Arrival { now, port, carrier: Carrier::Link, header, payload };
        let outcome = hand(&mut self.kernel, &mut self.machine, arrival, &mut self.arenas);
        match outcome {
            Ok(()) => {
                if entry.stage == Stage::Unjoined {
                    entry.stage = Stage::Joined;
                    if let Some(key) = self.installed.key(&edge) {
                        entry.link.authenticate(*key);
                    }
                }
                Taken::Frame { payload_bytes }
            }
            Err(error) => Taken::Refused(error),
        }
    }

    /// Closes a lingering link whose final frames have arrived. True if it did.
    ///
    /// The kernel answers input on a closed socket with a reset, and drops unacknowledged data. An
    /// acknowledgement wakes nobody; the peer's close or the deadline ends the wait.
    fn finish(&mut self, port: PortId) -> bool {
        let Some(entry) = self.links.entry(port) else { return false };
        if entry.stage != Stage::Lingering
            || entry.link.flush() == Ok(Sent::Full)
            || !entry.link.is_safe_to_close()
        {
            return false;
        }
        self.close(port);
        true
    }

    /// Offers a link the frames that it had no room for. True if it took any.
    fn push_on(&mut self, port: PortId) -> bool {
        let Some(entry) = self.links.entry(port) else { return false };
        if !entry.is_signalled && entry.link.is_tcp() {
            return false;
        }
        // If the flush fails, the next receive returns the reason.
        let _ = entry.link.flush();
        entry.is_blocked && self.transmit(port)
    }

    /// Sends the machine's frames and handles its events until there are no more.
    pub(super) fn drain(&mut self) {
        loop {
            let mut any = false;
            // First, because one multicast serves all members.
            self.multicast_results();
            while let Some(port) = self.machine.poll_ready() {
                self.transmit(port);
                any = true;
            }
            while let Some(event) = self.machine.poll_event() {
                self.on_event(event);
                any = true;
            }
            if !any {
                break;
            }
        }
        self.flush_datagrams();
    }

    /// Sends the frames queued for one port. True if the link took any.
    pub(super) fn transmit(&mut self, port: PortId) -> bool {
        let mut any = false;
        while let Some(transmit) = self.machine.peek_transmit(port) {
            let Some(entry) = self.links.entry(port) else {
                // Unreachable: closing a port drops its frames.
                debug_assert!(false, "frames are waiting for a port without a link");
                return any;
            };
            let payload = match transmit.body {
                Some(place) => self.arenas.payload(place, transmit.header.payload_bytes()),
                None => &[],
            };
            let header = transmit.header.encode();
            let sent = match (transmit.carrier, &mut self.datagrams) {
                (Carrier::Datagram | Carrier::Multicast, Some(socket)) => match entry.datagram_peer
                {
                    Some(peer) => {
                        let key = self.installed.key(&transmit.header.edge);
                        socket.send(Some(peer), &header, payload, key)
                    }
                    // The address is unknown: treat the datagram as lost.
                    None => Ok(Sent::Taken),
                },
                _ => entry.link.send(&header, payload),
            };
            match sent {
                Ok(Sent::Taken) => {
                    entry.is_blocked = false;
                    match transmit.carrier {
                        Carrier::Link => self.counters.frames_sent += 1,
                        Carrier::Datagram | Carrier::Multicast => self.counters.datagrams_sent += 1,
                    }
                    self.counters.payload_bytes_sent += payload.len() as u64;
                    self.machine.pop_transmit(port);
                    any = true;
                }
                Ok(Sent::Full) => {
                    entry.is_blocked = true;
                    if transmit.carrier == Carrier::Datagram {
                        self.note_datagram_room(false);
                    }
                    return any;
                }
                Err(error) => {
                    self.on_send_failed(port, error);
                    return true;
                }
            }
        }
        any
    }

    fn on_send_failed(&mut self, port: PortId, error: SendError) {
        match error {
            // The peer's final frames, above all why the group failed, may still be unread. The
            // receive after them returns the same error.
            SendError::Closed => {
                if let Some(entry) = self.links.entry(port) {
                    entry.is_signalled = true;
                }
            }
            SendError::BadPeerIndex { .. } => self.refuse(port, Reason::BadField, &error),
            error => {
                tracing::warn!(port = port.0, "link lost: {error}");
                self.close(port);
            }
        }
    }

    fn on_lost(&mut self, port: PortId, error: ReceiveError) {
        match Reason::of_receive(&error) {
            Some(reason) => self.refuse(port, reason, &error),
            None => {
                tracing::debug!(port = port.0, "link closed: {error}");
                self.close(port);
            }
        }
    }

    fn refuse(&mut self, port: PortId, reason: Reason, what: &dyn std::fmt::Display) {
        self.counters.refuse(reason);
        reason.log(what);
        if self.hang_up(port) {
            self.machine.handle_port_refused(port);
        }
    }

    /// Closes a link and tells the machine. The next drain handles the machine's output; this may
    /// be called from a drain.
    pub(super) fn close(&mut self, port: PortId) {
        if self.hang_up(port) {
            self.machine.handle_port_closed(port);
        }
    }

    /// Closes a link. True if there was one.
    fn hang_up(&mut self, port: PortId) -> bool {
        let Some(Entry { link, .. }) = self.links.remove(port) else { return false };
        // Dropping the link closes its descriptor, which takes it out of the poll as well.
        drop(link);
        true
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Formed { group, epoch } => {
                tracing::debug!("group {group} epoch {epoch} is complete");
                self.offer_to_kernel(group);
            }
            Event::Failed { group, epoch, abort } => self.on_failed(group, epoch, abort),
            Event::Ended { group, epoch } => self.on_ended(group, epoch),
            Event::Released(arena) => self.arenas.release(arena),
            Event::Close(port) => self.links.linger(Instant::now(), port),
            Event::DatagramPeer { port, datagram_port } => {
                self.on_datagram_peer(port, datagram_port);
                self.offer_group_of(port);
            }
            Event::Multicast { group, reachability: Reachability::Unreachable } => {
                tracing::warn!("nobody receives group {group}'s multicast: it continues without");
            }
            Event::Multicast { group, reachability: Reachability::Reachable } => {
                tracing::info!("group {group}'s multicast has a subscriber again");
            }
            Event::Datagrams { port, reachability } => self.on_reachability(port, reachability),
        }
    }
}
