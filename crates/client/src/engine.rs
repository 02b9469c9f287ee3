//! What runs a communicator's operations at one rank: one after the other, stage by stage.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tributary_algorithms::{Collective, CollectiveKind};
use tributary_shm_collectives::{
    self as shm, Blocks, CheckClock, Combine, HostGroup, Policy, Waiter,
};
use tributary_wire::frame::AbortReason;

use crate::operation::{CollectiveError, Operation};
use crate::placement::Placement;
use crate::progress_hook::{ProgressHook, Verdict};
use crate::request_state::RequestState;
use exact::{ExactSum, ExactSums};
use multi_leader::MultiLeader;
use plan::{Called, Plan, PlanContext, Stage, plan, shm_action};
use prepared::PreparedOperation;
use tributary_inter_host::watch::Alarm;
use tributary_inter_host::{Adapter, DirectMethod, FailoverTree, Kernels, PairNumber};
use tributary_report::{Counters, PathKind};
use tributary_selection::{Choice, Path, Question, Selection};

pub(crate) use gathered::Gathered;
pub(crate) use methods::InterHostMethods;
pub(crate) use plan::StreamUse;
pub(crate) use prepared::{PreparedExchange, PreparedNumber};

mod blocks;
mod combiners;
mod exact;
mod exact_steps;
mod failures;
mod gathered;
mod late;
mod local;
mod losses;
mod methods;
mod multi_leader;
mod outcome;
mod plan;
mod posted;
mod prepared;
mod stages;
mod streaming;

/// How long a blocking wait for other hosts lasts before the progress hook is called, which drives the
/// underlying MPI. A call costs as much as several polls of a link, so a wait as short as most makes
/// none: 8 hosts of a lab on 2 cores, 8 bytes, under MPICH: 155 us with a call at every poll, 112 with
/// one every 50 us; and at less than 50 us an operation, nearly every one would still make one.
const HOOK_AFTER: Duration = Duration::from_micros(200);

/// How often it is called from then on: other ranks may be waiting for the underlying MPI, here.
const HOOK_INTERVAL: Duration = Duration::from_micros(50);

/// A communicator at one rank.
pub(crate) struct Engine {
    label: String,
    placement: Placement,
    /// Shared memory with this host's other ranks; none if there are none.
    host: Option<HostGroup>,
    methods: InterHostMethods,
    selection: Selection,
    /// What the tree streams; none if it streams nothing.
    stream: Option<StreamUse>,
    policy: Policy,
    /// Whether all ranks are on this host, and there are several.
    is_one_host: bool,
    /// Whether shared memory is all that the next operation needs, and nothing is before it in line: one
    /// flag for the fast path, kept by [`Self::note_idle`].
    has_idle_host: bool,
    kernels: &'static Kernels,
    /// What exact sums keep; none where sums are ordered, or kernels sum exactly.
    exact_sums: Option<Box<ExactSums>>,
    progress_hook: ProgressHook,
    /// Nonblocking operations, oldest first; the first is the one that runs.
    queue: VecDeque<Queued>,
    current: Option<Current>,
    /// Those that may be started again and again, by number.
    prepared: Vec<Option<PreparedOperation>>,
    /// The one of them that is under way beside the queue, which is empty then.
    posted: Option<PreparedNumber>,
    failed: Option<CollectiveError>,
    /// When a leader that polls looks for lost hosts again.
    checks_of_hosts: CheckClock,
    /// Segments that this rank's direct links had sent again when all ranks last asked for losses.
    sent_again: u64,
    /// Memory of plans, kept from operation to operation.
    scratch: Vec<u8>,
    cuts: Vec<u64>,
}

/// What an engine is made of.
pub(crate) struct Parts {
    pub(crate) label: String,
    pub(crate) placement: Placement,
    pub(crate) host: Option<HostGroup>,
    pub(crate) methods: InterHostMethods,
    pub(crate) selection: Selection,
    pub(crate) stream: Option<StreamUse>,
    pub(crate) policy: Policy,
    /// How long a rank may be waited for within its host before it is named; none for ever.
    pub(crate) late_after: Option<Duration>,
}

