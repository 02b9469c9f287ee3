//! Stages of the collectives in which every rank has a block of its own, between hosts: allgather,
//! reduce-scatter and scans.
//!
//! Between hosts a vector lies in *host order*: the blocks of the first host's ranks, those of the
//! second's, and so on, so that a host's part is one range wherever its ranks stand in the communicator.
//! If that is not the order of the ranks, a leader puts the blocks into the other order.
//!
//! An allgather goes through the tree as a bitwise or of vectors that are zero but for their host's part.
//! A reduce-scatter goes as an allreduce there. Direct links have algorithms for both.
//!
//! A scan takes the reduction of each host's ranks; leaders learn the reduction of the hosts before theirs
//! (through the tree: all hosts', which they reduce), and put it before their own contribution to the
//! host's scan. Where host order is not the order of the ranks no host has a prefix to hand on: all
//! contributions are gathered instead, and every rank reduces those up to its own.

use tributary_algorithms::{self as algorithms, Collective, CollectiveKind};
use tributary_shm_collectives::{self as shm, Action, Blocks};
use tributary_wire::{Datatype, Operator};

use super::local::{Arrangement, BlockOrder, Lead, Local, block_of};
use super::plan::{Plan, Planner, Stage};
use crate::operation::Operation;
use tributary_inter_host::InterHostOperation;
use tributary_selection::Path;

/// Rooms of the scratch memory begin at cache lines.
const LINE_BYTES: usize = 64;

