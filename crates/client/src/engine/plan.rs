//! Which stages an operation takes at one rank.
//!
//! Ranks of one host reduce in shared memory to their leader (the lowest rank there); leaders meet by
//! the method that was selected; the result goes out in shared memory again. Every rank of a host takes
//! part in the same shared-memory stages in the same order, which keeps their step counts equal.

use arrayvec::ArrayVec;
use tributary_algorithms::{Algorithm, Collective, CollectiveKind, Order};
use tributary_shm_collectives::{self as shm, Action, Blocks, Combine};
use tributary_tuning::Method;
use tributary_wire::{Datatype, Operator, StreamTerms};

use super::local::Local;
use super::multi_leader::Partition;
use super::streaming::Streamed;
use crate::operation::Operation;
use crate::placement::Placement;
use tributary_inter_host::{InterHostOperation, needs_target};
use tributary_selection::{DirectPath, Path};

/// Most stages any operation takes.
const STAGES_MAX: usize = 5;

pub(super) type Plan = ArrayVec<Stage, STAGES_MAX>;

/// One stage at one rank.
pub(super) enum Stage {
    /// Between the ranks of this host.
    Host(shm::Operation),
    /// Between the leaders; at leaders only.
    InterHost { method: Method, operation: InterHostOperation },
    /// Both, by several leaders or in several parts.
    MultiLeader(Partition),
    /// Between the ranks of this host and, at its leader, in the tree, part by part.
    Streamed(Box<Streamed>),
    /// Within this rank.
    Local(Local),
}

// SAFETY: the pointers are the operation's own; see `Operation`.
unsafe impl Send for Stage {}

/// Which vectors are streamed through the tree, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamUse {
    pub(crate) min_bytes: u64,
    pub(crate) terms: StreamTerms,
}

/// What hosts compare of a call beside the operation that carries it: its kind, and in a number what else is to be the same.
#[derive(Clone, Copy)]
pub(super) struct Called {
    pub(super) kind: CollectiveKind,
    pub(super) number: u32,
}

impl From<&Operation> for Called {
    /// An operation that carries itself: its root.
    fn from(operation: &Operation) -> Self {
        let Operation { collective, .. } = operation;
        Self { kind: collective.kind(), number: collective.root().unwrap_or(0) }
    }
}

/// What the stages work with beside the operation's own buffers.
pub(super) struct PlanContext<'a> {
    pub(super) placement: &'a Placement,
    /// What the program called, which this operation may carry for another.
    pub(super) called: Called,
    pub(super) kernel: Option<&'static dyn Combine>,
    pub(super) stream: Option<StreamUse>,
    /// Room for vectors that the operation has no buffer for.
    pub(super) scratch: &'a mut Vec<u8>,
    /// Room for the limits of parts and blocks.
    pub(super) cuts: &'a mut Vec<u64>,
}

/// The stages of `operation` at this rank, on the path that was selected for it.
pub(super) fn plan(operation: &Operation, path: Path, context: PlanContext<'_>) -> Plan {
    let stream = context
        .stream
        .filter(|stream| operation.len_bytes() as u64 >= stream.min_bytes && path == Path::Tree);
    let planner = Planner { operation, path, len_bytes: operation.len_bytes(), context };
    let is_on_one_host = !planner.context.placement.spans_hosts();
    match operation.collective {
        _ if planner.context.placement.ranks() == 1 => planner.alone(),
        Collective::Allreduce => add_stream(planner.allreduce(), operation, stream),
        Collective::Reduce { root } => add_stream(planner.reduce(root), operation, stream),
        Collective::Broadcast { root } => planner.broadcast(root),
        Collective::Barrier => planner.barrier(),
        _ if is_on_one_host => planner.on_one_host(),
        Collective::ReduceScatter => planner.reduce_scatter(),
        Collective::Allgather => planner.allgather(),
        Collective::Scan => planner.scan(true),
        Collective::Exscan => planner.scan(false),
    }
}

