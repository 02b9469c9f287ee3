//! Frames in, frames out: one round over what a member holds.

use tributary_protocol::Carrier;
use tributary_transport::Sent;
use tributary_wire::frame::{Header, Message};

use super::datagrams::Datagrams;
use super::round::Round;
use super::{TreeMember, time_since};

/// Rounds that poll only where the result is expected, between two that poll everything that is due: each
/// poll is a system call, in every round of a wait.
const SHORT_ROUNDS: u32 = 7;

/// While data travel by datagram, the link is polled once in so many full rounds, and whenever the
/// kernel says that it has something.
const ROUNDS_PER_LINK: u32 = 8;

impl TreeMember {
    /// One round: takes what has arrived and sends what may be sent.
    pub(super) fn pump(&mut self) {
        let round = self.round;
        self.round = match round {
            Round::First => Round::Short(SHORT_ROUNDS),
            Round::Short(0) => Round::Full,
            Round::Short(left) => Round::Short(left - 1),
            Round::Full => Round::Short(SHORT_ROUNDS),
        };
        let polled = match round {
            Round::First => Ok(()),
            Round::Short(_) => match self.receive_at(self.endpoint.expected_carrier()) {
                // Most rounds of a wait end here.
                Ok(false) => return,
                other => other.map(drop),
            },
            Round::Full => self.poll_all(),
        };
        // The aggregator's last words, above all why the group failed, may still be unread when sending
        // to it already fails.
        let outcome = polled
            .and_then(|()| self.transmit().or_else(|gone| self.receive_link().and(Err(gone))));
        if outcome.is_err() {
            self.link.shutdown();
            self.is_gone = true;
            self.endpoint.handle_link_closed();
        }
    }

    /// Polls where the result is expected, as the next round would; `false` if that round has more to
    /// do, because something has come or because it polls more.
    pub(super) fn expects_empty_poll(&mut self) -> bool {
        let (Round::Short(left @ 1..), Some(datagrams)) = (self.round, &mut self.datagrams) else {
            return false;
        };
        let socket = match self.endpoint.expected_carrier() {
            Carrier::Multicast => datagrams.multicast_receiver.as_mut(),
            Carrier::Datagram => Some(&mut datagrams.socket),
            Carrier::Link => None,
        };
        let is_empty = socket.is_some_and(|socket| matches!(socket.has_arrived(), Ok(false)));
        if is_empty {
            self.round = Round::Short(left - 1);
        }
        is_empty
    }

    fn poll_all(&mut self) -> Result<(), LinkGone> {
        let now = time_since(self.clock);
        let expected = self.endpoint.expected_carrier();
        let is_link_due =
            self.link_due_in == 0 || !self.has_open_datagrams() || expected == Carrier::Link;
        self.link_due_in = if is_link_due { ROUNDS_PER_LINK } else { self.link_due_in - 1 };
        let is_other_due = self.datagrams.as_mut().is_some_and(Datagrams::is_other_due);
        // The group's address first: who has the result from there drops the copy.
        for carrier in [Carrier::Multicast, Carrier::Datagram] {
            if carrier == expected || is_other_due {
                self.receive_at(carrier)?;
            }
        }
        if self.endpoint.poll_timeout().is_some_and(|due| due <= now) {
            self.endpoint.handle_timeout(now);
        }
        if is_link_due {
            self.receive_link()?;
        }
        Ok(())
    }

    pub(super) fn has_open_datagrams(&self) -> bool {
        self.datagrams.as_ref().is_some_and(|datagrams| datagrams.is_open)
    }

