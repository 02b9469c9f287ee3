//! Durations, sorted into buckets that grow with them.
//!
//! Every power of two nanoseconds has four buckets: from 1, 1.25, 1.5 and 1.75 times it on. So a bucket
//! tells a duration to a quarter or better, and counts of the same buckets add up over ranks and jobs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Buckets: durations below 2^40 ns (18 minutes) each have their own, longer ones share the last.
pub(super) const BUCKETS: usize = 4 * 39;

/// The bucket of a duration.
#[inline]
pub(super) fn bucket_of(duration_ns: u64) -> usize {
    // Below 4 ns a quarter of a power of two is no whole number: one bucket a nanosecond.
    let octave = duration_ns.max(4).ilog2();
    let at = match duration_ns {
        0..4 => duration_ns as usize,
        _ => 4 * (octave as usize - 1) + (duration_ns >> (octave - 2) & 3) as usize,
    };
    at.min(BUCKETS - 1)
}

/// The shortest duration of a bucket, in nanoseconds.
pub(super) const fn bucket_floor_ns(bucket: usize) -> u64 {
    let quarter = (bucket % 4) as u64;
    match bucket / 4 {
        0 => quarter,
        octave => (4 + quarter) << (octave - 1),
    }
}

/// How many operations lasted how long: the number of them in each bucket that has any, by the shortest
/// duration of the bucket in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Histogram {
    calls_from_ns: BTreeMap<u64, u64>,
}

/// The bucket in which a quantile lies, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// The shortest duration of the bucket.
    pub from_ns: u64,
    /// The shortest duration beyond it.
    pub to_ns: u64,
}

impl Bounds {
    /// The middle of the bucket.
    #[must_use]
    pub fn middle_ns(self) -> f64 {
        f64::midpoint(self.from_ns as f64, self.to_ns as f64)
    }
}

impl Histogram {
    /// Adds operations to a bucket, which has at least one.
    pub(super) fn add(&mut self, bucket: usize, calls: u64) {
        *self.calls_from_ns.entry(bucket_floor_ns(bucket)).or_default() += calls;
    }

    /// Adds another histogram.
    pub(super) fn merge(&mut self, other: &Self) {
        for (floor_ns, calls) in &other.calls_from_ns {
            *self.calls_from_ns.entry(*floor_ns).or_default() += calls;
        }
    }

    /// All operations in it.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls_from_ns.values().sum()
    }

    /// Where the operation lies that is longer than `share` of all (0.5: the median, 0.99: one of the
    /// longest hundredth). `None` without operations.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<Bounds> {
        // The first operation of a share of 0, the last of a share of 1.
        let position = ((self.calls() as f64 * share).ceil() as u64).max(1);
        let mut passed = 0;
        for (floor_ns, calls) in &self.calls_from_ns {
            passed += calls;
            if passed >= position {
                let to_ns = bucket_floor_ns(bucket_of(*floor_ns) + 1);
                return Some(Bounds { from_ns: *floor_ns, to_ns });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_is_in_the_bucket_whose_bounds_hold_it() {
        let edges = (0..40).flat_map(|power| {
            let octave = 1_u64 << power;
            [octave - 1, octave, octave + 1, octave + octave / 4, octave + octave / 2]
        });
        for duration_ns in (0..5000).chain(edges).filter(|duration_ns| *duration_ns < 1 << 40) {
            let bucket = bucket_of(duration_ns);
            let (from_ns, to_ns) = (bucket_floor_ns(bucket), bucket_floor_ns(bucket + 1));
            assert!((from_ns..to_ns).contains(&duration_ns), "{duration_ns}: {from_ns} to {to_ns}");
            assert!(to_ns - from_ns <= (from_ns / 4).max(1), "{from_ns} to {to_ns} is too wide");
        }
        assert_eq!(bucket_of((1 << 40) - 1), BUCKETS - 1);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn buckets_follow_each_other() {
        for bucket in 0..BUCKETS {
            assert_eq!(bucket_of(bucket_floor_ns(bucket)), bucket);
        }
    }

    fn histogram(durations_ns: impl IntoIterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::default();
        for duration_ns in durations_ns {
            histogram.add(bucket_of(duration_ns), 1);
        }
        histogram
    }

    #[test]
    fn quantiles_are_the_buckets_of_the_operations_at_their_place() {
        let durations = histogram(1..=1000);
        for (share, duration_ns) in [(0.0, 1), (0.5, 500), (0.99, 990), (1.0, 1000)] {
            let Bounds { from_ns, to_ns } = durations.quantile(share).unwrap();
            assert!((from_ns..to_ns).contains(&duration_ns), "{share}: {from_ns} to {to_ns}");
        }
        assert_eq!(Histogram::default().quantile(0.5), None);
        let one = histogram([700]);
        assert_eq!(one.quantile(0.5), Some(Bounds { from_ns: 640, to_ns: 768 }));
        assert_eq!(one.quantile(0.99), one.quantile(0.5));
    }

    #[test]
    fn merging_adds_bucket_by_bucket_and_survives_json() {
        let mut all = histogram([3, 700, 700]);
        all.merge(&histogram([700, 90_000]));
        assert_eq!(all, histogram([3, 700, 700, 700, 90_000]));
        assert_eq!(all.calls(), 5);
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(text, r#"{"3":1,"640":3,"81920":1}"#);
        assert_eq!(serde_json::from_str::<Histogram>(&text).unwrap(), all);
    }
}
