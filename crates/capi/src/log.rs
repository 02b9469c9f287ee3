//! What is written to standard error: `SHARP_COLL_LOG_LEVEL` says how much.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

use tributary_client::lines::LineLimit;
use tributary_wire::text::printable;

/// How much a line matters; the numbers are those of `SHARP_COLL_LOG_LEVEL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// The process ends.
    Fatal,
    /// A call failed.
    Error,
    /// Something is not as asked for.
    Warn,
    /// What was set up.
    Info,
    /// Refusals, and what was looked at.
    Debug,
    /// Every call.
    Trace,
}

impl Level {
    const ALL: [Self; 6] =
        [Self::Fatal, Self::Error, Self::Warn, Self::Info, Self::Debug, Self::Trace];
    /// Without a setting.
    pub(crate) const DEFAULT: Self = Self::Warn;

    /// The level of a number; those beyond the last count as the last.
    pub(crate) fn from_number(number: u8) -> Self {
        Self::ALL[usize::from(number).min(Self::ALL.len() - 1)]
    }

    fn name(self) -> &'static str {
        match self {
            Self::Fatal => "fatal",
            Self::Error => "error",
            Self::Warn => "warning",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

static LEVEL: AtomicU8 = AtomicU8::new(Level::DEFAULT as u8);

/// Of the lines of each level.
static LIMITS: [LineLimit; Level::ALL.len()] = [const { LineLimit::new() }; Level::ALL.len()];

/// From now on lines of this level and below are written, in the whole process.
pub(crate) fn set_level(level: Level) {
    // Relaxed: nothing is published with it.
    LEVEL.store(level as u8, Ordering::Relaxed);
}

/// Writes a line, if lines of its level are written.
pub(crate) fn write(level: Level, text: impl FnOnce() -> String) {
    // Relaxed: as above.
    if level as u8 <= LEVEL.load(Ordering::Relaxed) {
        // A program may repeat a call that fails. Debug lines were asked for, and have no limit.
        let remark = match level {
            Level::Debug | Level::Trace => String::new(),
            _ => match LIMITS[level as usize].judge(Instant::now()).remark() {
                Some(remark) => remark,
                None => return,
            },
        };
        let (process, level) = (std::process::id(), level.name());
        let line = format!("sharp_coll [{process}] {level}: {}{remark}\n", printable(&text()));
        // Where nobody can be told, the call's status still tells.
        let _ = io::stderr().write_all(line.as_bytes());
    }
}
