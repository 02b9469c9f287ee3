//! The links to the other hosts, made when they are needed.

mod beside;

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use rustix::event::{PollFd, PollFlags, poll};
use tributary_transport::{Armed, Link, Sent, TcpLink, connect_tcp_start, timespec};
use tributary_waits::contact::{Contact, Next};
use tributary_wire::frame::{Abort, AbortReason, Edge, Message, Part};
use tributary_wire::{ChildIndex, EndpointId, Epoch};

use super::calls::{Call, Calls, Comparison};
use super::failure::{Failure, Verdict};
use super::grace::wait_for_grace;
use super::identity::Identity;
use super::listener::{Caller, Listener};
use super::options::options;
use super::peer::{Asked, Peer, Ring, Said, VERSION, failure_of, message_from, misbehaviour_of};
use super::purpose::Purpose;

/// Most descriptors that one sleep watches. It is a bounded sleep, so one that leaves some out is only
/// less prompt; all but linear algorithms watch a handful.
const WATCHED_MAX: usize = 64;

/// Most frames read in search of the abort of a host whose link has ended. What the kernel may
/// hold of the shortest frames is less.
const LAST_FRAMES_MAX: u32 = 1 << 20;
/// Most frames read in search of another host's abort; its link may be alive and never empty.
const OTHERS_FRAMES_MAX: u32 = 1 << 12;

/// This host's links.
pub(crate) struct Peers {
    me: u32,
    identity: Identity,
    /// Closed after a failure, so that who calls later is turned away instead of left waiting.
    listener: Option<Listener>,
    addresses: Vec<SocketAddr>,
    /// By host.
    peers: Vec<Peer>,
    /// What waits are measured from.
    began: Instant,
    /// The last alarm that was raised here.
    alarmed: Epoch,
    /// This host rings at others. Rounds in which it does not are most of them.
    is_ringing: bool,
    /// A link may have taken what the kernel had no room for. Rounds in which none has are most of them.
    has_rest: bool,
    /// A host was called that may not know who has called.
    has_ungreeted: bool,
}

impl Peers {
    /// The longest of the links' round trips, as far as they are known.
    pub(crate) fn round_trip(&self) -> Duration {
        let links = self.peers.iter().filter_map(|peer| peer.link.as_ref());
        links.filter_map(TcpLink::round_trip).max().unwrap_or_default()
    }

    /// Segments that the kernel has sent again over the links that are there.
    pub(super) fn retransmissions(&self) -> u64 {
        let links = self.peers.iter().filter_map(|peer| peer.link.as_ref());
        links.map(|link| u64::from(link.retransmissions())).sum()
    }

    pub(crate) fn new(
        me: u32,
        identity: Identity,
        listener: Listener,
        addresses: Vec<SocketAddr>,
    ) -> Self {
        Self { listener: Some(listener), ..Self::unreachable(me, identity, addresses) }
    }

    /// A host that nobody can call.
    fn unreachable(me: u32, identity: Identity, addresses: Vec<SocketAddr>) -> Self {
        let contacts = (0..addresses.len() as u32).map(|host| Contact::new(me, host));
        let peers = contacts.map(Peer::new).collect();
        Self {
            me,
            identity,
            listener: None,
            addresses,
            peers,
            began: Instant::now(),
            alarmed: Epoch(0),
            is_ringing: false,
            has_rest: false,
            has_ungreeted: false,
        }
    }

    pub(crate) fn me(&self) -> u32 {
        self.me
    }

