//! The links to the other hosts, made when they are needed.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use arrayvec::ArrayVec;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tributary_transport::{Armed, Link, ReceiveError, SendError, Sent, TcpLink, connect_tcp_start};
use tributary_wire::frame::{Abort, AbortReason, Edge, Header, Message, Part, Version, Versions};
use tributary_wire::{ChildIndex, EndpointId, Epoch};

use super::failure::Failure;
use super::identity::Identity;
use super::listener::{Caller, Listener};
use super::options::options;

/// The version of frames on these links: the processes of a job are of one build.
const VERSION: Version = Versions::SPOKEN.newest;

/// Most descriptors that one sleep watches. It is a bounded sleep, so one that leaves some out is only
/// less prompt; all but linear algorithms watch a handful.
const WATCHED_MAX: usize = 64;

/// Most frames read in search of the abort of a host whose link has ended. What the kernel may
/// hold of the shortest frames is less.
const LAST_FRAMES_MAX: u32 = 1 << 20;
/// Most frames read in search of another host's abort; its link may be alive and never empty.
const OTHERS_FRAMES_MAX: u32 = 1 << 12;
/// Most frames thrown away of one link in one round of spreading the news.
const DISCARDED_FRAMES_MAX: u32 = 64;

/// This host's links.
pub(super) struct Peers {
    me: u32,
    identity: Identity,
    /// Closed after a failure, so that who calls later is turned away instead of left waiting.
    listener: Option<Listener>,
    addresses: Vec<SocketAddr>,
    /// By host.
    peers: Vec<Peer>,
    /// The last alarm that was raised here.
    alarmed: Epoch,
    /// The alarm that this host raises, until it is said.
    raising: Option<Raising>,
    /// Whether a host has called since this was last asked.
    was_called: bool,
    /// A link may have taken what the kernel had no room for. Rounds in which none has are most of them.
    has_rest: bool,
    /// A host was called that may not know who has called.
    has_ungreeted: bool,
}

/// An alarm on its way to host 0.
struct Raising {
    link: TcpLink,
    epoch: Epoch,
    is_said: bool,
}

/// What is known of one other host.
#[derive(Default)]
struct Peer {
    link: Option<TcpLink>,
    /// It knows who this host is, because it called or was told.
    is_greeted: bool,
    /// It said that it has nothing more to do here.
    has_left: bool,
    /// It was sent the reason why there is no going on.
    is_told: bool,
    /// A frame that arrived while the links were checked for a failure.
    held: Option<(Part, Vec<u8>)>,
    /// The payload of the held frame that was handed out last.
    handed_out: Vec<u8>,
}

impl Peers {
    pub(super) fn new(
        me: u32,
        identity: Identity,
        listener: Listener,
        addresses: Vec<SocketAddr>,
    ) -> Self {
        let peers = addresses.iter().map(|_| Peer::default()).collect();
        Self {
            me,
            identity,
            listener: Some(listener),
            addresses,
            peers,
            alarmed: Epoch(0),
            raising: None,
            was_called: false,
            has_rest: false,
            has_ungreeted: false,
        }
    }

    pub(super) fn me(&self) -> u32 {
        self.me
    }

    /// Sees to it that there will be a link to `host`: calls it if that is this host's part.
    pub(super) fn call(&mut self, host: u32) -> Result<(), Failure> {
        let peer = &mut self.peers[host as usize];
        if peer.link.is_none() && self.me < host {
            let mut link = connect_tcp_start(self.addresses[host as usize], options())
                .map_err(|_| Failure::Ended(host))?;
            if let Some(key) = self.identity.link_key([self.me, host]) {
                link.authenticate_in_order(key, 0);
            }
            peer.link = Some(link);
            self.has_ungreeted = true;
        }
        Ok(())
    }

    /// Says who this host is to all that it has called, as soon as they answer: until they know, they take it for a
    /// stranger, and turn it away before an operation gets to them that waits for somebody else.
    fn greet_called(&mut self) {
        let edge = self.edge();
        self.has_ungreeted = false;
        for peer in self.peers.iter_mut().filter(|peer| peer.link.is_some() && !peer.is_greeted) {
            match peer.greet(edge) {
                Ok(Sent::Taken) => self.has_rest = true,
                Ok(Sent::Full) => self.has_ungreeted = true,
                // The operation finds that out when it gets there.
                Err(_) => {}
            }
        }
    }

