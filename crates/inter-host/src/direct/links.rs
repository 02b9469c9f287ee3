//! This host's place among the others, and the operations that it carries.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use tributary_algorithms::Leaves;
use tributary_transport::Sent;
use tributary_wire::frame::{Abort, AbortReason, Disagreement};
use tributary_wire::{EndpointId, Epoch};

use super::calls::Calls;
use super::failure::{Failure, Verdict};
use super::identity::Identity;
use super::listener::Listener;
use super::peers::Peers;
use super::running::{Running, Workspace};
use super::schedules::Found;
use crate::departures::{self, Leaving};
use crate::operation::{InterHost, InterHostOperation};

/// How long a host tries to say that it leaves.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a host that was told of a disagreement looks for the two that disagree. Hosts that are asked answer at once; they
/// are asked once a wait has lasted a while ([`question`](tributary_waits::question)), and all hear of a failure within a second.
const DISAGREEMENT_WAIT: Duration = Duration::from_millis(500);
/// Time between two looks.
const DISAGREEMENT_POLL: Duration = Duration::from_millis(1);

/// Up to so many hosts, one that fails tells all others.
const TOLD_HOSTS_MAX: u32 = 16;

/// This host's place among the others.
pub struct DirectLinks {
    hosts: u32,
    pub(super) peers: Peers,
    running: Option<Running>,
    workspace: Workspace,
    /// Operations started, numbered alike at all hosts.
    calls: Calls,
    /// All hosts are in a tree, which tells of a failure.
    stands_by: bool,
    pub(super) failed: Option<Verdict>,
}

// SAFETY: the pointers are followed only while an operation runs, whose buffers its caller has
// promised to every thread (`Communicator::run` and `start`).
unsafe impl Send for DirectLinks {}

impl DirectLinks {
    /// The host `me` among those at `addresses`, which listens at its own.
    pub fn new(
        me: u32,
        identity: Identity,
        listener: Listener,
        addresses: Vec<std::net::SocketAddr>,
    ) -> Self {
        Self {
            hosts: addresses.len() as u32,
            peers: Peers::new(me, identity, listener, addresses),
            running: None,
            workspace: Workspace::default(),
            calls: Calls::default(),
            stands_by: false,
            failed: None,
        }
    }

    /// The same where hosts that share a leaf switch meet first, wherever an exchange has levels. All hosts must say the same.
    #[must_use]
    pub fn by_leaf(mut self, leaves: Leaves) -> Self {
        self.workspace.schedules.leaves = (leaves.count() > 1).then_some(leaves);
        self
    }

    /// Why there is no going on.
    pub(crate) fn verdict(&self) -> Option<Verdict> {
        self.failed
    }

    /// This host's number.
    #[must_use]
    pub fn me(&self) -> u32 {
        self.peers.me()
    }

    /// How many hosts there are.
    #[must_use]
    pub fn hosts(&self) -> u32 {
        self.hosts
    }

    /// Segments of TCP that this host has sent again, over the links that are there now.
    #[must_use]
    pub fn retransmissions(&self) -> u64 {
        self.peers.retransmissions()
    }

    /// Whether an operation is under way.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Gets out what links have taken, and the kernel had no room for. Full while some of it is left.
    pub(crate) fn flush(&mut self) -> Sent {
        self.peers.flush()
    }

    /// Whether something is left to be said.
    pub(crate) fn has_unsaid(&self) -> bool {
        self.peers.has_unsaid()
    }

    /// Tells host 0 that loss number `epoch` of the tree has to be settled, which it may not know of. If it can't be reached,
    /// the operation that waits for its call finds that out.
    pub fn raise_alarm(&mut self, epoch: Epoch) {
        self.peers.raise_alarm(epoch);
    }

    /// Host 0 knows.
    pub fn end_alarm(&mut self) {
        self.peers.end_alarm();
    }

    /// Whether another host wants to settle loss number `epoch` of the tree, while no operation runs
    /// here.
    ///
    /// # Errors
    /// If another host says why there is no going on. It is said once.
    pub fn is_called(&mut self, epoch: Epoch) -> Result<bool, Abort> {
        debug_assert!(self.running.is_none(), "an operation receives itself");
        if self.failed.is_some() {
            return Ok(false);
        }
        self.peers.is_called(epoch).map_err(|verdict| self.fail(verdict.into()))
    }

