//! Receives and sends datagrams, with one socket for all edges.

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::os::fd::{AsFd, AsRawFd};
use std::thread;
use std::time::Instant;

use mio::Interest;
use mio::unix::SourceFd;

use tributary_kernel_path::Arrival;
use tributary_protocol::node::PortId;
use tributary_protocol::{Carrier, Reachability, Time};
use tributary_transport::{Frame, Sent};
use tributary_wire::GroupId;
use tributary_wire::control::MulticastGrant;

use super::kernel::hand;
use super::{DATAGRAMS, DataLoop, multicast_address, time_since};
use crate::node::links::AnyLink;
use crate::node::refusals::{Dropped, Reason};

/// Datagrams handled before the links are served again.
const BURST_DATAGRAMS: u32 = 256;

/// Refused datagrams of a burst after which the core is given up: a flood of the port shall not keep it from the
/// ranks that share it, which wait for a time slice otherwise.
const REFUSED_BEFORE_YIELD: u32 = 32;

/// The outcome of one attempt to receive a datagram.
enum Taken {
    Nothing,
    Datagram,
    Dropped(Dropped),
}

impl DataLoop {
    /// Handles a burst of datagrams, and sends the frames that result. True if there were any.
    pub(super) fn serve_datagrams(&mut self) -> bool {
        if !self.datagrams_signalled {
            return false;
        }
        let mut worked = false;
        // One clock reading per burst, because one per frame is a tenth of the frame's cost. None
        // without a datagram, because most polls of the socket find nothing.
        let mut burst_time = None;
        let mut refused = 0;
        self.holds_back = true;
        for _ in 0..BURST_DATAGRAMS {
            match self.take_datagram(&mut burst_time) {
                Taken::Nothing => {
                    self.datagrams_signalled = false;
                    break;
                }
                Taken::Datagram => self.drain(),
                Taken::Dropped(why) => {
                    self.counters.drop_datagram(why);
                    refused += 1;
                    if why == Dropped::NoEdge {
                        self.unknown_senders.count_refused(self.datagrams.as_mut(), &self.machine);
                    }
                }
            }
            worked = true;
            if refused == REFUSED_BEFORE_YIELD {
                break;
            }
        }
        self.holds_back = false;
        self.flush_datagrams();
        if refused == REFUSED_BEFORE_YIELD {
            thread::yield_now();
        }
        worked
    }

    fn take_datagram(&mut self, burst_time: &mut Option<Time>) -> Taken {
        let Some(socket) = &mut self.datagrams else { return Taken::Nothing };
        let (frame, source) = match socket.receive() {
            Ok(Some(datagram)) => (datagram.frame, datagram.source),
            Ok(None) => return Taken::Nothing,
            Err(error) => {
                tracing::error!("datagrams can't be received: {error}");
                return Taken::Nothing;
            }
        };
        // First: no other field is used unless the frame comes from a holder of the key.
        if !self.installed.admits(&frame) {
            return Taken::Dropped(Dropped::NotAuthentic);
        }
        let Some(port) = self.machine.port_of_datagram(&frame.header) else {
            return Taken::Dropped(Dropped::NoEdge);
        };
        // Datagrams are not encrypted, so others can read a capability. The source must match too.
        if self.links.entry(port).and_then(|entry| entry.datagram_peer) != Some(source) {
            return Taken::Dropped(Dropped::WrongSource);
        }
        self.counters.datagrams_received += 1;
        self.counters.payload_bytes_received += frame.payload.len() as u64;
        let clock = self.clock;
        let now = *burst_time.get_or_insert_with(|| time_since(clock, Instant::now()));
        let Frame { header, payload, .. } = &frame;
        let arrival = Arrival { now, port, carrier: Carrier::Datagram, header, payload };
        let taken = hand(&mut self.kernel, &mut self.machine, arrival, &mut self.arenas);
        match taken {
            Ok(()) => Taken::Datagram,
            Err(error) => {
                Reason::of_frame(&error).log(&error);
                Taken::Dropped(Dropped::Refused)
            }
        }
    }

    /// Sends queued datagrams, unless a batch is being made.
    pub(super) fn flush_datagrams(&mut self) {
        if self.holds_back {
            return;
        }
        if let Some(socket) = &mut self.datagrams
            && socket.wants_write()
        {
            let is_full = socket.flush() == Sent::Full;
            self.note_datagram_room(!is_full);
        }
    }

