//! The operations of one host over all levels.

mod rounds;

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use tributary_algorithms::Collective;
use tributary_algorithms::plan::Plan;
use tributary_replicated::{ASK_AFTER_NS, Levels};
use tributary_transport::Sent;
use tributary_transport::udp::{DatagramStats, OpenError, ServiceAddress};
use tributary_wire::EndpointId;
use tributary_wire::frame::{Abort, AbortReason, Disagreement};

use super::datagrams::{Datagrams, Endpoint};
use super::group::Traffic;
use super::multicast::LevelSet;
use super::{CONTRIBUTION_BYTES_MAX, NoGroups, wire_messages};
use crate::departures::Leaving;
use crate::direct::{Calls, Failure, Identity, Listener, Peers, Verdict, wait_for_grace};
use crate::operation::{InterHost, InterHostOperation};

/// How long multicasts may come behind the other datagrams, where those came at once: hosts greet when they get a core.
const MULTICASTS_LATE_MAX: Duration = Duration::from_millis(20);

/// Rounds that find nothing between two looks at the links: a look is a system call for each, and what comes over one ends a
/// sleep anyhow.
const ROUNDS_PER_LOOK: u32 = 256;

/// The same while an answer is awaited.
const ROUNDS_PER_LOOK_FOR_ANSWERS: u32 = 8;

/// The hosts that exchange datagrams, as one of them knows them.
pub struct Members {
    /// This host.
    pub me: u32,
    /// What tells members from strangers.
    pub identity: Identity,
    /// Where other hosts' links come in.
    pub listener: Listener,
    /// Where each host listens.
    pub addresses: Vec<SocketAddr>,
    /// Where this host takes datagrams.
    pub endpoint: Endpoint,
    /// Where each host takes datagrams.
    pub datagram_addresses: Vec<SocketAddr>,
}

/// What comes to a host from all others of its groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Whether datagrams to this host alone do.
    pub by_copies: bool,
    /// The levels at which multicasts do.
    pub by_multicast: LevelSet,
}

/// Counts since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicatedStats {
    /// Of the socket.
    pub datagrams: DatagramStats,
    /// Datagrams that no member can have sent.
    pub refused: u64,
    /// Datagrams that the kernel has dropped before that: strangers', and those that found no room.
    pub unqueued: u64,
    /// Messages to other hosts over their links.
    pub said: u64,
    /// Messages of other hosts over their links.
    pub heard: u64,
    /// Times that this host has slept.
    pub sleeps: u64,
}

/// This host's place in the groups of all levels.
pub struct ReplicatedLevels {
    me: u32,
    peers: Peers,
    datagrams: Datagrams,
    /// The machine of all levels: who has contributed to what.
    groups: Levels,
    /// By group.
    traffic: Vec<Traffic>,
    levels: Vec<Level>,
    /// All other hosts of the groups.
    others: Vec<u32>,
    /// Hosts whose links have ended.
    ended: Vec<bool>,
    calls: Calls,
    running: Option<Running>,
    failed: Option<Verdict>,
    /// This host leaves, and only has to get out what it has said.
    is_left: bool,
    began: Instant,
    has_called: bool,
    rounds_to_look: u32,
    stats: ReplicatedStats,
}

/// What a host has at one level.
struct Level {
    /// The other hosts of its groups.
    others: Vec<u32>,
    /// Whether nobody stands in for others at this level. Only then a group is the only one to its address.
    may_multicast: bool,
}

/// The operation under way.
struct Running {
    operation: InterHostOperation,
    is_done: bool,
}

impl ReplicatedLevels {
    /// One of the hosts of a plan.
    ///
    /// # Errors
    /// [`NoGroups`] where the plan's groups are none that exchange datagrams; the same at all hosts.
    ///
    /// # Panics
    /// If there are not as many addresses as the plan has hosts.
    pub fn new(members: Members, plan: &Plan) -> Result<Self, NoGroups> {
        Self::asking_after(members, plan, Duration::from_nanos(ASK_AFTER_NS))
    }

    /// The same, with another patience before a member is asked.
    pub(super) fn asking_after(
        members: Members,
        plan: &Plan,
        ask_after: Duration,
    ) -> Result<Self, NoGroups> {
        let Members { me, identity, listener, addresses, endpoint, datagram_addresses } = members;
        let hosts = plan.hosts() as usize;
        assert_eq!([addresses.len(), datagram_addresses.len()], [hosts; 2], "an address a host");
        let groups = Levels::new(plan, me, ask_after.as_nanos() as u64)?;
        let traffic: Vec<_> = groups.groups().iter().map(Traffic::new).collect();
        let levels = (0..groups.count()).map(|level| Level {
            others: others_of(&traffic[groups.of_level(level)]),
            may_multicast: !plan.has_stand_ins(level),
        });
        let levels = levels.collect();
        let others = others_of(&traffic);
        let peers = Peers::new(me, identity, listener, addresses);
        let datagrams = Datagrams::new(endpoint, identity, peers.edge(), datagram_addresses);
        Ok(Self {
            me,
            peers,
            datagrams,
            groups,
            traffic,
            levels,
            others,
            ended: vec![false; hosts],
            calls: Calls::default(),
            running: None,
            failed: None,
            is_left: false,
            began: Instant::now(),
            has_called: false,
            rounds_to_look: ROUNDS_PER_LOOK,
            stats: ReplicatedStats::default(),
        })
    }