struct Queued {
    operation: Operation,
    path: Path,
    request: Arc<RequestState>,
}

/// The operation that runs.
struct Current {
    plan: Plan,
    next: usize,
    /// How far the multi-leader stage has come, if it is one.
    multi_leader: MultiLeader,
    is_started: bool,
    /// Whether it has waited for other hosts.
    has_waited: bool,
    /// The exact sum of which the plan is a step, and the path of its sums.
    exact_sum: Option<(ExactSum, Path)>,
}

impl Current {
    fn new(plan: Plan) -> Self {
        Self {
            plan,
            next: 0,
            multi_leader: MultiLeader::default(),
            is_started: false,
            has_waited: false,
            exact_sum: None,
        }
    }
}

/// Whether an operation is over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Over,
    Waiting,
}

impl Engine {
    /// A communicator whose set-up is over. `progress_hook` is called while this rank waits.
    pub(crate) fn new(parts: Parts, progress_hook: ProgressHook) -> Self {
        let Parts { label, placement, mut host, methods, selection, stream, policy, late_after } =
            parts;
        if let Some(group) = &mut host {
            let hook = Arc::clone(&progress_hook);
            group.set_idle(move || match hook() {
                Verdict::GoOn => Ok(()),
                Verdict::GiveUp => Err(AbortReason::MemberAborted as u32),
            });
            if let Some(after) = late_after {
                group.tell_late(after, late::late_rank_reporter(&label, &placement));
            }
        }
        let is_one_host = host.is_some() && !placement.spans_hosts();
        // On one host every rank has all contributions at hand. Between hosts sums travel as integers.
        let (kernels, exact_sums) = match (selection.sums_exactly(), is_one_host) {
            (false, _) => (Kernels::all(), None),
            (true, true) => (Kernels::with_exact_sums(), None),
            (true, false) => (Kernels::without_float_sums(), Some(Box::default())),
        };
        Self {
            is_one_host,
            has_idle_host: is_one_host,
            kernels,
            exact_sums,
            progress_hook,
            label,
            placement,
            host,
            methods,
            selection,
            stream,
            policy,
            queue: VecDeque::new(),
            current: None,
            prepared: Vec::new(),
            posted: None,
            failed: None,
            checks_of_hosts: CheckClock::default(),
            sent_again: 0,
            scratch: Vec::new(),
            cuts: Vec::new(),
        }
    }

    /// Lets the tree tell how many results came by multicast.
    pub(crate) fn report_to(&mut self, counters: Arc<Counters>) {
        if let Some(tree) = &mut self.methods.tree {
            tree.report_to(counters);
        }
    }

    /// As reports count what is selected for a path: links carry it while there is no tree.
    pub(crate) fn path_kind(&self, path: Path) -> PathKind {
        let lacks_tree = self.methods.tree.as_ref().is_some_and(FailoverTree::lacks_tree);
        if path == Path::Tree && lacks_tree { PathKind::Direct } else { path.kind() }
    }

    /// What wakes this rank: one alarm when the tree is lost somewhere, another when a host of replicated groups needs an
    /// answer. None where that is of no use.
    pub(crate) fn alarms(&self) -> Vec<Arc<Alarm>> {
        let InterHostMethods { tree, direct } = &self.methods;
        let of_tree = tree.as_ref().and_then(FailoverTree::alarm);
        let of_groups = direct.as_ref().and_then(DirectMethod::alarm);
        of_tree.into_iter().chain(of_groups).cloned().collect()
    }

    /// Has what it watches for watched from now on.
    pub(crate) fn watch(&mut self) {
        if let Some(tree) = &self.methods.tree {
            tree.watch();
        }
        if let Some(direct) = &mut self.methods.direct {
            direct.watch();
        }
    }

    /// Does what is due when the tree is lost or another host needs an answer. `true` if there will be more, whatever operation
    /// runs.
    pub(crate) fn attend(&mut self) -> bool {
        // Its error is that of every operation from now on.
        let attended = self.attend_to_others();
        let InterHostMethods { tree, direct } = &self.methods;
        let has_more = tree.as_ref().is_some_and(FailoverTree::has_more_to_attend)
            || direct.as_ref().is_some_and(DirectMethod::has_more_to_attend);
        attended.is_ok() && has_more
    }

