//! What became of every collective: the counts behind the end-of-run report.
//!
//! An operation is counted once per communicator, by its rank 0, however many ranks take part.
//! Counting ([`Counters`]) is one relaxed addition; everything else happens when the job ends. On request
//! every rank also measures how long its blocking operations take ([`TimeCells`]).

mod comparison;
mod counters;
mod file;
mod histogram;
pub mod output;
mod path;
mod time_cells;
mod times;
mod waiting;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use tributary_wire::text::printable;

pub use comparison::{Compared, compare};
pub use counters::{CounterRegistry, Counters};
pub use file::{REPORT_BYTES_MAX, WriteError, add_to_file};
pub use histogram::{Bounds, Histogram};
pub use path::{PathKind, PathTaken};
pub use time_cells::TimeCells;
pub use times::{Measured, Times};
pub use tributary_algorithms::CollectiveKind;
pub use waiting::{MembersId, Samples, Waits};

use times::is_zero;

/// The end-of-run report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The run it belongs to; reports of one run add up.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub run_id: String,
    /// Jobs it covers.
    pub jobs: u64,
    /// Operations in shared memory, all members on one host.
    pub in_host: u64,
    /// Operations through the aggregation tree.
    pub in_tree: u64,
    /// Operations between hosts by host algorithms of ours, without aggregation nodes.
    #[serde(default)]
    pub direct: u64,
    /// Operations left to the underlying MPI.
    pub passed_through: u64,
    /// Why, over all communicators.
    pub reasons: BTreeMap<String, u64>,
    /// Each communicator; those with equal labels, ranks and hosts together.
    pub communicators: Vec<CommunicatorReport>,
    /// Collectives that the library never takes, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub others: BTreeMap<String, OtherCalls>,
    /// Time inside collectives, if it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<Times>,
}

/// Calls of a collective that the library never takes, summed over all ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherCalls {
    /// Calls, blocking or not.
    pub calls: u64,
    /// Time inside the blocking ones, in nanoseconds; 0 if it was not measured.
    pub total_ns: u64,
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
    /// `tcp` or `udp`, and at which hosts where that differs; and what carries it between leaders, where that is more than
    /// links. Empty if nothing of that applies.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub carriers: String,
    /// What ranks of a host had to do without among themselves, and why: the usual method to get a shared
    /// segment, or direct access to each other's memory. Empty if nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub memory: String,
    /// Results of segments that reached the host of rank 0 by multicast, before any copy. Zero where
    /// the manager grants no multicast address, or multicast does not arrive there.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub multicast_results: u64,
    /// What became of its tree.
    #[serde(default, skip_serializing_if = "Failovers::is_empty")]
    pub failovers: Failovers,
    /// Operations that went through the tree, cut into packets, because links between hosts lose some. They are counted
    /// as `in_tree`, too.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub avoiding_losses: u64,
    /// Its counts.
    pub collectives: BTreeMap<CollectiveKind, Counts>,
}

/// What became of a communicator's tree, as rank 0's host saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failovers {
    /// How often it was lost. A communicator that began without one may have come into one all the same.
    pub lost: u64,
    /// How often the communicator came back into one.
    pub regained: u64,
    /// Operations that went over direct links in between. Those that began there are counted as `direct`.
    pub substitutes: u64,
}

impl Failovers {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn add(&mut self, other: &Self) {
        self.lost += other.lost;
        self.regained += other.regained;
        self.substitutes += other.substitutes;
    }
}

/// One collective's counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// In shared memory.
    pub in_host: u64,
    /// Through the tree.
    pub in_tree: u64,
    /// Between hosts without aggregation nodes.
    #[serde(default)]
    pub direct: u64,
    /// By the underlying MPI.
    pub passed_through: u64,
    /// Why.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reasons: BTreeMap<String, u64>,
}

/// The width of a text for people.
const COLUMNS: usize = 80;

impl Counts {
    fn add(&mut self, other: &Self) {
        self.in_host += other.in_host;
        self.in_tree += other.in_tree;
        self.direct += other.direct;
        self.passed_through += other.passed_through;
        for (reason, count) in &other.reasons {
            *self.reasons.entry(reason.clone()).or_default() += count;
        }
    }
}

