//! Schedules: phases put together, and the walk over them.

use arrayvec::ArrayVec;

use crate::collective::Collective;
use crate::phases::{
    Blocks, Chain, ChainWay, Cyclic, CyclicWay, Exchange, Flat, FlatWay, Halving, HalvingWay, Hop,
    Phase, Place, Ring, RingWay, Slot, Tree, TreeWay,
};
use crate::request::{Algorithm, Order, Shape, Unsupported};
use crate::step::{Action, Step};

/// Most phases any schedule has.
const PHASES_MAX: usize = 4;

type Phases = ArrayVec<Phase, PHASES_MAX>;

/// What one rank does in one collective operation, step by step.
///
/// An iterator that makes each step when it is asked for, from a fixed amount of memory. See
/// [`crate::step`] for what its steps mean.
#[derive(Clone, Debug)]
pub struct Schedule {
    place: Place,
    phases: Phases,
    /// Whether empty messages count: they are all that a barrier has.
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
        let ranks = shape.ranks;
        for rank in [Some(rank), collective.root()].into_iter().flatten() {
            if rank >= ranks {
                return Err(Unsupported::NoSuchRank { rank, ranks });
            }
        }
        let is_barrier = collective == Collective::Barrier;
        let elements = if is_barrier { 0 } else { shape.elements };
        let place = Place { rank, ranks, elements };
        let phases = phases(algorithm, collective, shape, rank)?;
        Ok(Self {
            place,
            phases,
            is_barrier,
            phase: 0,
            round: 0,
            index: 0,
            rounds: 0,
            has_steps: false,
        })
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
        Algorithm::Rabenseifner => rabenseifner(collective, shape.ranks, rank),
        Algorithm::Ring => ring(collective, shape.ranks),
        Algorithm::Binomial => tree(collective, 2, shape)?,
        Algorithm::Knomial { radix } => tree(collective, radix, shape)?,
        Algorithm::Chain { segment_elements } => chain(collective, segment_elements.into(), shape)?,
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
    let prefix = |first| Phase::Cyclic(Cyclic { way: CyclicWay::Prefix { first } });
    Ok(match collective {
        Collective::Allreduce | Collective::Barrier => {
            let blocks = Blocks::by_power(ranks, radix, 0);
            let [fold, spread] = within_block(&blocks, rank);
            list([fold, Phase::Exchange(Exchange { blocks, radix }), spread])
        }
        Collective::Scan if radix == 2 => list([prefix(0)]),
        Collective::Exscan if radix == 2 => {
            list([Phase::Cyclic(Cyclic { way: CyclicWay::Shift }), prefix(1)])
        }
        _ => None,
    })
}

/// Into a block's speaker before the exchange, and out to the block after it.
fn within_block(blocks: &Blocks, rank: u32) -> [Phase; 2] {
    let (first, count) = blocks.around(rank);
    let root = blocks.speaker(blocks.block_of(rank));
    [FlatWay::Fold, FlatWay::Spread].map(|way| Phase::Flat(Flat { way, first, count, root }))
}

fn rabenseifner(collective: Collective, ranks: u32, rank: u32) -> Option<Phases> {
    let blocks = Blocks::by_power(ranks, 2, collective.root().unwrap_or(0));
    let [fold, spread] = within_block(&blocks, rank);
    let halving = |way| Phase::Halving(Halving { blocks, way });
    match collective {
        Collective::Allreduce => {
            list([fold, halving(HalvingWay::Reduce), halving(HalvingWay::Allgather), spread])
        }
        Collective::Reduce { root } => {
            list([fold, halving(HalvingWay::Reduce), halving(HalvingWay::Gather { root })])
        }
        _ => None,
    }
}

fn ring(collective: Collective, ranks: u32) -> Option<Phases> {
    let reduce = Phase::Ring(Ring { way: RingWay::Reduce });
    let gather = Phase::Ring(Ring { way: RingWay::Gather });
    let flat = |way, root| Phase::Flat(Flat::whole(way, root, ranks));
    match collective {
        Collective::Allreduce => list([reduce, gather]),
        Collective::Reduce { root } => list([reduce, flat(FlatWay::Gather, root)]),
        Collective::Broadcast { root } => list([flat(FlatWay::Scatter, root), gather]),
        Collective::ReduceScatter => list([reduce]),
        Collective::Allgather => list([gather]),
        Collective::Barrier | Collective::Scan | Collective::Exscan => None,
    }
}

fn tree(collective: Collective, radix: u32, shape: Shape) -> Result<Option<Phases>, Unsupported> {
    check_radix(radix)?;
    let up = |root| Phase::Tree(Tree { way: TreeWay::Up, radix, root });
    let down = |root| Phase::Tree(Tree { way: TreeWay::Down, radix, root });
    Ok(match collective {
        Collective::Allreduce | Collective::Barrier => list([up(0), down(0)]),
        // Counting from the root would begin in the middle of the ranks.
        Collective::Reduce { root } if root != 0 && shape.order == Order::Rank => {
            list([up(0), Phase::Hop(Hop { from: 0, to: root })])
        }
        Collective::Reduce { root } => list([up(root)]),
        Collective::Broadcast { root } => list([down(root)]),
        _ => None,
    })
}

fn chain(
    collective: Collective,
    segment_elements: u64,
    shape: Shape,
) -> Result<Option<Phases>, Unsupported> {
    let segments = shape.elements.div_ceil(segment_elements);
    if segments > Chain::SEGMENTS_MAX {
        return Err(Unsupported::Segments { segments, segments_max: Chain::SEGMENTS_MAX });
    }
    let way = match collective {
        Collective::Allreduce | Collective::Barrier => ChainWay::UpAndDown,
        Collective::Reduce { root } => ChainWay::Up { root },
        Collective::Broadcast { root } => ChainWay::Down { root },
        // On its way up to the last rank, each rank's vector is what the scan asks for.
        Collective::Scan => ChainWay::Up { root: shape.ranks - 1 },
        _ => return Ok(None),
    };
    Ok(list([Phase::Chain(Chain { way, segment_elements })]))
}

fn linear(collective: Collective, ranks: u32) -> Option<Phases> {
    let flat = |way, root| Phase::Flat(Flat::whole(way, root, ranks));
    match collective {
        Collective::Allreduce | Collective::Barrier => {
            list([flat(FlatWay::Fold, 0), flat(FlatWay::Spread, 0)])
        }
        Collective::Reduce { root } => list([flat(FlatWay::Fold, root)]),
        Collective::Broadcast { root } => list([flat(FlatWay::Spread, root)]),
        Collective::ReduceScatter => list([flat(FlatWay::Fold, 0), flat(FlatWay::Scatter, 0)]),
        Collective::Allgather => list([flat(FlatWay::Gather, 0), flat(FlatWay::Spread, 0)]),
        Collective::Scan | Collective::Exscan => None,
    }
}

fn dissemination(collective: Collective) -> Option<Phases> {
    let way = match collective {
        Collective::Barrier => CyclicWay::Barrier,
        Collective::Allgather => CyclicWay::Allgather,
        _ => return None,
    };
    list([Phase::Cyclic(Cyclic { way })])
}
