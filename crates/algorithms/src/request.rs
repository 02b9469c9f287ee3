//! What can be asked for of a collective: the algorithm, the order and the size; and what each promises.

use core::num::NonZeroU64;

use crate::collective::Collective;

/// How it is done.
///
/// | algorithm | combines in rank order | where |
/// |---|---|---|
/// | recursive doubling, recursive k-ing | yes | contiguous blocks of ranks merge |
/// | Rabenseifner | yes | the same blocks; each part of the vector at one rank |
/// | ring | **no** | part i combines i+1, i+2, ..., i, cyclically |
/// | binomial, k-nomial | if asked for | else a root other than 0 starts with itself, cyclically |
/// | chain | yes | towards the root from both ends |
/// | linear | yes | one by one |
/// | dissemination | reduces nothing | |
///
/// Every allreduce here leaves **the same bits at all ranks**, whatever the operator: each element's
/// result is either made once and copied, or made at several ranks from the same operands in the same
/// association. Equal requests give equal bits from run to run; another algorithm, or another number
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
    /// From neighbour to neighbour, in segments that follow one another.
    Chain {
        /// Elements per segment, the last one perhaps fewer.
        segment_elements: NonZeroU64,
    },
    /// One rank hears from, or speaks to, all others.
    Linear,
    /// Barrier: Hensgen, Finkel, Manber, "Two Algorithms for Barrier Synchronization" (IJPP 1988).
    /// Allgather: Bruck et al., "Efficient Algorithms for All-to-All Communications" (IEEE TPDS
    /// 1997).
    Dissemination,
}

/// In which order operands may be combined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// Any: the operator is commutative.
    #[default]
    Any,
    /// By rank, in any association: what MPI asks for a non-commutative operator (MPI 4.1, 6.9.1).
    Rank,
}

/// How large the operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// How many ranks take part.
    pub ranks: u32,
    /// How many elements the vector has; not looked at in a barrier.
    pub elements: u64,
    /// In which order they may be combined.
    pub order: Order,
}

/// Why there is no schedule for a request. The caller is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unsupported {
    /// The algorithm has no form for this collective.
    #[error("{algorithm:?} has no form for {collective:?}")]
    Combination {
        /// The algorithm.
        algorithm: Algorithm,
        /// The collective.
        collective: Collective,
    },
    /// Rank order was asked of an algorithm that combines in another.
    #[error("{algorithm:?} can't combine in rank order")]
    OutOfOrder {
        /// The algorithm.
        algorithm: Algorithm,
    },
    /// A radix below 2.
    #[error("radix {radix} is not possible here")]
    Radix {
        /// The radix.
        radix: u32,
    },
    /// A chain of more segments than rounds can be counted.
    #[error("{segments} segments are more than {segments_max}")]
    Segments {
        /// How many they would be.
        segments: u64,
        /// How many they may be.
        segments_max: u64,
    },
    /// A rank, or a root, that isn't there.
    #[error("rank {rank} is not one of {ranks}")]
    NoSuchRank {
        /// The rank.
        rank: u32,
        /// How many there are.
        ranks: u32,
    },
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
            Self::Rabenseifner => "rabenseifner",
            Self::Ring => "ring",
            Self::Binomial => "binomial",
            Self::Knomial { .. } => "knomial",
            Self::Chain { .. } => "chain",
            Self::Linear => "linear",
            Self::Dissemination => "dissemination",
        }
    }
}
