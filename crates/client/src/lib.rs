//! Host library: collectives of one process, inside its host and through the tree.

pub mod host;
mod waiting;
