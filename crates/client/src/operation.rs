//! A collective operation, as one rank asks for it.

pub use tributary_algorithms::Collective;
use tributary_selection::Question;
pub use tributary_shm_collectives::Blocks;
use tributary_tuning::Method;
use tributary_wire::{Datatype, Operator};

use crate::combiner::Combiner;

/// One operation at one rank. Collective, datatype, operator, elements and blocks are the same at all
/// ranks; the reduction order is a function of the communicator alone.
///
/// `source` holds `elements` elements. `target` has room for as many, except that an allgather's holds
/// as many of every rank, one after the other, and a reduce-scatter's this rank's block. Where they are
/// one, the operation is in place: a reduce-scatter's whole vector then lies where the target begins, and
/// an allgather's source is this rank's own part of the target.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// The collective.
    pub collective: Collective,
    /// What an element is; ignored in a barrier.
    pub datatype: Datatype,
    /// How elements combine; used in reductions only.
    pub operator: Operator,
    /// How elements combine that no kernel knows: used in reductions only, instead of `datatype` and
    /// `operator`. Valid until the operation is over.
    pub combiner: Option<Combiner>,
    /// How many elements a rank contributes.
    pub elements: u64,
    /// Which elements each rank gets; used in a reduce-scatter only.
    pub blocks: Blocks,
    /// This rank's contribution. A broadcast does not use it.
    pub source: *const u8,
    /// Room for the result, where this rank gets one.
    pub target: *mut u8,
}

// SAFETY: the pointers are only followed under the contract of `Communicator::run` and `start`,
// whose caller promises that the buffers may be used from any thread until the operation is done.
unsafe impl Send for Operation {}

impl Operation {
    /// A barrier.
    pub const BARRIER: Self = Self {
        collective: Collective::Barrier,
        datatype: Datatype::U8,
        operator: Operator::Barrier,
        combiner: None,
        elements: 0,
        blocks: Blocks::Even,
        source: std::ptr::null(),
        target: std::ptr::null_mut(),
    };

    /// Size of one element.
    #[inline]
    #[must_use]
    pub fn element_bytes(&self) -> usize {
        self.combiner.map_or(self.datatype.size_bytes(), |combiner| combiner.element_bytes())
    }

    /// Length of a contribution.
    #[inline]
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.elements as usize * self.element_bytes()
    }

    /// All that its path depends on.
    #[inline]
    pub(crate) fn question(&self) -> Question {
        Question {
            kind: self.collective.kind(),
            elements: self.elements,
            len_bytes: self.len_bytes() as u64,
            is_exact: self.datatype.is_integer(),
            has_own_operator: self.combiner.is_some(),
        }
    }
}

/// Why an operation failed, or could not be started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CollectiveError {
    /// A process of this host is gone; nothing more can run on its communicators.
    #[error("rank {rank} of {label} was lost: its process ended in the middle of a collective")]
    RankLost {
        /// The communicator.
        label: String,
        /// The rank, in the communicator.
        rank: u32,
    },
    /// The group failed somewhere in the tree.
    #[error("{label} failed in the aggregation tree: {reason}{}", near(.host))]
    TreeFailed {
        /// The communicator.
        label: String,
        /// What happened.
        reason: String,
        /// The host at fault, if it is known.
        host: Option<String>,
    },
    /// The hosts, joined directly, lost one of them, or fell out with it.
    #[error("{label} failed between its hosts: {reason}{}", near(.host))]
    HostLost {
        /// The communicator.
        label: String,
        /// What happened.
        reason: String,
        /// The host at fault, if it is known.
        host: Option<String>,
    },
    /// The program has an error: two ranks of one host called different operations where they had to call the same.
    #[error("ranks disagree on {label}: {}", disagreement(*.ranks, .calls))]
    Disagreement {
        /// The communicator.
        label: String,
        /// The two ranks, in the communicator.
        ranks: [u32; 2],
        /// What each called.
        calls: [String; 2],
    },
    /// The program gave the communicator up, at this rank or at another.
    #[error("{label} was given up by one of its ranks")]
    GivenUp {
        /// The communicator.
        label: String,
    },
    /// Ranks sent something else than the exponents of their values, which an exact sum begins with.
    #[error("an exact sum of {label} got no exponents: its ranks called different operations")]
    NoExponents {
        /// The communicator.
        label: String,
    },
    /// The caller asked for what MPI doesn't define.
    #[error("{} is not defined on {}", operator.name(), datatype.name())]
    NotDefined {
        /// The operator asked for.
        operator: Operator,
        /// The datatype it was asked for on.
        datatype: Datatype,
    },
    /// The caller brings an operator that this communicator cannot call: there are several hosts and no
    /// direct links between them, or links in another order than an operator that does not commute needs,
    /// or its elements are too long.
    #[error(
        "elements of {element_bytes} bytes of {label} can't be combined; the longest have {max_bytes}"
    )]
    NotCombined {
        /// The communicator.
        label: String,
        /// Size of an element.
        element_bytes: usize,
        /// Size of the longest elements that can; 0 if none can.
        max_bytes: usize,
    },
    /// The caller brings an operator of its own for vectors that are longer than what is gathered to be
    /// combined.
    #[error(
        "vectors of {len_bytes} bytes of {label} can't be gathered; the longest have {max_bytes}"
    )]
    NotGathered {
        /// The communicator.
        label: String,
        /// Length of one vector.
        len_bytes: u64,
        /// The longest.
        max_bytes: u64,
    },
    /// The caller named an operator and a datatype by a number that stands for none.
    #[error("{number} is the number of no operator and datatype")]
    NoSuchPair {
        /// The number.
        number: u32,
    },
    /// The caller named blocks that do not cover the vector, or not in ascending order.
    #[error("blocks of {label} end at element {end}, its vector at {elements}")]
    Blocks {
        /// The communicator.
        label: String,
        /// Where the last block ends; 0 where blocks of one length leave a rest.
        end: u64,
        /// Elements of the vector.
        elements: u64,
    },
    /// The caller named a root that isn't there.
    #[error("root {root} is not a rank of {label}, which has {ranks}")]
    NoSuchRoot {
        /// The communicator.
        label: String,
        /// The root.
        root: u32,
        /// Ranks in the communicator.
        ranks: u32,
    },
}

impl CollectiveError {
    /// The failure of an inter-host method.
    pub(crate) fn between_hosts(
        method: Method,
        label: String,
        reason: String,
        host: Option<String>,
    ) -> Self {
        match method {
            Method::Tree => Self::TreeFailed { label, reason, host },
            Method::Direct => Self::HostLost { label, reason, host },
        }
    }
}

fn disagreement([one, other]: [u32; 2], [its, others]: &[String; 2]) -> String {
    if its == others {
        return format!(
            "ranks {one} and {other} called {its} with different lengths, roots or blocks"
        );
    }
    format!("rank {one} called {its}, rank {other} called {others}")
}

fn near(host: &Option<String>) -> String {
    host.as_ref().map_or_else(String::new, |host| format!(", on or near host {host}"))
}
