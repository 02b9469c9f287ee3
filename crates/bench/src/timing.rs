//! From nanoseconds of every operation on every rank to the figures of one row.

use serde::Serialize;
use tributary_measuring::quantile;

/// Exact quartiles, in microseconds, with linear interpolation between two samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quartiles {
    /// The least sample.
    pub min: f64,
    /// A quarter of the samples is below.
    pub q1: f64,
    /// Half of the samples is below.
    pub median: f64,
    /// A quarter of the samples is above.
    pub q3: f64,
    /// The greatest sample.
    pub max: f64,
}

/// One row: the times of one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Mean over ranks and operations, in microseconds.
    pub average_us: f64,
    /// Over operations, of the mean over ranks.
    pub operations: Quartiles,
    /// Over ranks, of the mean over operations.
    pub ranks: Quartiles,
}

/// Condenses `times_ns[rank][operation]`.
///
/// # Panics
/// If there is no rank, no operation, or ranks differ in their number of operations: the hub
/// checks what ranks send before it calls this.
pub(crate) fn summarize(times_ns: &[Vec<u64>]) -> Summary {
    let operations = times_ns[0].len();
    assert!(operations > 0 && times_ns.iter().all(|rank| rank.len() == operations));
    let by_rank = times_ns.iter().map(|rank| mean_us(rank.iter().copied())).collect();
    let by_operation = (0..operations)
        .map(|operation| mean_us(times_ns.iter().map(|rank| rank[operation])))
        .collect();
    Summary {
        average_us: mean_us(times_ns.iter().flatten().copied()),
        operations: quartiles(by_operation),
        ranks: quartiles(by_rank),
    }
}

fn mean_us(times_ns: impl Iterator<Item = u64>) -> f64 {
    let (count, total_ns) = times_ns
        .fold((0_u64, 0_u128), |(count, total), time| (count + 1, total + u128::from(time)));
    total_ns as f64 / count as f64 / 1e3
}

fn quartiles(mut samples: Vec<f64>) -> Quartiles {
    samples.sort_by(f64::total_cmp);
    let at = |share| quantile(&samples, share);
    Quartiles { min: at(0.0), q1: at(0.25), median: at(0.5), q3: at(0.75), max: at(1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_are_exact() {
        let q = quartiles(vec![5.0, 1.0, 4.0, 2.0, 3.0]);
        assert_eq!((q.min, q.q1, q.median, q.q3, q.max), (1.0, 2.0, 3.0, 4.0, 5.0));
        let q = quartiles(vec![1.0, 2.0]);
        assert_eq!((q.q1, q.median, q.q3), (1.25, 1.5, 1.75));
        let q = quartiles(vec![7.0]);
        assert_eq!((q.min, q.max), (7.0, 7.0));
    }

    #[test]
    fn summary_tells_operations_from_ranks() {
        let summary = summarize(&[vec![1_000, 3_000], vec![5_000, 7_000]]);
        assert_eq!(summary.average_us, 4.0);
        assert_eq!((summary.operations.min, summary.operations.max), (3.0, 5.0));
        assert_eq!((summary.ranks.min, summary.ranks.max), (2.0, 6.0));
    }
}
