//! Why a topology file was refused.

use alloc::string::String;

use crate::fabric::FabricError;
use crate::hostlist::HostlistError;

/// Why a topology file was refused: a mistake in the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct ReadError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong there.
    pub fault: Fault,
}

/// What is wrong with a line of a topology file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The format has no such line.
    #[error("`{found}` is not understood; allowed: {allowed}")]
    NotUnderstood {
        /// What the line holds.
        found: String,
        /// What it may hold.
        allowed: &'static str,
    },
    /// The TOML parser refused it, or the format has no such key or value.
    #[error("{0}")]
    Toml(String),
    /// A host list is malformed.
    #[error(transparent)]
    Hostlist(#[from] HostlistError),
    /// The line contradicts an earlier one.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The line uses a name that no line describes.
    #[error("`{name}` is not described anywhere in the file; allowed: {allowed}")]
    Undescribed {
        /// The name.
        name: String,
        /// What it may name.
        allowed: &'static str,
    },
    /// The file describes nothing.
    #[error("the file describes no switch; allowed: {allowed}")]
    Nothing {
        /// What a file of the format holds.
        allowed: &'static str,
    },
}

impl ReadError {
    pub(super) fn at(line: usize, fault: impl Into<Fault>) -> Self {
        Self { line, fault: fault.into() }
    }
}
