//! The links to the other hosts, made when they are needed.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use arrayvec::ArrayVec;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tributary_transport::{Armed, Link, Sent, TcpLink, connect_tcp_start};
use tributary_wire::frame::{Abort, AbortReason, Edge, Header, Message, Part};
use tributary_wire::{ChildIndex, EndpointId, Epoch};

use super::Identity;
use super::door::{Door, options};

/// Most descriptors that one sleep watches. It is a bounded sleep, so one that leaves some out is only
/// less prompt; all but sequential algorithms watch a handful.
const WATCHED_MAX: usize = 64;

/// This host's links.
pub(super) struct Peers {
    me: u32,
    identity: Identity,
    door: Door,
    addresses: Vec<SocketAddr>,
    /// By host.
    peers: Vec<Peer>,
}

/// What is known of one other host.
#[derive(Default)]
struct Peer {
    link: Option<TcpLink>,
    /// It knows who this host is, because it called or was told.
    is_greeted: bool,
    /// It said that it has nothing more to do here.
    has_left: bool,
    /// A frame that came in while something else was looked for.
    held: Option<(Part, Vec<u8>)>,
    /// The payload of the held frame that was handed out last.
    handed_out: Vec<u8>,
}

impl Peers {
    pub(super) fn new(me: u32, identity: Identity, door: Door, addresses: Vec<SocketAddr>) -> Self {
        let peers = addresses.iter().map(|_| Peer::default()).collect();
        Self { me, identity, door, addresses, peers }
    }

    pub(super) fn me(&self) -> u32 {
        self.me
    }

    /// Sees to it that there will be a link to `host`: calls it if that is this host's part.
    pub(super) fn call(&mut self, host: u32) -> Result<(), Abort> {
        let peer = &mut self.peers[host as usize];
        if peer.link.is_none() && self.me < host {
            let link = connect_tcp_start(self.addresses[host as usize], options());
            peer.link = Some(link.map_err(|_| lost(host))?);
        }
        Ok(())
    }

    /// Offers a frame to `host`.
    pub(super) fn send(&mut self, host: u32, part: Part, payload: &[u8]) -> Result<Sent, Abort> {
        self.answer_door_for(host);
        let edge = self.edge();
        let peer = &mut self.peers[host as usize];
        if peer.greet(edge).map_err(|()| lost(host))? == Sent::Full {
            return Ok(Sent::Full);
        }
        let Some(link) = &mut peer.link else { return Ok(Sent::Full) };
        let header = Header { edge, message: Message::Request(part) };
        link.send(&header.encode(), payload).map_err(|_| lost(host))
    }

    /// The next frame from `host`.
    pub(super) fn receive(&mut self, host: u32) -> Result<Option<(Part, &[u8])>, Abort> {
        self.answer_door_for(host);
        let (edge, identity) = (self.edge(), self.identity);
        let peer = &mut self.peers[host as usize];
        // A host that only listens must have said who it is, too.
        let _ = peer.greet(edge).map_err(|()| lost(host))?;
        if let Some((part, payload)) = peer.held.take() {
            peer.handed_out = payload;
            return Ok(Some((part, &peer.handed_out)));
        }
        let Some(link) = &mut peer.link else { return Ok(None) };
        let frame = match link.receive() {
            Ok(Some(frame)) => frame,
            Ok(None) => return Ok(None),
            Err(_) => return Err(lost(host)),
        };
        match message_from(host, &identity, &frame.header)? {
            Some(part) => Ok(Some((part, frame.payload))),
            // It left in the middle of an operation that this host still needs it for.
            None => Err(lost(host)),
        }
    }

    /// Looks at every link for a host that failed. What else is found is kept.
    pub(super) fn check(&mut self) -> Result<(), Abort> {
        let identity = self.identity;
        for (host, peer) in self.peers.iter_mut().enumerate() {
            if peer.held.is_some() || peer.has_left {
                continue;
            }
            let Some(link) = &mut peer.link else { continue };
            match link.receive() {
                Ok(None) => {}
                Err(_) => return Err(lost(host as u32)),
                Ok(Some(frame)) => match message_from(host as u32, &identity, &frame.header)? {
                    Some(part) => peer.held = Some((part, frame.payload.to_vec())),
                    None => peer.has_left = true,
                },
            }
        }
        Ok(())
    }

