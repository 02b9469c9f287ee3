//! How long collectives took: the part of the report that is measured only on request.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use tributary_algorithms::CollectiveKind;

use super::histogram::{Bounds, Histogram};
use super::path::PathTaken;
use super::waiting::{Samples, Waits};

/// Time inside blocking collectives, summed over all ranks.
///
/// An operation is in it once for every rank that took part, unlike in the counts of a report. Its time
/// at a rank is that between call and return, so it includes waiting for other ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// The ranks that measured.
    pub ranks: u64,
    /// From the end of `MPI_Init` to the start of `MPI_Finalize`, in nanoseconds, of all ranks together.
    pub program_ns: u64,
    /// Nonblocking operations, which are not measured: calls at all ranks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub not_measured: BTreeMap<CollectiveKind, u64>,
    /// Each collective on each path, by the shortest contribution of its size class.
    pub collectives: BTreeMap<CollectiveKind, BTreeMap<PathTaken, BTreeMap<u64, Measured>>>,
    /// What one rank kept to be compared with others; nothing in the times of a job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<Samples>,
}

/// The operations of one collective, path and size class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// Operations, once for each rank that took part.
    pub calls: u64,
    /// Time inside them, in nanoseconds.
    pub total_ns: u64,
    /// The shortest, in nanoseconds.
    pub min_ns: u64,
    /// The longest, in nanoseconds.
    pub max_ns: u64,
    /// How many lasted how long.
    pub durations: Histogram,
    /// Time inside those that were compared between all their ranks, in nanoseconds: a sample.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub compared_ns: u64,
    /// What of it ranks waited for one that came later, in nanoseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub waiting_ns: u64,
}

/// Whether a number is not worth a field.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
pub(super) fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Measured {
    /// Adds others of the same collective, path and size class.
    pub fn merge(&mut self, other: &Self) {
        self.min_ns = match self.calls {
            0 => other.min_ns,
            _ if other.calls == 0 => self.min_ns,
            _ => self.min_ns.min(other.min_ns),
        };
        self.calls += other.calls;
        self.total_ns += other.total_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
        self.durations.merge(&other.durations);
        self.compared_ns += other.compared_ns;
        self.waiting_ns += other.waiting_ns;
    }

    /// The share of the time that ranks waited for one that came later, from 0 to 1; `None` if no operations were compared.
    #[must_use]
    pub fn waiting_share(&self) -> Option<f64> {
        (self.compared_ns > 0).then(|| self.waiting_ns as f64 / self.compared_ns as f64)
    }

    /// Nanoseconds of an operation without waiting for ranks that come later, at a rank; `None` if no operations were compared.
    #[must_use]
    pub fn transfer_ns(&self) -> Option<f64> {
        Some(self.mean_ns() * (1.0 - self.waiting_share()?))
    }

    /// Nanoseconds an operation, at a rank; 0 without operations.
    #[must_use]
    pub fn mean_ns(&self) -> f64 {
        if self.calls == 0 { 0.0 } else { self.total_ns as f64 / self.calls as f64 }
    }

    /// The bucket of a quantile of the durations; see [`Histogram::quantile`].
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<Bounds> {
        self.durations.quantile(share)
    }
}

impl Times {
    /// Adds the times of other ranks, or of another job. Samples are not added: [`Waits`] compares them.
    pub fn merge(&mut self, other: &Self) {
        self.ranks += other.ranks;
        self.program_ns += other.program_ns;
        for (kind, calls) in &other.not_measured {
            *self.not_measured.entry(*kind).or_default() += calls;
        }
        for (kind, path, from_bytes, measured) in other.rows() {
            let paths = self.collectives.entry(kind).or_default();
            let sizes = paths.entry(path).or_default();
            sizes.entry(from_bytes).or_default().merge(measured);
        }
    }

    /// Adds what ranks of this job waited for each other.
    pub fn add_waits(&mut self, waits: &Waits) {
        for ((kind, path, from_bytes), compared_ns, waiting_ns) in waits.compared_operations() {
            let sizes = self.collectives.get_mut(&kind).and_then(|paths| paths.get_mut(&path));
            if let Some(measured) = sizes.and_then(|sizes| sizes.get_mut(&from_bytes)) {
                measured.compared_ns += compared_ns;
                measured.waiting_ns += waiting_ns;
            }
        }
    }

    /// Every collective, path and size class that has operations, in this order; the size class by the
    /// shortest contribution in it, in bytes.
    pub fn rows(&self) -> impl Iterator<Item = (CollectiveKind, PathTaken, u64, &Measured)> {
        self.collectives.iter().flat_map(|(kind, paths)| {
            paths.iter().flat_map(|(path, sizes)| {
                sizes.iter().map(|(from_bytes, measured)| (*kind, *path, *from_bytes, measured))
            })
        })
    }

