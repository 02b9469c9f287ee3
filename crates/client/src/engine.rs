//! What runs a communicator's operations at one rank: one after the other, stage by stage.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Poll;

use tributary_wire::frame::{Abort, AbortReason};

use crate::communicator::join::Joint;
use crate::host::{HostGroup, Lost, LostCause};
use crate::kernels::kernel;
use crate::mesh::Mesh;
use crate::operation::{Collective, CollectiveError, Operation};
use crate::plan::{Between, Means, Plan, Seat, Stage, plan};
use crate::request::RequestState;
use crate::tree::TreeMember;
use crate::waiting::{Checkup, Policy, Waiter};

/// A communicator at one rank.
pub(crate) struct Engine {
    pub(crate) label: String,
    pub(crate) seat: Seat,
    /// Shared memory with this host's other ranks; none if there are none.
    pub(crate) host: Option<HostGroup>,
    /// The tree; at leaders of communicators that span hosts.
    tree: Option<TreeMember>,
    /// The other hosts, directly; at leaders of communicators that are joined so.
    mesh: Option<Mesh>,
    pub(crate) policy: Policy,
    /// Called now and then while a blocking operation waits.
    idle: fn(),
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
    is_started: bool,
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
        idle: fn(),
    ) -> Self {
        let mut host = host;
        if let Some(group) = &mut host {
            group.set_idle(idle);
        }
        Self {
            idle,
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

    /// Runs an operation to its end; operations started earlier come first.
    ///
    /// # Safety
    /// As `Communicator::run`.
    pub(crate) unsafe fn run(&mut self, operation: &Operation) -> Result<(), CollectiveError> {
        self.drain_queue();
        self.check(operation)?;
        if self.is_empty(operation) {
            return Ok(());
        }
        let plan = self.plan(operation);
        if let [Stage::Host(stage)] = plan.as_slice() {
            let host = self.host.as_mut().expect("only a host group's ranks plan for it");
            // SAFETY: the caller's promise.
            return unsafe { host.run(stage) }.map_err(|lost| self.on_lost(lost));
        }
        let current = Current { plan, next: 0, is_started: false };
        self.current = Some(current);
        self.complete()
    }

    /// Queues an operation behind those already started.
    pub(crate) fn start(
        &mut self,
        operation: Operation,
        request: Arc<RequestState>,
    ) -> Result<(), CollectiveError> {
        self.check(&operation)?;
        if self.is_empty(&operation) {
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
                self.current = Some(Current { plan, next: 0, is_started: false });
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

    /// Whether nothing started is left.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// Lets a little time pass, or sleeps until the operation that runs can go on.
    pub(crate) fn pause(&mut self, waiter: &mut Waiter) {
        let stage = self.current.as_ref().and_then(|current| current.plan.get(current.next));
        match (stage, &mut self.host, &mut self.tree, &mut self.mesh) {
            (Some(Stage::Host(_)), Some(host), _, _) => host.pause(waiter),
            (Some(Stage::Tree { .. }), _, Some(tree), _) => {
                waiter.pause(|time| tree.sleep(time));
            }
            (Some(Stage::Mesh(_)), _, _, Some(mesh)) => {
                if waiter.pause(|time| mesh.sleep(time)) == Checkup::Full {
                    mesh.check_peers();
                }
            }
            _ => {
                waiter.pause(std::thread::sleep);
            }
        }
    }

    /// Gives the communicator up. Not collective: others may have operations to finish.
    pub(crate) fn leave(&mut self) {
        if let Some(mut tree) = self.tree.take() {
            tree.leave();
        }
        if let Some(mut mesh) = self.mesh.take() {
            mesh.leave();
        }
        self.host = None;
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
                (self.idle)();
            }
        }
    }

    fn complete(&mut self) -> Result<(), CollectiveError> {
        let mut waiter = Waiter::new(self.policy);
        loop {
            match self.advance() {
                Ok(Progress::Over) => {
                    self.current = None;
                    return Ok(());
                }
                Ok(Progress::Waiting) => {
                    self.pause(&mut waiter);
                    (self.idle)();
                }
                Err(error) => {
                    self.current = None;
                    return Err(error);
                }
            }
        }
    }

    /// Runs the current operation's stages as far as they go.
    fn advance(&mut self) -> Result<Progress, CollectiveError> {
        loop {
            let Some(current) = &mut self.current else { return Ok(Progress::Over) };
            let Some(stage) = current.plan.get(current.next) else { return Ok(Progress::Over) };
            let is_first = !std::mem::replace(&mut current.is_started, true);
            let outcome = match stage {
                Stage::Host(operation) => {
                    let host = self.host.as_mut().expect("a host stage has a host group");
                    poll_host(host, operation, is_first).map_err(Trouble::Host)
                }
                Stage::Tree { spec, source, target, len_bytes } => {
                    let tree = self.tree.as_mut().expect("a tree stage has a tree");
                    let started = if is_first {
                        // SAFETY: the buffers belong to the operation that runs.
                        unsafe { tree.start(*spec, *source, *target, *len_bytes) }
                    } else {
                        Ok(())
                    };
                    started.and_then(|()| tree.poll()).map_err(Trouble::Tree)
                }
                Stage::Mesh(operation) => {
                    let mesh = self.mesh.as_mut().expect("a mesh stage has a mesh");
                    let started = if is_first {
                        // SAFETY: the buffers belong to the operation that runs.
                        unsafe { mesh.start(operation) }
                    } else {
                        Ok(())
                    };
                    started.and_then(|()| mesh.poll()).map_err(Trouble::Mesh)
                }
                Stage::Copy { source, target, len_bytes } => {
                    // SAFETY: source and target are the operation's, and differ.
                    unsafe { std::ptr::copy(*source, *target, *len_bytes) };
                    Ok(true)
                }
            };
            match outcome {
                Ok(true) => {
                    current.next += 1;
                    current.is_started = false;
                }
                Ok(false) => {
                    self.look_after_host()?;
                    return Ok(Progress::Waiting);
                }
                Err(Trouble::Host(lost)) => return Err(self.on_lost(lost)),
                Err(Trouble::Tree(abort)) => return Err(self.on_abort(abort)),
                Err(Trouble::Mesh(abort)) => return Err(self.on_mesh_abort(abort)),
            }
        }
    }

    /// While a leader waits for other hosts, a rank of its own host may die or give up.
    fn look_after_host(&mut self) -> Result<(), CollectiveError> {
        let Some(current) = &self.current else { return Ok(()) };
        let (Some(Stage::Tree { .. } | Stage::Mesh(_)), Some(host)) =
            (current.plan.get(current.next), &mut self.host)
        else {
            return Ok(());
        };
        host.check_peers().map_err(|lost| self.on_lost(lost))
    }

    fn plan(&mut self, operation: &Operation) -> Plan {
        let kernel = operation
            .operator
            .is_reduction()
            .then(|| kernel(operation.operator, operation.datatype))
            .flatten();
        plan(operation, Means { seat: &self.seat, kernel, scratch: &mut self.scratch })
    }

    fn is_empty(&self, operation: &Operation) -> bool {
        operation.elements == 0 && operation.collective != Collective::Barrier
    }

    fn check(&self, operation: &Operation) -> Result<(), CollectiveError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let &Operation { operator, datatype, .. } = operation;
        let (is_reduction, root) = match operation.collective {
            Collective::Allreduce => (true, 0),
            Collective::Reduce { root } => (true, root),
            Collective::Broadcast { root } => (false, root),
            Collective::Barrier => (false, 0),
        };
        if is_reduction && (!operator.is_reduction() || !operator.applies_to(datatype)) {
            return Err(CollectiveError::NotDefined { operator, datatype });
        }
        let ranks = self.seat.ranks();
        if root >= ranks {
            return Err(CollectiveError::NoSuchRoot { label: self.label.clone(), root, ranks });
        }
        Ok(())
    }

    /// A rank of this host is lost, or said that the communicator is.
    fn on_lost(&mut self, lost: Lost) -> CollectiveError {
        let error = match lost.cause {
            LostCause::Reported(code) => self.between_hosts(code_reason(code), None),
            LostCause::Died | LostCause::Left => CollectiveError::RankLost {
                label: self.label.clone(),
                rank: self.seat.rank_of_local(lost.local_rank),
            },
        };
        if let Some(tree) = &mut self.tree {
            tree.abort(AbortReason::MemberLost);
        }
        if let Some(mesh) = &mut self.mesh {
            mesh.abort(AbortReason::MemberLost);
        }
        self.failed.get_or_insert(error).clone()
    }

    /// The tree failed.
    fn on_abort(&mut self, abort: Abort) -> CollectiveError {
        let host = self.seat.endpoints.iter().position(|endpoint| *endpoint == abort.at_fault);
        let host = host.map(|index| self.seat.placement.hosts[index].clone());
        self.on_failed_between(abort, host)
    }

    /// Another host failed.
    fn on_mesh_abort(&mut self, abort: Abort) -> CollectiveError {
        let host = self.seat.placement.hosts.get(abort.at_fault.0 as usize).cloned();
        self.on_failed_between(abort, host)
    }

    /// The other ranks of this host are told.
    fn on_failed_between(&mut self, abort: Abort, host: Option<String>) -> CollectiveError {
        if let Some(group) = &mut self.host {
            group.fail(abort.reason as u32);
        }
        let error = self.between_hosts(abort.reason.to_string(), host);
        self.failed.get_or_insert(error).clone()
    }

    fn between_hosts(&self, reason: String, host: Option<String>) -> CollectiveError {
        let label = self.label.clone();
        match self.seat.between {
            Some(Between::Mesh) => CollectiveError::HostLost { label, reason, host },
            _ => CollectiveError::TreeFailed { label, reason, host },
        }
    }
}

enum Trouble {
    Host(Lost),
    Tree(Abort),
    Mesh(Abort),
}

fn poll_host(
    host: &mut HostGroup,
    operation: &crate::host::Operation,
    is_first: bool,
) -> Result<bool, Lost> {
    if is_first {
        // SAFETY: the buffers belong to the operation that runs.
        unsafe { host.start(*operation)? };
    }
    Ok(matches!(host.poll()?, Poll::Ready(())))
}

/// What a leader said through shared memory.
fn code_reason(code: u32) -> String {
    AbortReason::ALL.into_iter().find(|reason| *reason as u32 == code).map_or_else(
        || "a leader reported an unknown failure".to_owned(),
        |reason| reason.to_string(),
    )
}
