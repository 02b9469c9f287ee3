//! What became of every collective: the counts behind the end-of-run report.
//!
//! An operation is counted once per communicator, by its rank 0, however many ranks take part.
//! Counting is one relaxed addition; everything else happens when the job ends.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

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
    /// `MPI_Reduce_scatter`, `MPI_Reduce_scatter_block` and their nonblocking forms.
    #[serde(rename = "reduce_scatter")]
    ReduceScatter,
    /// `MPI_Allgather` and its nonblocking form.
    Allgather,
    /// `MPI_Scan` and its nonblocking form.
    Scan,
    /// `MPI_Exscan` and its nonblocking form.
    Exscan,
}

impl Kind {
    /// Every collective.
    pub const ALL: [Self; 8] = [
        Self::Allreduce,
        Self::Reduce,
        Self::Barrier,
        Self::Bcast,
        Self::ReduceScatter,
        Self::Allgather,
        Self::Scan,
        Self::Exscan,
    ];
}

/// Which way an operation went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Shared memory: all members are on one host.
    InNode,
    /// Through the aggregation tree.
    InTree,
    /// Between hosts by a host algorithm of ours, without aggregation nodes.
    InMesh,
}

impl Way {
    /// Every way.
    pub const ALL: [Self; 3] = [Self::InNode, Self::InTree, Self::InMesh];

    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::InNode => "in_node",
            Self::InTree => "in_tree",
            Self::InMesh => "in_mesh",
        }
    }
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
    done: [[AtomicU64; Way::ALL.len()]; Kind::ALL.len()],
    passed: Mutex<BTreeMap<(Kind, String), u64>>,
    /// Why its hosts are not joined in the way they should be.
    note: OnceLock<String>,
    /// What carries data between its leaders and the tree.
    carriers: OnceLock<String>,
    /// What ranks of a host have to do without among themselves, and why.
    memory: OnceLock<String>,
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
                closed.add(&CommunicatorReport::from_tally(tally));
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
    /// Operations between hosts by host algorithms of ours, without aggregation nodes.
    #[serde(default)]
    pub in_mesh: u64,
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
    /// Why its hosts were joined without aggregation nodes, where they should have been with.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// What carried data between its hosts and the aggregation tree when it was set up: `shm`,
    /// `tcp` or `udp`, and at which hosts where that differs. Empty without a tree.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub carriers: String,
    /// What ranks of a host had to do without among themselves, and why: the usual way to a shared
    /// segment, or direct access to each other's memory. Empty if nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub memory: String,
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
    /// Between hosts without aggregation nodes.
    #[serde(default)]
    pub in_mesh: u64,
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
            let [in_node, in_tree, in_mesh] =
                Way::ALL.map(|way| tally.done[kind as usize][way as usize].load(Ordering::Relaxed));
            if in_node + in_tree + in_mesh > 0 {
                let counts = Counts { in_node, in_tree, in_mesh, ..Counts::default() };
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
            note: tally.note.get().cloned().unwrap_or_default(),
            carriers: tally.carriers.get().cloned().unwrap_or_default(),
            memory: tally.memory.get().cloned().unwrap_or_default(),
            collectives,
        }
    }
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.in_node += other.in_node;
        self.in_tree += other.in_tree;
        self.in_mesh += other.in_mesh;
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
            Self::ReduceScatter => "reduce_scatter",
            Self::Allgather => "allgather",
            Self::Scan => "scan",
            Self::Exscan => "exscan",
        }
    }
}

/// The report as lines for people: totals, then each communicator's collectives, then the reasons.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { in_node, in_tree, in_mesh, passed_through, .. } = self;
        writeln!(
            f,
            "tributary: {in_node} in_node, {in_tree} in_tree, {in_mesh} in_mesh, \
             {passed_through} passed_through"
        )?;
        for communicator in &self.communicators {
            let CommunicatorReport { label, ranks, hosts, communicators, note, carriers, .. } =
                communicator;
            let memory = &communicator.memory;
            writeln!(f, "  {label}: {ranks} ranks, {hosts} hosts, {communicators} communicators")?;
            if !carriers.is_empty() {
                writeln!(f, "    carried by {carriers}")?;
            }
            if !memory.is_empty() {
                writeln!(f, "    inside hosts: {memory}")?;
            }
            if !note.is_empty() {
                writeln!(f, "    without aggregation nodes: {note}")?;
            }
            for (kind, counts) in &communicator.collectives {
                let Counts { in_node, in_tree, in_mesh, passed_through, .. } = counts;
                writeln!(
                    f,
                    "    {:<15}{in_node:>10} in_node{in_tree:>10} in_tree{in_mesh:>10} in_mesh\
                     {passed_through:>10} passed_through",
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
            self.in_mesh += counts.in_mesh;
            self.passed_through += counts.passed_through;
            for (reason, count) in &counts.reasons {
                *self.reasons.entry(reason.clone()).or_default() += count;
            }
        }
        let twin = self.communicators.iter_mut().find(|known| {
            known.label == communicator.label
                && known.ranks == communicator.ranks
                && known.hosts == communicator.hosts
                && known.note == communicator.note
                && known.carriers == communicator.carriers
                && known.memory == communicator.memory
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
        tally.count(Kind::Bcast, Way::InMesh);
        tally.count_passed(Kind::Reduce, "user-defined operator");
        ledger.open("not ours to count", 4, false).count(Kind::Bcast, Way::InNode);
        ledger.report()
    }

    #[test]
    fn totals_are_sums_of_communicators() {
        let report = counted();
        assert_eq!((report.in_node, report.in_tree, report.passed_through), (1, 2, 1));
        assert_eq!(report.in_mesh, 1);
        assert_eq!(report.reasons["user-defined operator"], 1);
        assert_eq!(report.communicators.len(), 1);
    }

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

    #[test]
    fn merging_twins_adds_and_survives_json() {
        let mut report = counted();
        let text = serde_json::to_string(&counted()).unwrap();
        report.merge(&serde_json::from_str(&text).unwrap());
        assert_eq!((report.in_node, report.in_tree, report.passed_through), (2, 4, 2));
        assert_eq!(report.in_mesh, 2);
        assert_eq!(report.communicators.len(), 1);
        assert_eq!(report.communicators[0].communicators, 2);
        assert_eq!(report.communicators[0].collectives[&Kind::Allreduce].in_tree, 4);
    }
}
