//! What a schedule is requested with: algorithm, order and size; and what each algorithm promises.

use crate::collective::Collective;
use crate::radices::Radices;

/// A collective algorithm.
///
/// | algorithm | combines in rank order | how |
/// |---|---|---|
/// | recursive doubling, recursive k-ing, mixed radix | yes | merges contiguous blocks of ranks |
/// | Rabenseifner | yes | merges the same blocks, each part of the vector at one rank |
/// | ring | **no** | combines part i over ranks i+1, i+2, ..., i, cyclically |
/// | binomial, k-nomial | if requested | else combines cyclically from the root on |
/// | linear | yes | the root folds one rank after the other |
/// | dissemination | does not reduce | |
///
/// Every allreduce here gives **the same bits at all ranks**, whatever the operator: each element is
/// either reduced once and copied, or reduced at several ranks from the same operands in the same
/// association. Equal requests give equal bits from run to run. Another algorithm, or another number
/// of ranks, associates differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Exchanges with partners at doubling distance: Thakur, Rabenseifner, Gropp, "Optimization of
    /// Collective Communication Operations in MPICH" (IJHPCA 2005). Ranks beyond the largest power
    /// of two first fold into a neighbour. As a scan: Hillis and Steele, "Data Parallel
    /// Algorithms" (CACM 1986).
    RecursiveDoubling,
    /// The same with groups of `radix` ranks that all exchange at once: fewer rounds, more messages.
    RecursiveKing {
        /// At least 2.
        radix: u32,
    },
    /// An exchange over levels of groups, which may be uneven: at each level every rank sends to one rank of each other
    /// block of its group, or where that is smaller to none, and folds what all of them have. No rank waits for ranks
    /// beyond a power, so any number of ranks takes as many crossings of the network as there are levels.
    MixedRadix {
        /// Their product is no less than the number of ranks.
        radices: Radices,
    },
    /// Reduce-scatter by recursive halving, then allgather (for reduce: gather) by recursive
    /// doubling: Rabenseifner, "Optimization of Collective Reduction Operations" (ICCS 2004).
    Rabenseifner,
    /// Reduce-scatter and allgather around a ring: Patarasuk and Yuan, "Bandwidth optimal all-reduce
    /// algorithms for clusters of workstations" (JPDC 2009). Needs a commutative operator.
    Ring,
    /// A binomial tree; an allreduce goes up to rank 0 and down again.
    Binomial,
    /// A tree in which every rank takes `radix - 1` children a level; binomial is radix 2.
    Knomial {
        /// At least 2.
        radix: u32,
    },
    /// The root receives from, or sends to, all other ranks.
    Linear,
    /// Barrier: Hensgen, Finkel, Manber, "Two Algorithms for Barrier Synchronization" (IJPP 1988).
    /// Allgather: Bruck et al., "Efficient Algorithms for All-to-All Communications" (IEEE TPDS
    /// 1997).
    Dissemination,
}

/// How an exchange over a plan's levels divides a vector. Both fold in the plan's order, so they give the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Division {
    /// Not at all: whole vectors go around, in the fewest crossings.
    Whole,
    /// By the groups: a reduce-scatter and an allgather, twice the crossings for fewer bytes.
    Parts,
}

/// In which order operands may be combined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// Any order: the operator is commutative.
    #[default]
    Any,
    /// Rank order, in any association: MPI requires it for a non-commutative operator (MPI 4.1,
    /// 6.9.1).
    Rank,
}

/// How large the operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// How many ranks take part.
    pub ranks: u32,
    /// How many elements the vector has; ignored for a barrier.
    pub elements: u64,
    /// In which order operands may be combined.
    pub order: Order,
}

/// Why there is no schedule for a request: a mistake of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unsupported {
    /// The algorithm does not implement this collective.
    #[error("{algorithm:?} does not implement {collective:?}")]
    Combination {
        /// The algorithm.
        algorithm: Algorithm,
        /// The collective.
        collective: Collective,
    },
    /// An exchange over a plan's levels does not implement this collective.
    #[error("an exchange over levels, divided as {division:?}, does not implement {collective:?}")]
    Levels {
        /// How the vector is divided.
        division: Division,
        /// The collective.
        collective: Collective,
    },
    /// The request needs rank order, and the algorithm combines in another order.
    #[error("{algorithm:?} can't combine in rank order")]
    OutOfOrder {
        /// The algorithm.
        algorithm: Algorithm,
    },
    /// A radix below 2.
    #[error("radix {radix} is too small; the least is 2")]
    Radix {
        /// The radix.
        radix: u32,
    },
    /// Levels of too few ranks.
    #[error("radices {radices} have no room for {ranks} ranks")]
    Room {
        /// The radices.
        radices: Radices,
        /// How many ranks there are.
        ranks: u32,
    },
    /// A rank, or a root, that does not exist.
    #[error("rank {rank} is not one of {ranks}")]
    NoSuchRank {
        /// The rank.
        rank: u32,
        /// How many there are.
        ranks: u32,
    },
}

/// Its name, with the radix or radices if it has some: `recursive_king:4`, `mixed_radix:4x3`.
impl core::fmt::Display for Algorithm {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::RecursiveKing { radix } | Self::Knomial { radix } => {
                write!(f, "{}:{radix}", self.name())
            }
            Self::MixedRadix { radices } => write!(f, "{}:{radices}", self.name()),
            _ => f.write_str(self.name()),
        }
    }
}

impl Algorithm {
    /// Whether it can combine in rank order.
    #[must_use]
    pub fn keeps_rank_order(self) -> bool {
        !matches!(self, Self::Ring)
    }

    /// Its name, in lower case, without its parameters.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RecursiveDoubling => "recursive_doubling",
            Self::RecursiveKing { .. } => "recursive_king",
            Self::MixedRadix { .. } => "mixed_radix",
            Self::Rabenseifner => "rabenseifner",
            Self::Ring => "ring",
            Self::Binomial => "binomial",
            Self::Knomial { .. } => "knomial",
            Self::Linear => "linear",
            Self::Dissemination => "dissemination",
        }
    }
}