    /// Subscribes to the multicasts of the groups. Returns the levels at which that can be had here.
    #[must_use]
    pub fn subscribe(&mut self) -> LevelSet {
        let mut subscribed = LevelSet::default();
        for (index, level) in self.levels.iter().enumerate() {
            let own = &self.groups.groups()[self.groups.of_level(index).start];
            let first = level.may_multicast.then(|| own.host(0));
            if self.datagrams.subscribe(first) {
                subscribed.insert(index);
            }
        }
        subscribed
    }

    /// From now on multicasts at these levels, at which all hosts do, and takes no multicasts at the others.
    pub fn multicast_at(&mut self, levels: LevelSet) {
        for (traffic, group) in self.traffic.iter_mut().zip(self.groups.groups()) {
            traffic.set_multicasts(levels.contains(group.level()));
        }
        for level in (0..self.levels.len()).filter(|level| !levels.contains(*level)) {
            self.datagrams.unsubscribe(level);
        }
    }

    /// The levels at which this host multicasts.
    #[cfg(test)]
    pub(super) fn multicasts_at(&self) -> LevelSet {
        let mut levels = LevelSet::default();
        let groups = self.traffic.iter().zip(self.groups.groups());
        let multicasting = groups.filter(|(traffic, _)| traffic.multicasts());
        multicasting.for_each(|(_, group)| levels.insert(group.level()));
        levels
    }

