//! What runs a communicator's operations at one rank: one after the other, stage by stage.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tributary_wire::frame::AbortReason;

use crate::communicator::join::Joint;
use crate::communicator::{Verdict, WhileWaiting};
use crate::kernels::{Adapter, Kernels, PairNumber};
use crate::leaders;
use crate::mesh::Mesh;
use crate::on_host;
use crate::operation::{Collective, CollectiveError, Operation};
use crate::plan::{Means, Plan, Stage, plan};
use crate::report::Tally;
use crate::request::RequestState;
use crate::seat::Seat;
use crate::trees::Trees;
use tributary_shm_collectives::waiting::{Policy, Waiter};
use tributary_shm_collectives::{self as host, Action, HostGroup};

mod failures;
mod stages;

/// How long a blocking wait for other hosts lasts before it is asked whether it is still wanted,
/// which drives the MPI beneath. Each time costs as much as several looks
/// at a link, so a wait as short as most is not asked: 8 hosts of a lab on 2 cores, 8 bytes, MPICH
/// beneath: 155 us when asked at every look, 112 when asked every 50 us; and at less than 50 us an
/// operation, nearly every one of them would still be asked once.
const HEED_AFTER: Duration = Duration::from_micros(200);

/// How often it is asked from then on: other ranks may be waiting for the MPI beneath, here.
const HEED_INTERVAL: Duration = Duration::from_micros(50);

/// A communicator at one rank.
pub(crate) struct Engine {
    pub(crate) label: String,
    pub(crate) seat: Seat,
    /// Shared memory with this host's other ranks; none if there are none.
    pub(crate) host: Option<HostGroup>,
    /// The tree, or several; at leaders of communicators that span hosts.
    tree: Option<Trees>,
    /// The other hosts, directly; at leaders of communicators that are joined so.
    mesh: Option<Mesh>,
    pub(crate) policy: Policy,
    /// Whether all ranks are on this host, and there are several.
    is_one_host: bool,
    kernels: &'static Kernels,
    while_waiting: WhileWaiting,
    /// Nonblocking operations, oldest first; the first is the one that runs.
    queue: VecDeque<Queued>,
    current: Option<Current>,
    failed: Option<CollectiveError>,
    scratch: Vec<u8>,
}

struct Queued {
    operation: Operation,
    request: Arc<RequestState>,
}

/// The operation that runs.
struct Current {
    plan: Plan,
    next: usize,
    /// How far the leaders' stage has come, if it is one.
    leading: leaders::Progress,
    is_started: bool,
}

impl Current {
    fn new(plan: Plan) -> Self {
        Self { plan, next: 0, leading: leaders::Progress::default(), is_started: false }
    }
}

/// Whether an operation is over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Over,
    Waiting,
}

impl Engine {
    pub(crate) fn new(
        label: String,
        seat: Seat,
        host: Option<HostGroup>,
        joint: Joint,
        policy: Policy,
    ) -> Self {
        Self {
            is_one_host: host.is_some() && !seat.spans_hosts(),
            kernels: Kernels::all(),
            while_waiting: Arc::new(|| Verdict::GoOn),
            label,
            seat,
            host,
            tree: joint.tree,
            mesh: joint.mesh,
            policy,
            queue: VecDeque::new(),
            current: None,
            failed: None,
            scratch: Vec::new(),
        }
    }

    pub(crate) fn set_while_waiting(&mut self, while_waiting: WhileWaiting) {
        if let Some(group) = &mut self.host {
            let while_waiting = Arc::clone(&while_waiting);
            group.set_idle(move || match while_waiting() {
                Verdict::GoOn => Ok(()),
                Verdict::GiveUp => Err(AbortReason::MemberAborted as u32),
            });
        }
        self.while_waiting = while_waiting;
    }

    /// Lets the tree tell how many results came by multicast, and what was cut into stripes.
    pub(crate) fn report_to(&mut self, tally: Arc<Tally>) {
        if let Some(tree) = &mut self.tree {
            tree.report_to(tally);
        }
    }

    /// Runs an operation to its end; operations started earlier come first.
    ///
    /// # Safety
    /// As `Communicator::run`.
    pub(crate) unsafe fn run(&mut self, operation: &Operation) -> Result<(), CollectiveError> {
        // SAFETY: the caller's promise.
        if let Some(outcome) = unsafe { self.run_at_once(operation) } {
            return outcome;
        }
        self.drain_queue();
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.check(operation)?;
        if self.is_empty(operation) {
            return Ok(());
        }
        let plan = self.plan(operation);
        self.current = Some(Current::new(plan));
        self.complete()
    }

