//! Which stages an operation takes at one rank.
//!
//! Ranks of one host reduce in shared memory to their leader (the lowest rank there); leaders meet
//! in the tree, or directly; the result goes out in shared memory again. Every rank of a host takes part in the
//! same shared-memory stages in the same order, which keeps their step counts equal.

use arrayvec::ArrayVec;
use tributary_algorithms::Collective as Joint;
use tributary_protocol::endpoint::OperationSpec;
use tributary_wire::Operator;
use tributary_wire::frame::Target;

use crate::leaders::Partition;
use crate::mesh::MeshOperation;
use crate::on_host;
use crate::operation::{Collective, Operation};
use crate::pipeline::Pipeline;
use crate::seat::Seat;
use crate::ways::Between;
use tributary_shm_collectives::{self as host, Action, Combine};

/// Most stages any operation takes.
const STAGES_MAX: usize = 3;

pub(crate) type Plan = ArrayVec<Stage, STAGES_MAX>;

/// One stage at one rank.
pub(crate) enum Stage {
    /// Between the ranks of this host.
    Host(host::Operation),
    /// Both, by several leaders or in several parts.
    Leaders(Partition),
    /// Between the leaders; at leaders only.
    Tree { spec: OperationSpec, source: *const u8, target: *mut u8, len_bytes: usize },
    /// Between the leaders, directly; at leaders only.
    Mesh(MeshOperation),
    /// Between the ranks of this host and, at its leader, in the tree, part by part.
    Pipeline(Box<Pipeline>),
    /// Within this rank: a communicator of one.
    Copy { source: *const u8, target: *mut u8, len_bytes: usize },
}

// SAFETY: the pointers are the operation's own; see `Operation`.
unsafe impl Send for Stage {}

/// What the stages work with beside the operation's own buffers.
pub(crate) struct Means<'a> {
    pub(crate) seat: &'a Seat,
    pub(crate) kernel: Option<&'static dyn Combine>,
    /// Room for the vector at a leader whose rank has no buffer for a result.
    pub(crate) scratch: &'a mut Vec<u8>,
}

/// The stages of `operation` at this rank.
pub(crate) fn plan(operation: &Operation, means: Means<'_>) -> Plan {
    let seat = means.seat;
    let planner = Planner { operation, len_bytes: operation.len_bytes(), means };
    match operation.collective {
        _ if planner.means.seat.ranks() == 1 => planner.alone(),
        Collective::Allreduce => planner.allreduce().overlapped(operation, seat),
        Collective::Reduce { root } => planner.reduce(root).overlapped(operation, seat),
        Collective::Broadcast { root } => planner.broadcast(root),
        Collective::Barrier => planner.barrier(),
        Collective::ReduceScatter { .. } | Collective::Allgather | Collective::Scan { .. } => {
            planner.on_one_host()
        }
    }
}

/// A plan whose stages may run into each other.
trait Overlap {
    fn overlapped(self, operation: &Operation, seat: &Seat) -> Self;
}

impl Overlap for Plan {
    /// Makes one stage of a host's reduction, the stream, and what carries its result to the host's
    /// ranks, where the vector is streamed at all. All ranks of a host come to the same.
    fn overlapped(mut self, operation: &Operation, seat: &Seat) -> Self {
        let Some(stream) = seat.stream else { return self };
        let is_streamed = operation.len_bytes() as u64 >= stream.min_bytes
            && seat.ways.between(operation) == Some(Between::Tree);
        // A stripe that waited for the host would hold its stream lock while it waits for others.
        let stripes =
            seat.stripes.of(operation.operator, operation.elements, operation.len_bytes());
        if !is_streamed || stripes > 1 {
            return self;
        }
        let (reduce, spread) = match self.as_slice() {
            [Stage::Host(reduce)] | [Stage::Host(reduce), Stage::Tree { .. }] => (*reduce, None),
            [Stage::Host(reduce), Stage::Host(spread)]
            | [Stage::Host(reduce), Stage::Tree { .. }, Stage::Host(spread)] => {
                (*reduce, Some(*spread))
            }
            _ => return self,
        };
        let element_bytes = operation.datatype.size_bytes();
        let Some(mut pipeline) = Pipeline::new(reduce, spread, element_bytes, stream.terms) else {
            return self;
        };
        if let Some(Stage::Tree { spec, source, target, .. }) = self.get(1) {
            pipeline = pipeline.streams(*spec, *source, *target);
        }
        self.clear();
        self.push(Stage::Pipeline(Box::new(pipeline)));
        self
    }
}

struct Planner<'a> {
    operation: &'a Operation,
    len_bytes: usize,
    means: Means<'a>,
}

