//! What offloading gave: times of a report beside those of a baseline, the same program without it.

use std::collections::{BTreeMap, BTreeSet};

use tributary_algorithms::CollectiveKind;

use super::path::PathTaken;
use super::times::{Measured, Times};

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
        for row in &rows[1..] {
            assert_eq!((row.speed_up(), row.saved_ns()), (None, None));
        }
    }
}