    /// Sees to it that there will be a link to `host`: calls it if that is this host's part. If it is the other's, which
    /// may be late, gone, or have a link that has ended here, rings there in time, to learn whether it is alive.
    pub(crate) fn call(&mut self, host: u32) -> Result<(), Failure> {
        if self.peers[host as usize].link.is_some() {
            return Ok(());
        }
        let now_ns = self.now_ns();
        match self.peers[host as usize].poll_next(now_ns) {
            Next::Call => {
                let link = self.connect(host)?;
                self.peers[host as usize].take_own_call(link);
                self.has_ungreeted = true;
                Ok(())
            }
            Next::Ring => {
                self.ring_for_call(host);
                Ok(())
            }
            Next::Wait | Next::GiveUp => self.check_ring(host),
        }
    }

    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn connect(&self, host: u32) -> Result<TcpLink, Failure> {
        let mut link = connect_tcp_start(self.addresses[host as usize], options())
            .map_err(|_| Failure::Ended(host))?;
        if let Some(key) = self.identity.link_key([self.me, host]) {
            link.authenticate_in_order(key, 0);
        }
        Ok(link)
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
    pub(crate) fn call_again(&mut self, host: u32) {
        if self.identity.is_authenticated() && self.me < host {
            self.peers[host as usize] = Peer::new(Contact::new(self.me, host));
            // A host that can't be called is gone.
            let _ = self.call(host);
        }
    }

    /// Offers a part of an operation to `host`.
    pub(super) fn send(&mut self, host: u32, part: Part, payload: &[u8]) -> Result<Sent, Failure> {
        self.tell(host, Message::Request(part), payload)
    }

    /// Offers a frame to `host`.
    pub(crate) fn tell(
        &mut self,
        host: u32,
        message: Message,
        payload: &[u8],
    ) -> Result<Sent, Failure> {
        self.reach(host)?;
        let edge = self.edge();
        let peer = &mut self.peers[host as usize];
        let sent = match peer.say(edge, message, payload) {
            Err(_) if peer.stands_by => {
                peer.forget_link();
                return self.reach(host).map(|()| Sent::Full);
            }
            sent => sent.map_err(|_| Failure::Ended(host)),
        };
        peer.stands_by &= sent != Ok(Sent::Taken);
        self.has_rest |= peer.has_rest();
        sent
    }

    /// The next frame from `host`.
    pub(super) fn receive(&mut self, host: u32) -> Result<Option<(Part, &[u8])>, Failure> {
        self.reach(host)?;
        let (edge, identity) = (self.edge(), self.identity);
        let peer = &mut self.peers[host as usize];
        // A host that only listens must have said who it is, too.
        if !peer.is_greeted {
            let _ = peer.greet(edge).map_err(|_| Failure::Ended(host))?;
            self.has_rest = true;
        }
        if let Some((part, payload)) = peer.held.take() {
            peer.question.on_answered(part.operation.0);
            peer.handed_out = payload;
            return Ok(Some((part, &peer.handed_out)));
        }
        // It left in the middle of an operation that this host still needs it for.
        if peer.has_left {
            return Err(Failure::Ended(host));
        }
        let Some(link) = &mut peer.link else { return Ok(None) };
        let frame = match link.receive() {
            Ok(Some(frame)) => frame,
            Ok(None) => return Ok(None),
            Err(error) => return Err(failure_of(host, &identity, error)),
        };
        match message_from(host, &identity, &frame.header)? {
            Said::Part(part) => {
                peer.question.on_answered(part.operation.0);
                Ok(Some((part, frame.payload)))
            }
            // What follows is read in the next round.
            Said::Waits(call) => {
                peer.asked = Some(Asked { call, is_behind_frames: true });
                Ok(None)
            }
            Said::Replicated(_) => Err(misbehaviour_of(host).into()),
            // As above.
            Said::Leaves => Err(Failure::Ended(host)),
        }
    }

    /// Tells `hosts`, and all that have a link to this one, why there is no going on. Then ends the links.
    pub(crate) fn tell_all(&mut self, verdict: Verdict, hosts: impl Iterator<Item = u32>) {
        let at_fault = verdict.abort.at_fault.0;
        let is_untold = |host: &u32| *host != at_fault || verdict.has_living_culprit();
        hosts.filter(is_untold).for_each(|host| self.reach_to_tell(host));
        wait_for_grace(|| self.spread(verdict));
        self.end_untold();
    }

    /// Compares what others called with what this host did, which waits for `awaited`: in frames that no step has asked for,
    /// and in questions.
    pub(super) fn compare_calls(
        &mut self,
        calls: &Calls,
        awaited: Option<u32>,
    ) -> Result<(), Failure> {
        let (me, edge) = (self.me, self.edge());
        let Some(last) = calls.last() else { return Ok(()) };
        for (host, peer) in (0..).zip(&mut self.peers) {
            let differs = |own, theirs| Err(Verdict::of_calls(me, own, host, theirs).into());
            if let Some((part, _)) = &peer.held {
                let theirs = Call::told_by(part);
                match calls.compare(theirs) {
                    Comparison::Same | Comparison::Ahead => {}
                    Comparison::Differs(own) => return differs(own, theirs),
                    // An operation reads all frames that are for it.
                    Comparison::Forgotten => return differs(last, theirs),
                }
            }
            let Some(Asked { call: theirs, is_behind_frames }) = peer.asked else { continue };
            match calls.compare(theirs) {
                Comparison::Same => peer.asked = None,
                Comparison::Differs(own) => return differs(own, theirs),
                // It has done its part of the operation that this host waits for it in, and sent nothing more.
                Comparison::Ahead if awaited == Some(host) && is_behind_frames => {
                    return differs(last, theirs);
                }
                Comparison::Ahead => {}
                // The host that waits finds it out, by what is next.
                Comparison::Forgotten => {
                    if peer.say_waiting(edge, last.question()) {
                        peer.asked = None;
                    }
                }
            }
        }
        Ok(())
    }

    /// Asks `host`, which this one waits for, whether it called the same, if it has waited for a while.
    pub(super) fn ask(&mut self, host: u32, call: Call) {
        let (edge, now_ns) = (self.edge(), self.now_ns());
        let peer = &mut self.peers[host as usize];
        peer.ask(edge, call, now_ns);
        self.has_rest |= peer.has_rest();
    }

    /// Asks `host`, as [`Self::ask`] does, over a link that is made if none is there and it is time to ask.
    pub(super) fn call_and_ask(&mut self, host: u32, call: Call) -> Result<(), Failure> {
        let now_ns = self.now_ns();
        if self.peers[host as usize].question.is_due(call.number.0, now_ns) {
            self.call(host)?;
            self.ask(host, call);
        }
        Ok(())
    }

    /// Looks at every link for a host that failed. What else is found is kept. A host that this one does not need may have called:
    /// what it asks may show that the two disagree on what the operation is.
    pub(super) fn check(&mut self) -> Result<(), Failure> {
        self.accept();
        let identity = self.identity;
        for (host, peer) in (0..).zip(&mut self.peers) {
            peer.hold_next(host, &identity)?;
            peer.check_rung(host, &identity)?;
        }
        (0..self.peers.len() as u32).try_for_each(|host| self.check_ring(host))
    }

    /// Fails if `host` can't be there to call this one, as it was asked to.
    fn check_ring(&mut self, host: u32) -> Result<(), Failure> {
        let now_ns = self.now_ns();
        let checked = self.peers[host as usize].check_ring(host, &self.identity, now_ns);
        if checked.is_err() {
            // It may have called before it went.
            self.accept();
        }
        if self.peers[host as usize].link.is_some() { Ok(()) } else { checked }
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
        {
            let mut watched = self.descriptors_to_watch(awaited, unsent);
            // A wait that fails is a link that fails, and the next poll says so.
            let _ = poll(&mut watched, Some(&timespec(time)));
        }
        if let Some(link) = awaited.and_then(|host| self.peers[host as usize].link.as_mut()) {
            link.disarm();
        }
    }

    /// What to sleep on: the link of `awaited`, links that have something to write, and the listener if
    /// somebody is to come.
    fn descriptors_to_watch(
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
    pub(crate) fn flush(&mut self) -> Sent {
        if self.is_ringing {
            self.push_rings();
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

    /// Whether all links may end; one round of what has to be done before.
    pub(crate) fn may_end(&mut self) -> bool {
        let mut may_all = true;
        for peer in &mut self.peers {
            may_all &= peer.may_end();
        }
        may_all
    }

    /// The links, for somebody who ends them. None stay here.
    pub(super) fn take(&mut self) -> Self {
        let addresses = self.addresses.clone();
        std::mem::replace(self, Self::unreachable(self.me, self.identity, addresses))
    }

    /// Says `Leave` on every link that has room for it.
    pub(crate) fn say_leave(&mut self) {
        let edge = self.edge();
        // Hosts that have rung are told, too.
        self.accept();
        for peer in &mut self.peers {
            // A host that can't hear it either failed or has to be told of a failure, not of a graceful close.
            let _ = peer.say(edge, Message::Leave, &[]);
            let _ = peer.answer_ring(edge, Message::Leave);
        }
        self.has_rest = true;
    }

    /// The abort to report for a failure. A host that has not died sends an abort before it ends its
    /// links. So unread input is searched for one, first of the host whose link ended, then of the others.
    /// If there is none, the host whose link ended is at fault.
    pub(crate) fn explain(&mut self, failure: Failure) -> Verdict {
        let host = match failure {
            Failure::Known(verdict) => return verdict,
            Failure::Ended(host) => host,
        };
        // A host without a link may have rung to say why.
        self.accept();
        let identity = self.identity;
        let own = self.peers[host as usize].verdict_said(host, &identity, LAST_FRAMES_MAX);
        let mut peers = (0..).zip(&mut self.peers);
        let said = own.or_else(|| {
            peers.find_map(|(other, peer)| peer.verdict_said(other, &identity, OTHERS_FRAMES_MAX))
        });
        let lost = Abort { reason: AbortReason::MemberLost, at_fault: EndpointId(host) };
        said.unwrap_or(lost.into())
    }

    /// Calls `host`, or rings there, to tell it why there is no going on, if there is no link: it would find nobody.
    fn reach_to_tell(&mut self, host: u32) {
        let peer = &self.peers[host as usize];
        if peer.link.is_some() || peer.is_rung() {
            return;
        }
        if self.me < host {
            // A host that can't be reached can't be told.
            if let Ok(link) = self.connect(host) {
                self.peers[host as usize].take_own_call(link);
            }
        } else {
            self.ring_for_call(host);
        }
    }

    /// One round of sending `verdict` to every host. `true` once all that can receive it have it: the kernel
    /// answers unread input of a closed link with a reset, and drops what the peer's kernel has not
    /// acknowledged. Input is discarded, which also makes room for a peer that must send before it reads.
    pub(super) fn spread(&mut self, verdict: Verdict) -> bool {
        self.accept();
        let edge = self.edge();
        let mut all_know = true;
        for peer in &mut self.peers {
            all_know &= peer.tell(edge, verdict);
        }
        all_know
    }

    /// Ends the links of hosts that could not be told, so that they find an ended link, and accepts no
    /// further link.
    fn end_untold(&mut self) {
        self.listener = None;
        self.peers.iter_mut().for_each(Peer::end_untold);
    }

    /// Sees to it that there is a link to `host`, or will be.
    fn reach(&mut self, host: u32) -> Result<(), Failure> {
        let peer = &mut self.peers[host as usize];
        if peer.stands_by {
            peer.hold_next(host, &self.identity)?;
        }
        if peer.link.is_some() {
            return Ok(());
        }
        self.accept();
        self.call(host)
    }

    /// Accepts the links of hosts that connect. One that connects twice is turned away, unless its link stands by: it
    /// may have ended at the other end alone. One that should be connected to rings.
    pub(super) fn accept(&mut self) {
        let Some(listener) = &mut self.listener else { return };
        while let Some(Caller { host, purpose, link }) = listener.admit(&self.identity, self.me) {
            let Some(peer) = self.peers.get_mut(host as usize) else { continue };
            match purpose {
                Purpose::Link { call } if host < self.me => {
                    if peer.link.is_none() || peer.stands_by {
                        peer.take_call(link, call);
                    }
                }
                Purpose::Link { call } if host > self.me => peer.take_rung(link, Some(call)),
                Purpose::Alarm { loss } if host > self.me => {
                    self.alarmed = self.alarmed.max(loss);
                    peer.take_rung(link, None);
                }
                // No host calls itself, and none raises an alarm at a higher one.
                Purpose::Link { .. } | Purpose::Alarm { .. } => {}
            }
        }
    }

    /// Tells host 0, by a call of its own, that the tree is lost; see [`Self::is_called`]. Goes out
    /// with [`Self::flush`].
    pub(super) fn raise_alarm(&mut self, loss: Epoch) {
        self.ring_at(0, Purpose::Alarm { loss });
    }

    /// Nobody needs to hear the alarm any more.
    pub(super) fn end_alarm(&mut self) {
        self.peers[0].end_ring();
    }

    /// Asks `host` to call.
    fn ring_for_call(&mut self, host: u32) {
        let call = self.peers[host as usize].last_call();
        self.ring_at(host, Purpose::Link { call });
    }

    fn ring_at(&mut self, host: u32, purpose: Purpose) {
        let now_ns = self.now_ns();
        match self.connect(host) {
            Ok(link) => {
                self.peers[host as usize].take_ring(Ring::new(link, purpose));
                self.is_ringing = true;
                self.push_rings();
            }
            Err(_) => self.peers[host as usize].refuse_ring(now_ns),
        }
    }

    fn push_rings(&mut self) {
        let edge = self.edge();
        self.is_ringing = false;
        for peer in &mut self.peers {
            self.is_ringing |= peer.push_ring(edge);
        }
    }

    /// Whether somebody wants to settle the loss of a tree with this host, which takes part in no
    /// operation here: it was sent something, a link has ended, or the alarm was raised for this loss. A mere call says
    /// nothing: a host that has heard of a failure calls, too.
    ///
    /// # Errors
    /// If a host says why there is no going on.
    pub(super) fn is_called(&mut self, loss: Epoch) -> Result<bool, Verdict> {
        let checked = self.check();
        if let Err(Failure::Known(verdict)) = checked {
            return Err(verdict);
        }
        let was_sent = self.peers.iter().any(|peer| peer.held.is_some());
        Ok(checked.is_err() || was_sent || self.alarmed == loss)
    }

    /// The links are not needed until a tree is lost.
    pub(super) fn stand_by(&mut self) {
        self.peers.iter_mut().for_each(Peer::stand_by);
    }

    /// Descriptors that become readable when this host is called: where new links come in, and the
    /// links there are.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let links = self.peers.iter().filter_map(|peer| peer.link.as_ref());
        let listener = self.listener.iter().flat_map(Listener::descriptors);
        listener.chain(links.map(AsFd::as_fd))
    }

    /// Whether something is left to be said: who this host is, over a link that is not there yet, or what the kernel had no room
    /// for.
    pub(crate) fn has_unsaid(&self) -> bool {
        self.has_ungreeted || self.has_rest
    }

    /// Whether there is a link to `host`.
    pub(crate) fn has_link(&self, host: u32) -> bool {
        self.peers[host as usize].link.is_some()
    }

    /// Those of them that have come since, of callers of whom nothing is known yet.
    pub(super) fn callers(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.listener.iter().flat_map(Listener::callers)
    }

    /// Ends the link to `host`, as an outage does.
    #[cfg(test)]
    pub(crate) fn end_link(&mut self, host: u32) {
        if let Some(link) = &mut self.peers[host as usize].link {
            link.shutdown();
        }
    }

    /// Where the frames of this host say that they come from.
    pub(crate) fn edge(&self) -> Edge {
        Edge {
            group: self.identity.group,
            epoch: Purpose::Link { call: 0 }.epoch(),
            child: ChildIndex(self.me as u16),
            capability: self.identity.secret,
            version: VERSION,
        }
    }
}
