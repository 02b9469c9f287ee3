//! How many lines of one kind are written, in daemons and in programs' processes.
//!
//! What a loop, a peer or a program can bring about again and again would fill a disk, and hide all else.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lines of one kind in a period. As many as a set-up of many communicators writes.
pub const LINES_MAX: u32 = 200;

/// The period.
pub const PERIOD: Duration = Duration::from_secs(60);

/// Bounds the lines of one kind.
#[derive(Debug, Default)]
pub struct LineLimit(Mutex<Option<Window>>);

#[derive(Debug)]
struct Window {
    began: Instant,
    lines: u32,
    left_out: u64,
}

/// What becomes of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is written.
    Write {
        /// How many were left out before it.
        left_out: u64,
        /// Whether those after it are left out until the period is over.
        is_last: bool,
    },
    /// It is not.
    LeaveOut,
}

impl LineLimit {
    /// No line has been written.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Decides about a line.
    pub fn judge(&self, now: Instant) -> Verdict {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let window = window.get_or_insert(Window { began: now, lines: 0, left_out: 0 });
        if now.saturating_duration_since(window.began) >= PERIOD {
            (window.began, window.lines) = (now, 0);
        }
        if window.lines >= LINES_MAX {
            window.left_out += 1;
            return Verdict::LeaveOut;
        }
        window.lines += 1;
        let left_out = std::mem::take(&mut window.left_out);
        Verdict::Write { left_out, is_last: window.lines == LINES_MAX }
    }
}

impl Verdict {
    /// What is written behind the line; none if the line is not written.
    #[must_use]
    pub fn remark(self) -> Option<String> {
        let Self::Write { left_out, is_last } = self else { return None };
        let mut remark = String::new();
        if left_out > 0 {
            remark.push_str(&format!(" ({left_out} such lines were left out before this one)"));
        }
        if is_last {
            let seconds = PERIOD.as_secs();
            remark.push_str(&format!(" (such lines are left out now, for up to {seconds} s)"));
        }
        Some(remark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_and_what_is_left_out_is_counted() {
        let (limit, start) = (LineLimit::new(), Instant::now());
        let remarks: Vec<Option<String>> =
            (0..1_000_000).map(|_| limit.judge(start).remark()).collect();
        let written: Vec<&String> = remarks.iter().flatten().collect();
        assert_eq!(written.len(), LINES_MAX as usize);
        assert_eq!(written[0], "");
        assert!(written[LINES_MAX as usize - 1].contains("are left out now"));
        let later = limit.judge(start + PERIOD);
        let left_out = 1_000_000 - u64::from(LINES_MAX);
        assert_eq!(later, Verdict::Write { left_out, is_last: false });
        assert!(later.remark().unwrap().contains("999800 such lines"));
        assert_eq!(limit.judge(start + PERIOD).remark().as_deref(), Some(""));
    }
}