impl Planner<'_> {
    fn alone(self) -> Plan {
        let &Operation { source, target, .. } = self.operation;
        let has_result = match self.operation.collective {
            Collective::Allreduce
            | Collective::Reduce { .. }
            | Collective::ReduceScatter { .. }
            | Collective::Allgather => true,
            Collective::Scan { inclusive } => inclusive,
            Collective::Broadcast { .. } | Collective::Barrier => false,
        };
        let moves = has_result && source != target.cast_const();
        let copy = Stage::Copy { source, target, len_bytes: self.len_bytes };
        moves.then_some(copy).into_iter().collect()
    }

    fn allreduce(self) -> Plan {
        let &Operation { source, target, .. } = self.operation;
        let seat = self.means.seat;
        let mut plan = Plan::new();
        if !seat.spans_hosts() {
            plan.push(self.on_host(Action::Allreduce(self.kernel()), source, target));
            return plan;
        }
        let (leaders, parts) = seat.ways.partition(self.operation);
        if (leaders, parts) != (1, 1) {
            return self.allreduce_partitioned(leaders, parts);
        }
        let mut reduced = source;
        if seat.local_ranks() > 1 {
            let action = Action::Reduce { to: 0, kernel: self.kernel() };
            plan.push(self.on_host(action, source, target));
            reduced = target;
        }
        if seat.is_leader() {
            plan.push(match self.between() {
                Some(Between::Mesh) => Stage::Mesh(self.in_mesh(Joint::Allreduce, reduced, target)),
                _ => self.in_tree(Target::All, true, true, reduced, target),
            });
        }
        if seat.local_ranks() > 1 {
            plan.push(self.on_host(Action::Broadcast { from: 0 }, target, target));
        }
        plan
    }

    /// By several leaders, or in several parts.
    fn allreduce_partitioned(self, leaders: u32, parts: u32) -> Plan {
        let &Operation { source, target, .. } = self.operation;
        let kernel = self.kernel();
        let lead = Some(self.means.seat.local_rank()).filter(|rank| *rank < leaders);
        let whole = self.in_mesh(Joint::Allreduce, source, target);
        Plan::from_iter([Stage::Leaders(Partition { whole, kernel, leaders, parts, lead })])
    }

    fn between(&self) -> Option<Between> {
        self.means.seat.ways.between(self.operation)
    }

    fn reduce(mut self, root: u32) -> Plan {
        let &Operation { source, target, .. } = self.operation;
        let seat = self.means.seat;
        let root_local = seat.placement.local_of[root as usize];
        let mut plan = Plan::new();
        if !seat.spans_hosts() {
            let action = Action::Reduce { to: root_local, kernel: self.kernel() };
            plan.push(self.on_host(action, source, target));
            return plan;
        }
        // The leader's vector lies in its result buffer only if it is the root; MPI promises no
        // such buffer anywhere else. Host algorithms work in it wherever they pass.
        let needs_scratch = seat.is_leader()
            && seat.rank != root
            && (seat.local_ranks() > 1
                || seat.is_on_this_host(root)
                || self.between() == Some(Between::Mesh));
        let at_leader = if needs_scratch { self.scratch() } else { target };
        let mut reduced = source;
        if seat.local_ranks() > 1 {
            let action = Action::Reduce { to: 0, kernel: self.kernel() };
            plan.push(self.on_host(action, source, at_leader));
            reduced = at_leader;
        }
        if seat.is_leader() {
            let root_host = seat.placement.host_of[root as usize];
            plan.push(if self.between() == Some(Between::Mesh) {
                Stage::Mesh(self.in_mesh(Joint::Reduce { root: root_host }, reduced, at_leader))
            } else {
                let to = Target::Member(seat.endpoints[root_host as usize]);
                self.in_tree(to, true, seat.is_on_this_host(root), reduced, at_leader)
            });
        }
        if seat.is_on_this_host(root) && root_local != 0 {
            let action = Action::Transfer { from: 0, to: root_local };
            plan.push(self.on_host(action, at_leader, target));
        }
        plan
    }

    fn broadcast(self, root: u32) -> Plan {
        let target = self.operation.target;
        let seat = self.means.seat;
        let root_local = seat.placement.local_of[root as usize];
        let is_here = seat.is_on_this_host(root);
        let is_crowded = seat.local_ranks() > 1;
        let mut plan = Plan::new();
        // The root's own host needs only it; everyone there is served before the tree is.
        if is_here && is_crowded {
            plan.push(self.on_host(Action::Broadcast { from: root_local }, target, target));
        }
        if seat.spans_hosts() && seat.is_leader() {
            let root_host = seat.placement.host_of[root as usize];
            plan.push(match self.between() {
                Some(Between::Mesh) => {
                    Stage::Mesh(self.in_mesh(Joint::Broadcast { root: root_host }, target, target))
                }
                _ => self.in_tree(Target::All, is_here, !is_here, target, target),
            });
        }
        if !is_here && is_crowded {
            plan.push(self.on_host(Action::Broadcast { from: 0 }, target, target));
        }
        plan
    }

    fn barrier(self) -> Plan {
        let seat = self.means.seat;
        let nowhere = std::ptr::null_mut();
        let on_host = || self.on_host(Action::Barrier, nowhere, nowhere);
        let mut plan = Plan::new();
        if seat.local_ranks() > 1 {
            plan.push(on_host());
        }
        if seat.spans_hosts() && seat.is_leader() {
            plan.push(if self.between() == Some(Between::Mesh) {
                Stage::Mesh(self.in_mesh(Joint::Barrier, nowhere, nowhere))
            } else {
                let spec = OperationSpec::BARRIER;
                Stage::Tree { spec, source: nowhere, target: nowhere, len_bytes: 0 }
            });
        }
        if seat.spans_hosts() && seat.local_ranks() > 1 {
            plan.push(on_host());
        }
        plan
    }

    fn on_one_host(self) -> Plan {
        let &Operation { source, target, .. } = self.operation;
        let action = on_host::action(self.operation, self.means.kernel)
            .expect("the collective and its kernel were checked");
        Plan::from_iter([self.on_host(action, source, target)])
    }

    fn kernel(&self) -> &'static dyn Combine {
        self.means.kernel.expect("a reduction was checked to be defined")
    }

    fn on_host(&self, action: Action, source: *const u8, target: *mut u8) -> Stage {
        Stage::Host(host::Operation { action, source, target, len_bytes: self.len_bytes })
    }

    fn in_tree(
        &self,
        to: Target,
        contributes: bool,
        receives: bool,
        source: *const u8,
        target: *mut u8,
    ) -> Stage {
        let operator = match self.operation.collective {
            Collective::Broadcast { .. } => Operator::Broadcast,
            _ => self.operation.operator,
        };
        let spec = OperationSpec {
            operator,
            datatype: self.operation.datatype,
            elements: self.operation.elements,
            target: to,
            contributes,
            receives,
        };
        Stage::Tree { spec, source, target, len_bytes: self.len_bytes }
    }

    fn in_mesh(&self, collective: Joint, source: *const u8, vector: *mut u8) -> MeshOperation {
        let operator = match collective {
            Joint::Broadcast { .. } => Operator::Broadcast,
            _ => self.operation.operator,
        };
        MeshOperation {
            collective,
            operator,
            datatype: self.operation.datatype,
            elements: self.operation.elements,
            measured: self.means.seat.ways.algorithm(self.operation),
            kernel: self.means.kernel,
            source,
            vector,
        }
    }

    fn scratch(&mut self) -> *mut u8 {
        if self.means.scratch.len() < self.len_bytes {
            self.means.scratch.resize(self.len_bytes, 0);
        }
        self.means.scratch.as_mut_ptr()
    }
}