    /// Tries whether datagrams of all other hosts of the groups come here, as they do unless a firewall or an address translation
    /// stands between, and at which of the subscribed levels their multicasts do. All hosts try at the same time, after all have
    /// subscribed and before their first operation. Each waits for `patience` at most, and for multicasts no longer than twice as
    /// long as the others took.
    #[must_use]
    pub fn find_reach(&mut self, patience: Duration) -> Reach {
        let began = Instant::now();
        self.datagrams.greet(&self.others);
        let mut missing = self.others.clone();
        let mut missing_at: Vec<Vec<u32>> =
            self.levels.iter().map(|level| level.others.clone()).collect();
        let mut deadline = began + patience;
        let mut is_reached = false;
        loop {
            self.datagrams.take_greetings(|host, level| {
                let missing = level.map_or(&mut missing, |level| &mut missing_at[level]);
                missing.retain(|other| *other != host);
            });
            if missing.is_empty() && !is_reached {
                is_reached = true;
                let patience = (2 * began.elapsed()).max(MULTICASTS_LATE_MAX);
                deadline = deadline.min(began + patience);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let has_all = (0..self.levels.len())
                .all(|level| missing_at[level].is_empty() || !self.datagrams.is_subscribed(level));
            if left.is_zero() || is_reached && has_all {
                let mut by_multicast = LevelSet::default();
                let complete = missing_at.iter().enumerate().filter(|(_, hosts)| hosts.is_empty());
                complete.for_each(|(level, _)| by_multicast.insert(level));
                return Reach { by_copies: is_reached, by_multicast };
            }
            self.peers.sleep_beside(self.datagrams.sockets(), std::iter::empty(), left);
        }
    }

    /// From now on takes datagrams out of a ring, which a program of this service puts them into before the host's network stack: a poll is
    /// a look at memory, and a sleep ends once all that is lacking has come. To be called when it is known where to multicast,
    /// before the first operation.
    ///
    /// # Errors
    /// If there can be no ring here. Datagrams come by sockets, then.
    pub fn receive_by_ring(&mut self, service: &ServiceAddress) -> Result<(), OpenError> {
        self.datagrams.receive_by_ring(service)
    }

    /// Whether an operation goes this way: others go over links.
    #[must_use]
    pub fn carries(operation: &InterHostOperation) -> bool {
        let is_known = matches!(operation.collective, Collective::Allreduce | Collective::Barrier);
        is_known && operation.len_bytes() <= CONTRIBUTION_BYTES_MAX
    }

    /// Counts since the beginning.
    #[must_use]
    pub fn stats(&self) -> ReplicatedStats {
        let (refused, unqueued) = self.datagrams.refusals();
        ReplicatedStats { datagrams: self.datagrams.stats(), refused, unqueued, ..self.stats }
    }

    #[cfg(test)]
    pub(super) fn inject(&mut self, faults: super::tests::faults::Faults) {
        self.datagrams.faults = Some(faults);
    }

    /// Where this host takes datagrams.
    #[cfg(test)]
    pub(super) fn datagram_address(&self) -> SocketAddr {
        self.datagrams.address().expect("a bound socket has an address")
    }

    /// From now on no multicasts come here.
    #[cfg(test)]
    pub(super) fn forget_subscriptions(&mut self) {
        (0..self.levels.len()).for_each(|level| self.datagrams.deafen(level));
    }

    /// Where a level's group multicasts.
    #[cfg(test)]
    pub(super) fn multicast_address(&self, level: usize) -> SocketAddr {
        self.datagrams.multicast_address(level).expect("it is subscribed")
    }

    #[cfg(test)]
    pub(super) fn identity(&self) -> Identity {
        self.datagrams.identity()
    }

    /// Sends any bytes from this host's socket.
    #[cfg(test)]
    pub(super) fn send_raw(&mut self, to: SocketAddr, header: &[u8; 64], payload: &[u8]) {
        self.datagrams.send_raw(to, header, payload);
    }

    /// Starts an operation, as [`InterHost::start`] does. `digest` is that of all that this host has called so far, by whatever
    /// carrier: members compare it.
    ///
    /// # Safety
    /// As [`InterHost::start`].
    pub(crate) unsafe fn start_with(
        &mut self,
        operation: &InterHostOperation,
        digest: u32,
    ) -> Result<(), Abort> {
        debug_assert!(self.running.is_none(), "operations of a communicator run one by one");
        assert!(Self::carries(operation), "other operations go over links");
        if let Some(verdict) = self.failed {
            return Err(verdict.abort);
        }
        let call = wire_messages::call_of(operation, digest);
        let &InterHostOperation { source, target, .. } = operation;
        let first = if source.is_null() { target.cast_const() } else { source };
        let contribution: &[u8] = if operation.len_bytes() == 0 {
            &[]
        } else {
            // SAFETY: the caller keeps both valid for the vector's length, and its contribution is in one of them.
            unsafe { std::slice::from_raw_parts(first, operation.len_bytes()) }
        };
        self.running = Some(Running { operation: *operation, is_done: false });
        for group in self.groups.of_level(0) {
            self.traffic[group].begin(&self.groups.groups()[group], contribution);
        }
        let begun = self.groups.begin(call, self.now_ns());
        debug_assert!(begun.is_ok(), "a group that has failed has ended this method");
        // Before the links are called: datagrams need none.
        let acted = self.act();
        let _ = self.datagrams.flush();
        // What others have asked for before this host began is said now: it may be over already, and is polled no more.
        let said = acted.and_then(|()| self.call_others()).and_then(|()| self.say());
        let _ = self.peers.flush();
        said.map_err(|failure| self.fail(failure))
    }

    /// Answers the other hosts, whatever this host does meanwhile: one of their operations that this host has completed may need an
    /// answer. What is wrong is in `failed` then.
    pub(crate) fn attend(&mut self) {
        if self.failed.is_none() && self.has_called {
            self.rounds_to_look = 0;
            if let Err(failure) = self.go_on() {
                self.fail(failure);
            }
        }
    }

    /// Whether an answer waits for room on its link, or a link for the other host to answer the call.
    pub(crate) fn has_unsaid(&self) -> bool {
        let has_unsaid = self.traffic.iter().any(|group| !group.unsaid.is_empty());
        self.failed.is_none() && (has_unsaid || self.peers.has_unsaid())
    }

    /// What becomes readable when another host needs an answer: links and where they come in.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.peers.descriptors()
    }

    /// How many links to others there are.
    pub(crate) fn links(&self) -> usize {
        self.others.iter().filter(|host| self.peers.has_link(**host)).count()
    }

    /// The other hosts of the groups that the operation under way waits in.
    pub(crate) fn awaited_hosts(&self) -> &[u32] {
        self.groups.running_level().map_or(&[], |level| &self.levels[level].others)
    }

    /// Begins no operation any more. Others may need this host until [`Self::may_end`].
    pub(crate) fn begin_leaving(&mut self) {
        // Nobody who waits for an operation of this host's that is given up would get it.
        if self.failed.is_none() && self.running.is_none() && self.has_called {
            self.groups.leave();
            self.attend();
        }
    }

    /// Whether this host is gone for all others, after it began to leave; one round of what has to be done before.
    pub(crate) fn may_end(&mut self) -> bool {
        if self.failed.is_some() || self.running.is_some() || !self.has_called {
            return true;
        }
        if !self.is_left {
            self.attend();
            self.is_left = self.failed.is_none() && self.groups.may_end() && !self.has_unsaid();
        }
        self.failed.is_some()
            || self.is_left && self.peers.flush() == Sent::Taken && self.peers.may_end()
    }