impl Planner<'_> {
    pub(super) fn allgather(mut self) -> Plan {
        let &Operation { source, target, .. } = self.operation;
        let placement = self.context.placement;
        let (block_bytes, ranks) = (self.len_bytes, placement.ranks() as usize);
        let len_bytes = block_bytes * ranks;
        let is_arranged = !placement.is_in_host_order() && placement.is_leader();
        let all = if is_arranged { self.rooms([len_bytes])[0] } else { target };
        let mut plan = Plan::new();
        self.gather_at_leaders(&mut plan, source, all, block_bytes);
        if is_arranged {
            plan.push(Stage::Local(Local::Arrange(Arrangement {
                into: BlockOrder::Ranks,
                source: all,
                target,
                blocks: Blocks::Even,
                element_bytes: 1,
                len_bytes,
            })));
        }
        self.spread(&mut plan, target, len_bytes);
        plan
    }

    pub(super) fn reduce_scatter(mut self) -> Plan {
        let &Operation { source, target, datatype, blocks, .. } = self.operation;
        let placement = self.context.placement;
        let (len_bytes, element_bytes) = (self.len_bytes, datatype.size_bytes());
        let is_alone = placement.local_ranks() == 1;
        let is_arranged = !placement.is_in_host_order();
        self.deal();
        let hosts = placement.hosts.len();
        let cut_bytes = |cuts: &[u64], at: usize| cuts[at] as usize * element_bytes;
        let host = placement.host() as usize;
        let first = cut_bytes(self.context.cuts, host);
        let part_bytes = cut_bytes(self.context.cuts, host + 1) - first;
        let own_bytes = cut_bytes(self.context.cuts, hosts + 2);
        let local_blocks = Blocks::At(self.context.cuts[hosts + 1..].as_ptr());
        let mut plan = Plan::new();
        let mut part = std::ptr::null_mut();
        let (mut reduced, mut vector) = (source, std::ptr::null_mut());
        if placement.is_leader() {
            let arranged_bytes = if is_arranged { len_bytes } else { 0 };
            let arranged;
            [vector, arranged] = self.rooms([len_bytes, arranged_bytes]);
            part = if is_arranged { arranged } else { vector }.wrapping_add(first);
        }
        if !is_alone {
            let action = Action::Reduce { to: 0, kernel: self.kernel() };
            plan.push(self.on_host(action, source, vector));
            reduced = vector;
        }
        if placement.is_leader() {
            let mut into = vector;
            if is_arranged {
                into = part.wrapping_sub(first);
                plan.push(Stage::Local(Local::Arrange(Arrangement {
                    into: BlockOrder::Hosts,
                    source: reduced,
                    target: into,
                    blocks,
                    element_bytes,
                    len_bytes,
                })));
                reduced = into;
            }
            plan.push(self.between_hosts(Collective::ReduceScatter, reduced, into));
            let copy = Local::Copy { source: part, target, len_bytes: own_bytes };
            plan.push(Stage::Local(copy));
        }
        if !is_alone && part_bytes > 0 {
            let action = Action::Scatter { from: 0, element_bytes, blocks: local_blocks };
            plan.push(host_stage(action, part, target, part_bytes));
        }
        plan
    }

    pub(super) fn scan(self, inclusive: bool) -> Plan {
        if self.context.placement.is_in_host_order() {
            self.scan_by_hosts(inclusive)
        } else {
            self.scan_of_gathered(inclusive)
        }
    }

    fn scan_by_hosts(mut self, inclusive: bool) -> Plan {
        let &Operation { source, target, .. } = self.operation;
        let placement = self.context.placement;
        let (len_bytes, host) = (self.len_bytes, placement.host());
        let (is_alone, is_leader) = (placement.local_ranks() == 1, placement.is_leader());
        let goes_by_tree = self.path == Path::Tree;
        let places = if goes_by_tree { placement.hosts.len() } else { 1 };
        let [totals, prefix, own] = if is_leader {
            self.rooms([len_bytes * places + self.padding_bytes(), len_bytes, len_bytes])
        } else {
            [std::ptr::null_mut(); 3]
        };
        let total =
            if goes_by_tree { totals.wrapping_add(len_bytes * host as usize) } else { totals };
        let mut plan = Plan::new();
        if !is_alone {
            let action = Action::Reduce { to: 0, kernel: self.kernel() };
            plan.push(self.on_host(action, source, total));
        } else if goes_by_tree {
            plan.push(Stage::Local(Local::Copy { source, target: total, len_bytes }));
        }
        if is_leader && goes_by_tree {
            self.cut_evenly(len_bytes);
            self.exchange_parts(&mut plan, totals);
        } else if is_leader {
            let reduced = if is_alone { source } else { total.cast_const() };
            plan.push(self.between_hosts(Collective::Exscan, reduced, prefix));
        }
        let follows = host > 0;
        if is_leader && follows {
            plan.push(Stage::Local(Local::Lead(Lead {
                kernel: self.kernel(),
                totals: if goes_by_tree { totals } else { std::ptr::null() },
                hosts_before: host,
                prefix,
                source,
                own,
                target,
                len_bytes,
                inclusive,
                is_alone,
            })));
        } else if is_alone && inclusive && source != target.cast_const() {
            plan.push(Stage::Local(Local::Copy { source, target, len_bytes }));
        }
        if !is_alone {
            let action = Action::Scan { kernel: self.kernel(), inclusive };
            let source = if is_leader && follows { own.cast_const() } else { source };
            plan.push(self.on_host(action, source, target));
        }
        plan
    }

    fn scan_of_gathered(mut self, inclusive: bool) -> Plan {
        let &Operation { source, target, .. } = self.operation;
        let placement = self.context.placement;
        let len_bytes = self.len_bytes;
        let all_bytes = len_bytes * placement.ranks() as usize;
        let [vectors] = self.rooms([all_bytes + self.padding_bytes()]);
        let mut plan = Plan::new();
        self.gather_at_leaders(&mut plan, source, vectors, len_bytes);
        self.spread(&mut plan, vectors, all_bytes);
        let ranks = placement.rank + u32::from(inclusive);
        if ranks > 0 {
            let kernel = self.kernel();
            plan.push(Stage::Local(Local::Prefix { kernel, vectors, ranks, target, len_bytes }));
        }
        plan
    }

    /// From every rank's `source`, of `block_bytes`, to `all`, in host order, at every leader.
    fn gather_at_leaders(
        &mut self,
        plan: &mut Plan,
        source: *const u8,
        all: *mut u8,
        block_bytes: usize,
    ) {
        let placement = self.context.placement;
        let first = placement.first_position(placement.host()) as usize;
        let mine = all.wrapping_add(first * block_bytes);
        if placement.local_ranks() > 1 {
            plan.push(host_stage(Action::Gather { to: 0 }, source, mine, block_bytes));
        } else if source != mine.cast_const() {
            plan.push(Stage::Local(Local::Copy { source, target: mine, len_bytes: block_bytes }));
        }
        if placement.is_leader() {
            let cuts = &mut *self.context.cuts;
            cuts.clear();
            let position = |host| u64::from(placement.first_position(host));
            cuts.extend((0..=placement.host_count()).map(|at| position(at) * block_bytes as u64));
            self.exchange_parts(plan, all);
        }
    }

    /// The leader's vector to the other ranks of its host.
    fn spread(&self, plan: &mut Plan, vector: *mut u8, len_bytes: usize) {
        if self.context.placement.local_ranks() > 1 {
            plan.push(host_stage(Action::Broadcast { from: 0 }, vector, vector, len_bytes));
        }
    }

    /// Between the leaders: each has its host's part of `all`, as cut in bytes, and gets the others'.
    fn exchange_parts(&self, plan: &mut Plan, all: *mut u8) {
        let cuts = &*self.context.cuts;
        let host = self.context.placement.host() as usize;
        let len_bytes = cuts[self.context.placement.hosts.len()] as usize + self.padding_bytes();
        if self.path == Path::Tree {
            let (kept_first, kept_end) = (cuts[host] as usize, cuts[host + 1] as usize);
            let clear = Local::Clear { vector: all, len_bytes, kept_first, kept_end };
            plan.push(Stage::Local(clear));
        }
        let called = self.operation.collective.kind();
        let (operator, datatype) = uniting_pair(called);
        let operation = InterHostOperation {
            collective: Collective::Allgather,
            called,
            root_called: 0,
            operator,
            datatype,
            elements: len_bytes as u64,
            element_bytes: datatype.size_bytes(),
            order: algorithms::Order::Any,
            parts: Blocks::At(cuts.as_ptr()),
            kernel: None,
            algorithm: self.algorithm(),
            source: all,
            target: all,
        };
        plan.push(Stage::InterHost { method: self.method(), operation });
    }

    /// Zeros behind the parts of a scan's vector in a tree. Hosts combine the parts themselves, so its frames tell neither
    /// operator nor datatype, but for the length: no two calls that differ in one of them have the same.
    fn padding_bytes(&self) -> usize {
        let &Operation { collective, operator, datatype, combiner, .. } = self.operation;
        let is_scan = matches!(collective, Collective::Scan | Collective::Exscan);
        if self.path != Path::Tree || !is_scan || combiner.is_some() {
            return 0;
        }
        let [operator, datatype] = [operator.code(), datatype.code()].map(usize::from);
        (operator * PADDING_OF_OPERATORS + datatype) % PADDING_MAX
    }

    /// One part of `len_bytes` for each host.
    fn cut_evenly(&mut self, len_bytes: usize) {
        let hosts = self.context.placement.hosts.len();
        self.context.cuts.clear();
        self.context.cuts.extend((0..=hosts).map(|host| (host * len_bytes) as u64));
    }

    /// A reduce-scatter's blocks in host order: where each host's part begins and the last one ends, then
    /// where the blocks of this host's ranks do, from its first one on; in elements.
    fn deal(&mut self) {
        let &Operation { blocks, elements, .. } = self.operation;
        let placement = self.context.placement;
        let block_elements = |rank: &u32| {
            // SAFETY: the blocks were checked (`Engine::check`), and are valid until the operation is
            // over, as the caller of `Communicator::run` or `start` promised.
            let block = unsafe { block_of(blocks, *rank, placement.ranks(), elements) };
            block.end - block.start
        };
        let cuts = &mut *self.context.cuts;
        cuts.clear();
        let mut end = 0;
        cuts.push(end);
        for host in 0..placement.host_count() {
            end += placement.ranks_of(host).iter().map(block_elements).sum::<u64>();
            cuts.push(end);
        }
        end = 0;
        cuts.push(end);
        for block in placement.ranks_of(placement.host()).iter().map(block_elements) {
            end += block;
            cuts.push(end);
        }
    }

    /// Memory of so many bytes each, until the operation is over.
    fn rooms<const ROOMS: usize>(&mut self, len_bytes: [usize; ROOMS]) -> [*mut u8; ROOMS] {
        let all_bytes = len_bytes.iter().map(|len| len.next_multiple_of(LINE_BYTES)).sum();
        let mut next = self.scratch(all_bytes);
        len_bytes.map(|len| {
            let room = next;
            next = next.wrapping_add(len.next_multiple_of(LINE_BYTES));
            room
        })
    }
}

