//! Links beside datagrams: what members of replicated groups say over them, and how a host sleeps on both.

use std::os::fd::AsFd;
use std::time::Duration;

use arrayvec::ArrayVec;
use rustix::event::{PollFd, PollFlags, poll};
use tributary_transport::{Armed, DatagramSocket, Link, timespec};
use tributary_wire::frame::Message;

use super::super::failure::Failure;
use super::super::listener::Listener;
use super::super::peer::{Said, failure_of, message_from, misbehaviour_of};
use super::{Peers, WATCHED_MAX};

impl Peers {
    /// The next thing that `host` says in a replicated group, with its payload. A host whose link has ended is an
    /// ended one.
    pub(crate) fn hear(&mut self, host: u32) -> Result<Option<(Message, &[u8])>, Failure> {
        self.reach(host)?;
        let (edge, identity) = (self.edge(), self.identity);
        let peer = &mut self.peers[host as usize];
        if !peer.is_greeted {
            let _ = peer.greet(edge).map_err(|_| Failure::Ended(host))?;
            self.has_rest = true;
        }
        let Some(link) = &mut peer.link else { return Ok(None) };
        let frame = match link.receive() {
            Ok(Some(frame)) => frame,
            Ok(None) => return Ok(None),
            Err(error) => return Err(failure_of(host, &identity, error)),
        };
        match message_from(host, &identity, &frame.header)? {
            Said::Replicated(message) => Ok(Some((message, frame.payload))),
            Said::Part(_) | Said::Waits(_) | Said::Leaves => Err(misbehaviour_of(host).into()),
        }
    }

    /// Sleeps until a datagram may have come to one of `sockets`, or a frame from one of `hosts`. Whether something may have come over a link.
    pub(crate) fn sleep_beside<'a>(
        &mut self,
        sockets: impl Iterator<Item = &'a DatagramSocket>,
        hosts: impl Iterator<Item = u32> + Clone,
        time: Duration,
    ) -> bool {
        let has_come = hosts.clone().any(|host| {
            let link = self.peers[host as usize].link.as_mut();
            link.is_some_and(|link| link.arm() == Armed::Ready)
        });
        let is_woken = has_come || {
            let flags =
                |writes| if writes { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            let mut watched = ArrayVec::<_, WATCHED_MAX>::new();
            let sockets = sockets.map(|it| (it.as_fd(), flags(it.wants_write())));
            watched.extend(sockets.map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags)));
            let links_from = watched.len();
            let is_outside = |host: u32| self.peers[host as usize].link.is_none();
            let callers = self.listener.iter().filter(|_| hosts.clone().any(is_outside));
            let links = hosts.clone().filter_map(|host| self.peers[host as usize].link.as_ref());
            let links = links.map(|link| (link.as_fd(), flags(link.wants_write())));
            let callers = callers.flat_map(Listener::descriptors).map(|fd| (fd, PollFlags::IN));
            // Beyond the bound, see `WATCHED_MAX`.
            let room = watched.remaining_capacity();
            let others = callers.chain(links).take(room);
            watched.extend(others.map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags)));
            // A wait that fails is a link that fails, and the next round says so.
            let _ = poll(&mut watched, Some(&timespec(time)));
            watched[links_from..].iter().any(|fd| !fd.revents().is_empty())
        };
        for host in hosts {
            if let Some(link) = &mut self.peers[host as usize].link {
                link.disarm();
            }
        }
        is_woken
    }
}
