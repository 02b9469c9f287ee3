//! Where other hosts' links come in, and the check of who they are.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use tributary_settings::Ports;
use tributary_transport::{Link, ListenError, Listener as _, TcpAcceptor, TcpLink};
use tributary_wire::frame::Message;

use super::identity::Identity;
use super::interfaces::listen_within;
use super::options::options;
use super::purpose::Purpose;

/// How long a caller that does not say who it is may keep others out. It stays while there is room: a member calls all
/// hosts of a schedule before it greets any, which took 5 s where 32 ranks polled on two cores, and one that is turned away
/// takes this host for dead.
pub(super) const GREETING_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after the system lacked a resource for an accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
/// Callers that have not said so far who they are. More wait in the kernel's queue until one of them has, or has had its time.
pub(super) const PENDING_MAX: usize = 64;

/// A listening socket of one communicator.
pub struct Listener {
    acceptor: TcpAcceptor,
    /// Oldest first.
    pending: VecDeque<Pending>,
}

/// A caller that has not said so far who it is.
struct Pending {
    link: TcpLink,
    since: Instant,
}

/// A caller that proved to be a member.
pub(super) struct Caller {
    pub(super) host: u32,
    pub(super) purpose: Purpose,
    pub(super) link: TcpLink,
}

/// Why no listener could be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("can't listen at {address}{} for other hosts: {problem}", among(*ports))]
pub struct ListenerError {
    address: IpAddr,
    ports: Option<Ports>,
    problem: ListenError,
}

fn among(ports: Option<Ports>) -> String {
    ports.map_or_else(String::new, |ports| format!(", ports {ports} (TRIBUTARY_PORTS),"))
}

impl Listener {
    /// Listens at a port that the system chooses, or at one of these.
    pub fn bind(
        address: IpAddr,
        ports: Option<Ports>,
    ) -> Result<(Self, SocketAddr), ListenerError> {
        let listen = |address| TcpAcceptor::bind(address, options());
        let is_taken = |problem: &ListenError| *problem == ListenError::InUse;
        let opened = listen_within(address, ports, listen, is_taken)
            .and_then(|acceptor| acceptor.address().map(|address| (acceptor, address)));
        match opened {
            Ok((acceptor, address)) => Ok((Self { acceptor, pending: VecDeque::new() }, address)),
            Err(problem) => Err(ListenerError { address, ports, problem }),
        }
    }

    /// The next caller that proved to be a member to host `me`. A caller that says anything
    /// else than the right secret is turned away; so is one without the right code, where frames are authenticated, and
    /// one that has long said nothing, where there is no room for others.
    pub(super) fn admit(&mut self, identity: &Identity, me: u32) -> Option<Caller> {
        let now = Instant::now();
        self.accept(now);
        let member = self.next_member(identity, me);
        if member.is_none() && self.pending.len() == PENDING_MAX {
            self.pending.pop_front_if(|oldest| now - oldest.since >= GREETING_TIMEOUT);
        }
        member
    }

    /// Takes callers in from the kernel's queue, as far as there is room.
    fn accept(&mut self, now: Instant) {
        while self.pending.len() < PENDING_MAX {
            match self.acceptor.accept(now) {
                Ok(Some(link)) => self.pending.push_back(Pending { link, since: now }),
                Ok(None) => return,
                Err(_) => {
                    // The caller stays in the queue, so a thread that waits for descriptors is woken at once, again and
                    // again, until the system has what it lacks now.
                    thread::sleep(ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }

    /// The first caller that has proved to be a member.
    fn next_member(&mut self, identity: &Identity, me: u32) -> Option<Caller> {
        let mut index = 0;
        while let Some(pending) = self.pending.get_mut(index) {
            match pending.greeting(identity, me) {
                Greeting::Awaited => index += 1,
                Greeting::Wrong => drop(self.pending.remove(index)),
                Greeting::From { host, purpose } => {
                    let link = self.pending.remove(index)?.link;
                    return Some(Caller { host, purpose, link });
                }
            }
        }
        None
    }

    /// Descriptors that become readable when somebody calls or greets.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(self.acceptor.as_fd()).chain(self.callers())
    }

    /// The links of callers that have not said so far who they are.
    pub(super) fn callers(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.pending.iter().map(|pending| pending.link.as_fd())
    }
}

enum Greeting {
    Awaited,
    Wrong,
    From { host: u32, purpose: Purpose },
}

impl Pending {
    fn greeting(&mut self, identity: &Identity, me: u32) -> Greeting {
        let frame = match self.link.receive() {
            Ok(None) => return Greeting::Awaited,
            Ok(Some(frame)) => frame,
            Err(_) => return Greeting::Wrong,
        };
        let edge = frame.header.edge;
        let host = u32::from(edge.child.0);
        let key = identity.link_key([me, host]);
        let is_authentic = key.is_none_or(|key| key.for_frame_number(0).authenticates(&frame));
        let is_member = edge.group == identity.group && edge.capability == identity.secret;
        if frame.header.message != Message::Join || !is_member || !is_authentic {
            return Greeting::Wrong;
        }
        self.link.release();
        if let Some(key) = key {
            self.link.authenticate_in_order(key, 1);
        }
        Greeting::From { host, purpose: Purpose::of(edge.epoch) }
    }
}