    /// Calls a host anew whose link has ended, so that it can be told why there is no going on: if this
    /// host's `Join` was altered on its way, the other turned it away, and still waits to be called.
    pub(super) fn call_again(&mut self, host: u32) {
        if self.identity.is_authenticated() && self.me < host {
            self.peers[host as usize] = Peer::default();
            // A host that can't be called is gone.
            let _ = self.call(host);
        }
    }

    /// Offers a frame to `host`.
    pub(super) fn send(&mut self, host: u32, part: Part, payload: &[u8]) -> Result<Sent, Failure> {
        self.accept_from(host);
        let edge = self.edge();
        let peer = &mut self.peers[host as usize];
        if peer.greet(edge).map_err(|_| Failure::Ended(host))? == Sent::Full {
            self.has_rest = true;
            return Ok(Sent::Full);
        }
        let Some(link) = &mut peer.link else { return Ok(Sent::Full) };
        let header = Header { edge, message: Message::Request(part) };
        let sent = link.send(&header.encode(), payload).map_err(|_| Failure::Ended(host));
        self.has_rest |= link.wants_write();
        sent
    }

    /// The next frame from `host`.
    pub(super) fn receive(&mut self, host: u32) -> Result<Option<(Part, &[u8])>, Failure> {
        self.accept_from(host);
        let (edge, identity) = (self.edge(), self.identity);
        let peer = &mut self.peers[host as usize];
        // A host that only listens must have said who it is, too.
        if !peer.is_greeted {
            let _ = peer.greet(edge).map_err(|_| Failure::Ended(host))?;
            self.has_rest = true;
        }
        if let Some((part, payload)) = peer.held.take() {
            peer.handed_out = payload;
            return Ok(Some((part, &peer.handed_out)));
        }
        let Some(link) = &mut peer.link else { return Ok(None) };
        let frame = match link.receive() {
            Ok(Some(frame)) => frame,
            Ok(None) => return Ok(None),
            Err(error) => return Err(failure_of(host, &identity, error)),
        };
        match message_from(host, &identity, &frame.header)? {
            Some(part) => Ok(Some((part, frame.payload))),
            // It left in the middle of an operation that this host still needs it for.
            None => Err(Failure::Ended(host)),
        }
    }