    /// The longest contribution with which a collective of this kind is taken; none if any length is.
    pub(crate) fn longest_bytes(&self, kind: CollectiveKind) -> Option<u64> {
        self.selection.longest_bytes(kind)
    }

    /// The path that an operation takes.
    pub(crate) fn path(&mut self, operation: &Operation) -> Path {
        let question = self.question(operation);
        self.selection.path(&question)
    }

    /// The path that an operation takes, and why.
    #[inline]
    pub(crate) fn choose(&mut self, operation: &Operation) -> Choice {
        let question = self.question(operation);
        self.selection.choose(&question)
    }

    /// All that an operation's path depends on.
    #[inline]
    fn question(&self, operation: &Operation) -> Question {
        match self.sums_exactly(operation) {
            true => exact::carrier_of(operation).question(),
            false => operation.question(),
        }
    }

    fn sums_exactly(&self, operation: &Operation) -> bool {
        self.exact_sums.is_some() && exact::concern(operation)
    }

    /// Counts a blocking operation that is about to run.
    #[inline]
    pub(crate) fn count(&mut self, choice: Choice) {
        self.selection.count(choice);
    }

    /// Runs an operation to its end; operations started earlier come first.
    ///
    /// # Safety
    /// As `Communicator::run`.
    pub(crate) unsafe fn run(
        &mut self,
        operation: &Operation,
        path: Path,
    ) -> Result<(), CollectiveError> {
        if path == Path::SharedMemory {
            // SAFETY: as the caller of this function promises.
            if let Some(outcome) = unsafe { self.run_on_host(operation) } {
                return outcome;
            }
        }
        self.enqueue_posted();
        self.drain_queue();
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.check(operation)?;
        if is_empty(operation) {
            return Ok(());
        }
        self.begin(operation, path);
        self.complete()
    }

    /// Makes an operation the current one.
    #[inline]
    fn begin(&mut self, operation: &Operation, path: Path) {
        if self.sums_exactly(operation) {
            return self.begin_exact_sum(operation, path);
        }
        let plan = self.plan(operation, Called::from(operation), path);
        // Inside a host of several, ranks that name different roots on other hosts do the same.
        let root = operation.collective.root().filter(|_| !self.is_one_host);
        if let (Some(root), Some(host)) = (root, &mut self.host) {
            host.note(root);
        }
        self.current = Some(Current::new(plan));
    }

    /// Runs an operation of one host without making a plan of it. `None` if it is anything but valid and
    /// first in line.
    ///
    /// # Safety
    /// As [`run`](Self::run).
    #[inline]
    unsafe fn run_on_host(&mut self, operation: &Operation) -> Option<Result<(), CollectiveError>> {
        let ranks = self.idle_host()?.ranks();
        let root = operation.collective.root().unwrap_or(0);
        if root >= ranks || self.check_blocks(operation).is_err() {
            return None;
        }
        if operation.combiner.is_some() && self.check(operation).is_err() {
            return None;
        }
        let stage = self.host_stage(operation)?;
        // SAFETY: the buffers are valid and this call's alone, as the caller promises.
        let outcome = unsafe { self.idle_host()?.run(&stage) };
        Some(outcome.map_err(|lost| self.on_lost(lost)))
    }

    /// What an operation does in shared memory if all ranks are on one host.
    #[inline]
    fn host_stage(&self, operation: &Operation) -> Option<shm::Operation> {
        let kernel = self.kernel_of(operation);
        // On one host the local ranks are the ranks of the communicator.
        let action = shm_action(operation, kernel)?;
        let is_broadcast = matches!(action, shm::Action::Broadcast { .. });
        let Operation { target, .. } = *operation;
        let source = if is_broadcast { target.cast_const() } else { operation.source };
        Some(shm::Operation { action, source, target, len_bytes: operation.len_bytes() })
    }

    /// Shared memory, where that is all an operation takes and nothing is before it in line.
    #[inline]
    pub(crate) fn idle_host(&mut self) -> Option<&mut HostGroup> {
        if self.has_idle_host { self.host.as_mut() } else { None }
    }

