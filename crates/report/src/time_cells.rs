//! Measuring, while the job runs: a fixed table of cells, into which any thread adds.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tributary_algorithms::CollectiveKind;

use super::histogram::{BUCKETS, bucket_of};
use super::path::PathTaken;
use super::times::{Measured, Times};
use super::waiting::{MembersId, Sampler};

/// Size classes: no bytes, and one for each power of two; the last also has all that is longer.
const CLASSES: usize = 42;

/// The size class of a contribution.
#[inline]
fn class_of(len_bytes: u64) -> usize {
    len_bytes.checked_ilog2().map_or(0, |power| power as usize + 1).min(CLASSES - 1)
}

/// The shortest contribution of a size class.
fn class_floor_bytes(class: usize) -> u64 {
    class.checked_sub(1).map_or(0, |power| 1 << power)
}

/// Operations of one collective, path and size class.
#[derive(Debug)]
struct Cell {
    total_ns: AtomicU64,
    /// The complement of the shortest duration: a cell of zeros then has the longest possible.
    min_complement_ns: AtomicU64,
    max_ns: AtomicU64,
    calls: [AtomicU64; BUCKETS],
}

impl Default for Cell {
    fn default() -> Self {
        Self {
            total_ns: AtomicU64::new(0),
            min_complement_ns: AtomicU64::new(0),
            max_ns: AtomicU64::new(0),
            calls: [const { AtomicU64::new(0) }; BUCKETS],
        }
    }
}

impl Cell {
    // Relaxed, all of it: statistics, read after the last operation.
    #[inline]
    fn add(&self, duration_ns: u64) {
        self.calls[bucket_of(duration_ns)].fetch_add(1, Ordering::Relaxed);
        self.total_ns.fetch_add(duration_ns, Ordering::Relaxed);
        raise(&self.max_ns, duration_ns);
        raise(&self.min_complement_ns, !duration_ns);
    }

    fn clear(&self) {
        let maxima = [&self.total_ns, &self.min_complement_ns, &self.max_ns];
        for number in maxima.into_iter().chain(&self.calls) {
            number.store(0, Ordering::Relaxed);
        }
    }

    fn sum_up(&self) -> Option<Measured> {
        let mut measured = Measured::default();
        for (bucket, calls) in self.calls.iter().enumerate() {
            let calls = calls.load(Ordering::Relaxed);
            if calls > 0 {
                measured.calls += calls;
                measured.durations.add(bucket, calls);
            }
        }
        measured.total_ns = self.total_ns.load(Ordering::Relaxed);
        measured.min_ns = !self.min_complement_ns.load(Ordering::Relaxed);
        measured.max_ns = self.max_ns.load(Ordering::Relaxed);
        (measured.calls > 0).then_some(measured)
    }
}

/// Makes `most` at least `value`; nearly always it is so already.
#[inline]
fn raise(most: &AtomicU64, value: u64) {
    if value > most.load(Ordering::Relaxed) {
        most.fetch_max(value, Ordering::Relaxed);
    }
}

type OfPath = [OnceLock<Box<Cell>>; CLASSES];
type OfKind = [OfPath; PathTaken::ALL.len()];

/// What the collectives of one process took so far. A cell is allocated when the first operation is added
/// to it, so the memory is bounded, and a program that uses few sizes needs little.
#[derive(Debug)]
pub struct TimeCells {
    kinds: [OfKind; CollectiveKind::ALL.len()],
    not_measured: [AtomicU64; CollectiveKind::ALL.len()],
    sampler: Sampler,
}

impl Default for TimeCells {
    fn default() -> Self {
        Self::new()
    }
}

