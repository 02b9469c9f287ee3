//! Violations that a run can find.

use tributary_wire::frame::Abort;

use super::fault_record::Key;

/// A violation: something that must never happen.
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
    /// Two members have different bits.
    #[error("{group}: member {member} has another result of operation {operation} than others")]
    Different {
        /// The communicator's first group.
        group: String,
        /// The member.
        member: u32,
        /// The operation's place in the group's script.
        operation: usize,
    },
    /// Members have no tree again long after the last fault.
    #[error("{group}: member {member} is not back in a tree after {operations} operations")]
    Treeless {
        /// The communicator's first group.
        group: String,
        /// The member.
        member: u32,
        /// Operations that it has completed.
        operations: usize,
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
    /// An operation completed before an older one, or twice.
    #[error("{group}: member {member} completed operations out of order")]
    OutOfOrder {
        /// The group.
        group: String,
        /// The member.
        member: u32,
    },
    /// An operation completed on which members disagree.
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
    /// A group failed without cause.
    #[error("{group}: failed at member {member} without cause: {abort}")]
    Unfounded {
        /// The group.
        group: String,
        /// The member.
        member: u32,
        /// What it was told.
        abort: String,
    },
    /// A group failed with a reason, or a member at fault, that is not the cause.
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
        /// How late.
        late_ns: u64,
    },
    /// All is quiet, and a member is neither done nor told why not.
    #[error("{group}: member {member} waits for ever, {completed} operations complete")]
    Stuck {
        /// The group.
        group: String,
        /// The member.
        member: u32,
        /// Operations it has completed.
        completed: usize,
    },
    /// All is quiet, and a job did not get a group that it requested.
    #[error("job {job} can't have group {group}: {last}")]
    Starved {
        /// The job.
        job: usize,
        /// The group's place in the job's plan.
        group: usize,
        /// The last refusal.
        last: String,
    },
    /// A bound of a grant was exceeded.
    #[error("{what}: {got}, allowed are {max}")]
    Bound {
        /// What exceeds its bound.
        what: &'static str,
        /// How much there is.
        got: u64,
        /// How much was granted.
        max: u64,
    },
    /// A stream lock was given to two groups at once, or in the wrong order.
    #[error("{node}: {what}")]
    Lock {
        /// The aggregator.
        node: String,
        /// What is wrong with its lock.
        what: String,
    },
    /// A frame of an honest peer was refused.
    #[error("{group}: an honest frame was refused: {error}")]
    HonestRefused {
        /// The group.
        group: String,
        /// The refusal.
        error: String,
    },
    /// An invalid frame, or a stranger's, was accepted.
    #[error("{what} was accepted as a frame")]
    ForgeryAccepted {
        /// What it was.
        what: String,
    },
    /// A frame was sent to a stranger, or to a child that has left.
    #[error("{whom} was sent {what}")]
    Leak {
        /// The party that got it.
        whom: String,
        /// What it was.
        what: String,
    },
    /// The manager refused an event of an honest aggregator.
    #[error("the manager refused an honest node: {error}")]
    HonestEventRefused {
        /// The refusal.
        error: String,
    },
    /// An aggregator could not install a group that the manager had granted.
    #[error("node {node} could not install what was granted: {error}")]
    InstallRefused {
        /// The aggregator.
        node: String,
        /// The aggregator's error.
        error: String,
    },
    /// Everything has ended, and something is still in use.
    #[error("after everything ended, {whom} holds {what}")]
    Leftover {
        /// The party that has it.
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
    /// In the system of ranks on several hosts.
    #[error(transparent)]
    Ranks(#[from] tributary_swarm_hosts::Violation),
    /// In the system of hosts in replicated groups.
    #[error(transparent)]
    Groups(#[from] tributary_swarm_hosts::levels::Violation),
    /// A machine or its driver panicked.
    #[error("panicked: {message}")]
    Panicked {
        /// The panic's message.
        message: String,
    },
}

impl Violation {
    /// Whether both are violations of the same kind.
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

/// A violation with its time and group.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) at_ns: u64,
    pub(super) group: Option<Key>,
    pub(super) violation: Violation,
}