    /// Whether this host, which leaves, has to do something though nothing comes: say what is to be said, call hosts that
    /// have no link yet, or get out what it has said.
    pub(crate) fn has_more_to_do(&self) -> bool {
        self.is_left || self.has_unsaid() || self.lacks_link()
    }

    /// Whether a host that is not known to be gone has no link yet.
    pub(crate) fn lacks_link(&self) -> bool {
        let lacks = |host: &u32| !self.ended[*host as usize] && !self.peers.has_link(*host);
        self.others.iter().any(lacks)
    }

    /// Why there is no going on.
    pub(crate) fn verdict(&self) -> Option<Verdict> {
        self.failed
    }

    /// Fails for the reason that another carrier has failed for, and tells the other hosts.
    pub(crate) fn fail_for(&mut self, verdict: Verdict) {
        if self.failed.is_none() {
            self.fail(verdict.into());
        }
    }

    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn fail(&mut self, failure: Failure) -> Abort {
        let verdict = self.peers.explain(failure);
        if let Failure::Ended(host) = failure {
            self.peers.call_again(host);
        }
        self.running = None;
        self.groups.give_up();
        self.failed = Some(verdict);
        self.peers.tell_all(verdict, self.others.iter().copied());
        verdict.abort
    }
}

/// The other hosts of some groups.
fn others_of(groups: &[Traffic]) -> Vec<u32> {
    let mut others = Vec::new();
    for host in groups.iter().flat_map(|group| &group.others) {
        if !others.contains(host) {
            others.push(*host);
        }
    }
    others
}

// SAFETY: the pointers are followed only while an operation runs, whose buffers its caller has promised to
// every thread (`InterHost::start`).
unsafe impl Send for ReplicatedLevels {}

impl Leaving for ReplicatedLevels {
    fn may_end(&mut self) -> bool {
        Self::may_end(self)
    }

    fn descriptors(&self) -> Box<dyn Iterator<Item = BorrowedFd<'_>> + '_> {
        Box::new(Self::descriptors(self))
    }

    fn has_more_to_do(&self) -> bool {
        Self::has_more_to_do(self)
    }
}

impl InterHost for ReplicatedLevels {
    unsafe fn start(&mut self, operation: &InterHostOperation) -> Result<(), Abort> {
        let digest = self.calls.begin(operation).digest;
        // SAFETY: as the caller promises.
        unsafe { self.start_with(operation, digest) }
    }

    fn poll(&mut self) -> Result<bool, Abort> {
        if let Some(verdict) = self.failed {
            self.running = None;
            return Err(verdict.abort);
        }
        if self.running.as_ref().is_some_and(|running| !running.is_done) {
            self.go_on().map_err(|failure| self.fail(failure))?;
        }
        let is_over = self.running.as_ref().is_none_or(|running| running.is_done);
        if is_over {
            self.running = None;
        }
        Ok(is_over)
    }

    fn has_nothing_yet(&mut self) -> bool {
        let waits = self.running.as_ref().is_some_and(|running| !running.is_done);
        let is_quiet = self.failed.is_none() && !self.traffic.iter().any(|group| group.has_asked);
        let level = self.groups.running_level().unwrap_or(0);
        waits && is_quiet && self.datagrams.has_nothing(level)
    }

    fn sleep(&mut self, time: Duration) {
        if self.failed.is_some() || self.datagrams.holds_more() {
            return;
        }
        let due_ns = self.groups.next_timer_ns();
        let left = due_ns.map(|at_ns| Duration::from_nanos(at_ns.saturating_sub(self.now_ns())));
        let time = left.map_or(time, |left| left.min(time));
        if time.is_zero() {
            return;
        }
        let others = self.others.iter().copied().filter(|host| !self.ended[*host as usize]);
        if self.datagrams.arm(self.groups.lacking().max(1)) {
            self.stats.sleeps += 1;
            let level = self.groups.running_level();
            if self.peers.sleep_beside(self.datagrams.sockets_of(level), others, time) {
                self.rounds_to_look = 0;
            }
        }
        self.datagrams.disarm();
    }

    fn check(&mut self) {
        // The next round finds out.
        self.rounds_to_look = 0;
    }

    fn disagreement(&self) -> Option<Disagreement> {
        self.failed?.disagreement
    }

    fn host_at_fault(&self, abort: &Abort) -> Option<usize> {
        Some(abort.at_fault.0 as usize)
    }

    fn abort(&mut self, reason: AbortReason) {
        if self.failed.is_none() {
            self.fail(Abort { reason, at_fault: EndpointId(self.me) }.into());
        }
    }

    fn leave(&mut self) {
        self.begin_leaving();
        wait_for_grace(|| self.may_end());
    }
}
