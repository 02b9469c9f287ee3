//! Why a preset is refused. Every message is one line that names the key, its value and what is allowed.

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
    pub(crate) fn new(
        key: impl Into<String>,
        value: impl ToString,
        allowed: impl Into<String>,
    ) -> Self {
        Self { key: key.into(), value: value.to_string(), allowed: allowed.into() }
    }
}

/// Why a preset was refused: a mistake in the file or in its name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PresetError {
    /// No such preset comes with the program.
    #[error("no preset is called `{name}`; there are {known}")]
    Unknown {
        /// The name.
        name: String,
        /// The names of all presets.
        known: String,
    },
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
