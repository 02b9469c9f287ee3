//! Schedules: sequences of phases, and the iteration over their steps.

use alloc::sync::Arc;

use arrayvec::ArrayVec;

use crate::collective::Collective;
use crate::phases::{
    Blocks, Cyclic, CyclicKind, Exchange, Flat, FlatKind, Halving, HalvingKind, Hop, Levels,
    LevelsKind, Phase, Place, Ring, RingKind, Slot, Tree, TreeKind,
};
use crate::plan::Plan;
use crate::radices::Radices;
use crate::request::{Algorithm, Division, Order, Shape, Unsupported};
use crate::step::{Action, Step};

/// Most phases any schedule has.
const PHASES_MAX: usize = 4;

type Phases = ArrayVec<Phase, PHASES_MAX>;

/// What one rank does in one collective operation, step by step.
///
/// A lazy iterator in a fixed amount of memory. See [`crate::step`] for the meaning of its steps.
#[derive(Clone, Debug)]
pub struct Schedule {
    place: Place,
    phases: Phases,
    /// Whether empty messages count: a barrier has no others.
    is_barrier: bool,
    phase: usize,
    /// Round and index within the phase.
    round: u32,
    index: u32,
    /// The number of the round, over all phases.
    rounds: u32,
    /// Whether the round has a step so far.
    has_steps: bool,
}

impl Schedule {
    /// What `rank` does.
    ///
    /// # Errors
    /// [`Unsupported`] where the algorithm has no such form; the same at every rank.
    pub fn new(
        algorithm: Algorithm,
        collective: Collective,
        shape: Shape,
        rank: u32,
    ) -> Result<Self, Unsupported> {
        let place = place(collective, shape.ranks, shape.elements, rank)?;
        let phases = phases(algorithm, collective, shape, rank)?;
        Ok(Self::of(phases, place, collective))
    }

    /// What `rank` does in an exchange over the levels of a plan, whose hosts are the ranks. It combines in the plan's
    /// order.
    ///
    /// # Errors
    /// [`Unsupported`] where there is no such form; the same at every rank.
    pub fn over_levels(
        plan: &Arc<Plan>,
        division: Division,
        collective: Collective,
        elements: u64,
        rank: u32,
    ) -> Result<Self, Unsupported> {
        let place = place(collective, plan.hosts(), elements, rank)?;
        let phases = over_levels(plan, division, collective);
        let phases = phases.ok_or(Unsupported::Levels { division, collective })?;
        Ok(Self::of(phases, place, collective))
    }

    fn of(phases: Phases, place: Place, collective: Collective) -> Self {
        Self {
            place,
            phases,
            is_barrier: collective == Collective::Barrier,
            phase: 0,
            round: 0,
            index: 0,
            rounds: 0,
            has_steps: false,
        }
    }

    /// Whether some step of this rank may use [`Buffer::Aside`](crate::Buffer::Aside).
    #[must_use]
    pub fn needs_aside(&self) -> bool {
        self.phases.iter().any(|phase| phase.needs_aside(&self.place))
    }

    fn end_round(&mut self) {
        self.index = 0;
        self.rounds += u32::from(core::mem::take(&mut self.has_steps));
    }

    fn is_message(&self, action: Action) -> bool {
        let (Action::Send { span, .. } | Action::Receive { span, .. } | Action::Fold { span }) =
            action;
        self.is_barrier || !span.is_empty()
    }
}

impl Iterator for Schedule {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        loop {
            let slot = self.phases.get(self.phase)?.slot(&self.place, self.round, self.index);
            match slot {
                Slot::Do(action) => {
                    self.index += 1;
                    if self.is_message(action) {
                        self.has_steps = true;
                        return Some(Step { round: self.rounds, action });
                    }
                }
                Slot::Nothing => self.index += 1,
                Slot::EndOfRound => {
                    self.end_round();
                    self.round += 1;
                }
                Slot::End => {
                    self.end_round();
                    self.phase += 1;
                    self.round = 0;
                }
            }
        }
    }
}