    /// Tells the other hosts why there is no going on, as this host has heard from elsewhere. Some may not hear it there.
    pub fn pass_on(&mut self, abort: Abort) {
        if self.failed.is_none() {
            self.stands_by = false;
            self.fail(abort.into());
        }
    }

    /// All hosts are in a tree again, and nobody needs the links until it is lost. The hosts that have called so far
    /// did so for operations, which are over.
    ///
    /// A link that ends meanwhile is no failure, and made anew when it is needed: living hosts lose one to an outage,
    /// and the tree misses a host that dies.
    pub fn stand_by(&mut self) {
        self.stands_by = true;
        self.peers.stand_by();
    }

    /// Descriptors that become readable when [`Self::is_called`] may have become true.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.peers.descriptors()
    }

    /// Those of them that [`Self::is_called`] has found: of callers that have yet to say who they are, and what for.
    pub fn callers(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.peers.callers()
    }

    /// Counts an operation that another carrier has, so that hosts that carry it by different ones can compare it. The digest
    /// of all that this host has called so far.
    pub(crate) fn note_call(&mut self, operation: &InterHostOperation) -> u32 {
        self.stands_by = false;
        self.calls.begin(operation).digest
    }

    /// Finds out which hosts called what, where another carrier has told all that some disagree, and perhaps a `suspect`.
    /// `calls` are those that it has had. Each host asks the next, and some that one. Takes [`DISAGREEMENT_WAIT`] at most.
    pub(crate) fn find_disagreement(
        &mut self,
        calls: Calls,
        suspect: Option<usize>,
    ) -> Option<Verdict> {
        let me = self.peers.me();
        self.calls = calls;
        self.stands_by = false;
        let suspect = suspect.map(|host| host as u32);
        let suspect = suspect.filter(|host| may_call_later(me, *host, self.hosts));
        let begun = Instant::now();
        while self.failed.is_none() && begun.elapsed() < DISAGREEMENT_WAIT {
            let next = (me + 1) % self.hosts;
            self.check_beside(std::iter::once(next).chain(suspect));
            std::thread::sleep(DISAGREEMENT_POLL);
        }
        self.failed.filter(|verdict| verdict.disagreement.is_some())
    }

    /// Looks at the links while another carrier has the last operation, in which this host waits for `awaited`: for hosts that
    /// failed or called something else. Asks those that it has waited for what they called, over links that are made for it. What is
    /// wrong is in `failed` then. A host that is not there any more may have completed the operation and left: whether it is missed,
    /// the other carrier knows.
    pub(crate) fn check_beside(&mut self, mut awaited: impl Iterator<Item = u32>) {
        let Some(call) = self.calls.last().filter(|_| self.failed.is_none()) else { return };
        let checked = self.peers.check().and_then(|()| self.peers.compare_calls(&self.calls, None));
        let asked =
            checked.and_then(|()| awaited.try_for_each(|host| self.peers.call_and_ask(host, call)));
        if let Err(Failure::Known(verdict)) = asked {
            self.fail(verdict.into());
        }
        let _ = self.peers.flush();
    }

    /// Fails for the reason that another carrier has failed for, and tells the other hosts.
    pub(crate) fn fail_for(&mut self, verdict: Verdict) {
        if self.failed.is_none() {
            self.stands_by = false;
            self.fail(verdict.into());
        }
    }

    fn fail(&mut self, failure: Failure) -> Abort {
        let verdict = self.peers.explain(failure);
        let abort = verdict.abort;
        if let Failure::Ended(host) = failure {
            self.peers.call_again(host);
        }
        let me = self.peers.me();
        let may_come = |host: &u32| !self.stands_by && may_call_later(me, *host, self.hosts);
        let later = (0..self.hosts).filter(may_come);
        let partners = self.workspace.schedules.all_peers();
        self.peers.tell_all(verdict, later.chain(partners));
        self.running = None;
        self.failed = Some(verdict);
        abort
    }

    /// Says what this host called to those that it has waited for a while for.
    fn ask(&mut self) {
        let Some(running) = &self.running else { return };
        let call = running.call();
        running.awaited_host().into_iter().chain(running.hosts_to_send_to()).for_each(|host| {
            self.peers.ask(host, call);
        });
    }
}

