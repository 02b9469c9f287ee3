//! What an operation was, for its time and the trace.

use tributary_client::report::PathTaken;
use tributary_client::{CollectiveKind, Combiner};

use crate::communicator::CCommunicator;
use crate::names::COperation;

/// What an operation was that ran.
pub(crate) struct Done {
    pub(crate) kind: CollectiveKind,
    pub(crate) path: PathTaken,
    /// What this rank contributed.
    pub(crate) len_bytes: u64,
}

/// What an operation was; always something for one that ran.
pub(crate) fn describe_done(communicator: &CCommunicator, operation: &COperation) -> Option<Done> {
    let combining = operation.combining();
    let combiner =
        combining.as_ref().map(|(combining, commutes)| Combiner::new(combining, *commutes));
    let communicator = communicator.communicator_joined().ok()?;
    let operation = operation.operation(combiner).ok()?;
    Some(Done {
        kind: operation.collective.kind(),
        path: communicator.path_kind(&operation).into(),
        len_bytes: operation.len_bytes() as u64,
    })
}
