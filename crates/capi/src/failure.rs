//! Why a call failed: its number for C, and its reason for people.
//!
//! A client that prints `sharp_coll_strerror` of a number prints the reason with it: the text of a thread's
//! last failure is kept, once for each different text, and never freed.

use std::cell::Cell;
use std::collections::HashSet;
use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::{Mutex, PoisonError};

use tributary_client::{CollectiveError, OpenError, SettingError, Unavailable};

use crate::log::{self, Level};

/// A number of `enum sharp_error_no`, but for success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// Anything without a number of its own.
    Error = -1,
    /// Asked for something that is not there.
    NotSupported = -2,
    /// The system gives no memory.
    NoMemory = -3,
    /// An argument that can't be.
    Invalid = -4,
    /// No place on aggregation nodes, or none left in this process.
    NoResource = -5,
    /// An out-of-band callback failed.
    OutOfBand = -6,
    /// The job must have what it can't have.
    Job = -11,
    /// Another rank, its host or all ways to it are gone.
    Lost = -12,
}

impl Code {
    /// Every code.
    pub const ALL: [Self; 8] = [
        Self::Error,
        Self::NotSupported,
        Self::NoMemory,
        Self::Invalid,
        Self::NoResource,
        Self::OutOfBand,
        Self::Job,
        Self::Lost,
    ];

    /// What it means, whatever the reason.
    fn meaning(self) -> &'static CStr {
        match self {
            Self::Error => c"the operation failed",
            Self::NotSupported => c"not supported",
            Self::NoMemory => c"out of memory",
            Self::Invalid => c"invalid argument",
            Self::NoResource => c"no resource",
            Self::OutOfBand => c"an out-of-band callback failed",
            Self::Job => c"the job must have what it can't have",
            Self::Lost => c"a rank, its host or all ways to it are gone",
        }
    }
}

/// A failed call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Failure {
    /// For C.
    pub code: Code,
    /// For people: what is at fault, and what to do about it.
    pub reason: String,
}

impl Failure {
    pub(crate) fn new(code: Code, reason: impl Into<String>) -> Self {
        Self { code, reason: reason.into() }
    }

    pub(crate) fn invalid(reason: impl Into<String>) -> Self {
        Self::new(Code::Invalid, reason)
    }

    pub(crate) fn not_supported(reason: impl Into<String>) -> Self {
        Self::new(Code::NotSupported, reason)
    }

    /// Logs it and keeps its reason; the number for C.
    pub(crate) fn report(&self, level: Level) -> c_int {
        log::write(level, || self.reason.clone());
        LAST.set(keep(&self.reason).map(|reason| (self.code, reason)));
        self.code as c_int
    }
}

impl From<SettingError> for Failure {
    fn from(error: SettingError) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let code = match error {
            OpenError::Bootstrap(_) => Code::OutOfBand,
            _ => Code::Error,
        };
        Self::new(code, error.to_string())
    }
}

impl From<Unavailable> for Failure {
    fn from(error: Unavailable) -> Self {
        let code = match error {
            Unavailable::Bootstrap(_) => Code::OutOfBand,
            Unavailable::NoManager { .. } | Unavailable::NotGranted(_) => Code::NoResource,
            Unavailable::Unmet { .. } => Code::Job,
            _ => Code::Error,
        };
        Self::new(code, error.to_string())
    }
}

impl From<CollectiveError> for Failure {
    fn from(error: CollectiveError) -> Self {
        let code = match error {
            CollectiveError::RankLost { .. }
            | CollectiveError::TreeFailed { .. }
            | CollectiveError::HostLost { .. } => Code::Lost,
            CollectiveError::NotDefined { .. } => Code::NotSupported,
            CollectiveError::NoSuchRoot { .. }
            | CollectiveError::Blocks { .. }
            | CollectiveError::Disagreement { .. } => Code::Invalid,
            _ => Code::Error,
        };
        Self::new(code, error.to_string())
    }
}

/// The status of a call for C. Refusals are no fault of the job: they are logged as less.
pub(crate) fn status(outcome: Result<(), Failure>) -> c_int {
    match outcome {
        Ok(()) => 0,
        Err(failure) if failure.code == Code::NotSupported => failure.report(Level::Debug),
        Err(failure) => failure.report(Level::Error),
    }
}

thread_local! {
    /// This thread's last failure.
    static LAST: Cell<Option<(Code, &'static CStr)>> = const { Cell::new(None) };
}

/// Different reasons that are kept; more than any program has that does not make them up.
const REASONS_MAX: usize = 256;

/// Texts for ever.
#[derive(Default)]
struct Reasons(HashSet<&'static CStr>);

impl Reasons {
    /// The text for ever; none if there are too many.
    fn keep(&mut self, reason: &str) -> Option<&'static CStr> {
        let reason = CString::new(reason.replace('\0', " ")).ok()?;
        if let Some(kept) = self.0.get(reason.as_c_str()) {
            return Some(kept);
        }
        if self.0.len() == REASONS_MAX {
            return None;
        }
        let kept: &'static CStr = Box::leak(reason.into_boxed_c_str());
        self.0.insert(kept);
        Some(kept)
    }
}

fn keep(reason: &str) -> Option<&'static CStr> {
    static REASONS: Mutex<Option<Reasons>> = Mutex::new(None);
    let mut reasons = REASONS.lock().unwrap_or_else(PoisonError::into_inner);
    reasons.get_or_insert_default().keep(reason)
}

/// What a number means.
#[unsafe(no_mangle)]
pub extern "C" fn sharp_coll_strerror(error: c_int) -> *const c_char {
    let text = match (error, LAST.get()) {
        (0, _) => c"success",
        (_, Some((code, reason))) if code as c_int == error => reason,
        _ => {
            let code = Code::ALL.into_iter().find(|code| *code as c_int == error);
            code.map_or(c"not a number of enum sharp_error_no", Code::meaning)
        }
    };
    text.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strerror(error: c_int) -> String {
        // SAFETY: the function returns a terminated text that is never freed.
        unsafe { CStr::from_ptr(sharp_coll_strerror(error)) }.to_string_lossy().into_owned()
    }

    #[test]
    fn the_last_reason_comes_with_its_number_only() {
        let refused = Failure::new(Code::Job, "manager a:1 does not answer");
        assert_eq!(refused.report(Level::Trace), -11);
        assert_eq!(strerror(-11), "manager a:1 does not answer");
        assert_eq!(strerror(-4), "invalid argument");
        assert_eq!(strerror(0), "success");
        for unknown in [1, -7, c_int::MIN, c_int::MAX] {
            assert!(strerror(unknown).contains("not a number"), "{unknown}");
        }
    }

    #[test]
    fn reasons_do_not_pile_up() {
        let mut reasons = Reasons::default();
        let kept = (0..2 * REASONS_MAX).filter_map(|at| reasons.keep(&at.to_string()));
        assert_eq!(kept.count(), REASONS_MAX);
        assert!(reasons.keep("0").is_some());
    }
}
