//! What must never happen among the hosts of replicated groups.

/// A violation, of a host by number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A sum is not that of all hosts' contributions in the plan's order.
    #[error("groups: host {host} got a wrong sum of operation {operation}")]
    WrongResult {
        /// The host.
        host: u32,
        /// The operation's number.
        operation: u64,
    },
    /// A host fails, and names hosts that have done nothing wrong.
    #[error("groups: host {host} names {named} in operation {operation}, without cause")]
    Misnamed {
        /// The host.
        host: u32,
        /// The operation's number.
        operation: u64,
        /// What it says.
        named: String,
    },
    /// A host waits for too long for what all others have.
    #[error(
        "groups: host {host} waited {late_ns} ns in operation {operation} after it could go on or know why not"
    )]
    Late {
        /// The host.
        host: u32,
        /// The operation's number.
        operation: u64,
        /// For how long.
        late_ns: u64,
    },
    /// Nothing happens any more, and a host waits in an operation or cannot leave.
    #[error("groups: host {host} waits for ever, {completed} operations complete")]
    Stuck {
        /// The host.
        host: u32,
        /// Operations that it has completed.
        completed: u64,
    },
    /// A driver was told to send what it does not have.
    #[error("groups: host {host} is to send from an empty place")]
    Empty {
        /// The host.
        host: u32,
    },
}
