//! What a set-up leads to.

use crate::engine::Engine;

/// A communicator that is ready at this rank.
pub(crate) struct Ready {
    pub(crate) engine: Engine,
    pub(crate) notes: Notes,
    pub(crate) is_on_one_host: bool,
}

/// What the report says of a set-up.
pub(crate) struct Notes {
    pub(crate) hosts: u32,
    /// How hosts are split, and why there is no tree where there should be one; none if there is nothing
    /// to say.
    pub(crate) joining: Option<String>,
    /// What carries data between leaders and the tree; none without a tree.
    pub(crate) carriers: Option<String>,
    /// What the ranks of a host have to do without among themselves, and why.
    pub(crate) memory: String,
    /// Whether there is a tree already.
    pub(crate) has_tree: bool,
}
