//! Why the settings can't be used.

use crate::knobs::Knob;

/// A knob's value that can't be. One line that says which, what it was and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} is {value:?}; allowed{}", knob.name, describe_allowed(knob, *other))]
pub struct SettingError {
    /// The knob.
    pub knob: &'static Knob,
    /// What it was set to.
    pub value: String,
    /// Another one, that may not be set beside this value; none if the value is never allowed.
    pub other: Option<&'static Knob>,
}

impl SettingError {
    /// A value that is never allowed.
    pub(crate) fn new(knob: &'static Knob, value: String) -> Self {
        Self { knob, value, other: None }
    }

    /// A value that is allowed, but not beside another knob.
    pub(crate) fn without(knob: &'static Knob, other: &'static Knob, value: &str) -> Self {
        Self { knob, value: value.to_owned(), other: Some(other) }
    }
}

fn describe_allowed(knob: &Knob, other: Option<&Knob>) -> String {
    match other {
        Some(other) => format!(" without {} only", other.name),
        None => format!(": {}", knob.allowed),
    }
}
