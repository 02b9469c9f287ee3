//! What became of every collective: the counts behind the end-of-run report.
//!
//! An operation is counted once per communicator, by its rank 0, however many ranks take part.
//! Counting is one relaxed addition; everything else happens when the job ends.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// A collective, as the report names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// `MPI_Allreduce` and its nonblocking form.
    Allreduce,
    /// `MPI_Reduce` and its nonblocking form.
    Reduce,
    /// `MPI_Barrier` and its nonblocking form.
    Barrier,
    /// `MPI_Bcast` and its nonblocking form.
    Bcast,
}

impl Kind {
    /// Every collective.
    pub const ALL: [Self; 4] = [Self::Allreduce, Self::Reduce, Self::Barrier, Self::Bcast];
}

/// Which way an operation went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Shared memory: all members are on one host.
    InNode,
    /// Through the aggregation tree.
    InTree,
}

/// One communicator's counts, shared between whoever counts and the report.
#[derive(Debug)]
pub struct Tally {
    label: String,
    ranks: u32,
    /// Zero until the communicator was set up.
    hosts: AtomicU32,
    /// Whether this process is the one of the communicator that counts.
    counts: bool,
    done: [[AtomicU64; 2]; 4],
    passed: Mutex<BTreeMap<(Kind, String), u64>>,
}

impl Tally {
    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    pub(crate) fn set_hosts(&self, hosts: u32) {
        // Relaxed: a statistic, read after the last operation.
        self.hosts.store(hosts, Ordering::Relaxed);
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
}

/// Different reasons kept per communicator; there are fewer in any real program.
const REASONS_MAX: usize = 256;

/// All tallies of one process.
#[derive(Debug, Default)]
pub struct Ledger {
    tallies: Mutex<Vec<Arc<Tally>>>,
}

impl Ledger {
    /// A new communicator's tally. It stays in the ledger when the communicator is freed.
    /// `counts` is true at one of the communicator's ranks.
    pub fn open(&self, label: &str, ranks: u32, counts: bool) -> Arc<Tally> {
        let tally = Arc::new(Tally {
            label: label.to_owned(),
            ranks,
            hosts: AtomicU32::new(0),
            counts,
            done: Default::default(),
            passed: Mutex::default(),
        });
        if counts {
            let mut tallies = self.tallies.lock().unwrap_or_else(PoisonError::into_inner);
            tallies.push(Arc::clone(&tally));
        }
        tally
    }

    /// The counts so far.
    #[must_use]
    pub fn report(&self) -> Report {
        let mut report = Report::default();
        let tallies = self.tallies.lock().unwrap_or_else(PoisonError::into_inner);
        for tally in tallies.iter() {
            report.add(&CommunicatorReport::from_tally(tally));
        }
        report
    }
}

/// The end-of-run report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The run it belongs to; reports of one run add up.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub run_id: String,
    /// Jobs it covers.
    pub jobs: u64,
    /// Operations in shared memory, all members on one host.
    pub in_node: u64,
    /// Operations through the aggregation tree.
    pub in_tree: u64,
    /// Operations left to the MPI beneath.
    pub passed_through: u64,
    /// Why, over all communicators.
    pub reasons: BTreeMap<String, u64>,
    /// Each communicator; those with equal labels, ranks and hosts together.
    pub communicators: Vec<CommunicatorReport>,
}

/// One communicator's part of a report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommunicatorReport {
    /// Its name.
    pub label: String,
    /// Its ranks.
    pub ranks: u32,
    /// The hosts they are on; 0 where that was never found out.
    pub hosts: u32,
    /// Communicators counted together here.
    pub communicators: u64,
    /// Its counts.
    pub collectives: BTreeMap<Kind, Counts>,
}

/// One collective's counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// In shared memory.
    pub in_node: u64,
    /// Through the tree.
    pub in_tree: u64,
    /// By the MPI beneath.
    pub passed_through: u64,
    /// Why.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reasons: BTreeMap<String, u64>,
}