/// The report as lines for people: totals, then each communicator's collectives, then the reasons.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { in_host, in_tree, direct, passed_through, .. } = self;
        writeln!(
            f,
            "tributary: {in_host} in_host, {in_tree} in_tree, {direct} direct, \
             {passed_through} passed_through"
        )?;
        for communicator in &self.communicators {
            let CommunicatorReport { label, ranks, hosts, communicators, note, carriers, .. } =
                communicator;
            let memory = printable(&communicator.memory);
            let (label, note) = (printable(label), printable(note));
            let carriers = printable(carriers);
            let place =
                if *hosts == 0 { "not set up".to_owned() } else { format!("{hosts} hosts") };
            writeln!(f, "  {label}: {ranks} ranks, {place}, {communicators} communicators")?;
            if !carriers.is_empty() {
                write!(f, "    carried by {carriers}")?;
                match communicator.multicast_results {
                    0 => writeln!(f)?,
                    results => writeln!(f, ", {results} results by multicast")?,
                }
            }
            let Failovers { lost, regained, substitutes } = communicator.failovers;
            if lost > 0 {
                writeln!(
                    f,
                    "    lost its tree {lost} times, came back into one {regained} times, \
                     {substitutes} operations over direct links meanwhile"
                )?;
            } else if regained > 0 {
                let operations = substitutes;
                writeln!(
                    f,
                    "    came into a tree after {operations} operations over direct links"
                )?;
            } else if substitutes > 0 {
                writeln!(f, "    got no tree: {substitutes} operations over direct links")?;
            }
            if communicator.avoiding_losses > 0 {
                let count = communicator.avoiding_losses;
                writeln!(f, "    {count} operations through the tree because links lose packets")?;
            }
            if !memory.is_empty() {
                writeln!(f, "    inside hosts: {memory}")?;
            }
            if !note.is_empty() {
                writeln!(f, "    without aggregation nodes: {note}")?;
            }
            for (kind, counts) in &communicator.collectives {
                let Counts { in_host, in_tree, direct, passed_through, .. } = counts;
                writeln!(
                    f,
                    "    {:<15}{in_host:>10} in_host{in_tree:>10} in_tree{direct:>10} direct\
                     {passed_through:>10} passed_through",
                    kind.name()
                )?;
            }
        }
        for (reason, count) in &self.reasons {
            writeln!(f, "  passed through {count}: {}", printable(reason))?;
        }
        if let Some(line) = self.describe_others() {
            writeln!(f, "{line}")?;
        }
        self.times.as_ref().map_or(Ok(()), |times| times.fmt(f))
    }
}

impl Report {
    /// Which collectives the program called that the library never takes, in lines of 80 columns; none if it called none.
    #[must_use]
    pub fn describe_others(&self) -> Option<String> {
        let described = self.others.iter().map(|(name, OtherCalls { calls, total_ns })| {
            let name = printable(name);
            match total_ns {
                0 => format!("{calls} {name}"),
                _ => format!("{calls} {name} ({:.1} ms)", *total_ns as f64 / 1e6),
            }
        });
        let mut lines = vec!["always the MPI's, calls at all ranks:".to_owned()];
        for words in described {
            let last = lines.last_mut().expect("there is the first");
            // The comma behind it, too.
            if last.len() + words.len() + 2 <= COLUMNS {
                last.push(' ');
                last.push_str(&words);
            } else {
                lines.push(format!("  {words}"));
            }
            lines.last_mut().expect("as above").push(',');
        }
        let text = lines.join("\n");
        text.strip_suffix(',').map(str::to_owned)
    }

    /// Adds one communicator's counts; one on which nothing ran leaves no trace.
    pub fn add(&mut self, communicator: &CommunicatorReport) {
        if communicator.collectives.is_empty() {
            return;
        }
        for counts in communicator.collectives.values() {
            self.in_host += counts.in_host;
            self.in_tree += counts.in_tree;
            self.direct += counts.direct;
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
                known.multicast_results += communicator.multicast_results;
                known.avoiding_losses += communicator.avoiding_losses;
                known.failovers.add(&communicator.failovers);
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
        for (name, OtherCalls { calls, total_ns }) in &other.others {
            let known = self.others.entry(name.clone()).or_default();
            known.calls += calls;
            known.total_ns += total_ns;
        }
        if let Some(times) = &other.times {
            self.times.get_or_insert_default().merge(times);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample_report() -> Report {
        let registry = CounterRegistry::default();
        let counters = registry.open("world", 4, true);
        counters.count(CollectiveKind::Allreduce, PathKind::InTree);
        counters.count(CollectiveKind::Allreduce, PathKind::InTree);
        counters.count(CollectiveKind::Barrier, PathKind::InHost);
        counters.count(CollectiveKind::Broadcast, PathKind::Direct);
        counters.count_passed(CollectiveKind::Reduce, "user-defined operator");
        registry
            .open("not ours to count", 4, false)
            .count(CollectiveKind::Broadcast, PathKind::InHost);
        registry.report()
    }

    #[test]
    fn totals_are_sums_of_communicators() {
        let report = sample_report();
        assert_eq!((report.in_host, report.in_tree, report.passed_through), (1, 2, 1));
        assert_eq!(report.direct, 1);
        assert_eq!(report.reasons["user-defined operator"], 1);
        assert_eq!(report.communicators.len(), 1);
    }

    #[test]
    fn merging_twins_adds_and_survives_json() {
        let mut report = sample_report();
        let text = serde_json::to_string(&sample_report()).unwrap();
        report.merge(&serde_json::from_str(&text).unwrap());
        assert_eq!((report.in_host, report.in_tree, report.passed_through), (2, 4, 2));
        assert_eq!(report.direct, 2);
        assert_eq!(report.communicators.len(), 1);
        assert_eq!(report.communicators[0].communicators, 2);
        assert_eq!(report.communicators[0].collectives[&CollectiveKind::Allreduce].in_tree, 4);
    }
}