impl TimeCells {
    /// Empty cells.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            kinds: [const { [const { [const { OnceLock::new() }; CLASSES] }; PathTaken::ALL.len()] };
                CollectiveKind::ALL.len()],
            not_measured: [const { AtomicU64::new(0) }; CollectiveKind::ALL.len()],
            sampler: Sampler::new(),
        }
    }

    /// What names a communicator in [`Self::add_of`], by the ranks of its members in the world, in its order; none if there are
    /// too many communicators.
    #[must_use]
    pub fn members(&self, ranks: &[u32]) -> Option<MembersId> {
        self.sampler.members(ranks)
    }

    /// [Adds](Self::add) an operation of a communicator, some of which are kept to be compared between its ranks.
    pub fn add_of(
        &self,
        members: MembersId,
        (kind, path, len_bytes): (CollectiveKind, PathTaken, u64),
        duration_ns: u64,
    ) {
        self.add(kind, path, len_bytes, duration_ns);
        let cell = (kind, path, class_floor_bytes(class_of(len_bytes)));
        self.sampler.add(members, cell, duration_ns);
    }

    /// Adds an operation that lasted for `duration_ns` at this rank, which contributed `len_bytes`.
    #[inline]
    pub fn add(&self, kind: CollectiveKind, path: PathTaken, len_bytes: u64, duration_ns: u64) {
        let cell = &self.kinds[kind as usize][path as usize][class_of(len_bytes)];
        cell.get_or_init(Box::default).add(duration_ns);
    }

    /// Counts an operation that nobody measured.
    pub fn add_not_measured(&self, kind: CollectiveKind) {
        // Relaxed: a statistic, read after the last operation.
        self.not_measured[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Forgets what was added so far.
    pub fn clear(&self) {
        for cell in self.kinds.iter().flatten().flatten().filter_map(OnceLock::get) {
            cell.clear();
        }
        for calls in &self.not_measured {
            calls.store(0, Ordering::Relaxed);
        }
        self.sampler.clear();
    }

    /// What was added so far, as the times of one rank; its program has run for `program_ns`.
    #[must_use]
    pub fn times(&self, program_ns: u64) -> Times {
        let samples = self.sampler.samples();
        let mut times = Times { ranks: 1, program_ns, samples, ..Times::default() };
        for kind in CollectiveKind::ALL {
            let calls = self.not_measured[kind as usize].load(Ordering::Relaxed);
            if calls > 0 {
                times.not_measured.insert(kind, calls);
            }
            for path in PathTaken::ALL {
                for (class, cell) in self.kinds[kind as usize][path as usize].iter().enumerate() {
                    if let Some(measured) = cell.get().and_then(|cell| cell.sum_up()) {
                        let paths = times.collectives.entry(kind).or_default();
                        let sizes = paths.entry(path).or_default();
                        sizes.insert(class_floor_bytes(class), measured);
                    }
                }
            }
        }
        times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_lose_nothing() {
        const CALLS: u64 = 300_000;
        let cells = TimeCells::new();
        // Threads that begin together run side by side for long enough to meet.
        let start = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    start.wait();
                    for duration_ns in 1..=CALLS {
                        cells.add(CollectiveKind::Scan, PathTaken::InHost, 8, duration_ns);
                    }
                });
            }
        });
        let times = cells.times(1);
        let measured = &times.collectives[&CollectiveKind::Scan][&PathTaken::InHost][&8];
        assert_eq!(measured.calls, 4 * CALLS);
        assert_eq!(measured.total_ns, 4 * CALLS * (CALLS + 1) / 2);
        assert_eq!((measured.min_ns, measured.max_ns), (1, CALLS));
        assert_eq!(measured.durations.calls(), 4 * CALLS);
        assert_eq!(times.rows().count(), 1);
    }

    #[test]
    fn cleared_cells_hold_what_is_added_afterwards() {
        let cells = TimeCells::new();
        cells.add(CollectiveKind::Scan, PathTaken::InHost, 8, 5);
        cells.add_not_measured(CollectiveKind::Scan);
        cells.clear();
        assert_eq!(cells.times(1), TimeCells::new().times(1));
        cells.add(CollectiveKind::Scan, PathTaken::InHost, 8, 7);
        let measured = &cells.times(1).collectives[&CollectiveKind::Scan][&PathTaken::InHost][&8];
        assert_eq!((measured.calls, measured.min_ns, measured.max_ns), (1, 7, 7));
    }

    #[test]
    fn size_classes_begin_at_their_powers_of_two() {
        for (len_bytes, floor_bytes) in
            [(0, 0), (1, 1), (2, 2), (3, 2), (4095, 2048), (4096, 4096), (u64::MAX, 1 << 40)]
        {
            assert_eq!(class_floor_bytes(class_of(len_bytes)), floor_bytes, "{len_bytes}");
        }
    }
}