    /// Runs an operation that is one stage, in shared memory, without making a plan of it. `None` if
    /// it is not, or is anything but valid and first in line.
    ///
    /// # Safety
    /// As [`run`](Self::run).
    #[inline]
    unsafe fn run_at_once(&mut self, operation: &Operation) -> Option<Result<(), CollectiveError>> {
        let kernels = self.kernels;
        let kernel = || kernels.kernel(operation.operator, operation.datatype);
        let ranks = self.express()?.ranks();
        let local = |root: u32| (root < ranks).then_some(root);
        // On one host the local ranks are the ranks of the communicator.
        let action = match operation.collective {
            Collective::Allreduce => Action::Allreduce(kernel()?),
            Collective::Reduce { root } => Action::Reduce { to: local(root)?, kernel: kernel()? },
            Collective::Broadcast { root } => Action::Broadcast { from: local(root)? },
            Collective::Barrier => Action::Barrier,
            _ => {
                on_host::check(operation, &self.seat, &self.label).ok()?;
                on_host::action(operation, kernel())?
            }
        };
        let Operation { target, .. } = *operation;
        let is_broadcast = matches!(action, Action::Broadcast { .. });
        let source = if is_broadcast { target.cast_const() } else { operation.source };
        let len_bytes = operation.len_bytes();
        let stage = host::Operation { action, source, target, len_bytes };
        // SAFETY: the caller's promise.
        let outcome = unsafe { self.express()?.run(&stage) };
        Some(outcome.map_err(|lost| self.on_lost(lost)))
    }

    /// Shared memory, where that is all an operation takes and nothing is before it in line.
    #[inline]
    pub(crate) fn express(&mut self) -> Option<&mut HostGroup> {
        let is_ready = self.is_one_host && self.queue.is_empty() && self.failed.is_none();
        if is_ready { self.host.as_mut() } else { None }
    }

    /// The same with the kernel of a pair, if there is one.
    #[inline]
    pub(crate) fn express_with(
        &mut self,
        pair: PairNumber,
    ) -> Option<(&mut HostGroup, &'static Adapter)> {
        let kernel = self.kernels.adapter(pair)?;
        Some((self.express()?, kernel))
    }

    /// Queues an operation behind those already started.
    pub(crate) fn start(
        &mut self,
        operation: Operation,
        request: Arc<RequestState>,
    ) -> Result<(), CollectiveError> {
        self.check(&operation)?;
        if let Some(error) = &self.failed {
            request.finish(Err(error.clone()));
        } else if self.is_empty(&operation) {
            request.finish(Ok(()));
        } else {
            self.queue.push_back(Queued { operation, request });
            self.progress();
        }
        Ok(())
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
                let operation = queued.operation;
                let plan = self.plan(&operation);
                self.current = Some(Current::new(plan));
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

    /// Whether what was started goes on without this process: there is one operation, the tree is
    /// its last stage here, and all of it is sent. Then nobody has to look at it before its result
    /// is wanted.
    pub(crate) fn goes_on_alone(&mut self) -> bool {
        let (Some(current), Some(tree)) = (&self.current, &mut self.tree) else { return false };
        let is_last = current.next + 1 == current.plan.len();
        let is_tree = matches!(current.plan.get(current.next), Some(Stage::Tree { .. }));
        self.queue.len() == 1 && is_last && is_tree && tree.is_all_sent()
    }

    /// Whether nothing started is left.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    fn finish_front(&mut self, result: Result<(), CollectiveError>) {
        self.current = None;
        if let Some(queued) = self.queue.pop_front() {
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
                self.heed_verdict();
            }
        }
    }

    /// Looks whether the operation that waits is still wanted.
    fn heed_verdict(&mut self) {
        if (self.while_waiting)() == Verdict::GiveUp {
            self.give_up();
        }
    }

    /// [`Self::heed_verdict`], if the wait has lasted for [`HEED_AFTER`] or another [`HEED_INTERVAL`].
    fn heed_verdict_now_and_then(&mut self, heed_at: &mut Option<Instant>) {
        let now = Instant::now();
        let due = *heed_at.get_or_insert(now + HEED_AFTER);
        if now >= due {
            *heed_at = Some(now + HEED_INTERVAL);
            self.heed_verdict();
        }
    }

    fn complete(&mut self) -> Result<(), CollectiveError> {
        let mut waiter = Waiter::new(self.policy);
        let mut heed_at = None;
        loop {
            match self.advance() {
                Ok(Progress::Over) => {
                    self.current = None;
                    return Ok(());
                }
                Ok(Progress::Waiting) => {
                    self.pause(&mut waiter);
                    if waiter.is_check_round() {
                        self.heed_verdict_now_and_then(&mut heed_at);
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

    fn plan(&mut self, operation: &Operation) -> Plan {
        let kernel = operation
            .operator
            .is_reduction()
            .then(|| self.kernels.kernel(operation.operator, operation.datatype))
            .flatten();
        plan(operation, Means { seat: &self.seat, kernel, scratch: &mut self.scratch })
    }

    fn is_empty(&self, operation: &Operation) -> bool {
        operation.elements == 0 && operation.collective != Collective::Barrier
    }

    fn check(&self, operation: &Operation) -> Result<(), CollectiveError> {
        let &Operation { operator, datatype, .. } = operation;
        let (is_reduction, root) = match operation.collective {
            Collective::Allreduce | Collective::Scan { .. } => (true, 0),
            Collective::ReduceScatter { .. } => (true, 0),
            Collective::Reduce { root } => (true, root),
            Collective::Broadcast { root } => (false, root),
            Collective::Barrier | Collective::Allgather => (false, 0),
        };
        if is_reduction && (!operator.is_reduction() || !operator.applies_to(datatype)) {
            return Err(CollectiveError::NotDefined { operator, datatype });
        }
        let ranks = self.seat.ranks();
        if root >= ranks {
            return Err(CollectiveError::NoSuchRoot { label: self.label.clone(), root, ranks });
        }
        on_host::check(operation, &self.seat, &self.label)
    }
}
