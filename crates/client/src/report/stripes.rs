//! What the report says of stripes.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::stripes::Stripes;

/// What became of a communicator's wish for stripes: parts of long vectors that go through trees
/// with different roots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StripesReport {
    /// Trees that were asked for.
    pub asked: u32,
    /// Why there are fewer, in one line; empty if there aren't.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Operations that were cut.
    pub operations: u64,
    /// What their parts measured, in bytes of one host's vectors: one sum for each tree there is.
    pub bytes: Vec<u64>,
}

impl StripesReport {
    /// Whether another communicator had the same wish and the same answer.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        (self.asked, &self.note, self.bytes.len()) == (other.asked, &other.note, other.bytes.len())
    }

    /// Adds one that [is like](Self::is_like) it.
    pub(super) fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.bytes.iter_mut().zip(&other.bytes).for_each(|(sum, bytes)| *sum += bytes);
    }
}

impl fmt::Display for StripesReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { asked, note, operations, bytes } = self;
        write!(f, "{} of {asked} trees for stripes: {operations} operations cut", bytes.len())?;
        if *operations > 0 {
            let bytes: Vec<String> = bytes.iter().map(u64::to_string).collect();
            write!(f, ", bytes of a host {}", bytes.join(" + "))?;
        }
        if note.is_empty() { Ok(()) } else { write!(f, "; {note}") }
    }
}

/// The same while the job runs.
#[derive(Debug)]
pub(super) struct StripesTally {
    asked: u32,
    note: String,
    operations: AtomicU64,
    bytes: Box<[AtomicU64]>,
}

impl StripesTally {
    pub(super) fn new(stripes: &Stripes) -> Self {
        Self {
            asked: stripes.asked,
            note: stripes.note.clone(),
            operations: AtomicU64::new(0),
            bytes: (0..stripes.trees).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// An operation was cut into parts of these lengths.
    pub(super) fn count(&self, lengths_bytes: impl Iterator<Item = usize>) {
        // Relaxed: statistics, read after the last operation.
        self.operations.fetch_add(1, Ordering::Relaxed);
        for (sum, len_bytes) in self.bytes.iter().zip(lengths_bytes) {
            sum.fetch_add(len_bytes as u64, Ordering::Relaxed);
        }
    }

    pub(super) fn report(&self) -> StripesReport {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        StripesReport {
            asked: self.asked,
            note: self.note.clone(),
            operations: read(&self.operations),
            bytes: self.bytes.iter().map(read).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_cut_is_said_by_tree() {
        let stripes = |note: &str| Stripes { asked: 3, trees: 2, min_bytes: 1, note: note.into() };
        let tally = StripesTally::new(&stripes("no third root"));
        tally.count([800, 808].into_iter());
        let mut report = tally.report();
        assert!(!report.is_like(&StripesTally::new(&stripes("")).report()));
        report.add(&tally.report());
        assert_eq!(
            report.to_string(),
            "2 of 3 trees for stripes: 2 operations cut, bytes of a host 1600 + 1616; no third root"
        );
    }
}