impl CommunicatorReport {
    fn from_tally(tally: &Tally) -> Self {
        let mut collectives: BTreeMap<Kind, Counts> = BTreeMap::new();
        for kind in Kind::ALL {
            let [in_node, in_tree] = [Way::InNode, Way::InTree]
                .map(|way| tally.done[kind as usize][way as usize].load(Ordering::Relaxed));
            if in_node + in_tree > 0 {
                let counts = Counts { in_node, in_tree, ..Counts::default() };
                collectives.insert(kind, counts);
            }
        }
        let passed = tally.passed.lock().unwrap_or_else(PoisonError::into_inner);
        for ((kind, reason), count) in passed.iter() {
            let counts = collectives.entry(*kind).or_default();
            counts.passed_through += count;
            *counts.reasons.entry(reason.clone()).or_default() += count;
        }
        Self {
            label: tally.label.clone(),
            ranks: tally.ranks,
            hosts: tally.hosts.load(Ordering::Relaxed),
            communicators: 1,
            collectives,
        }
    }
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.in_node += other.in_node;
        self.in_tree += other.in_tree;
        self.passed_through += other.passed_through;
        for (reason, count) in &other.reasons {
            *self.reasons.entry(reason.clone()).or_default() += count;
        }
    }
}

impl Kind {
    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allreduce => "allreduce",
            Self::Reduce => "reduce",
            Self::Barrier => "barrier",
            Self::Bcast => "bcast",
        }
    }
}

/// The report as lines for people: totals, then each communicator's collectives, then the reasons.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { in_node, in_tree, passed_through, .. } = self;
        writeln!(
            f,
            "tributary: {in_node} in_node, {in_tree} in_tree, {passed_through} passed_through"
        )?;
        for communicator in &self.communicators {
            let CommunicatorReport { label, ranks, hosts, communicators, .. } = communicator;
            writeln!(f, "  {label}: {ranks} ranks, {hosts} hosts, {communicators} communicators")?;
            for (kind, counts) in &communicator.collectives {
                let Counts { in_node, in_tree, passed_through, .. } = counts;
                writeln!(
                    f,
                    "    {:<10}{in_node:>10} in_node{in_tree:>10} in_tree{passed_through:>10} \
                     passed_through",
                    kind.name()
                )?;
            }
        }
        for (reason, count) in &self.reasons {
            writeln!(f, "  passed through {count}: {reason}")?;
        }
        Ok(())
    }
}

impl Report {
    /// Adds one communicator's counts; one on which nothing ran leaves no trace.
    pub fn add(&mut self, communicator: &CommunicatorReport) {
        if communicator.collectives.is_empty() {
            return;
        }
        for counts in communicator.collectives.values() {
            self.in_node += counts.in_node;
            self.in_tree += counts.in_tree;
            self.passed_through += counts.passed_through;
            for (reason, count) in &counts.reasons {
                *self.reasons.entry(reason.clone()).or_default() += count;
            }
        }
        let twin = self.communicators.iter_mut().find(|known| {
            known.label == communicator.label
                && known.ranks == communicator.ranks
                && known.hosts == communicator.hosts
        });
        match twin {
            None => self.communicators.push(communicator.clone()),
            Some(known) => {
                known.communicators += communicator.communicators;
                for (kind, counts) in &communicator.collectives {
                    known.collectives.entry(*kind).or_default().add(counts);
                }
            }
        }
    }

    /// Adds another report: another process of the job, or another job of the run.
    pub fn merge(&mut self, other: &Self) {
        self.jobs += other.jobs;
        for communicator in &other.communicators {
            self.add(communicator);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted() -> Report {
        let ledger = Ledger::default();
        let tally = ledger.open("world", 4, true);
        tally.count(Kind::Allreduce, Way::InTree);
        tally.count(Kind::Allreduce, Way::InTree);
        tally.count(Kind::Barrier, Way::InNode);
        tally.count_passed(Kind::Reduce, "user-defined operator");
        ledger.open("not ours to count", 4, false).count(Kind::Bcast, Way::InNode);
        ledger.report()
    }

    #[test]
    fn totals_are_sums_of_communicators() {
        let report = counted();
        assert_eq!((report.in_node, report.in_tree, report.passed_through), (1, 2, 1));
        assert_eq!(report.reasons["user-defined operator"], 1);
        assert_eq!(report.communicators.len(), 1);
    }

    #[test]
    fn merging_twins_adds_and_survives_json() {
        let mut report = counted();
        let text = serde_json::to_string(&counted()).unwrap();
        report.merge(&serde_json::from_str(&text).unwrap());
        assert_eq!((report.in_node, report.in_tree, report.passed_through), (2, 4, 2));
        assert_eq!(report.communicators.len(), 1);
        assert_eq!(report.communicators[0].communicators, 2);
        assert_eq!(report.communicators[0].collectives[&Kind::Allreduce].in_tree, 4);
    }
}
