//! What is counted: which collective, and the path that it took.

/// The path that an operation took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathKind {
    /// Shared memory: all members are on one host.
    InNode,
    /// Through the aggregation tree.
    InTree,
    /// Between hosts by a host algorithm over direct links, without aggregation nodes.
    Direct,
}

impl PathKind {
    /// Every path.
    pub const ALL: [Self; 3] = [Self::InNode, Self::InTree, Self::Direct];

    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::InNode => "in_node",
            Self::InTree => "in_tree",
            Self::Direct => "direct",
        }
    }
}
