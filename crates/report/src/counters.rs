//! Counting, while the job runs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tributary_algorithms::CollectiveKind;

use super::{CommunicatorReport, Counts, Failovers, PathKind, Report};

/// One communicator's counts, shared between the code that counts and the report.
#[derive(Debug)]
pub struct Counters {
    label: String,
    ranks: u32,
    /// Zero until the communicator was set up.
    hosts: AtomicU32,
    /// Whether this process is the one of the communicator that counts.
    counts: bool,
    done: [[AtomicU64; PathKind::ALL.len()]; CollectiveKind::ALL.len()],
    passed: Mutex<BTreeMap<(CollectiveKind, String), u64>>,
    notes: OnceLock<Notes>,
    /// Segments whose results its counting rank's host received by multicast.
    multicast_results: AtomicU64,
    failovers: [AtomicU64; 3],
    /// Operations that took the tree because links lose packets.
    avoiding_losses: AtomicU64,
}

/// What its set-up left to say.
#[derive(Clone, Debug, Default)]
struct Notes {
    joining: Option<String>,
    carriers: Option<String>,
    memory: String,
}

impl Counters {
    /// How the communicator was made.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.label
    }

    /// On how many hosts the communicator's ranks are.
    pub fn set_hosts(&self, hosts: u32) {
        // Relaxed: a statistic, read after the last operation.
        self.hosts.store(hosts, Ordering::Relaxed);
    }

    /// What the report says of the communicator's set-up; see [`CommunicatorReport`].
    pub fn set_notes(&self, joining: Option<String>, carriers: Option<String>, memory: String) {
        // A communicator is set up once.
        let _ = self.notes.set(Notes { joining, carriers, memory });
    }

    /// How hosts are joined, and why there is no tree where there should be one, if there is anything to
    /// say; see [`CommunicatorReport::note`].
    #[must_use]
    pub fn note(&self) -> Option<&str> {
        self.notes.get()?.joining.as_deref()
    }

    /// So many results have come by multicast.
    pub fn set_multicast_results(&self, results: u64) {
        // Relaxed: a statistic, read after the last operation.
        self.multicast_results.store(results, Ordering::Relaxed);
    }

    /// The tree was lost.
    pub fn count_tree_lost(&self) {
        self.count_failover(0);
    }

    /// There is a tree again.
    pub fn count_tree_regained(&self) {
        self.count_failover(1);
    }

    /// An operation went over direct links because there was no tree.
    pub fn count_substitute(&self) {
        self.count_failover(2);
    }

    /// An operation goes through the tree, cut into packets, because links lose some.
    pub fn count_avoiding_losses(&self) {
        // Relaxed: a statistic, read after the last operation.
        self.avoiding_losses.fetch_add(1, Ordering::Relaxed);
    }

    fn count_failover(&self, which: usize) {
        // Relaxed: a statistic, read after the last operation.
        self.failovers[which].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an operation that we carried.
    pub fn count(&self, kind: CollectiveKind, path: PathKind) {
        if self.counts {
            // Relaxed: a statistic, read after the last operation.
            self.done[kind as usize][path as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The same for a caller that nobody else counts beside: a plain addition, no locked one.
    #[inline]
    pub fn count_in_turn(&self, kind: CollectiveKind, path: PathKind) {
        if self.counts {
            // Relaxed: a statistic, read after the last operation.
            let count = &self.done[kind as usize][path as usize];
            count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    /// Counts an operation that went to the underlying MPI.
    pub fn count_passed(&self, kind: CollectiveKind, reason: &str) {
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
        let mut collectives: BTreeMap<CollectiveKind, Counts> = BTreeMap::new();
        for kind in CollectiveKind::ALL {
            let [in_host, in_tree, direct] = PathKind::ALL
                .map(|path| self.done[kind as usize][path as usize].load(Ordering::Relaxed));
            if in_host + in_tree + direct > 0 {
                let counts = Counts { in_host, in_tree, direct, ..Counts::default() };
                collectives.insert(kind, counts);
            }
        }
        let passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        for ((kind, reason), count) in passed.iter() {
            let counts = collectives.entry(*kind).or_default();
            counts.passed_through += count;
            *counts.reasons.entry(reason.clone()).or_default() += count;
        }
        let notes = self.notes.get().cloned().unwrap_or_default();
        let [lost, regained, substitutes] =
            [0, 1, 2].map(|which: usize| self.failovers[which].load(Ordering::Relaxed));
        CommunicatorReport {
            label: self.label.clone(),
            ranks: self.ranks,
            hosts: self.hosts.load(Ordering::Relaxed),
            communicators: 1,
            note: notes.joining.unwrap_or_default(),
            carriers: notes.carriers.unwrap_or_default(),
            memory: notes.memory,
            multicast_results: self.multicast_results.load(Ordering::Relaxed),
            failovers: Failovers { lost, regained, substitutes },
            avoiding_losses: self.avoiding_losses.load(Ordering::Relaxed),
            collectives,
        }
    }
}

/// Different reasons kept per communicator; there are fewer in any real program.
const REASONS_MAX: usize = 256;

/// All counters of one process.
#[derive(Debug, Default)]
pub struct CounterRegistry {
    entries: Mutex<Entries>,
}

/// Counters, and the sums of those whose communicators are gone: a program may make and free
/// communicators for ever.
#[derive(Debug, Default)]
struct Entries {
    open: Vec<Arc<Counters>>,
    closed: Report,
    /// How long `open` was, at least, when it was last looked through.
    looked_through: usize,
}

/// How many counters may be open before the registry looks for closed ones.
const OPEN_MIN: usize = 64;

impl Entries {
    fn enter(&mut self, counters: &Arc<Counters>) {
        // Looked through at each doubling, so that the work per communicator stays the same.
        if self.open.len() >= 2 * self.looked_through.max(OPEN_MIN) {
            self.close();
            self.looked_through = self.open.len();
        }
        self.open.push(Arc::clone(counters));
    }

    /// Sums up the counters that nobody else holds: their counts are final.
    fn close(&mut self) {
        let closed = &mut self.closed;
        self.open.retain(|counters| {
            let is_held = Arc::strong_count(counters) > 1;
            if !is_held {
                closed.add(&counters.summary());
            }
            is_held
        });
    }
}

impl CounterRegistry {
    /// A new communicator's counters. Its counts stay in the registry when the communicator is freed.
    /// `counts` is true at one of the communicator's ranks.
    pub fn open(&self, label: &str, ranks: u32, counts: bool) -> Arc<Counters> {
        let counters = Arc::new(Counters {
            label: label.to_owned(),
            ranks,
            hosts: AtomicU32::new(0),
            counts,
            done: Default::default(),
            passed: Mutex::default(),
            notes: OnceLock::new(),
            multicast_results: AtomicU64::new(0),
            failovers: Default::default(),
            avoiding_losses: AtomicU64::new(0),
        });
        if counts {
            self.entries.lock().unwrap_or_else(PoisonError::into_inner).enter(&counters);
        }
        counters
    }

    /// The counts so far.
    #[must_use]
    pub fn report(&self) -> Report {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let mut report = entries.closed.clone();
        for counters in &entries.open {
            report.add(&counters.summary());
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_communicators_that_are_gone_stay_and_their_counters_go() {
        let registry = CounterRegistry::default();
        for _ in 0..10 * OPEN_MIN {
            registry.open("dup", 4, true).count(CollectiveKind::Barrier, PathKind::InHost);
        }
        let kept = registry.open("kept", 4, true);
        kept.count(CollectiveKind::Barrier, PathKind::InHost);
        let report = registry.report();
        assert_eq!(report.in_host, 10 * OPEN_MIN as u64 + 1);
        assert_eq!(report.communicators[0].communicators, 10 * OPEN_MIN as u64);
        assert!(registry.entries.lock().unwrap().open.len() <= 2 * OPEN_MIN + 1);
    }
}
