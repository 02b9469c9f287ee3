//! What a run can be guilty of.

use tributary_wire::frame::Abort;

use super::fault_record::Key;

/// Something that must never happen, and did.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A result has other bits than the reduction in child order.
    #[error("{group}: member {member} got a wrong result for operation {operation}")]
    WrongResult {
        /// The group.
        group: String,
        /// The member.
        member: u32,
        /// The operation's place in the group's script.
        operation: usize,
    },
    /// An operation was reported complete before all its bytes had come.
    #[error(
        "{group}: operation {operation} is complete at member {member} with {got_bytes} of {need_bytes} bytes"
    )]
    Incomplete {
        /// The group.
        group: String,
        /// The member.
        member: u32,
        /// The operation's place in the group's script.
        operation: usize,
        /// Bytes that came.
        got_bytes: usize,
        /// Bytes of the vector.
        need_bytes: usize,
    },
    /// An operation completed that was not the oldest, or not once.
    #[error("{group}: member {member} completed operations out of order")]
    OutOfOrder {
        /// The group.
        group: String,
        /// The member.
        member: u32,
    },
    /// An operation completed of which members had different ideas.
    #[error(
        "{group}: operation {operation} completed at member {member} although members disagree on it"
    )]
    AgreedToDiffer {
        /// The group.
        group: String,
        /// The member.
        member: u32,
        /// The operation's place in the group's script.
        operation: usize,
    },
    /// A group failed that nothing was done to.
    #[error("{group}: failed at member {member} without cause: {abort}")]
    Unfounded {
        /// The group.
        group: String,
        /// The member.
        member: u32,
        /// What it was told.
        abort: String,
    },
    /// A group failed with a reason, or a culprit, that is not the cause.
    #[error("{group}: member {member} was told `{abort}`, which is not what happened")]
    Misnamed {
        /// The group.
        group: String,
        /// The member.
        member: u32,
        /// What it was told.
        abort: String,
    },
    /// A member was told too late.
    #[error("{group}: member {member} was told {late_ns} ns after the cause showed")]
    Late {
        /// The group.
        group: String,
        /// The member.
        member: u32,
        /// How long it took.
        late_ns: u64,
    },
    /// All is quiet and a member is neither done nor told that it won't be.
    #[error("{group}: member {member} waits for ever, {completed} operations complete")]
    Stuck {
        /// The group.
        group: String,
        /// The member.
        member: u32,
        /// Operations it has completed.
        completed: usize,
    },
    /// All is quiet and a job did not get what it asked for.
    #[error("job {job} can't have group {group}: {last}")]
    Starved {
        /// The job.
        job: usize,
        /// The group's place in the job's plan.
        group: usize,
        /// The last refusal.
        last: String,
    },
    /// More of something than was granted.
    #[error("{what}: {got}, allowed are {max}")]
    Bound {
        /// What there is too much of.
        what: &'static str,
        /// How much there is.
        got: u64,
        /// How much was granted.
        max: u64,
    },
    /// A stream lock was given to two groups, or out of turn.
    #[error("{node}: {what}")]
    Lock {
        /// The node.
        node: String,
        /// What is wrong with its lock.
        what: String,
    },
    /// An honest peer's frame was refused.
    #[error("{group}: an honest frame was refused: {error}")]
    HonestRefused {
        /// The group.
        group: String,
        /// The refusal.
        error: String,
    },
    /// A frame that is none, or a stranger's, was taken.
    #[error("{what} was taken for a good frame")]
    ForgeryAccepted {
        /// What it was.
        what: String,
    },
    /// A stranger, or a child that has left, was sent something.
    #[error("{whom} was sent {what}")]
    Leak {
        /// Who got it.
        whom: String,
        /// What it was.
        what: String,
    },
    /// The manager refused what an honest node said.
    #[error("the manager refused an honest node: {error}")]
    HonestEventRefused {
        /// The refusal.
        error: String,
    },
    /// A node could not install what the manager had counted out for it.
    #[error("node {node} could not install what was granted: {error}")]
    InstallRefused {
        /// The node.
        node: String,
        /// Its words.
        error: String,
    },
    /// All is over and something is still held.
    #[error("after everything ended, {whom} holds {what}")]
    Leftover {
        /// Who holds it.
        whom: String,
        /// What it is.
        what: String,
    },
    /// The run does not come to rest.
    #[error("not quiet after {steps} steps")]
    Restless {
        /// Steps it was given.
        steps: u64,
    },
    /// A machine or its driver panicked.
    #[error("panicked: {message}")]
    Panicked {
        /// The panic's words.
        message: String,
    },
}

impl Violation {
    /// Whether another run found the same kind of thing.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Panicked { message: one }, Self::Panicked { message: other }) => one == other,
            (one, other) => std::mem::discriminant(one) == std::mem::discriminant(other),
        }
    }
}

pub(super) fn words(abort: Abort) -> String {
    format!("{} (member {})", abort.reason, abort.at_fault)
}

/// What is wrong, and with which group.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) at_ns: u64,
    pub(super) group: Option<Key>,
    pub(super) violation: Violation,
}