    /// Looks at every link for a host that failed. What else is found is kept.
    pub(super) fn check(&mut self) -> Result<(), Failure> {
        let identity = self.identity;
        for (host, peer) in self.peers.iter_mut().enumerate() {
            if peer.held.is_some() || peer.has_left {
                continue;
            }
            let Some(link) = &mut peer.link else { continue };
            match link.receive() {
                Ok(None) => {}
                Err(error) => return Err(failure_of(host as u32, &identity, error)),
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

    /// What to sleep on: the link of `awaited`, links that have something to write, and the listener if
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
            let listener = self.listener.iter().flat_map(Listener::descriptors);
            listener.for_each(|fd| watch(fd, PollFlags::IN));
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
        if self.raising.is_some() {
            self.push_alarm();
        }
        if self.has_ungreeted {
            self.greet_called();
        }
        let mut all = Sent::Taken;
        if !self.has_rest {
            return all;
        }
        for link in self.peers.iter_mut().filter_map(|peer| peer.link.as_mut()) {
            // A link that failed has nothing left to say.
            if matches!(link.flush(), Ok(Sent::Full)) {
                all = Sent::Full;
            }
        }
        self.has_rest = all == Sent::Full;
        all
    }

    /// Says `Leave` on every link that has room for it.
    pub(super) fn say_leave(&mut self) {
        let edge = self.edge();
        for peer in &mut self.peers {
            // Who can't hear it either failed or has to be told of a failure, not of a graceful close.
            let _ = peer.say(edge, Message::Leave);
        }
        self.has_rest = true;
    }

    /// The abort to report for a failure. A host that has not died sends an abort before it ends its
    /// links. So unread input is searched for one, first of the host whose link ended, then of the others.
    /// If there is none, the host whose link ended is at fault.
    pub(super) fn explain(&mut self, failure: Failure) -> Abort {
        let host = match failure {
            Failure::Known(abort) => return abort,
            Failure::Ended(host) => host,
        };
        let identity = self.identity;
        let own = self.peers[host as usize].abort_said(host, &identity, LAST_FRAMES_MAX);
        let mut peers = (0..).zip(&mut self.peers);
        let said = own.or_else(|| {
            peers.find_map(|(other, peer)| peer.abort_said(other, &identity, OTHERS_FRAMES_MAX))
        });
        said.unwrap_or(Abort { reason: AbortReason::MemberLost, at_fault: EndpointId(host) })
    }

    /// One round of sending `abort` to every host. `true` once all that can receive it have it: the kernel
    /// answers unread input of a closed link with a reset, and drops what the peer's kernel has not
    /// acknowledged. Input is discarded, which also makes room for a peer that must send before it reads.
    pub(super) fn spread(&mut self, abort: Abort) -> bool {
        self.accept();
        let edge = self.edge();
        let mut all_know = true;
        for peer in &mut self.peers {
            if !peer.is_told && peer.link.is_some() {
                // A link that failed has nobody to tell.
                peer.is_told = peer.say(edge, Message::Abort(abort)) != Ok(Sent::Full);
            }
            let Some(link) = &mut peer.link else { continue };
            for _ in 0..DISCARDED_FRAMES_MAX {
                if !matches!(link.receive(), Ok(Some(_))) {
                    break;
                }
            }
            let is_flushed = link.flush() != Ok(Sent::Full);
            all_know &= peer.is_told && is_flushed && link.unacknowledged_bytes() == 0;
        }
        all_know
    }

    /// Ends the links of hosts that could not be told, so that they find an ended link, and accepts no
    /// further link.
    pub(super) fn end_untold(&mut self) {
        self.listener = None;
        for peer in self.peers.iter_mut().filter(|peer| !peer.is_told) {
            if let Some(link) = &mut peer.link {
                link.shutdown();
            }
        }
    }

    /// Accepts links, if `host` may be waiting to be accepted.
    fn accept_from(&mut self, host: u32) {
        if self.peers[host as usize].link.is_none() {
            self.accept();
        }
    }

    /// Accepts the links of hosts that connect. One that connects twice is turned away; one that should
    /// be connected to raises the alarm.
    fn accept(&mut self) {
        let Some(listener) = &mut self.listener else { return };
        while let Some(Caller { host, epoch, link }) = listener.admit(&self.identity, self.me) {
            if host > self.me {
                self.alarmed = self.alarmed.max(epoch);
            } else if let Some(peer @ Peer { link: None, .. }) = self.peers.get_mut(host as usize) {
                peer.link = Some(link);
                peer.is_greeted = true;
                self.was_called = true;
            }
        }
    }

    /// Tells host 0, by a call of its own, that the tree is lost; see [`Self::is_called`]. Goes out
    /// with [`Self::flush`].
    pub(super) fn raise_alarm(&mut self, epoch: Epoch) -> Result<(), Failure> {
        let mut link =
            connect_tcp_start(self.addresses[0], options()).map_err(|_| Failure::Ended(0))?;
        if let Some(key) = self.identity.link_key([self.me, 0]) {
            link.authenticate_in_order(key, 0);
        }
        self.raising = Some(Raising { link, epoch, is_said: false });
        self.push_alarm();
        Ok(())
    }

    /// Nobody needs to hear the alarm any more.
    pub(super) fn end_alarm(&mut self) {
        self.raising = None;
    }

    fn push_alarm(&mut self) {
        let edge = self.edge();
        let Some(Raising { link, epoch, is_said }) = &mut self.raising else { return };
        if !*is_said {
            let header = Header { edge: Edge { epoch: *epoch, ..edge }, message: Message::Join };
            // A link that failed has nobody to tell, and the exchange with host 0 finds that out.
            *is_said = matches!(link.send(&header.encode(), &[]), Ok(Sent::Taken));
        }
        let _ = link.flush();
    }

    /// Whether somebody wants to settle the loss of a tree with this host, which takes part in no
    /// operation here: it was called, it was sent something, or the alarm was raised for this loss.
    pub(super) fn is_called(&mut self, epoch: Epoch) -> bool {
        self.accept();
        let has_failed = self.check().is_err();
        let was_called = std::mem::take(&mut self.was_called);
        let was_sent = self.peers.iter().any(|peer| peer.held.is_some());
        has_failed || was_called || was_sent || self.alarmed == epoch
    }

    /// Whoever has called so far was needed for operations, which are over.
    pub(super) fn forget_calls(&mut self) {
        self.was_called = false;
    }

    /// Descriptors that become readable when this host is called: where new links come in, and the
    /// links there are.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let links = self.peers.iter().filter_map(|peer| peer.link.as_ref());
        let listener = self.listener.iter().flat_map(Listener::descriptors);
        listener.chain(links.map(AsFd::as_fd))
    }

    /// Those of them that have come since, of callers of whom nothing is known yet.
    pub(super) fn callers(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.listener.iter().flat_map(Listener::callers)
    }

    fn edge(&self) -> Edge {
        Edge {
            group: self.identity.group,
            epoch: Epoch(0),
            child: ChildIndex(self.me as u16),
            capability: self.identity.secret,
            version: VERSION,
        }
    }
}

impl Peer {
    /// Says who this host is, where that wasn't said. Full until it could be.
    fn greet(&mut self, edge: Edge) -> Result<Sent, SendError> {
        let Some(link) = &mut self.link else { return Ok(Sent::Full) };
        if self.is_greeted {
            return Ok(Sent::Taken);
        }
        let header = Header { edge, message: Message::Join };
        let sent = link.send(&header.encode(), &[])?;
        self.is_greeted = sent == Sent::Taken;
        Ok(sent)
    }

