//! The variables that clients of SHARP set, beside the knobs.
//!
//! Owns which of them mean something here. Where a knob says the same thing and is set, the knob counts.

use std::env;

use tributary_client::{Settings, knobs};

use crate::failure::Failure;
use crate::log::Level;

/// Variables that say what a knob says: the variable, its value that means "no preference", the knob.
const KNOBS: [(&str, &str, &knobs::Knob); 2] = [
    ("SHARP_COLL_JOB_QUOTA_OSTS", "0", &knobs::OSOS),
    ("SHARP_COLL_JOB_QUOTA_PAYLOAD_PER_OST", "0", &knobs::PAYLOAD_MAX),
];

/// What a context takes from the environment besides the knobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Environment {
    /// Whether reduce-scatter and allgather are offered.
    pub(crate) has_streaming: bool,
    /// Whether the report is written to standard error when the context ends.
    pub(crate) dumps_stats: bool,
}

impl Environment {
    pub(crate) fn read() -> Result<Self, Failure> {
        Ok(Self {
            has_streaming: number("SHARP_COLL_ENABLE_SAT", 1)? != 0,
            dumps_stats: number("SHARP_COLL_STATS_DUMP_MODE", 0)? != 0,
        })
    }
}

/// The knobs, and what stands in for some of them.
pub(crate) fn settings() -> Result<Settings, Failure> {
    Ok(Settings::from_environment(variable_or_its_like)?)
}

fn variable_or_its_like(name: &str) -> Option<String> {
    let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
    set(name).or_else(|| {
        let (variable, nothing, _) = KNOBS.into_iter().find(|(_, _, knob)| knob.name == name)?;
        set(variable).filter(|value| value != nothing)
    })
}

/// How much is logged.
pub(crate) fn log_level() -> Result<Level, Failure> {
    number("SHARP_COLL_LOG_LEVEL", Level::DEFAULT as u8).map(Level::from_number)
}

fn number(name: &str, default: u8) -> Result<u8, Failure> {
    let Some(text) = env::var_os(name).filter(|text| !text.is_empty()) else {
        return Ok(default);
    };
    text.to_str().and_then(|text| text.parse().ok()).ok_or_else(|| {
        let text = text.to_string_lossy();
        Failure::invalid(format!("{name}={text}: a number from 0 to 255 is allowed"))
    })
}

/// Every setting as `NAME=VALUE`, and where it comes from.
pub(crate) fn listing() -> String {
    let knobs = knobs::values(variable_or_its_like);
    let line = |value: &knobs::KnobValue| {
        let is_set = matches!(value.origin, knobs::Origin::Environment);
        let origin = if is_set { "environment" } else { "default" };
        format!("{}={} ({origin})\n", value.knob.name, value.value)
    };
    knobs.iter().map(line).collect()
}
