//! From times of blocks to the figures of one row.

use anyhow::ensure;

use super::super::timing::quantile;
use super::launch::Outcome;
use super::plan::{Case, Library, Plan};
use crate::flags::LaunchedCollective;

/// The outcomes so far, in the order of the rounds.
pub(super) struct Measured {
    ours: Vec<Outcome>,
    plain: Vec<Outcome>,
}

/// A case with the library or without, over all rounds.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) case: Case,
    pub(super) library: Library,
    /// Bytes that were timed: whole elements for each rank.
    pub(super) size_bytes: u64,
    pub(super) blocks: u64,
    /// Calls a block, the most of a round.
    pub(super) calls: u64,
    pub(super) times: Times,
    pub(super) bandwidth: Bandwidth,
    pub(super) wrong: u64,
    pub(super) checked: u64,
    /// In a row of the library, how many times as long the plain MPI takes.
    pub(super) ratio: Option<Ratio>,
}

/// Of blocks, for one call, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Times {
    pub(super) mean: f64,
    pub(super) min: f64,
    pub(super) q1: f64,
    pub(super) median: f64,
    pub(super) q3: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
}

/// In 10^9 bytes a second; none where it is not defined.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bandwidth {
    pub(super) algorithm: Option<f64>,
    pub(super) bus: Option<f64>,
}

/// How many times as long the plain MPI takes: its median of a round over the library's of that round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ratio {
    /// Of the rounds.
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) greatest: f64,
}

impl Measured {
    pub(super) fn new(plan: &Plan) -> Self {
        let rounds = usize::try_from(plan.rounds).unwrap_or_default();
        Self { ours: Vec::with_capacity(rounds), plain: Vec::new() }
    }

    /// Takes what a start of the launcher gave.
    pub(super) fn take(&mut self, library: Library, outcome: Outcome) -> anyhow::Result<()> {
        if let Some(first) = self.ours.first().or(self.plain.first()) {
            let shape = |outcome: &Outcome| (outcome.start.ranks, outcome.hosts.len());
            ensure!(
                shape(first) == shape(&outcome),
                "the launcher has started other numbers of ranks and hosts than before, {:?} after {:?}",
                shape(&outcome),
                shape(first)
            );
        }
        match library {
            Library::Ours => self.ours.push(outcome),
            Library::Plain => self.plain.push(outcome),
        }
        Ok(())
    }

    /// The first outcome with the library, for what is the same in all.
    pub(super) fn facts(&self) -> &Outcome {
        self.ours.first().expect("every round runs with the library, and there is one at least")
    }

    /// The rows, case by case, the library's first.
    pub(super) fn rows(&self, plan: &Plan) -> Vec<Row> {
        let mut rows = Vec::new();
        for (number, &case) in plan.cases.iter().enumerate() {
            for (library, outcomes) in [(Library::Ours, &self.ours), (Library::Plain, &self.plain)]
            {
                if outcomes.is_empty() {
                    continue;
                }
                let mut row = row(case, number, library, outcomes);
                if library == Library::Ours && !self.plain.is_empty() {
                    row.ratio = Some(self.ratio(number));
                }
                rows.push(row);
            }
        }
        rows
    }

    fn ratio(&self, case: usize) -> Ratio {
        let of_round = |(ours, plain): (&Outcome, &Outcome)| {
            median(&plain.samples[case]) / median(&ours.samples[case])
        };
        let times = times(&self.ours.iter().zip(&self.plain).map(of_round).collect::<Vec<_>>());
        Ratio { median: times.median, least: times.min, greatest: times.max }
    }
}

fn row(case: Case, number: usize, library: Library, outcomes: &[Outcome]) -> Row {
    let samples = pooled(outcomes, number);
    let done = || outcomes.iter().map(|outcome| outcome.done[number]);
    let size_bytes = done().map(|done| done.bytes).max().unwrap_or_default();
    let times = times(&samples);
    let ranks = outcomes.first().map_or(1, |outcome| outcome.start.ranks);
    Row {
        case,
        library,
        size_bytes,
        blocks: samples.len() as u64,
        calls: done().map(|done| done.calls).max().unwrap_or_default(),
        times,
        bandwidth: bandwidth(case.collective, size_bytes, ranks, times.mean),
        wrong: done().map(|done| done.wrong).sum(),
        checked: done().map(|done| done.checked).sum(),
        ratio: None,
    }
}

fn pooled(outcomes: &[Outcome], case: usize) -> Vec<f64> {
    outcomes.iter().flat_map(|outcome| outcome.samples[case].iter().copied()).collect()
}

/// The median of some samples, of which there is one at least.
pub(super) fn median(samples: &[f64]) -> f64 {
    times(samples).median
}

fn times(samples: &[f64]) -> Times {
    if samples.is_empty() {
        let none = f64::NAN;
        return Times {
            mean: none,
            min: none,
            q1: none,
            median: none,
            q3: none,
            p99: none,
            max: none,
        };
    }
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |share| quantile(&sorted, share);
    Times {
        mean: sorted.iter().sum::<f64>() / sorted.len() as f64,
        min: at(0.0),
        q1: at(0.25),
        median: at(0.5),
        q3: at(0.75),
        p99: at(0.99),
        max: at(1.0),
    }
}

/// As nccl-tests define it; they have no scan.
fn bandwidth(
    collective: LaunchedCollective,
    size_bytes: u64,
    ranks: u64,
    mean_us: f64,
) -> Bandwidth {
    let n = ranks as f64;
    let (total_bytes, factor) = match collective {
        LaunchedCollective::Barrier => return Bandwidth { algorithm: None, bus: None },
        LaunchedCollective::Allreduce => (size_bytes as f64, Some(2.0 * (n - 1.0) / n)),
        LaunchedCollective::Reduce | LaunchedCollective::Bcast => (size_bytes as f64, Some(1.0)),
        LaunchedCollective::Allgather => (size_bytes as f64 * n, Some((n - 1.0) / n)),
        LaunchedCollective::ReduceScatter => (size_bytes as f64, Some((n - 1.0) / n)),
        LaunchedCollective::Scan => (size_bytes as f64, None),
    };
    let algorithm = total_bytes / mean_us / 1e3;
    Bandwidth { algorithm: Some(algorithm), bus: factor.map(|factor| algorithm * factor) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_exact() {
        let times = times(&[4.0, 1.0, 2.0, 3.0, 10.0]);
        assert_eq!((times.mean, times.min, times.max), (4.0, 1.0, 10.0));
        assert_eq!((times.q1, times.median, times.q3), (2.0, 3.0, 4.0));
        assert!((times.p99 - 9.76).abs() < 1e-9);
    }

    #[test]
    fn bandwidths_are_those_of_nccl_tests() {
        let of = |collective| bandwidth(collective, 1_000_000, 4, 1_000.0);
        let pair = |algorithm, bus| Bandwidth { algorithm: Some(algorithm), bus: Some(bus) };
        assert_eq!(of(LaunchedCollective::Allreduce), pair(1.0, 1.5));
        assert_eq!(of(LaunchedCollective::Bcast), pair(1.0, 1.0));
        assert_eq!(of(LaunchedCollective::Allgather), pair(4.0, 3.0));
        assert_eq!(of(LaunchedCollective::ReduceScatter), pair(1.0, 0.75));
        assert_eq!(of(LaunchedCollective::Scan).bus, None);
        assert_eq!(of(LaunchedCollective::Barrier).algorithm, None);
    }
}