fn host_stage(action: Action, source: *const u8, target: *mut u8, len_bytes: usize) -> Stage {
    Stage::Host(shm::Operation { action, source, target, len_bytes })
}

/// Longest padding of a scan, and one more: a cache line.
const PADDING_MAX: usize = 64;
/// What one operator more adds to it. Odd, so all operators of one datatype have their own, as have all datatypes of one operator.
const PADDING_OF_OPERATORS: usize = 5;

/// What puts the hosts' parts together in a tree, where each host's vector is zero outside its own part. Any of these pairs
/// does; a pair of its own tells a collective from others in the tree's frames.
fn uniting_pair(called: CollectiveKind) -> (Operator, Datatype) {
    match called {
        CollectiveKind::Scan => (Operator::BitXor, Datatype::U8),
        CollectiveKind::Exscan => (Operator::BitOr, Datatype::I8),
        _ => (Operator::BitOr, Datatype::U8),
    }
}

#[cfg(test)]
mod tests {
    use tributary_algorithms::Algorithm;

    use super::super::plan::{Called, PlanContext, plan};
    use super::*;
    use crate::placement::Placement;
    use tributary_inter_host::kernel;
    use tributary_selection::DirectPath;
    use tributary_tuning::Method;

    const ELEMENTS: u64 = 35;

