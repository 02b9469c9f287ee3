//! How operations end: what a member has finished, and why a simulation can't continue.

use tributary_algorithms::Unsupported;
use tributary_protocol::{endpoint, node};
use tributary_wire::frame::Abort;

use super::ids::MemberId;
use crate::engine::Picos;

/// The simulation can't continue, because of a defect in the protocol's machines or in the model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// An aggregation node refused a frame.
    #[error("aggregation node {node} refused a frame: {fault}")]
    Node {
        /// Which aggregator.
        node: u32,
        /// Why.
        fault: node::FrameError,
    },
    /// A member refused a frame.
    #[error("member {member} refused a frame: {fault}")]
    Member {
        /// Which member.
        member: u32,
        /// Why.
        fault: endpoint::FrameError,
    },
    /// A member could not start its operation.
    #[error("member {member} can't start: {fault}")]
    Start {
        /// Which member.
        member: u32,
        /// Why.
        fault: endpoint::StartError,
    },
    /// A member received an abort of its group.
    #[error("member {member} received an abort of its group: {}", .abort.reason)]
    Failed {
        /// Which member.
        member: u32,
        /// The abort.
        abort: Abort,
    },
    /// The algorithm does not implement the collective.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// No event is left, and a participant still waits.
    #[error("{waiting} of {of} participants never finished")]
    Stuck {
        /// How many wait.
        waiting: usize,
        /// How many took part.
        of: usize,
    },
}

/// A finished operation of one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Which member.
    pub member: MemberId,
    /// When it started.
    pub began_at: Picos,
    /// When it had its result.
    pub ended_at: Picos,
}
