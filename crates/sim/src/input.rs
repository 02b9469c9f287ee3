//! Files in TOML that a user writes: how they are read, and what is said of a mistake.
//!
//! Every message is one line that names the key, its value and what is allowed.

use serde::de::DeserializeOwned;
use toml::Table;

/// A value that is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{key}` is {value}; allowed: {allowed}")]
pub struct Refused {
    /// The key, with the tables around it: `switch.port_rate`.
    pub key: String,
    /// The value.
    pub value: String,
    /// What is allowed.
    pub allowed: String,
}

impl Refused {
    /// `key` is `value`, and only `allowed` is.
    pub fn new(key: impl Into<String>, value: impl ToString, allowed: impl Into<String>) -> Self {
        Self { key: key.into(), value: value.to_string(), allowed: allowed.into() }
    }
}

/// Why a file was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// The text is not TOML.
    #[error("line {line}: {fault}")]
    Syntax {
        /// The line, from 1.
        line: usize,
        /// The parser's words.
        fault: String,
    },
    /// A key is missing, unknown, or has a value of the wrong kind.
    #[error("`{key}`: {fault}")]
    Key {
        /// The key, with the tables around it.
        key: String,
        /// What is wrong with it.
        fault: String,
    },
    /// A value is out of bounds.
    #[error(transparent)]
    Refused(#[from] Refused),
}

/// The tables of a text.
///
/// # Errors
/// [`InputError::Syntax`].
pub fn table(text: &str) -> Result<Table, InputError> {
    toml::from_str(text).map_err(|error: toml::de::Error| {
        let start = error.span().map_or(0, |span| span.start);
        let before = text.as_bytes().get(..start).unwrap_or(text.as_bytes());
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        InputError::Syntax { line, fault: one_line(error.message()) }
    })
}

/// The value of a table, every key of which has its type.
///
/// # Errors
/// [`InputError::Key`].
pub fn value<T: DeserializeOwned>(table: Table) -> Result<T, InputError> {
    serde_path_to_error::deserialize(table).map_err(|error| InputError::Key {
        key: error.path().to_string(),
        fault: one_line(error.inner().message()),
    })
}

/// Text on one line.
pub(crate) fn one_line(text: impl ToString) -> String {
    text.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}
