//! Where other hosts' links come in, and the check of who they are.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use tributary_transport::{Link, ListenError, Listener, TcpAcceptor, TcpLink, TcpOptions};
use tributary_wire::frame::Message;

use super::{FRAME_BYTES_MAX, Identity};

/// How long a caller may take to say who it is.
const GREETING_TIMEOUT: Duration = Duration::from_secs(5);
/// Callers that have not said so far who they are; more are turned away.
const GUESTS_MAX: usize = 64;

/// A listening socket of one communicator.
pub(crate) struct Door {
    acceptor: TcpAcceptor,
    guests: Vec<Guest>,
}

/// A caller that has not said so far who it is.
struct Guest {
    link: TcpLink,
    deadline: Instant,
}

/// Why no door could be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("can't listen at {address} for other hosts: {problem}")]
pub(crate) struct DoorError {
    address: IpAddr,
    problem: ListenError,
}

/// What every link of a mesh is like.
pub(super) fn options() -> TcpOptions {
    TcpOptions::new(FRAME_BYTES_MAX).expect("a frame may be that long")
}

impl Door {
    /// Opens one at a port that the system chooses.
    pub(crate) fn open(address: IpAddr) -> Result<(Self, SocketAddr), DoorError> {
        let opened = TcpAcceptor::bind(SocketAddr::new(address, 0), options())
            .and_then(|acceptor| acceptor.address().map(|address| (acceptor, address)));
        match opened {
            Ok((acceptor, address)) => Ok((Self { acceptor, guests: Vec::new() }, address)),
            Err(problem) => Err(DoorError { address, problem }),
        }
    }

    /// The next caller that proved to be a member, and its number. Whoever says anything else than
    /// the right secret, or nothing for too long, is turned away.
    pub(super) fn admit(&mut self, identity: &Identity) -> Option<(u32, TcpLink)> {
        let now = Instant::now();
        while self.guests.len() < GUESTS_MAX
            && let Ok(Some(link)) = self.acceptor.accept(now)
        {
            self.guests.push(Guest { link, deadline: now + GREETING_TIMEOUT });
        }
        let mut index = 0;
        while let Some(guest) = self.guests.get_mut(index) {
            match guest.greeting(identity, now) {
                Greeting::Awaited => index += 1,
                Greeting::Wrong => drop(self.guests.swap_remove(index)),
                Greeting::From(host) => {
                    return Some((host, self.guests.swap_remove(index).link));
                }
            }
        }
        None
    }

    /// Descriptors that become readable when somebody calls or greets.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(self.acceptor.as_fd())
            .chain(self.guests.iter().map(|guest| guest.link.as_fd()))
    }
}

enum Greeting {
    Awaited,
    Wrong,
    From(u32),
}

impl Guest {
    fn greeting(&mut self, identity: &Identity, now: Instant) -> Greeting {
        match self.link.receive() {
            Ok(None) if now < self.deadline => Greeting::Awaited,
            Ok(Some(frame))
                if frame.header.message == Message::Join
                    && frame.header.edge.group == identity.group
                    && frame.header.edge.capability == identity.secret =>
            {
                let host = u32::from(frame.header.edge.child.0);
                self.link.release();
                Greeting::From(host)
            }
            _ => Greeting::Wrong,
        }
    }
}