    /// Sleeps until a frame from `awaited` may have come, or room for one to a host of `unsent`.
    pub(super) fn sleep(
        &mut self,
        awaited: Option<u32>,
        unsent: impl Iterator<Item = u32>,
        time: Duration,
    ) {
        if let Some(peer) = awaited.map(|host| &mut self.peers[host as usize])
            && (peer.held.is_some()
                || peer.link.as_mut().is_some_and(|link| link.arm() == Armed::Ready))
        {
            return;
        }
        let time =
            Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
        {
            let mut watched = self.watched(awaited, unsent);
            // A wait that fails is a link that fails, and the next poll says so.
            let _ = poll(&mut watched, Some(&time));
        }
        if let Some(link) = awaited.and_then(|host| self.peers[host as usize].link.as_mut()) {
            link.disarm();
        }
    }

    /// What to sleep on: the link of `awaited`, links that have something to write, and the door if
    /// somebody is to come.
    fn watched(
        &self,
        awaited: Option<u32>,
        mut unsent: impl Iterator<Item = u32>,
    ) -> ArrayVec<PollFd<'_>, WATCHED_MAX> {
        let mut watched = ArrayVec::new();
        let mut watch = |fd, flags| {
            // Beyond the bound, see `WATCHED_MAX`.
            let _ = watched.try_push(PollFd::from_borrowed_fd(fd, flags));
        };
        let is_outside = |host: u32| self.peers[host as usize].link.is_none();
        if awaited.is_some_and(is_outside) || unsent.any(is_outside) {
            self.door.descriptors().for_each(|fd| watch(fd, PollFlags::IN));
        }
        if let Some(link) = awaited.and_then(|host| self.peers[host as usize].link.as_ref()) {
            watch(link.as_fd(), PollFlags::IN);
        }
        for link in self.peers.iter().filter_map(|peer| peer.link.as_ref()) {
            if link.wants_write() {
                watch(link.as_fd(), PollFlags::OUT);
            }
        }
        watched
    }

    /// Pushes on what links have taken. Full while some of it is left.
    pub(super) fn flush(&mut self) -> Sent {
        let mut all = Sent::Taken;
        for link in self.peers.iter_mut().filter_map(|peer| peer.link.as_mut()) {
            // A link that failed has nothing left to say.
            if matches!(link.flush(), Ok(Sent::Full)) {
                all = Sent::Full;
            }
        }
        all
    }

    /// Says `Leave` on every link, or why there is no going on. Full links are not waited for: they
    /// end, which says the same with fewer words.
    pub(super) fn bid_farewell(&mut self, abort: Option<Abort>) {
        let message = abort.map_or(Message::Leave, Message::Abort);
        let edge = self.edge();
        let header = Header { edge, message }.encode();
        for peer in &mut self.peers {
            if peer.greet(edge) == Ok(Sent::Taken)
                && let Some(link) = &mut peer.link
            {
                let _ = link.send(&header, &[]);
            }
        }
    }

    /// Lets in who called, where `host` may be waiting outside. A host that calls when it should be
    /// called, or twice, is none of ours.
    fn answer_door_for(&mut self, host: u32) {
        if self.peers[host as usize].link.is_some() {
            return;
        }
        while let Some((host, link)) = self.door.admit(&self.identity) {
            if host < self.me
                && let Some(peer @ Peer { link: None, .. }) = self.peers.get_mut(host as usize)
            {
                peer.link = Some(link);
                peer.is_greeted = true;
            }
        }
    }

    fn edge(&self) -> Edge {
        Edge {
            group: self.identity.group,
            epoch: Epoch(0),
            child: ChildIndex(self.me as u16),
            capability: self.identity.secret,
        }
    }
}

impl Peer {
    /// Says who this host is, where that wasn't said. Full until it could be.
    fn greet(&mut self, edge: Edge) -> Result<Sent, ()> {
        let Some(link) = &mut self.link else { return Ok(Sent::Full) };
        if self.is_greeted {
            return Ok(Sent::Taken);
        }
        let header = Header { edge, message: Message::Join };
        let sent = link.send(&header.encode(), &[]).map_err(drop)?;
        self.is_greeted = sent == Sent::Taken;
        Ok(sent)
    }
}

/// What `host` says in a frame: part of an operation, or that it leaves.
fn message_from(host: u32, identity: &Identity, header: &Header) -> Result<Option<Part>, Abort> {
    let Edge { group, child, capability, .. } = header.edge;
    let is_ours =
        group == identity.group && capability == identity.secret && u32::from(child.0) == host;
    match header.message {
        Message::Request(part) if is_ours => Ok(Some(part)),
        Message::Leave if is_ours => Ok(None),
        Message::Abort(abort) if is_ours => Err(abort),
        _ => Err(Abort { reason: AbortReason::Misbehaved, at_fault: EndpointId(host) }),
    }
}

fn lost(host: u32) -> Abort {
    Abort { reason: AbortReason::MemberLost, at_fault: EndpointId(host) }
}
