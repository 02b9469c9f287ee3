//! From times of blocks to the figures of one row.

use serde_json::{Value, json};

use crate::case::{Case, Collective, Library};
use crate::said::Outcome;

/// The outcomes so far, in the order of the rounds.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    ours: Vec<Outcome>,
    plain: Vec<Outcome>,
}

/// A case with the library or without, over all rounds.
#[derive(Clone, Debug)]
pub struct Row {
    /// What was timed.
    pub case: Case,
    /// What it ran with.
    pub library: Library,
    /// Bytes that were timed: whole elements for each rank.
    pub size_bytes: u64,
    /// Blocks that were timed.
    pub blocks: u64,
    /// Calls a block, the most of a round.
    pub calls: u64,
    /// How long a call took.
    pub times: Times,
    /// What that is in bytes a second.
    pub bandwidth: Bandwidth,
    /// Elements of results that were wrong, over all ranks.
    pub wrong: u64,
    /// Elements of results that were compared.
    pub checked: u64,
    /// In a row of the library, how many times as long the plain MPI takes.
    pub ratio: Option<Ratio>,
}

/// Of blocks, for one call, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    /// The mean.
    pub mean: f64,
    /// The least.
    pub min: f64,
    /// The first quartile.
    pub q1: f64,
    /// The median.
    pub median: f64,
    /// The third quartile.
    pub q3: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The most.
    pub max: f64,
}

/// In 10^6 bytes a second; none where it is not defined.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bandwidth {
    /// Of the algorithm.
    pub algorithm: Option<f64>,
    /// Of the bus.
    pub bus: Option<f64>,
}

/// How many times as long the plain MPI takes: its median of a round over the library's of that round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// Of the rounds.
    pub median: f64,
    /// The least of a round.
    pub least: f64,
    /// The greatest of a round.
    pub greatest: f64,
}

impl Measured {
    /// Takes what a start of the launcher gave.
    ///
    /// # Errors
    /// If it had other numbers of ranks and hosts than the first.
    pub fn take(&mut self, library: Library, outcome: Outcome) -> Result<(), String> {
        let shape = |outcome: &Outcome| (outcome.ranks(), outcome.hosts());
        let (ranks, hosts) = shape(&outcome);
        if let Some(first) = self.ours.first().or(self.plain.first())
            && shape(first) != (ranks, hosts)
        {
            let (before, on) = shape(first);
            return Err(format!(
                "the launcher has started {ranks} ranks on {hosts} hosts, after {before} on {on}"
            ));
        }
        match library {
            Library::Ours => self.ours.push(outcome),
            Library::Plain => self.plain.push(outcome),
        }
        Ok(())
    }

    /// The first outcome with the library, for what is the same in all.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn facts(&self) -> &Outcome {
        self.ours.first().expect("every round runs with the library, and there is one at least")
    }

    /// The rows, case by case, the library's first.
    #[must_use]
    pub fn rows(&self, cases: &[Case]) -> Vec<Row> {
        let mut rows = Vec::new();
        for (number, &case) in cases.iter().enumerate() {
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

impl Row {
    /// The row for programs.
    #[must_use]
    pub fn json(&self) -> Value {
        let times = &self.times;
        let mut line = json!({
            "with": self.library.key(),
            "collective": self.case.collective.name(),
            "nonblocking": self.case.nonblocking,
            "in_place": self.case.in_place,
            "size_bytes": self.size_bytes,
            "blocks": self.blocks,
            "calls_per_block": self.calls,
            "mean_us": times.mean,
            "min_us": times.min,
            "q1_us": times.q1,
            "median_us": times.median,
            "q3_us": times.q3,
            "p99_us": times.p99,
            "max_us": times.max,
            "algorithm_mbytes_per_s": self.bandwidth.algorithm,
            "bus_mbytes_per_s": self.bandwidth.bus,
            "wrong_elements": self.wrong,
            "checked_elements": self.checked,
        });
        if let Some(Ratio { median, least, greatest }) = self.ratio {
            line["plain_times_as_long"] = median.into();
            line["plain_times_as_long_least"] = least.into();
            line["plain_times_as_long_most"] = greatest.into();
        }
        line
    }
}

fn row(case: Case, number: usize, library: Library, outcomes: &[Outcome]) -> Row {
    let samples = pool_times(outcomes, number);
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

fn pool_times(outcomes: &[Outcome], case: usize) -> Vec<f64> {
    outcomes.iter().flat_map(|outcome| outcome.samples[case].iter().copied()).collect()
}

/// The median of some samples, of which there is one at least.
#[must_use]
pub fn median(samples: &[f64]) -> f64 {
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

/// The value below which `share` of the samples are, with linear interpolation between two.
///
/// # Panics
/// If there is no sample.
#[must_use]
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = share * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    below + (above - below) * place.fract()
}

/// As nccl-tests define it; they have no scan.
fn bandwidth(collective: Collective, size_bytes: u64, ranks: u64, mean_us: f64) -> Bandwidth {
    let n = ranks as f64;
    let (total_bytes, factor) = match collective {
        Collective::Barrier => return Bandwidth { algorithm: None, bus: None },
        Collective::Allreduce => (size_bytes as f64, Some(2.0 * (n - 1.0) / n)),
        Collective::Reduce | Collective::Bcast => (size_bytes as f64, Some(1.0)),
        Collective::Allgather => (size_bytes as f64 * n, Some((n - 1.0) / n)),
        Collective::ReduceScatter => (size_bytes as f64, Some((n - 1.0) / n)),
        Collective::Scan => (size_bytes as f64, None),
    };
    let algorithm = total_bytes / mean_us;
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
        let of = |collective| bandwidth(collective, 4_000, 4, 1_000.0);
        let pair = |algorithm, bus| Bandwidth { algorithm: Some(algorithm), bus: Some(bus) };
        assert_eq!(of(Collective::Allreduce), pair(4.0, 6.0));
        assert_eq!(of(Collective::Bcast), pair(4.0, 4.0));
        assert_eq!(of(Collective::Allgather), pair(16.0, 12.0));
        assert_eq!(of(Collective::ReduceScatter), pair(4.0, 3.0));
        assert_eq!(of(Collective::Scan).bus, None);
        assert_eq!(of(Collective::Barrier).algorithm, None);
    }
}
