//! What offloading gave: times of a report beside those of a baseline, the same program without it.

use std::collections::{BTreeMap, BTreeSet};

use tributary_algorithms::CollectiveKind;

use super::histogram::Bounds;
use super::path::PathTaken;
use super::times::{Measured, Times};

/// How far speed-ups of mean and median may differ until one of them needs a word.
const DISAGREEMENT: f64 = 2.0;

/// The operations of one collective and size class in both reports, whatever paths they took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compared {
    /// The collective.
    pub kind: CollectiveKind,
    /// The shortest contribution of the size class, in bytes.
    pub from_bytes: u64,
    /// The paths that they took in the report.
    pub paths: BTreeSet<PathTaken>,
    /// In the report; without calls if it has none.
    pub ours: Measured,
    /// In the baseline; without calls if it has none.
    pub baseline: Measured,
}

impl Compared {
    /// How many times as fast as the baseline's an operation is on average; `None` if one report has none
    /// or the clock saw no time pass.
    #[must_use]
    pub fn speed_up(&self) -> Option<f64> {
        let (ours_ns, baseline_ns) = (self.ours.mean_ns(), self.baseline.mean_ns());
        (ours_ns > 0.0 && baseline_ns > 0.0).then(|| baseline_ns / ours_ns)
    }

    /// How many times as fast as the baseline's median the report's is. Medians are known to a quarter or better, so this is too.
    #[must_use]
    pub fn median_speed_up(&self) -> Option<f64> {
        let (ours, baseline) = self.medians()?;
        Some(baseline.middle_ns() / ours.middle_ns())
    }

    /// Whether mean and median tell different stories, whatever the medians are within their buckets: one says faster and the other
    /// slower, or they differ by more than a factor of [`DISAGREEMENT`]. A few long calls make a mean.
    #[must_use]
    pub fn mean_disagrees(&self) -> bool {
        let Some((by_mean, (ours, baseline))) = self.speed_up().zip(self.medians()) else {
            return false;
        };
        let least = baseline.from_ns as f64 / ours.to_ns as f64;
        let most = baseline.to_ns as f64 / (ours.from_ns as f64).max(1.0);
        by_mean > 1.0 && most < 1.0
            || by_mean < 1.0 && least > 1.0
            || by_mean > DISAGREEMENT * most
            || by_mean * DISAGREEMENT < least
    }

    fn medians(&self) -> Option<(Bounds, Bounds)> {
        self.ours.quantile(0.5).zip(self.baseline.quantile(0.5))
    }

    /// Time that the report's operations would have taken more at the baseline's average, in nanoseconds of
    /// all ranks together; negative if they took longer. `None` if one report has none.
    #[must_use]
    pub fn saved_ns(&self) -> Option<f64> {
        let saved_ns = self.baseline.mean_ns() - self.ours.mean_ns();
        let both = self.ours.calls > 0 && self.baseline.calls > 0;
        both.then_some(saved_ns * self.ours.calls as f64)
    }
}

/// Every collective and size class of either report, in order.
#[must_use]
pub fn compare(ours: &Times, baseline: &Times) -> Vec<Compared> {
    let mut cells: BTreeMap<(CollectiveKind, u64), Compared> = BTreeMap::new();
    let mut cell = |kind, from_bytes, add: &mut dyn FnMut(&mut Compared)| {
        add(cells.entry((kind, from_bytes)).or_insert_with(|| Compared {
            kind,
            from_bytes,
            paths: BTreeSet::new(),
            ours: Measured::default(),
            baseline: Measured::default(),
        }));
    };
    for (kind, path, from_bytes, measured) in ours.rows() {
        cell(kind, from_bytes, &mut |compared| {
            compared.paths.insert(path);
            compared.ours.merge(measured);
        });
    }
    for (kind, _, from_bytes, measured) in baseline.rows() {
        cell(kind, from_bytes, &mut |compared| compared.baseline.merge(measured));
    }
    cells.into_values().collect()
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
        cells.times(1)
    }

    #[test]
    fn paths_are_joined_and_classes_of_either_report_are_kept() {
        let passed = PathTaken::PassedThrough;
        let ours = times(&[(PathTaken::InHost, 8, 100), (passed, 8, 300), (passed, 64, 5)]);
        let baseline = times(&[(passed, 8, 1000), (passed, 8, 600), (passed, 4096, 9)]);
        let rows = compare(&ours, &baseline);
        let sizes: Vec<u64> = rows.iter().map(|row| row.from_bytes).collect();
        assert_eq!(sizes, [8, 64, 4096]);
        assert_eq!(rows[0].paths, BTreeSet::from([PathTaken::InHost, passed]));
        assert_eq!((rows[0].ours.calls, rows[0].baseline.calls), (2, 2));
        assert_eq!(rows[0].speed_up(), Some(4.0));
        assert_eq!(rows[0].saved_ns(), Some(1200.0));
        assert!(!rows[0].mean_disagrees());
        for row in &rows[1..] {
            assert_eq!((row.speed_up(), row.saved_ns()), (None, None));
            assert_eq!((row.median_speed_up(), row.mean_disagrees()), (None, false));
        }
    }

    /// Three calls of each report, all of 8 bytes.
    fn of_three(ours_ns: [u64; 3], baseline_ns: [u64; 3]) -> Compared {
        let all = |path, ns: [u64; 3]| times(&ns.map(|duration_ns| (path, 8, duration_ns)));
        let (ours, baseline) =
            (all(PathTaken::InTree, ours_ns), all(PathTaken::PassedThrough, baseline_ns));
        compare(&ours, &baseline).remove(0)
    }

    #[test]
    fn a_few_long_calls_make_a_mean_and_are_told() {
        // Seen: a speed-up of 2.04 by the mean of a run whose median was three times slower.
        let slower = of_three([30_000, 30_000, 30_000], [10_000, 10_000, 200_000]);
        assert!(slower.speed_up().unwrap() > 2.0 && slower.median_speed_up().unwrap() < 0.5);
        assert!(slower.mean_disagrees());
        let faster = of_three([1_000, 1_000, 90_000], [3_000, 3_000, 3_000]);
        assert!(faster.speed_up().unwrap() < 1.0 && faster.median_speed_up().unwrap() > 2.0);
        assert!(faster.mean_disagrees());
        let far = of_three([1_000, 1_000, 1_000], [2_000, 2_000, 40_000]);
        assert!(far.mean_disagrees());
        // Medians of one bucket are neither faster nor slower.
        let alike = of_three([1_000, 1_000, 1_000], [1_001, 1_001, 1_300]);
        assert!(!alike.mean_disagrees());
        let both = of_three([1_000, 1_000, 1_200], [4_000, 4_000, 4_400]);
        assert!(!both.mean_disagrees());
    }
}