/// What the ranks of a host do for `operation`; none if it is a reduction and `kernel` is none.
#[inline]
pub(super) fn shm_action(
    operation: &Operation,
    kernel: Option<&'static dyn Combine>,
) -> Option<Action> {
    Some(match operation.collective {
        Collective::Allreduce => Action::Allreduce(kernel?),
        Collective::Reduce { root } => Action::Reduce { to: root, kernel: kernel? },
        Collective::Broadcast { root } => Action::Broadcast { from: root },
        Collective::Barrier => Action::Barrier,
        Collective::ReduceScatter => {
            Action::ReduceScatter { kernel: kernel?, blocks: operation.blocks }
        }
        Collective::Allgather => Action::Allgather,
        Collective::Scan => Action::Scan { kernel: kernel?, inclusive: true },
        Collective::Exscan => Action::Scan { kernel: kernel?, inclusive: false },
    })
}

/// Makes one stage of a host's reduction, the stream, and what carries its result to the host's ranks,
/// where the vector is streamed. All ranks of a host come to the same.
fn add_stream(mut plan: Plan, operation: &Operation, stream: Option<StreamUse>) -> Plan {
    let Some(StreamUse { terms, .. }) = stream else { return plan };
    let (reduce, spread) = match plan.as_slice() {
        [Stage::Host(reduce)] | [Stage::Host(reduce), Stage::InterHost { .. }] => (*reduce, None),
        [Stage::Host(reduce), Stage::Host(spread)]
        | [Stage::Host(reduce), Stage::InterHost { .. }, Stage::Host(spread)] => {
            (*reduce, Some(*spread))
        }
        _ => return plan,
    };
    let element_bytes = operation.element_bytes();
    let Some(mut streamed) = Streamed::new(reduce, spread, element_bytes, terms) else {
        return plan;
    };
    if let Some(Stage::InterHost { operation, .. }) = plan.get(1) {
        streamed = streamed.streams(*operation);
    }
    plan.clear();
    plan.push(Stage::Streamed(Box::new(streamed)));
    plan
}

/// Plans one operation at one rank. What ranks have blocks of their own in is in `blocks`.
pub(super) struct Planner<'a> {
    pub(super) operation: &'a Operation,
    pub(super) path: Path,
    pub(super) len_bytes: usize,
    pub(super) context: PlanContext<'a>,
}