    /// Takes what has come by one carrier; whether anything has. Whatever completes the operation is
    /// the last thing taken: who has what it waited for makes no system call more.
    fn receive_at(&mut self, carrier: Carrier) -> Result<bool, LinkGone> {
        if carrier == Carrier::Link {
            return self.receive_link();
        }
        let Some(datagrams) = &mut self.datagrams else { return Ok(false) };
        let key = datagrams.key;
        let socket = match carrier {
            Carrier::Multicast => datagrams.multicast_receiver.as_mut(),
            Carrier::Datagram | Carrier::Link => Some(&mut datagrams.socket),
        };
        let Some(socket) = socket else { return Ok(false) };
        let was_idle = self.endpoint.is_idle();
        let mut has_come = false;
        // What the system can't receive is as good as lost.
        while let Ok(Some(datagram)) = socket.receive() {
            has_come = true;
            let frame = datagram.frame;
            if key.is_some_and(|key| !key.authenticates(&frame)) {
                continue;
            }
            let now = time_since(self.clock);
            // A frame that doesn't belong here is dropped: anybody may have sent it.
            if let Ok(body) = self.endpoint.handle_frame(now, carrier, &frame.header) {
                if let (Some(body), Some(running)) = (body, &self.running) {
                    running.fill(body.bytes, frame.payload);
                }
                // It had the member's capability.
                if carrier == Carrier::Datagram {
                    socket.confirm_source();
                }
            }
            if !was_idle && self.endpoint.is_idle() && !socket.holds_more() {
                break;
            }
        }
        Ok(has_come)
    }

    fn receive_link(&mut self) -> Result<bool, LinkGone> {
        let was_idle = self.endpoint.is_idle();
        let mut has_come = false;
        loop {
            let frame = match self.link.receive() {
                Ok(Some(frame)) => frame,
                Ok(None) => return Ok(has_come),
                Err(_) => return Err(LinkGone),
            };
            has_come = true;
            let now = time_since(self.clock);
            let body = self
                .endpoint
                .handle_frame(now, Carrier::Link, &frame.header)
                .map_err(|_| LinkGone)?;
            if let (Some(body), Some(running)) = (body, &self.running) {
                running.fill(body.bytes, frame.payload);
            }
            if !was_idle && self.endpoint.is_idle() {
                // There may be more, which the kernel does not tell of any more.
                self.link_due_in = 0;
                return Ok(true);
            }
        }
    }

    fn transmit(&mut self) -> Result<(), LinkGone> {
        while let Some(transmit) = self.endpoint.peek_transmit() {
            let payload: &[u8] = match (&transmit.body, &self.running) {
                (Some(body), Some(running)) => {
                    assert!(body.bytes.end <= running.piece.len(), "segments lie in the vector");
                    // SAFETY: the range lies within the source, checked above, which the caller
                    // of `start` keeps valid and unchanged until its segment was sent.
                    unsafe {
                        let source =
                            running.operation.source.add(running.piece.start + body.bytes.start);
                        std::slice::from_raw_parts(source, body.bytes.len())
                    }
                }
                _ => &[],
            };
            let header = transmit.header.encode();
            let sent = match (transmit.carrier, &mut self.datagrams) {
                (Carrier::Datagram | Carrier::Multicast, Some(datagrams)) => {
                    if is_repeat(&transmit.header) {
                        datagrams.socket.avoid_bypass();
                    }
                    datagrams.socket.send(None, &header, payload, datagrams.key.as_ref())
                }
                (Carrier::Datagram | Carrier::Multicast, None) => Ok(Sent::Taken),
                (Carrier::Link, _) => self.link.send(&header, payload),
            };
            match sent {
                Ok(Sent::Taken) => self.endpoint.pop_transmit(time_since(self.clock)),
                Ok(Sent::Full) => {
                    self.round = Round::Full;
                    break;
                }
                Err(_) => return Err(LinkGone),
            }
        }
        if let Some(datagrams) = &mut self.datagrams
            && datagrams.socket.wants_write()
            && datagrams.socket.flush() == Sent::Full
        {
            // What the kernel has no room for goes out in the next round.
            self.round = Round::Full;
        }
        if self.has_open_datagrams() && !self.link.wants_write() {
            return Ok(());
        }
        match self.link.flush() {
            Ok(Sent::Taken) => Ok(()),
            Ok(Sent::Full) => {
                self.round = Round::Full;
                Ok(())
            }
            Err(_) => Err(LinkGone),
        }
    }
}

/// A request that was sent before. What went past the network stack may have been lost because the way has changed.
fn is_repeat(header: &Header) -> bool {
    matches!(&header.message, Message::Request(part) if part.retransmit.attempt > 0)
}

/// The link failed or the aggregator broke the protocol; either way it is closed.
struct LinkGone;