    /// Hosts of the ranks: in blocks, dealt one by one, of different size, one rank each, and a mixture.
    const PLACEMENTS: [&str; 7] = ["aabb", "abab", "aaabbc", "abc", "abcba", "aab", "abbb"];

    const COLLECTIVES: [Collective; 4] =
        [Collective::Allgather, Collective::ReduceScatter, Collective::Scan, Collective::Exscan];

    fn paths() -> [Path; 2] {
        let direct = DirectPath { algorithm: Algorithm::Ring, leaders: 1, sub_partitions: 1 };
        [Path::Tree, Path::Direct(direct)]
    }

    /// Calls `body` with the plan of every rank of a placement, path and collective. No pointer of a plan
    /// is followed.
    fn each_plan(mut body: impl FnMut(&str, &Placement, Collective, &[(Plan, Vec<u64>)])) {
        for hosts in PLACEMENTS {
            let names: Vec<String> = hosts.chars().map(|host| host.to_string()).collect();
            for (path, collective) in
                paths().into_iter().flat_map(|path| COLLECTIVES.map(|kind| (path, kind)))
            {
                let blocks: Vec<u64> = (0..=names.len() as u64)
                    .map(|at| if at == names.len() as u64 { ELEMENTS } else { at * at })
                    .collect();
                let operation = Operation {
                    collective,
                    datatype: Datatype::I32,
                    operator: Operator::Sum,
                    elements: ELEMENTS,
                    blocks: Blocks::At(blocks.as_ptr()),
                    ..Operation::BARRIER
                };
                let plans: Vec<_> = (0..names.len() as u32)
                    .map(|rank| {
                        let placement = &Placement::new(rank, &names);
                        let kernel = kernel(Operator::Sum, Datatype::I32);
                        let (mut scratch, mut cuts) = (Vec::new(), Vec::new());
                        let (scratch, cut) = (&mut scratch, &mut cuts);
                        let called = Called::from(&operation);
                        let context = PlanContext {
                            placement,
                            called,
                            kernel,
                            stream: None,
                            scratch,
                            cuts: cut,
                        };
                        (plan(&operation, path, context), cuts)
                    })
                    .collect();
                body(hosts, &Placement::new(0, &names), collective, &plans);
            }
        }
    }

    #[test]
    fn ranks_of_a_host_take_the_same_stages_there_and_leaders_one_between_hosts() {
        each_plan(|hosts, placement, collective, plans| {
            let on_host = |plan: &Plan| -> Vec<_> {
                let stages = plan.iter().filter_map(|stage| match stage {
                    Stage::Host(it) => Some((std::mem::discriminant(&it.action), it.len_bytes)),
                    _ => None,
                });
                stages.collect()
            };
            for rank in 0..placement.ranks() {
                let (plan, _) = &plans[rank as usize];
                let leader = placement.leaders[placement.host_of[rank as usize] as usize];
                let what = format!("{collective:?} on {hosts}, rank {rank}");
                assert_eq!(on_host(plan), on_host(&plans[leader as usize].0), "{what}");
                let between = plan.iter().filter(|it| matches!(it, Stage::InterHost { .. }));
                assert_eq!(between.count(), usize::from(rank == leader), "{what}");
                let is_alone = placement.ranks_on[placement.host_of[rank as usize] as usize] == 1;
                assert_eq!(on_host(plan).is_empty(), is_alone, "{what}");
            }
        });
    }