    /// After every change of the queue or of what is posted, and after a failure.
    fn note_idle(&mut self) {
        let has_none_before = self.queue.is_empty() && self.posted.is_none();
        self.has_idle_host = self.is_one_host && has_none_before && self.failed.is_none();
    }

    /// The communicator is of no further use, for this reason unless there is one already.
    fn fail(&mut self, error: CollectiveError) -> CollectiveError {
        let error = self.failed.get_or_insert(error).clone();
        self.note_idle();
        error
    }

    /// The same with the kernel of a pair, if there is one.
    #[inline]
    pub(crate) fn idle_host_and_kernel(
        &mut self,
        pair: PairNumber,
    ) -> Option<(&mut HostGroup, &'static Adapter)> {
        if !self.has_idle_host {
            return None;
        }
        let kernel = self.kernels.adapter(pair)?;
        Some((self.host.as_mut()?, kernel))
    }

    /// Queues an operation behind those already started.
    pub(crate) fn start(
        &mut self,
        operation: Operation,
        path: Path,
        request: Arc<RequestState>,
    ) -> Result<(), CollectiveError> {
        self.check(&operation)?;
        self.start_checked(operation, path, request);
        Ok(())
    }

    /// The same for an operation that is known to be one.
    fn start_checked(&mut self, operation: Operation, path: Path, request: Arc<RequestState>) {
        if let Some(error) = &self.failed {
            request.finish(Err(error.clone()));
        } else if is_empty(&operation) {
            request.finish(Ok(()));
        } else {
            self.enqueue_posted();
            self.queue.push_back(Queued { operation, path, request });
            self.note_idle();
            self.progress();
        }
    }

    /// Goes on with what was started, without waiting. `true` if something finished.
    pub(crate) fn progress(&mut self) -> bool {
        let mut has_finished = false;
        while let Some(queued) = self.queue.front() {
            if let Some(error) = &self.failed {
                let error = error.clone();
                self.finish_front(Err(error));
                continue;
            }
            if self.current.is_none() {
                let (operation, path) = (queued.operation, queued.path);
                self.begin(&operation, path);
            }
            match self.advance() {
                Ok(Progress::Waiting) => break,
                Ok(Progress::Over) => self.finish_front(Ok(())),
                Err(error) => self.finish_front(Err(error)),
            }
            has_finished = true;
        }
        has_finished
    }

    /// Whether what was started completes without this process: there is one operation, aggregation nodes
    /// carry its last stage here, and all of it is sent. Then nobody has to poll it before its result is
    /// wanted.
    fn completes_without_polling(&mut self) -> bool {
        let Some(current) = &self.current else { return false };
        let is_last = current.next + 1 == current.plan.len() && current.exact_sum.is_none();
        match current.plan.get(current.next) {
            Some(Stage::InterHost { method, .. }) if self.queue.len() == 1 && is_last => {
                let method = *method;
                self.methods.method(method).completes_without_polling()
            }
            _ => false,
        }
    }

    /// Whether a thread of this process has to drive what was started. What aggregation nodes complete alone
    /// needs none.
    pub(crate) fn needs_driving(&mut self) -> bool {
        !self.is_idle() && !self.completes_without_polling()
    }

