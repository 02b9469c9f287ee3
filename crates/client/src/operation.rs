//! A collective operation, as one rank asks for it.

use tributary_wire::{Datatype, Operator};

use crate::report::Kind;
pub use tributary_shm_collectives::Blocks;

/// What kind of collective, and who stands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collective {
    /// Every rank's `target` becomes the reduction of all ranks' `source`.
    Allreduce,
    /// The root's `target` becomes the reduction of all ranks' `source`.
    Reduce {
        /// The rank that gets the result.
        root: u32,
    },
    /// Every rank's `target` becomes the root's; `source` is not used.
    Broadcast {
        /// The rank whose data it is.
        root: u32,
    },
    /// No rank goes on before every rank has come.
    Barrier,
    /// Every rank's `target` becomes the reduction of its block of all ranks' `source`. In place,
    /// the whole vector lies where the target begins. On one host only.
    ReduceScatter {
        /// Which elements are whose.
        blocks: Blocks,
    },
    /// Every rank's `target` becomes all ranks' `source`, `elements` of each, one after the other.
    /// In place, `source` is the rank's own part of `target`. On one host only.
    Allgather,
    /// Every rank's `target` becomes the reduction of the `source` of the ranks up to it. On one
    /// host only.
    Scan {
        /// Whether a rank's own `source` takes part in its result; if not, rank 0 has none.
        inclusive: bool,
    },
}

/// One operation at one rank. Collective, datatype, operator and elements are the same at all
/// ranks; the reduction order is a function of the communicator alone.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// The collective.
    pub collective: Collective,
    /// What an element is; not looked at in a barrier.
    pub datatype: Datatype,
    /// How elements combine; looked at in reductions only.
    pub operator: Operator,
    /// How many elements a rank contributes.
    pub elements: u64,
    /// `elements` elements of this rank's contribution; equal to `target` when in place.
    pub source: *const u8,
    /// Room for the result, where this rank gets one: `elements` elements, or what the collective
    /// says.
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
        elements: 0,
        source: std::ptr::null(),
        target: std::ptr::null_mut(),
    };

    /// Length of a contribution.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.elements as usize * self.datatype.size_bytes()
    }

    pub(crate) fn kind(&self) -> Kind {
        match self.collective {
            Collective::Allreduce => Kind::Allreduce,
            Collective::Reduce { .. } => Kind::Reduce,
            Collective::Broadcast { .. } => Kind::Bcast,
            Collective::Barrier => Kind::Barrier,
            Collective::ReduceScatter { .. } => Kind::ReduceScatter,
            Collective::Allgather => Kind::Allgather,
            Collective::Scan { inclusive: true } => Kind::Scan,
            Collective::Scan { inclusive: false } => Kind::Exscan,
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
    /// The program gave the communicator up, at this rank or at another.
    #[error("{label} was given up by one of its ranks")]
    GivenUp {
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
    /// The caller asked for a collective that runs inside one host only.
    #[error("{} of {label}, which is on {hosts} hosts, is left to others", kind.name())]
    SeveralHosts {
        /// The communicator.
        label: String,
        /// The collective.
        kind: Kind,
        /// How many hosts its ranks are on.
        hosts: u32,
    },
    /// The caller named blocks that do not cover the vector.
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

fn near(host: &Option<String>) -> String {
    host.as_ref().map_or_else(String::new, |host| format!(", on or near host {host}"))
}
