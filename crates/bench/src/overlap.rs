//! How much of a nonblocking operation hides behind computation, as osu_iallreduce defines it.
//!
//! Each rank measures three times: of the operation alone (start, wait); of a computation of the same
//! length; and of both together (start, compute, wait). With averages over all ranks,
//! `overlap = max(0, 100 - 100 * (overall - compute) / pure)` percent (OSU micro-benchmarks 7,
//! `osu_util.c`). No rank tests the operation while it computes.

use std::hint::black_box;
use std::time::Instant;

use crate::message::OverlapTimes;
use crate::rank::Rank;

/// The times of an overlap, averaged over all ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Overlap {
    /// Of the operation alone.
    pub pure_us: f64,
    /// Of the computation alone.
    pub compute_us: f64,
    /// Of both together.
    pub overall_us: f64,
}

impl Overlap {
    /// Averages over the ranks.
    pub(crate) fn of(ranks: &[OverlapTimes]) -> Self {
        let mean_us = |pick: fn(&OverlapTimes) -> u64| {
            let total_ns: u128 = ranks.iter().map(|times| u128::from(pick(times))).sum();
            total_ns as f64 / ranks.len() as f64 / 1e3
        };
        Self {
            pure_us: mean_us(|times| times.pure_ns),
            compute_us: mean_us(|times| times.compute_ns),
            overall_us: mean_us(|times| times.overall_ns),
        }
    }

    /// The share of the operation that the computation hides.
    #[must_use]
    pub fn percent(&self) -> f64 {
        (100.0 - 100.0 * (self.overall_us - self.compute_us) / self.pure_us).clamp(0.0, 100.0)
    }
}

/// A computation of known length.
struct Computation {
    rounds: u64,
}

impl Computation {
    /// One that takes about `ns` on a core of its own.
    fn lasting(ns: u64) -> Self {
        let probe = Self { rounds: 20_000 };
        // The quickest of some: the others were disturbed on their core.
        let probe_ns = (0..9).map(|_| probe.run_timed()).min().unwrap_or(1).max(1);
        Self { rounds: (u128::from(probe.rounds) * u128::from(ns) / u128::from(probe_ns)) as u64 }
    }

    fn run(&self) {
        let mut value = 0x9E37_79B9_7F4A_7C15_u64;
        for round in 0..self.rounds {
            value = black_box(value.wrapping_mul(0x2545_F491_4F6C_DD1D) ^ round);
        }
        black_box(value);
    }

    fn run_timed(&self) -> u64 {
        let start = Instant::now();
        self.run();
        start.elapsed().as_nanos() as u64
    }
}

impl Rank<'_> {
    /// Measures the nonblocking operation of this size.
    pub(crate) fn measure_overlap(&mut self) -> anyhow::Result<(OverlapTimes, Vec<u64>)> {
        let iterations = self.iterations();
        let mut pure = Vec::with_capacity(iterations as usize);
        for _ in 0..iterations {
            self.barrier()?;
            let start = Instant::now();
            self.start()?.wait()?;
            pure.push(start.elapsed().as_nanos() as u64);
        }
        let pure_ns = mean(&pure);
        let computation = Computation::lasting(pure_ns);
        let (mut compute_ns, mut overall_ns) = (0, 0);
        for _ in 0..iterations {
            self.barrier()?;
            let start = Instant::now();
            let request = self.start()?;
            compute_ns += computation.run_timed();
            request.wait()?;
            overall_ns += start.elapsed().as_nanos() as u64;
        }
        let times = OverlapTimes {
            pure_ns,
            compute_ns: compute_ns / iterations,
            overall_ns: overall_ns / iterations,
        };
        Ok((times, pure))
    }
}

fn mean(times_ns: &[u64]) -> u64 {
    (times_ns.iter().map(|time| u128::from(*time)).sum::<u128>() / times_ns.len() as u128) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_is_what_the_computation_hides() {
        let of = |pure_ns, compute_ns, overall_ns| {
            Overlap::of(&[OverlapTimes { pure_ns, compute_ns, overall_ns }]).percent()
        };
        assert_eq!(of(100, 100, 100), 100.0, "all of it");
        assert_eq!(of(100, 100, 200), 0.0, "none of it");
        assert_eq!(of(100, 100, 125), 75.0);
        assert_eq!(of(100, 100, 500), 0.0, "never less than none");
    }

    #[test]
    fn longer_computations_have_more_rounds() {
        let rounds = |ns| Computation::lasting(ns).rounds;
        assert!(rounds(100_000_000) > 10 * rounds(100_000));
    }
}
