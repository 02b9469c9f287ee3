//! Why a preset is refused.

use crate::input::{InputError, Refused};

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
    /// The file.
    #[error(transparent)]
    Input(#[from] InputError),
}

impl From<Refused> for PresetError {
    fn from(refused: Refused) -> Self {
        Self::Input(refused.into())
    }
}