    /// Sends a message without payload, after the greeting.
    fn say(&mut self, edge: Edge, message: Message) -> Result<Sent, SendError> {
        if self.greet(edge)? == Sent::Full {
            return Ok(Sent::Full);
        }
        let Some(link) = &mut self.link else { return Ok(Sent::Full) };
        link.send(&Header { edge, message }.encode(), &[])
    }

    /// The abort that `host`, which this is, has said, if it did so within the next `frames_max`
    /// frames. They are read: there is no going on after this.
    fn abort_said(&mut self, host: u32, identity: &Identity, frames_max: u32) -> Option<Abort> {
        let link = self.link.as_mut()?;
        for _ in 0..frames_max {
            match link.receive() {
                Ok(Some(frame)) => {
                    if let Err(abort) = message_from(host, identity, &frame.header) {
                        return Some(abort);
                    }
                }
                Ok(None) => return None,
                Err(error) => return failure_of(host, identity, error).known(),
            }
        }
        None
    }
}

/// What it means that nothing more can be received from `host`. What is no frame at all has no code
/// either.
fn failure_of(host: u32, identity: &Identity, error: ReceiveError) -> Failure {
    use ReceiveError::{Decode, NotAuthentic, TooLong};
    let is_altered = matches!(error, NotAuthentic { .. } | Decode(_) | TooLong { .. });
    if identity.is_authenticated() && is_altered {
        return Abort { reason: AbortReason::NotAuthentic, at_fault: EndpointId(host) }.into();
    }
    Failure::Ended(host)
}

/// What `host` says in a frame: part of an operation, or that it leaves.
fn message_from(host: u32, identity: &Identity, header: &Header) -> Result<Option<Part>, Abort> {
    let Edge { group, child, capability, version, .. } = header.edge;
    let is_ours = group == identity.group
        && capability == identity.secret
        && u32::from(child.0) == host
        && version == VERSION;
    match header.message {
        Message::Request(part) if is_ours => Ok(Some(part)),
        Message::Leave if is_ours => Ok(None),
        Message::Abort(abort) if is_ours => Err(abort),
        _ => Err(Abort { reason: AbortReason::Misbehaved, at_fault: EndpointId(host) }),
    }
}
