//! New links: from connectors, and upward to parents.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Interest, Token};
use tributary_protocol::node::PortId;
use tributary_transport::{AcceptError, Listener};

use super::{DataLoop, FIRST_PORT};
use crate::node::links::{AnyLink, Stage};
use crate::node::refusals::Reason;

/// Pause before the next accept after the system lacked a resource.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

impl DataLoop {
    /// Accepts all pending connections. True if there was one.
    pub(super) fn accept(&mut self, now: Instant) -> bool {
        self.accept_at = None;
        let mut any = false;
        loop {
            let accepted = self.tcp.accept(now).map(|link| link.map(AnyLink::Tcp));
            if !self.take_in(now, accepted) {
                break;
            }
            any = true;
        }
        // Also after a failure above: what is half-open and late holds descriptors that are lacking there.
        while let Some(shm) = &mut self.shm {
            let accepted = shm.accept(now).map(|link| link.map(AnyLink::Shm));
            if !self.take_in(now, accepted) {
                break;
            }
            any = true;
        }
        any
    }

    /// Handles an accept's outcome. True if another may follow at once.
    fn take_in(&mut self, now: Instant, accepted: Result<Option<AnyLink>, AcceptError>) -> bool {
        match accepted {
            Ok(None) => false,
            Ok(Some(link)) => {
                self.admit(now, link);
                true
            }
            Err(error) => match Reason::of_accept(&error) {
                Some(reason) => {
                    self.counters.refuse(reason);
                    reason.log(&error);
                    true
                }
                None => {
                    tracing::error!("cannot accept links for now: {error}");
                    // However many connectors knock, and whatever is due, nothing is tried before.
                    self.accept_not_before = now + ACCEPT_PAUSE;
                    self.accept_at = Some(self.accept_not_before);
                    false
                }
            },
        }
    }

    fn admit(&mut self, now: Instant, link: AnyLink) {
        if !self.make_room() {
            self.counters.refuse(Reason::TooManyLinks);
            Reason::TooManyLinks.log(&"every link is in use");
        } else if let Err(error) = self.watch(now, link, Stage::Unjoined) {
            tracing::error!("cannot watch a new link: {error}");
        }
    }

    /// Makes room for one more link by closing the oldest that has not joined, so that silent
    /// connectors can't keep others out.
    pub(super) fn make_room(&mut self) -> bool {
        if !self.links.is_full() {
            return true;
        }
        let Some(oldest) = self.links.oldest_unjoined() else { return false };
        self.counters.refuse(Reason::NeverJoined);
        Reason::NeverJoined.log(&"evicted by a newer link");
        self.close(oldest);
        true
    }

    /// Takes a link in and watches its descriptor.
    pub(super) fn watch(
        &mut self,
        now: Instant,
        link: AnyLink,
        stage: Stage,
    ) -> io::Result<PortId> {
        let descriptor = link.as_fd().as_raw_fd();
        let port = self.links.add(now, link, stage).ok_or_else(|| {
            io::Error::other("every link that this aggregation node may have is in use")
        })?;
        let token = Token(FIRST_PORT + port.0 as usize);
        // mio is edge-triggered, so room that stays is not reported again and again.
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registered = self.poll.registry().register(&mut SourceFd(&descriptor), token, interest);
        if let Err(error) = registered {
            self.links.remove(port);
            return Err(error);
        }
        Ok(port)
    }
}
