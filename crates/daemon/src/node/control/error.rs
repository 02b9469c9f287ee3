//! Why a session with the manager ends.

use crate::liveness::MANAGER_SILENCE_MAX;
use crate::node::call::CallError;
use crate::node::commands::LoopGone;
use crate::node::lines::LineError;

/// Why a session ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("orders: {0}")]
    Line(#[from] LineError),
    #[error("the manager has been silent for {MANAGER_SILENCE_MAX:?}")]
    Silent,
    #[error("the manager's first order is not a registration")]
    NotRegistered,
    #[error("group {group} install: {source}")]
    Connector { group: u32, source: tokio::task::JoinError },
    #[error(transparent)]
    LoopGone(#[from] LoopGone),
}
