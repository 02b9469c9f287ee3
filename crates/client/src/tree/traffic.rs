//! Frames in, frames out: one round over what a member holds.

use std::ops::Range;

use tributary_protocol::{Carrier, Time};
use tributary_transport::Sent;

use super::{Running, TreeMember, time_since};

/// While data travel by datagram, the link is looked at once in so many rounds, and whenever the
/// kernel says that it has something.
const ROUNDS_PER_LINK: u32 = 64;

impl TreeMember {
    /// Takes what has arrived and sends what may be sent.
    pub(super) fn pump(&mut self) {
        let now = time_since(self.clock);
        self.receive_datagrams(now);
        let is_link_due = self.link_due_in == 0
            || !self.has_open_datagrams()
            || self.endpoint.expected_carrier() == Carrier::Link;
        self.link_due_in = if is_link_due { ROUNDS_PER_LINK } else { self.link_due_in - 1 };
        if self.endpoint.poll_timeout().is_some_and(|due| due <= now) {
            self.endpoint.handle_timeout(now);
        }
        let received = if is_link_due { self.receive() } else { Ok(()) };
        // The node's last words, above all why the group failed, may still be unread when sending
        // to it already fails.
        let outcome =
            received.and_then(|()| self.transmit().or_else(|gone| self.receive().and(Err(gone))));
        if outcome.is_err() {
            self.link.shutdown();
            self.is_gone = true;
            self.endpoint.handle_link_closed();
        }
    }

    pub(super) fn has_open_datagrams(&self) -> bool {
        self.datagrams.as_ref().is_some_and(|datagrams| datagrams.is_open)
    }

    fn receive_datagrams(&mut self, now: Time) {
        let Some(datagrams) = &mut self.datagrams else { return };
        let key = datagrams.key;
        for (socket, carrier) in datagrams.due(self.endpoint.expected_carrier()) {
            // What the system can't receive is as good as lost.
            while let Ok(Some(datagram)) = socket.receive() {
                let frame = datagram.frame;
                if key.is_some_and(|key| !key.has_sealed(&frame)) {
                    continue;
                }
                // A frame that doesn't belong here is dropped: anybody may have sent it.
                let Ok(body) = self.endpoint.handle_frame(now, carrier, &frame.header) else {
                    continue;
                };
                if let (Some(body), Some(running)) = (body, &self.running) {
                    running.fill(body.bytes, frame.payload);
                }
            }
        }
    }

    fn receive(&mut self) -> Result<(), LinkGone> {
        loop {
            let frame = match self.link.receive() {
                Ok(Some(frame)) => frame,
                Ok(None) => return Ok(()),
                Err(_) => return Err(LinkGone),
            };
            let now = time_since(self.clock);
            let body = self
                .endpoint
                .handle_frame(now, Carrier::Link, &frame.header)
                .map_err(|_| LinkGone)?;
            if let (Some(body), Some(running)) = (body, &self.running) {
                running.fill(body.bytes, frame.payload);
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
                        let source = running.source.add(running.piece.start + body.bytes.start);
                        std::slice::from_raw_parts(source, body.bytes.len())
                    }
                }
                _ => &[],
            };
            let header = transmit.header.encode();
            let sent = match (transmit.carrier, &mut self.datagrams) {
                (Carrier::Datagram | Carrier::Multicast, Some(datagrams)) => {
                    datagrams.socket.send(None, &header, payload, datagrams.key.as_ref())
                }
                (Carrier::Datagram | Carrier::Multicast, None) => Ok(Sent::Taken),
                (Carrier::Link, _) => self.link.send(&header, payload),
            };
            match sent {
                Ok(Sent::Taken) => self.endpoint.pop_transmit(time_since(self.clock)),
                Ok(Sent::Full) => break,
                Err(_) => return Err(LinkGone),
            }
        }
        if let Some(datagrams) = &mut self.datagrams
            && datagrams.socket.wants_write()
        {
            // What the kernel has no room for goes out in a later round.
            let _ = datagrams.socket.flush();
        }
        if self.has_open_datagrams() && !self.link.wants_write() {
            return Ok(());
        }
        match self.link.flush() {
            Ok(_) => Ok(()),
            Err(_) => Err(LinkGone),
        }
    }
}

impl Running {
    /// Puts a result where it belongs.
    fn fill(&self, bytes: Range<usize>, payload: &[u8]) {
        assert!(bytes.end <= self.piece.len(), "the endpoint cuts its own vector");
        assert_eq!(bytes.len(), payload.len(), "headers state their payload");
        // SAFETY: the range lies within the target, checked above, which the caller of `start`
        // keeps valid while the operation runs; a frame never overlaps a user's buffer.
        unsafe {
            let target = self.target.add(self.piece.start + bytes.start);
            target.copy_from_nonoverlapping(payload.as_ptr(), payload.len());
        }
    }
}

/// The link failed or the node broke the protocol; either way it is closed.
struct LinkGone;
