//! What the processes of a lab tell one another while it is made.

use serde::{Deserialize, Serialize};

use crate::namespaces::StepError;
use crate::tools::ToolError;

/// Why a lab could not be made, in a form that travels between processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{text}")]
pub struct Failure {
    /// Whether the system does not permit this user to make namespaces.
    pub is_refusal: bool,
    /// The step that failed, and the system's error.
    pub text: String,
}

impl From<StepError> for Failure {
    fn from(error: StepError) -> Self {
        Self { is_refusal: error.is_refusal(), text: error.to_string() }
    }
}

impl From<ToolError> for Failure {
    fn from(error: ToolError) -> Self {
        Self { is_refusal: false, text: error.to_string() }
    }
}

/// The message to continue: it tells a member that its links exist, and the supervisor that the lab
/// is to stay.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Go;
