//! Why the settings can't be used.

use crate::knobs::Knob;

/// A knob's value that can't be. One line that says which, what it was and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} is {value:?}; allowed: {}", knob.name, knob.allowed)]
pub struct SettingError {
    /// The knob.
    pub knob: &'static Knob,
    /// What it was set to.
    pub value: String,
}