impl core::iter::FusedIterator for Schedule {}

fn place(
    collective: Collective,
    ranks: u32,
    elements: u64,
    rank: u32,
) -> Result<Place, Unsupported> {
    for rank in [Some(rank), collective.root()].into_iter().flatten() {
        if rank >= ranks {
            return Err(Unsupported::NoSuchRank { rank, ranks });
        }
    }
    let elements = if collective == Collective::Barrier { 0 } else { elements };
    Ok(Place { rank, ranks, elements })
}

/// The phases of an algorithm's form of a collective, for one rank.
fn phases(
    algorithm: Algorithm,
    collective: Collective,
    shape: Shape,
    rank: u32,
) -> Result<Phases, Unsupported> {
    if collective.is_reduction() && shape.order == Order::Rank && !algorithm.keeps_rank_order() {
        return Err(Unsupported::OutOfOrder { algorithm });
    }
    let made = match algorithm {
        Algorithm::RecursiveDoubling => exchange(collective, 2, shape.ranks, rank)?,
        Algorithm::RecursiveKing { radix } => exchange(collective, radix, shape.ranks, rank)?,
        Algorithm::MixedRadix { radices } => mixed_radix(collective, radices, shape.ranks)?,
        Algorithm::Rabenseifner => rabenseifner(collective, shape.ranks, rank),
        Algorithm::Ring => ring(collective, shape.ranks),
        Algorithm::Binomial => tree(collective, 2, shape)?,
        Algorithm::Knomial { radix } => tree(collective, radix, shape)?,
        Algorithm::Linear => linear(collective, shape.ranks),
        Algorithm::Dissemination => dissemination(collective),
    };
    made.ok_or(Unsupported::Combination { algorithm, collective })
}

fn check_radix(radix: u32) -> Result<(), Unsupported> {
    if radix < 2 { Err(Unsupported::Radix { radix }) } else { Ok(()) }
}

fn list<const N: usize>(phases: [Phase; N]) -> Option<Phases> {
    Some(phases.into_iter().collect())
}

fn exchange(
    collective: Collective,
    radix: u32,
    ranks: u32,
    rank: u32,
) -> Result<Option<Phases>, Unsupported> {
    check_radix(radix)?;
    let prefix = |first| Phase::Cyclic(Cyclic { kind: CyclicKind::Prefix { first } });
    Ok(match collective {
        // A reduce-scatter so takes as many rounds as an allreduce: few, where the vector is short.
        Collective::Allreduce | Collective::Barrier | Collective::ReduceScatter => {
            let blocks = Blocks::by_power(ranks, radix, 0);
            let [reduce, broadcast] = within_block(&blocks, rank);
            list([reduce, Phase::Exchange(Exchange { blocks, radix }), broadcast])
        }
        Collective::Scan if radix == 2 => list([prefix(0)]),
        Collective::Exscan if radix == 2 => {
            list([Phase::Cyclic(Cyclic { kind: CyclicKind::Shift }), prefix(1)])
        }
        _ => None,
    })
}

fn over_levels(plan: &Arc<Plan>, division: Division, collective: Collective) -> Option<Phases> {
    let levels = |kind| Phase::Levels(Levels { plan: Arc::clone(plan), kind });
    match (division, collective) {
        (
            Division::Whole,
            Collective::Allreduce | Collective::Barrier | Collective::ReduceScatter,
        ) => list([levels(LevelsKind::Whole)]),
        (Division::Parts, Collective::Allreduce) => {
            list([LevelsKind::ReduceScatter, LevelsKind::Allgather].map(levels))
        }
        _ => None,
    }
}

fn mixed_radix(
    collective: Collective,
    radices: Radices,
    ranks: u32,
) -> Result<Option<Phases>, Unsupported> {
    let plan = Plan::even(ranks, radices).ok_or(Unsupported::Room { radices, ranks })?;
    Ok(over_levels(&Arc::new(plan), Division::Whole, collective))
}