impl InterHost for DirectLinks {
    unsafe fn start(&mut self, operation: &InterHostOperation) -> Result<(), Abort> {
        debug_assert!(self.running.is_none(), "operations of a communicator run one by one");
        if let Some(verdict) = self.failed {
            return Err(verdict.abort);
        }
        let me = self.peers.me();
        let Found { index, is_new } = self.workspace.schedules.look_up(operation, me, self.hosts);
        let call = self.calls.begin(operation);
        self.stands_by = false;
        // SAFETY: the buffers are valid until the operation is over, as the caller promises.
        self.running =
            Some(unsafe { Running::new(operation, me, index, call, &mut self.workspace) });
        if !is_new {
            return Ok(());
        }
        // Links stay, so the hosts of a schedule are called once.
        let mut peers = self.workspace.schedules.peers(index);
        let called = peers.try_for_each(|host| self.peers.call(host));
        drop(peers);
        called.map_err(|failure| self.fail(failure))
    }

    fn poll(&mut self) -> Result<bool, Abort> {
        if let Some(verdict) = self.failed {
            self.running = None;
            return Err(verdict.abort);
        }
        let Some(running) = &mut self.running else { return Ok(true) };
        // A message counts as sent once its link has taken it, of which the kernel may have left a
        // rest; the operation may have gone on to wait for another host since. What is still left goes out
        // in a later round.
        let _ = self.peers.flush();
        match running.advance(&mut self.peers, &mut self.workspace) {
            Ok(false) => Ok(false),
            Ok(true) => {
                self.workspace.unsent =
                    self.running.take().map_or_else(Vec::new, Running::into_room);
                Ok(true)
            }
            Err(failure) => Err(self.fail(failure)),
        }
    }

    fn sleep(&mut self, time: Duration) {
        let Some(running) = &self.running else { return };
        self.peers.sleep(running.awaited_host(), running.hosts_to_send_to(), time);
    }

    fn check(&mut self) {
        if self.failed.is_some() {
            return;
        }
        let awaited = self.running.as_ref().and_then(Running::awaited_host);
        let checked =
            self.peers.check().and_then(|()| self.peers.compare_calls(&self.calls, awaited));
        match checked {
            Ok(()) => self.ask(),
            Err(failure) => {
                self.fail(failure);
            }
        }
    }

    fn disagreement(&self) -> Option<Disagreement> {
        self.failed?.disagreement
    }

    fn host_at_fault(&self, abort: &Abort) -> Option<usize> {
        Some(abort.at_fault.0 as usize)
    }

    fn abort(&mut self, reason: AbortReason) {
        if self.failed.is_none() {
            self.fail(Abort { reason, at_fault: EndpointId(self.peers.me()) }.into());
        }
    }

    fn leave(&mut self) {
        if self.failed.is_none() {
            self.peers.say_leave();
            let say_until = Instant::now() + LAST_WORDS_TIMEOUT;
            departures::keep(Box::new(LeftLinks { peers: self.peers.take(), say_until }));
        }
    }
}

/// Links that this host has left. They, and the listener, stay until the other hosts' kernels have all that was sent: a host
/// that waits for something on its way may ask, and would take a link that has ended, or a call that is refused, for a death.
struct LeftLinks {
    peers: Peers,
    /// When a host to which there is no link yet, or that reads nothing, need not hear any more that this one has left.
    say_until: Instant,
}

impl Leaving for LeftLinks {
    fn may_end(&mut self) -> bool {
        self.peers.accept();
        // Every link is attended to, whether this host has said all or not.
        let has_said_all = self.peers.flush() == Sent::Taken || Instant::now() > self.say_until;
        self.peers.may_end() && has_said_all
    }

    fn descriptors(&self) -> Box<dyn Iterator<Item = BorrowedFd<'_>> + '_> {
        Box::new(self.peers.descriptors())
    }

    /// That an acknowledgement has come, nothing tells; but the other hosts leave, too, and say so.
    fn has_more_to_do(&self) -> bool {
        self.peers.has_unsaid()
    }
}

/// Whether host `other` may have an operation to come in which it needs host `me`, as far as one can tell: it would find
/// nobody there, and blame the wrong one. Most schedules lead over distances that are powers of two.
fn may_call_later(me: u32, other: u32, hosts: u32) -> bool {
    let distance = me.abs_diff(other);
    let is_near = distance.is_power_of_two() || (hosts - distance).is_power_of_two();
    distance > 0 && (hosts <= TOLD_HOSTS_MAX || is_near)
}
