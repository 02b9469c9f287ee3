//! Counting, while the job runs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::{CommunicatorReport, Counts, Kind, Report, Way};

/// One communicator's counts, shared between whoever counts and the report.
#[derive(Debug)]
pub struct Tally {
    label: String,
    ranks: u32,
    /// Zero until the communicator was set up.
    hosts: AtomicU32,
    /// Whether this process is the one of the communicator that counts.
    counts: bool,
    done: [[AtomicU64; Way::ALL.len()]; Kind::ALL.len()],
    passed: Mutex<BTreeMap<(Kind, String), u64>>,
    /// Why its hosts are not joined in the way they should be.
    note: OnceLock<String>,
    /// What carries data between its leaders and the tree.
    carriers: OnceLock<String>,
    /// What ranks of a host have to do without among themselves, and why.
    memory: OnceLock<String>,
    /// Segments whose results its counting rank's host heard by multicast.
    multicast_results: AtomicU64,
}

impl Tally {
    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    pub(crate) fn set_hosts(&self, hosts: u32) {
        // Relaxed: a statistic, read after the last operation.
        self.hosts.store(hosts, Ordering::Relaxed);
    }

    pub(crate) fn set_note(&self, note: &str) {
        // A communicator is set up once.
        let _ = self.note.set(note.to_owned());
    }

    pub(crate) fn set_carriers(&self, carriers: &str) {
        // A communicator is set up once.
        let _ = self.carriers.set(carriers.to_owned());
    }

    pub(crate) fn set_memory(&self, memory: &str) {
        // A communicator is set up once.
        let _ = self.memory.set(memory.to_owned());
    }

    /// So many results have come by multicast.
    pub(crate) fn set_multicast_results(&self, results: u64) {
        // Relaxed: a statistic, read after the last operation.
        self.multicast_results.store(results, Ordering::Relaxed);
    }

    /// Counts an operation that we carried.
    pub fn count(&self, kind: Kind, way: Way) {
        if self.counts {
            // Relaxed: a statistic, read after the last operation.
            self.done[kind as usize][way as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The same for a caller that nobody else counts beside: a plain addition, no locked one.
    #[inline]
    pub(crate) fn count_in_turn(&self, kind: Kind, way: Way) {
        if self.counts {
            // Relaxed: a statistic, read after the last operation.
            let count = &self.done[kind as usize][way as usize];
            count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    /// Counts an operation that went to the MPI beneath.
    pub fn count_passed(&self, kind: Kind, reason: &str) {
        if self.counts {
            let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(count) = passed.get_mut(&(kind, reason.to_owned())) {
                *count += 1;
            } else if passed.len() < REASONS_MAX {
                passed.insert((kind, reason.to_owned()), 1);
            }
        }
    }

    /// The counts so far, as the report tells them.
    fn summary(&self) -> CommunicatorReport {
        let mut collectives: BTreeMap<Kind, Counts> = BTreeMap::new();
        for kind in Kind::ALL {
            let [in_node, in_tree, in_mesh] =
                Way::ALL.map(|way| self.done[kind as usize][way as usize].load(Ordering::Relaxed));
            if in_node + in_tree + in_mesh > 0 {
                let counts = Counts { in_node, in_tree, in_mesh, ..Counts::default() };
                collectives.insert(kind, counts);
            }
        }
        let passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        for ((kind, reason), count) in passed.iter() {
            let counts = collectives.entry(*kind).or_default();
            counts.passed_through += count;
            *counts.reasons.entry(reason.clone()).or_default() += count;
        }
        CommunicatorReport {
            label: self.label.clone(),
            ranks: self.ranks,
            hosts: self.hosts.load(Ordering::Relaxed),
            communicators: 1,
            note: self.note.get().cloned().unwrap_or_default(),
            carriers: self.carriers.get().cloned().unwrap_or_default(),
            memory: self.memory.get().cloned().unwrap_or_default(),
            multicast_results: self.multicast_results.load(Ordering::Relaxed),
            collectives,
        }
    }
}

/// Different reasons kept per communicator; there are fewer in any real program.
const REASONS_MAX: usize = 256;

/// All tallies of one process.
#[derive(Debug, Default)]
pub struct Ledger {
    books: Mutex<Books>,
}

/// Tallies, and the sums of those whose communicators are gone: a program may make and free
/// communicators for ever.
#[derive(Debug, Default)]
struct Books {
    open: Vec<Arc<Tally>>,
    closed: Report,
    /// How long `open` was, at least, when it was last looked through.
    looked_through: usize,
}

/// How many tallies may be open before the ledger looks for closed ones.
const OPEN_MIN: usize = 64;

impl Books {
    fn enter(&mut self, tally: &Arc<Tally>) {
        // Looked through at each doubling, so that the work per tally stays the same.
        if self.open.len() >= 2 * self.looked_through.max(OPEN_MIN) {
            self.close();
            self.looked_through = self.open.len();
        }
        self.open.push(Arc::clone(tally));
    }

    /// Sums up the tallies that nobody else holds: their counts are final.
    fn close(&mut self) {
        let closed = &mut self.closed;
        self.open.retain(|tally| {
            let is_held = Arc::strong_count(tally) > 1;
            if !is_held {
                closed.add(&tally.summary());
            }
            is_held
        });
    }
}

impl Ledger {
    /// A new communicator's tally. Its counts stay in the ledger when the communicator is freed.
    /// `counts` is true at one of the communicator's ranks.
    pub fn open(&self, label: &str, ranks: u32, counts: bool) -> Arc<Tally> {
        let tally = Arc::new(Tally {
            label: label.to_owned(),
            ranks,
            hosts: AtomicU32::new(0),
            counts,
            done: Default::default(),
            passed: Mutex::default(),
            note: OnceLock::new(),
            carriers: OnceLock::new(),
            memory: OnceLock::new(),
            multicast_results: AtomicU64::new(0),
        });
        if counts {
            self.books.lock().unwrap_or_else(PoisonError::into_inner).enter(&tally);
        }
        tally
    }

    /// The counts so far.
    #[must_use]
    pub fn report(&self) -> Report {
        let books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        let mut report = books.closed.clone();
        for tally in &books.open {
            report.add(&tally.summary());
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_communicators_that_are_gone_stay_and_their_tallies_go() {
        let ledger = Ledger::default();
        for _ in 0..10 * OPEN_MIN {
            ledger.open("dup", 4, true).count(Kind::Barrier, Way::InNode);
        }
        let kept = ledger.open("kept", 4, true);
        kept.count(Kind::Barrier, Way::InNode);
        let report = ledger.report();
        assert_eq!(report.in_node, 10 * OPEN_MIN as u64 + 1);
        assert_eq!(report.communicators[0].communicators, 10 * OPEN_MIN as u64);
        assert!(ledger.books.lock().unwrap().open.len() <= 2 * OPEN_MIN + 1);
    }
}