    /// Whether nothing in the queue is left.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    fn finish_front(&mut self, result: Result<(), CollectiveError>) {
        self.current = None;
        if let Some(queued) = self.queue.pop_front() {
            self.note_idle();
            queued.request.finish(result);
        }
    }

    fn drain_queue(&mut self) {
        let mut waiter = Waiter::new(self.policy);
        while !self.is_idle() {
            if self.progress() {
                waiter.reset();
            } else {
                self.pause(&mut waiter);
                self.call_hook();
            }
        }
    }

    /// Drives the underlying MPI, and asks whether the operation that waits is still wanted.
    fn call_hook(&mut self) {
        if (self.progress_hook)() == Verdict::GiveUp {
            self.give_up();
        }
    }

    /// [`Self::call_hook`], if the wait has lasted for [`HOOK_AFTER`] or another [`HOOK_INTERVAL`].
    fn call_hook_when_due(&mut self, due_at: &mut Option<Instant>) {
        let now = Instant::now();
        let due = *due_at.get_or_insert(now + HOOK_AFTER);
        if now >= due {
            *due_at = Some(now + HOOK_INTERVAL);
            self.call_hook();
        }
    }

    fn complete(&mut self) -> Result<(), CollectiveError> {
        let mut waiter = Waiter::new(self.policy);
        let mut hook_due_at = None;
        loop {
            match self.advance() {
                Ok(Progress::Over) => {
                    self.current = None;
                    return Ok(());
                }
                Ok(Progress::Waiting) => {
                    self.pause(&mut waiter);
                    if waiter.is_check_round() {
                        self.call_hook_when_due(&mut hook_due_at);
                    }
                    if let Some(error) = &self.failed {
                        self.current = None;
                        return Err(error.clone());
                    }
                }
                Err(error) => {
                    self.current = None;
                    return Err(error);
                }
            }
        }
    }

    /// The stages of an operation that carries what was called.
    fn plan(&mut self, operation: &Operation, called: Called, path: Path) -> Plan {
        let kernel = self.kernel_of(operation);
        let placement = &self.placement;
        let (stream, scratch, cuts) = (self.stream, &mut self.scratch, &mut self.cuts);
        plan(operation, path, PlanContext { placement, called, kernel, stream, scratch, cuts })
    }

    /// How the operation's elements combine; none where it reduces nothing.
    #[inline]
    fn kernel_of(&self, operation: &Operation) -> Option<&'static dyn Combine> {
        match &operation.combiner {
            // SAFETY: it is valid until the operation is over, as the caller of `Communicator::run` or
            // `start` promised; the stages with the kernel are gone with the operation.
            Some(combiner) => Some(unsafe { combiner.kernel() }),
            None => self.kernels.kernel(operation.operator, operation.datatype),
        }
    }

    fn check(&self, operation: &Operation) -> Result<(), CollectiveError> {
        let &Operation { collective, operator, datatype, .. } = operation;
        let is_defined = operator.is_reduction() && operator.applies_to(datatype);
        if let Some(combiner) = operation.combiner {
            self.check_combiner(collective, combiner)?;
        } else if collective.is_reduction() && !is_defined {
            return Err(CollectiveError::NotDefined { operator, datatype });
        }
        self.check_shape(operation)
    }

    /// Whether root and blocks are those of this communicator.
    fn check_shape(&self, operation: &Operation) -> Result<(), CollectiveError> {
        let ranks = self.placement.ranks();
        let root = operation.collective.root().unwrap_or(0);
        if root >= ranks {
            return Err(CollectiveError::NoSuchRoot { label: self.label.clone(), root, ranks });
        }
        self.check_blocks(operation)
    }

    /// Whether the blocks of a reduce-scatter are those of its vector.
    #[inline]
    fn check_blocks(&self, operation: &Operation) -> Result<(), CollectiveError> {
        if operation.collective != Collective::ReduceScatter {
            return Ok(());
        }
        let (ranks, elements) = (self.placement.ranks(), operation.elements);
        let (is_covered, end) = match operation.blocks {
            Blocks::Even => (elements.is_multiple_of(u64::from(ranks)), 0),
            Blocks::At(cuts) => {
                // SAFETY: there is one more of them than there are ranks, as the caller of
                // `Communicator::run` or `start` promised.
                let cut = |at: u32| unsafe { cuts.add(at as usize).read() };
                let end = cut(ranks);
                // Inside a host a block stays within the vector whatever the cuts are.
                let is_ascending =
                    !self.placement.spans_hosts() || (0..ranks).all(|at| cut(at) <= cut(at + 1));
                (end == elements && is_ascending, end)
            }
        };
        if is_covered {
            return Ok(());
        }
        Err(CollectiveError::Blocks { label: self.label.clone(), end, elements })
    }
}

fn is_empty(operation: &Operation) -> bool {
    operation.elements == 0 && operation.collective != Collective::Barrier
}