/// Reduces to a block's representative before the exchange, and broadcasts in the block after it.
fn within_block(blocks: &Blocks, rank: u32) -> [Phase; 2] {
    let (first, count) = blocks.around(rank);
    let root = blocks.representative(blocks.block_of(rank));
    [FlatKind::Reduce, FlatKind::Broadcast]
        .map(|kind| Phase::Flat(Flat { kind, first, count, root }))
}

fn rabenseifner(collective: Collective, ranks: u32, rank: u32) -> Option<Phases> {
    let blocks = Blocks::by_power(ranks, 2, collective.root().unwrap_or(0));
    let [reduce, broadcast] = within_block(&blocks, rank);
    let halving = |kind| Phase::Halving(Halving { blocks, kind });
    match collective {
        Collective::Allreduce => list([
            reduce,
            halving(HalvingKind::ReduceScatter),
            halving(HalvingKind::Allgather),
            broadcast,
        ]),
        Collective::Reduce { root } => list([
            reduce,
            halving(HalvingKind::ReduceScatter),
            halving(HalvingKind::Gather { root }),
        ]),
        _ => None,
    }
}

fn ring(collective: Collective, ranks: u32) -> Option<Phases> {
    let reduce = Phase::Ring(Ring { kind: RingKind::ReduceScatter });
    let gather = |complete| Phase::Ring(Ring { kind: RingKind::Allgather { complete } });
    let flat = |kind, root| Phase::Flat(Flat::whole(kind, root, ranks));
    match collective {
        Collective::Allreduce => list([reduce, gather(None)]),
        Collective::Reduce { root } => list([reduce, flat(FlatKind::Gather, root)]),
        Collective::Broadcast { root } => list([flat(FlatKind::Scatter, root), gather(Some(root))]),
        Collective::ReduceScatter => list([reduce]),
        Collective::Allgather => list([gather(None)]),
        Collective::Barrier | Collective::Scan | Collective::Exscan => None,
    }
}

fn tree(collective: Collective, radix: u32, shape: Shape) -> Result<Option<Phases>, Unsupported> {
    check_radix(radix)?;
    let up = |root| Phase::Tree(Tree { kind: TreeKind::Reduce, radix, root });
    let down = |root| Phase::Tree(Tree { kind: TreeKind::Broadcast, radix, root });
    Ok(match collective {
        Collective::Allreduce | Collective::Barrier => list([up(0), down(0)]),
        // A tree rooted at `root` would combine cyclically, from `root` on.
        Collective::Reduce { root } if root != 0 && shape.order == Order::Rank => {
            list([up(0), Phase::Hop(Hop { from: 0, to: root })])
        }
        Collective::Reduce { root } => list([up(root)]),
        Collective::Broadcast { root } => list([down(root)]),
        _ => None,
    })
}

fn linear(collective: Collective, ranks: u32) -> Option<Phases> {
    let flat = |kind, root| Phase::Flat(Flat::whole(kind, root, ranks));
    match collective {
        Collective::Allreduce | Collective::Barrier => {
            list([flat(FlatKind::Reduce, 0), flat(FlatKind::Broadcast, 0)])
        }
        Collective::Reduce { root } => list([flat(FlatKind::Reduce, root)]),
        Collective::Broadcast { root } => list([flat(FlatKind::Broadcast, root)]),
        Collective::ReduceScatter => list([flat(FlatKind::Reduce, 0), flat(FlatKind::Scatter, 0)]),
        Collective::Allgather => list([flat(FlatKind::Gather, 0), flat(FlatKind::Broadcast, 0)]),
        Collective::Scan | Collective::Exscan => None,
    }
}

fn dissemination(collective: Collective) -> Option<Phases> {
    let kind = match collective {
        Collective::Barrier => CyclicKind::Barrier,
        Collective::Allgather => CyclicKind::Allgather,
        _ => return None,
    };
    list([Phase::Cyclic(Cyclic { kind })])
}
