//! What is counted: which collective, and which way it went.

use serde::{Deserialize, Serialize};

/// A collective, as the report names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// `MPI_Allreduce` and its nonblocking form.
    Allreduce,
    /// `MPI_Reduce` and its nonblocking form.
    Reduce,
    /// `MPI_Barrier` and its nonblocking form.
    Barrier,
    /// `MPI_Bcast` and its nonblocking form.
    Bcast,
    /// `MPI_Reduce_scatter`, `MPI_Reduce_scatter_block` and their nonblocking forms.
    #[serde(rename = "reduce_scatter")]
    ReduceScatter,
    /// `MPI_Allgather` and its nonblocking form.
    Allgather,
    /// `MPI_Scan` and its nonblocking form.
    Scan,
    /// `MPI_Exscan` and its nonblocking form.
    Exscan,
}

impl Kind {
    /// Every collective.
    pub const ALL: [Self; 8] = [
        Self::Allreduce,
        Self::Reduce,
        Self::Barrier,
        Self::Bcast,
        Self::ReduceScatter,
        Self::Allgather,
        Self::Scan,
        Self::Exscan,
    ];

    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allreduce => "allreduce",
            Self::Reduce => "reduce",
            Self::Barrier => "barrier",
            Self::Bcast => "bcast",
            Self::ReduceScatter => "reduce_scatter",
            Self::Allgather => "allgather",
            Self::Scan => "scan",
            Self::Exscan => "exscan",
        }
    }
}

/// Which way an operation went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Shared memory: all members are on one host.
    InNode,
    /// Through the aggregation tree.
    InTree,
    /// Between hosts by a host algorithm of ours, without aggregation nodes.
    InMesh,
}

impl Way {
    /// Every way.
    pub const ALL: [Self; 3] = [Self::InNode, Self::InTree, Self::InMesh];

    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::InNode => "in_node",
            Self::InTree => "in_tree",
            Self::InMesh => "in_mesh",
        }
    }
}