    /// Time inside all measured collectives, in nanoseconds, of all ranks together.
    #[must_use]
    pub fn collectives_ns(&self) -> u64 {
        self.rows().map(|(.., measured)| measured.total_ns).sum()
    }

    /// The share of the program's time inside measured collectives, from 0 to 1; 0 if no time has passed.
    #[must_use]
    pub fn share(&self) -> f64 {
        match self.program_ns {
            0 => 0.0,
            program_ns => self.collectives_ns() as f64 / program_ns as f64,
        }
    }
}

/// Lines for people: the share of the program's time, what was not measured, then every collective, path
/// and size class.
impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.headline())?;
        if let Some(line) = self.omissions() {
            writeln!(f, "{line}")?;
        }
        for (kind, path, from_bytes, measured) in self.rows() {
            let Measured { calls, total_ns, .. } = measured;
            let (kind, path) = (kind.name(), path.name());
            let total_s = *total_ns as f64 / 1e9;
            let mean_us = measured.mean_ns() / 1e3;
            writeln!(
                f,
                "  {kind:<15}{path:<15}{from_bytes:>13} B and more{calls:>10} calls{total_s:>12.6} s\
                 {mean_us:>12.3} us each"
            )?;
        }
        Ok(())
    }
}

impl Times {
    /// What part of the program's time its collectives took, in one line.
    #[must_use]
    pub fn headline(&self) -> String {
        format!(
            "time in blocking collectives: {:.6} s of {:.6} s between MPI_Init and MPI_Finalize ({:.1}%), \
             summed over {} ranks",
            self.collectives_ns() as f64 / 1e9,
            self.program_ns as f64 / 1e9,
            self.share() * 100.0,
            self.ranks,
        )
    }

    /// The calls that were not measured, in one line; `None` if there are none.
    #[must_use]
    pub fn omissions(&self) -> Option<String> {
        let calls = |(kind, calls): (&CollectiveKind, &u64)| format!("{calls} {}", kind.name());
        let all: Vec<String> = self.not_measured.iter().map(calls).collect();
        let named = all.join(", ");
        (!all.is_empty()).then(|| format!("not measured, because nonblocking: {named}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TimeCells;

    fn times(durations_ns: &[(PathTaken, u64, u64)]) -> Times {
        let cells = TimeCells::new();
        for (path, len_bytes, duration_ns) in durations_ns {
            cells.add(CollectiveKind::Allreduce, *path, *len_bytes, *duration_ns);
        }
        cells.add_not_measured(CollectiveKind::Barrier);
        cells.times(10_000)
    }

    #[test]
    fn merging_ranks_is_measuring_all_at_one() {
        let (node, passed) = (PathTaken::InHost, PathTaken::PassedThrough);
        let first = [(node, 8, 300), (node, 8, 900), (passed, 0, 50)];
        let second = [(node, 8, 200), (node, 4096, 7000)];
        let mut merged = Times::default();
        merged.merge(&times(&first));
        merged.merge(&times(&second));
        let all: Vec<_> = first.into_iter().chain(second).collect();
        let at_one = times(&all);
        assert_eq!(merged.collectives, at_one.collectives);
        assert_eq!((merged.ranks, merged.program_ns), (2, 20_000));
        assert_eq!(merged.not_measured[&CollectiveKind::Barrier], 2);
        let measured = &merged.collectives[&CollectiveKind::Allreduce][&node][&8];
        assert_eq!((measured.calls, measured.total_ns), (3, 1400));
        assert_eq!((measured.min_ns, measured.max_ns), (200, 900));
        assert_eq!(merged.collectives_ns(), 8450);
        assert!((merged.share() - 0.4225).abs() < 1e-9);
    }

    #[test]
    fn lines_name_share_omissions_and_cells() {
        let text = times(&[(PathTaken::InTree, 4097, 2500)]).to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains("0.000003 s of 0.000010 s"), "{}", lines[0]);
        assert!(lines[0].contains("(25.0%)") && lines[0].contains("1 ranks"), "{}", lines[0]);
        assert_eq!(lines[1], "not measured, because nonblocking: 1 barrier");
        let words: Vec<&str> = lines[2].split_whitespace().collect();
        let expected = "allreduce in_tree 4096 B and more 1 calls 0.000003 s 2.500 us each";
        assert_eq!(words.join(" "), expected);
    }

    #[test]
    fn times_survive_json() {
        let times = times(&[(PathTaken::InTree, 8, 300), (PathTaken::Direct, 100, 5)]);
        let text = serde_json::to_string(&times).unwrap();
        assert!(text.contains(r#""in_tree":{"8":{"calls":1,"total_ns":300,"#), "{text}");
        assert!(text.contains(r#""direct":{"64":"#), "{text}");
        assert_eq!(serde_json::from_str::<Times>(&text).unwrap(), times);
    }
}