    /// Watches for room only while there is none, because the kernel would otherwise report every
    /// datagram that has left the send buffer.
    pub(super) fn note_datagram_room(&mut self, has_room: bool) {
        if self.datagrams_full != has_room {
            return;
        }
        self.datagrams_full = !has_room;
        let Some(socket) = &self.datagrams else { return };
        let interest = match has_room {
            true => Interest::READABLE,
            false => Interest::READABLE | Interest::WRITABLE,
        };
        let descriptor = socket.as_fd().as_raw_fd();
        let watched =
            self.poll.registry().reregister(&mut SourceFd(&descriptor), DATAGRAMS, interest);
        if let Err(error) = watched {
            tracing::error!("the socket for datagrams can't be watched: {error}");
        }
        // Registering again may have lost an edge-triggered event.
        self.datagrams_signalled = true;
    }

    /// Prepares the multicast of a group's results, which starts at the root.
    pub(super) fn use_multicast(&mut self, group: GroupId, grant: &MulticastGrant) {
        let address = grant.address.parse::<SocketAddr>().ok();
        let address = address.filter(|it| it.ip().is_multicast() && self.datagrams.is_some());
        if address.is_none() {
            tracing::warn!("group {group}: nothing goes from here to {:?}", grant.address);
        }
        let index = group.0 as usize;
        if self.multicast.len() <= index {
            self.multicast.resize(index + 1, None);
        }
        self.multicast[index] = address;
        // Also if this aggregator can't send: members below it may receive the root's multicast.
        let longest_bytes = address.map_or(0, |_| self.datagram_payload_max_bytes);
        self.machine.use_multicast(group, grant.capability, longest_bytes);
    }

    /// Multicasts results to their groups' addresses.
    pub(super) fn multicast_results(&mut self) {
        while let Some((group, transmit)) = self.machine.poll_multicast() {
            let address = multicast_address(&self.multicast, group);
            let (Some(address), Some(socket)) = (address, &mut self.datagrams) else { continue };
            let payload = match transmit.body {
                Some(place) => self.arenas.payload(place, transmit.header.payload_bytes()),
                None => &[],
            };
            // Without room the multicast is skipped; the reliable copy follows.
            let key = self.installed.key(&transmit.header.edge);
            let header = transmit.header.encode();
            if socket.send(Some(address), &header, payload, key) == Ok(Sent::Taken) {
                self.counters.datagrams_sent += 1;
                self.counters.payload_bytes_sent += payload.len() as u64;
            }
        }
    }

    /// The socket may have room again.
    pub(super) fn on_datagram_room(&mut self) {
        if !self.datagrams_full {
            return;
        }
        self.note_datagram_room(true);
        self.flush_datagrams();
        for port in 0..self.links.ports_end() {
            if self.datagrams_full {
                return;
            }
            let port = PortId(port);
            if self.links.entry(port).is_some_and(|entry| entry.is_blocked) {
                self.transmit(port);
            }
        }
        self.flush_datagrams();
    }

    /// Notes the peer's datagram address of a link's edge.
    pub(super) fn on_datagram_peer(&mut self, port: PortId, datagram_port: NonZeroU16) {
        let Some(entry) = self.links.entry(port) else { return };
        let address = match &entry.link {
            AnyLink::Tcp(link) => link.peer_address(),
            // Peers in shared memory need no datagrams.
            AnyLink::Shm(_) => return,
        };
        match address {
            Ok(address) => {
                entry.datagram_peer = Some(SocketAddr::new(address.ip(), datagram_port.get()));
            }
            Err(error) => tracing::debug!(port = port.0, "no address for datagrams: {error}"),
        }
    }

    pub(super) fn on_reachability(&mut self, port: PortId, reachability: Reachability) {
        match reachability {
            Reachability::Reachable => {
                tracing::debug!(port = port.0, "datagrams reach the parent");
                self.offer_group_of(port);
            }
            Reachability::Unreachable => {
                self.end_below(port);
                let peer = self.links.entry(port).and_then(|entry| entry.datagram_peer);
                let peer = peer.map_or("a parent that takes none".to_owned(), |it| it.to_string());
                tracing::warn!(port = port.0, "no datagrams with {peer}: TCP carries all");
            }
        }
    }
}