    /// A frame of the tree has no room for the collective.
    #[test]
    fn a_scan_an_exclusive_scan_and_an_allgather_differ_between_hosts() {
        let mut pairs = std::collections::BTreeMap::new();
        each_plan(|hosts, _, collective, plans| {
            for (plan, _) in plans {
                for stage in plan.iter() {
                    let Stage::InterHost { method, operation } = stage else { continue };
                    assert_eq!(operation.called, collective.kind(), "{hosts}");
                    if *method == Method::Tree && collective != Collective::ReduceScatter {
                        let pair = (operation.operator.code(), operation.datatype.code());
                        let used = *pairs.entry(collective.kind()).or_insert(pair);
                        assert_eq!(used, pair, "{collective:?} on {hosts}");
                    }
                }
            }
        });
        let all: std::collections::BTreeSet<_> = pairs.values().collect();
        assert_eq!((pairs.len(), all.len()), (3, 3), "{pairs:?}");
    }

    #[test]
    fn scans_with_another_operator_or_datatype_have_another_length_in_the_tree() {
        let names = ["a", "b"].map(String::from);
        let length = |operator, datatype| {
            let operation = Operation {
                collective: Collective::Scan,
                operator,
                datatype,
                elements: 40 / datatype.size_bytes() as u64,
                ..Operation::BARRIER
            };
            let placement = &Placement::new(0, &names);
            let (mut scratch, mut cuts) = (Vec::new(), Vec::new());
            let (scratch, cuts) = (&mut scratch, &mut cuts);
            let kernel = kernel(operator, datatype);
            let called = Called::from(&operation);
            let context = PlanContext { placement, called, kernel, stream: None, scratch, cuts };
            let plan = plan(&operation, Path::Tree, context);
            let elements = plan.iter().find_map(|stage| match stage {
                Stage::InterHost { operation, .. } => Some(operation.elements),
                _ => None,
            });
            elements.expect("a leader has a stage between hosts")
        };
        let is_whole = |datatype: &Datatype| 40 % datatype.size_bytes() == 0;
        let datatypes: Vec<_> = Datatype::ALL.into_iter().filter(is_whole).collect();
        let pairs = datatypes.iter().flat_map(|datatype| {
            let operators = Operator::ALL.into_iter();
            operators.filter(|it| kernel(*it, *datatype).is_some()).map(move |it| (it, *datatype))
        });
        let pairs: Vec<_> = pairs.collect();
        for (at, &(operator, datatype)) in pairs.iter().enumerate() {
            for &(other, of) in &pairs[at + 1..] {
                if operator == other || datatype == of {
                    let differs = length(operator, datatype) != length(other, of);
                    assert!(differs, "{operator:?} {datatype:?} and {other:?} {of:?}");
                }
            }
        }
    }

    /// Each host's part is the blocks of its ranks, and all leaders cut alike.
    #[test]
    fn parts_of_hosts_tile_the_vector() {
        each_plan(|hosts, placement, collective, plans| {
            let counts = placement.hosts.len() + 1;
            let mut seen: Option<&[u64]> = None;
            for leader in &placement.leaders {
                let (plan, cuts) = &plans[*leader as usize];
                let what = format!("{collective:?} on {hosts}, leader {leader}");
                let operation = plan.iter().find_map(|stage| match stage {
                    Stage::InterHost { operation, .. } => Some(operation),
                    _ => None,
                });
                let operation = operation.expect("a leader has a stage between hosts");
                if operation.collective == Collective::Exscan {
                    continue;
                }
                let limits = &cuts[..counts];
                assert!(limits.is_sorted() && limits[0] == 0, "{what}");
                // Behind the parts of a scan may be padding.
                let is_scan = matches!(collective, Collective::Scan | Collective::Exscan);
                let padding = operation.elements - limits[counts - 1];
                assert!(padding == 0 || is_scan && padding < PADDING_MAX as u64, "{what}");
                assert_eq!(*seen.get_or_insert(limits), limits, "{what}");
                if collective == Collective::ReduceScatter {
                    let block = |rank: u64| {
                        let is_last = rank + 1 == u64::from(placement.ranks());
                        (if is_last { ELEMENTS } else { (rank + 1) * (rank + 1) }) - rank * rank
                    };
                    for host in 0..placement.host_count() {
                        let ranks = placement.ranks_of(host).iter();
                        let part: u64 = ranks.map(|rank| block(u64::from(*rank))).sum();
                        let host = host as usize;
                        assert_eq!(limits[host + 1] - limits[host], part, "{what}");
                    }
                }
            }
        });
    }
}