impl Planner<'_> {
    fn alone(self) -> Plan {
        let &Operation { source, target, .. } = self.operation;
        let has_result = match self.operation.collective {
            Collective::Allreduce
            | Collective::Reduce { .. }
            | Collective::ReduceScatter
            | Collective::Allgather
            | Collective::Scan => true,
            Collective::Exscan | Collective::Broadcast { .. } | Collective::Barrier => false,
        };
        let moves = has_result && source != target.cast_const();
        let copy = Stage::Local(Local::Copy { source, target, len_bytes: self.len_bytes });
        moves.then_some(copy).into_iter().collect()
    }

    fn allreduce(self) -> Plan {
        let &Operation { source, target, .. } = self.operation;
        let placement = self.context.placement;
        if !placement.spans_hosts() {
            return self.on_one_host();
        }
        let mut plan = Plan::new();
        if let Path::Direct(DirectPath { leaders, sub_partitions, .. }) = self.path
            && (leaders, sub_partitions) != (1, 1)
        {
            plan.push(self.by_leaders(leaders, sub_partitions));
            return plan;
        }
        let mut reduced = source;
        if placement.local_ranks() > 1 {
            let action = Action::Reduce { to: 0, kernel: self.kernel() };
            plan.push(self.on_host(action, source, target));
            reduced = target;
        }
        if placement.is_leader() {
            plan.push(self.between_hosts(Collective::Allreduce, reduced, target));
        }
        if placement.local_ranks() > 1 {
            plan.push(self.on_host(Action::Broadcast { from: 0 }, target, target));
        }
        plan
    }

    /// By several leaders, or in several parts.
    fn by_leaders(&self, leaders: u32, parts: u32) -> Stage {
        let &Operation { source, target, .. } = self.operation;
        let kernel = self.kernel();
        let lead = Some(self.context.placement.local_rank()).filter(|rank| *rank < leaders);
        let whole = self.inter_host_operation(Collective::Allreduce, source, target);
        Stage::MultiLeader(Partition { whole, kernel, leaders, parts, lead })
    }

    fn reduce(mut self, root: u32) -> Plan {
        let &Operation { source, target, .. } = self.operation;
        let placement = self.context.placement;
        if !placement.spans_hosts() {
            return self.on_one_host();
        }
        let mut plan = Plan::new();
        let root_local = placement.local_of[root as usize];
        // The leader's vector lies in its result buffer only if it is the root; MPI promises no
        // such buffer anywhere else.
        let needs_scratch = placement.is_leader()
            && placement.rank != root
            && (placement.local_ranks() > 1
                || placement.is_on_this_host(root)
                || self.path.method().is_some_and(needs_target));
        let at_leader = if needs_scratch { self.scratch(self.len_bytes) } else { target };
        let mut reduced = source;
        if placement.local_ranks() > 1 {
            let action = Action::Reduce { to: 0, kernel: self.kernel() };
            plan.push(self.on_host(action, source, at_leader));
            reduced = at_leader;
        }
        if placement.is_leader() {
            let to_root = Collective::Reduce { root: placement.host_of[root as usize] };
            plan.push(self.between_hosts(to_root, reduced, at_leader));
        }
        if placement.is_on_this_host(root) && root_local != 0 {
            let action = Action::Transfer { from: 0, to: root_local };
            plan.push(self.on_host(action, at_leader, target));
        }
        plan
    }

    fn broadcast(self, root: u32) -> Plan {
        let target = self.operation.target;
        let placement = self.context.placement;
        let root_local = placement.local_of[root as usize];
        let is_here = placement.is_on_this_host(root);
        let is_crowded = placement.local_ranks() > 1;
        let mut plan = Plan::new();
        // The root's own host needs only it; everyone there is served before the other hosts are.
        if is_here && is_crowded {
            plan.push(self.on_host(Action::Broadcast { from: root_local }, target, target));
        }
        if placement.spans_hosts() && placement.is_leader() {
            let from_root = Collective::Broadcast { root: placement.host_of[root as usize] };
            plan.push(self.between_hosts(from_root, target, target));
        }
        if !is_here && is_crowded {
            plan.push(self.on_host(Action::Broadcast { from: 0 }, target, target));
        }
        plan
    }

    fn barrier(self) -> Plan {
        let placement = self.context.placement;
        let nowhere = std::ptr::null_mut();
        let on_host = || self.on_host(Action::Barrier, nowhere, nowhere);
        let mut plan = Plan::new();
        if placement.local_ranks() > 1 {
            plan.push(on_host());
        }
        if placement.spans_hosts() && placement.is_leader() {
            plan.push(self.between_hosts(Collective::Barrier, nowhere, nowhere));
        }
        if placement.spans_hosts() && placement.local_ranks() > 1 {
            plan.push(on_host());
        }
        plan
    }

    fn on_one_host(self) -> Plan {
        let &Operation { source, target, .. } = self.operation;
        let action = shm_action(self.operation, self.context.kernel)
            .expect("the collective and its kernel were checked");
        Plan::from_iter([self.on_host(action, source, target)])
    }

    pub(super) fn kernel(&self) -> &'static dyn Combine {
        self.context.kernel.expect("a reduction was checked to be defined")
    }

    pub(super) fn on_host(&self, action: Action, source: *const u8, target: *mut u8) -> Stage {
        Stage::Host(shm::Operation { action, source, target, len_bytes: self.len_bytes })
    }

    /// The leaders' stage; the root of `collective` is a host.
    pub(super) fn between_hosts(
        &self,
        collective: Collective,
        source: *const u8,
        target: *mut u8,
    ) -> Stage {
        let operation = self.inter_host_operation(collective, source, target);
        Stage::InterHost { method: self.method(), operation }
    }

    pub(super) fn method(&self) -> Method {
        self.path.method().expect("a path between hosts has a method")
    }

    /// The host algorithm. The tree has no choice.
    pub(super) fn algorithm(&self) -> Algorithm {
        match self.path {
            Path::Direct(direct) => direct.algorithm,
            Path::SharedMemory | Path::Tree => Algorithm::Binomial,
        }
    }

    fn inter_host_operation(
        &self,
        collective: Collective,
        source: *const u8,
        target: *mut u8,
    ) -> InterHostOperation {
        let &Operation { operator, datatype, combiner, elements, .. } = self.operation;
        let (operator, datatype) = match (collective, combiner) {
            (Collective::Broadcast { .. }, _) => (Operator::Broadcast, datatype),
            (_, Some(_)) => (Operator::Broadcast, Datatype::U8),
            (_, None) => (operator, datatype),
        };
        let has_parts = collective == Collective::ReduceScatter;
        InterHostOperation {
            collective,
            called: self.context.called.kind,
            root_called: self.context.called.number,
            operator,
            datatype,
            elements,
            element_bytes: self.operation.element_bytes(),
            // Every operator of ours commutes.
            order: if combiner.is_some() { Order::Rank } else { Order::Any },
            parts: if has_parts { Blocks::At(self.context.cuts.as_ptr()) } else { Blocks::Even },
            kernel: self.context.kernel,
            algorithm: self.algorithm(),
            source,
            target,
        }
    }

    pub(super) fn scratch(&mut self, len_bytes: usize) -> *mut u8 {
        if self.context.scratch.len() < len_bytes {
            self.context.scratch.resize(len_bytes, 0);
        }
        self.context.scratch.as_mut_ptr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tributary_inter_host::kernel;

    const DIRECT: Path =
        Path::Direct(DirectPath { algorithm: Algorithm::Ring, leaders: 1, sub_partitions: 1 });

    fn stages(rank: u32, collective: Collective, path: Path) -> Plan {
        let hosts: Vec<String> = ["a", "a", "a", "b", "b", "b"].map(str::to_owned).into();
        let placement = Placement::new(rank, &hosts);
        let operation = Operation {
            collective,
            datatype: Datatype::I32,
            operator: Operator::Sum,
            elements: 100,
            ..Operation::BARRIER
        };
        let kernel = kernel(Operator::Sum, Datatype::I32);
        let (placement, scratch, cuts) = (&placement, &mut Vec::new(), &mut Vec::new());
        let called = Called::from(&operation);
        let context = PlanContext { placement, called, kernel, stream: None, scratch, cuts };
        plan(&operation, path, context)
    }

    #[test]
    fn leaders_are_the_first_ranks_of_every_host() {
        let path = DirectPath { algorithm: Algorithm::Ring, leaders: 2, sub_partitions: 3 };
        for (rank, lead) in [(0, Some(0)), (1, Some(1)), (2, None), (3, Some(0)), (5, None)] {
            let plan = stages(rank, Collective::Allreduce, Path::Direct(path));
            let [Stage::MultiLeader(partition)] = plan.as_slice() else { panic!("rank {rank}") };
            assert_eq!((partition.leaders, partition.parts, partition.lead), (2, 3, lead));
        }
    }

    #[test]
    fn one_leader_a_host_takes_the_method_that_was_selected() {
        for path in [Path::Tree, DIRECT] {
            for collective in [
                Collective::Allreduce,
                Collective::Reduce { root: 4 },
                Collective::Broadcast { root: 4 },
                Collective::Barrier,
            ] {
                let count = |rank| {
                    let selected = path.method().unwrap();
                    let is_it = |stage: &&Stage| matches!(stage, Stage::InterHost { method, .. } if *method == selected);
                    stages(rank, collective, path).iter().filter(is_it).count()
                };
                assert_eq!((count(0), count(3)), (1, 1), "{collective:?}");
                assert_eq!((count(1), count(4)), (0, 0), "{collective:?}");
            }
        }
    }
}
