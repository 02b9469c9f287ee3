//! How hosts meet in a run.

use std::collections::BTreeSet;

use super::outcome::Class;

/// How hosts meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Between {
    /// By algorithms of the hosts alone.
    Hosts,
    /// In the tree, where the tree has the collective.
    Tree {
        /// Whether results also go out by multicast.
        multicast: bool,
        /// Only these; all if none.
        only: Option<BTreeSet<Class>>,
    },
}