#[cfg(test)]
mod tests {
    use tributary_wire::{Datatype, EndpointId};

    use super::*;
    use crate::context::Placement;
    use crate::kernels::kernel;
    use crate::on_host::Longest;
    use crate::stripes::Stripes;
    use crate::ways::Ways;

    fn seat(rank: u32, ways: Ways) -> Seat {
        let hosts: Vec<String> = ["a", "a", "a", "b", "b", "b"].map(str::to_owned).into();
        let placement = Placement::new(&hosts);
        Seat {
            rank,
            placement,
            endpoints: vec![EndpointId(0), EndpointId(1)],
            ways,
            stream: None,
            stripes: Stripes::default(),
            longest: Longest::default(),
            note: None,
            carriers: None,
            memory_notes: Vec::new(),
        }
    }

    fn stages(seat: &Seat, collective: Collective) -> Plan {
        let operation = Operation {
            collective,
            datatype: Datatype::I32,
            operator: Operator::Sum,
            elements: 100,
            source: std::ptr::null(),
            target: std::ptr::null_mut(),
        };
        let kernel = kernel(Operator::Sum, Datatype::I32);
        plan(&operation, Means { seat, kernel, scratch: &mut Vec::new() })
    }

    #[test]
    fn leaders_are_the_first_ranks_of_every_host() {
        let ways = Ways {
            usual: Some(Between::Mesh),
            leaders: Some(2),
            sub_partitions: Some(3),
            leaders_max: 2,
            hosts: 2,
            ranks: 6,
            ..Ways::default()
        };
        for (rank, lead) in [(0, Some(0)), (1, Some(1)), (2, None), (3, Some(0)), (5, None)] {
            let plan = stages(&seat(rank, ways.clone()), Collective::Allreduce);
            let [Stage::Leaders(partition)] = plan.as_slice() else { panic!("rank {rank}") };
            assert_eq!((partition.leaders, partition.parts, partition.lead), (2, 3, lead));
        }
    }

    #[test]
    fn one_leader_a_host_takes_the_way_between() {
        for between in [Between::Tree, Between::Mesh] {
            let ways = Ways { usual: Some(between), leaders_max: 1, ..Ways::default() };
            for collective in [
                Collective::Allreduce,
                Collective::Reduce { root: 4 },
                Collective::Broadcast { root: 4 },
                Collective::Barrier,
            ] {
                let count = |rank, between| {
                    let plan = stages(&seat(rank, ways.clone()), collective);
                    let is_it = |stage: &&Stage| match stage {
                        Stage::Tree { .. } => between == Between::Tree,
                        Stage::Mesh(_) => between == Between::Mesh,
                        _ => false,
                    };
                    plan.iter().filter(is_it).count()
                };
                assert_eq!((count(0, between), count(3, between)), (1, 1), "{collective:?}");
                assert_eq!((count(1, between), count(4, between)), (0, 0), "{collective:?}");
            }
        }
    }
}
