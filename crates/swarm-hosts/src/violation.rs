//! What must never happen.

/// A violation, of a communicator by number and a rank of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A result lacks a contribution.
    #[error(
        "communicator {communicator}: rank {rank} got a wrong result for operation {operation}"
    )]
    WrongResult {
        /// The communicator.
        communicator: u32,
        /// The rank.
        rank: u32,
        /// The operation's number.
        operation: usize,
    },
    /// A rank fails, and nobody is gone.
    #[error("communicator {communicator}: rank {rank} failed without cause: {named}")]
    Unfounded {
        /// The communicator.
        communicator: u32,
        /// The rank.
        rank: u32,
        /// The party that it names.
        named: String,
    },
    /// A rank names another for its failure than one who is gone.
    #[error("communicator {communicator}: rank {rank} names {named}, which is not gone")]
    Misnamed {
        /// The communicator.
        communicator: u32,
        /// The rank.
        rank: u32,
        /// The party that it names.
        named: String,
    },
    /// A rank waits for too long for one that is gone.
    #[error(
        "communicator {communicator}: rank {rank} still waits {late_ns} ns after it could know who is gone"
    )]
    Late {
        /// The communicator.
        communicator: u32,
        /// The rank.
        rank: u32,
        /// For how long.
        late_ns: u64,
    },
    /// Nothing happens any more, and a rank waits.
    #[error(
        "communicator {communicator}: rank {rank} waits for ever, {completed} operations complete"
    )]
    Stuck {
        /// The communicator.
        communicator: u32,
        /// The rank.
        rank: u32,
        /// Operations that it has completed.
        completed: usize,
    },
    /// A worker lacks a file that is the program's own.
    #[error("a worker of rank {rank} has lost a file of the program's own")]
    FileLost {
        /// The rank.
        rank: u32,
    },
}
