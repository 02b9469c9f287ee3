//! What is counted: which collective, and the path that it took.

use serde::{Deserialize, Serialize};

/// The path that an operation took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathKind {
    /// Shared memory: all members are on one host.
    InHost,
    /// Through the aggregation tree.
    InTree,
    /// Between hosts by a host algorithm over direct links, without aggregation nodes.
    Direct,
}

impl PathKind {
    /// Every path.
    pub const ALL: [Self; 3] = [Self::InHost, Self::InTree, Self::Direct];

    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::InHost => "in_host",
            Self::InTree => "in_tree",
            Self::Direct => "direct",
        }
    }
}

/// The path that a measured operation took, the underlying MPI's included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathTaken {
    /// See [`PathKind::InHost`].
    InHost,
    /// See [`PathKind::InTree`].
    InTree,
    /// See [`PathKind::Direct`].
    Direct,
    /// Left to the underlying MPI.
    PassedThrough,
}

impl PathTaken {
    /// Every path.
    pub const ALL: [Self; 4] = [Self::InHost, Self::InTree, Self::Direct, Self::PassedThrough];

    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::InHost => PathKind::InHost.name(),
            Self::InTree => PathKind::InTree.name(),
            Self::Direct => PathKind::Direct.name(),
            Self::PassedThrough => "passed_through",
        }
    }
}

impl From<PathKind> for PathTaken {
    fn from(path: PathKind) -> Self {
        match path {
            PathKind::InHost => Self::InHost,
            PathKind::InTree => Self::InTree,
            PathKind::Direct => Self::Direct,
        }
    }
}
