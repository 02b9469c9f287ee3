//! Recording, while the program runs.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{FIRST_LINE, Path, Traced, members};
use tributary_algorithms::CollectiveKind;

/// What all ranks of a job may write together: the size of the file, about.
const JOB_BYTES_MAX: usize = 64 << 20;

/// What one rank may write at least and at most.
const RANK_BYTES: (usize, usize) = (4 << 10, 4 << 20);

/// About as long as the line of an operation is.
const LINE_BYTES: usize = 48;

/// How much one rank may record: its share of 64 MiB, 4 KiB at least, 4 MiB at most. A quarter is for
/// communicators. An operation takes 48 bytes of memory and about as much of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) operations_max: usize,
    members_bytes_max: usize,
}

impl Limits {
    /// The share of each of a job's ranks.
    pub(super) fn of_job(ranks: u32) -> Self {
        let (least, most) = RANK_BYTES;
        let bytes = (JOB_BYTES_MAX / ranks.max(1) as usize).clamp(least, most);
        Self { operations_max: bytes / 4 * 3 / LINE_BYTES, members_bytes_max: bytes / 4 }
    }
}

/// The record of one rank. Any thread may add to it. Before it begins it records nothing.
#[derive(Debug)]
pub struct Recorder(Mutex<Option<Record>>);

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Debug)]
struct Record {
    limits: Limits,
    /// Ranks of the world.
    ranks: u32,
    began_ns: u64,
    /// When the last operation ended.
    last_ns: u64,
    operations: Vec<Traced>,
    left_out: u64,
    nonblocking: u64,
    /// The lines of communicators.
    communicators: String,
    communicators_count: u32,
    /// How many communicators had these members.
    known: HashMap<String, u32>,
}

/// An operation between two readings of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The collective.
    pub kind: CollectiveKind,
    /// Its root; 0 if it has none.
    pub root: u32,
    /// What this rank contributed.
    pub bytes: u64,
    /// How it went.
    pub path: Path,
    /// When it began.
    pub started_ns: u64,
    /// When it ended.
    pub ended_ns: u64,
}

impl Recorder {
    /// A record that has not begun.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(None))
    }

    fn record(&self) -> MutexGuard<'_, Option<Record>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to record in a world of so many ranks, at `now_ns` on the clock of the operations.
    pub fn begin(&self, ranks: u32, now_ns: u64) {
        let limits = Limits::of_job(ranks);
        *self.record() = Some(Record {
            limits,
            ranks,
            began_ns: now_ns,
            last_ns: now_ns,
            // All at once: no operation waits for memory later.
            operations: Vec::with_capacity(limits.operations_max),
            left_out: 0,
            nonblocking: 0,
            communicators: String::new(),
            communicators_count: 0,
            known: HashMap::new(),
        });
    }

    /// A communicator whose members have these ranks in the world. Returns its number; none if there is
    /// no room for it, and its operations are left out.
    pub fn communicator(&self, ranks: &[u32]) -> Option<u32> {
        let mut record = self.record();
        let record = record.as_mut()?;
        let list = members::write(ranks);
        let ordinal = record.known.get(&list).copied().unwrap_or(0);
        let number = record.communicators_count;
        let line = format!("communicator {number} {ordinal} {list}\n");
        if record.communicators.len() + line.len() > record.limits.members_bytes_max {
            return None;
        }
        record.communicators += &line;
        record.communicators_count += 1;
        record.known.insert(list, ordinal + 1);
        Some(number)
    }

    /// Adds an operation on the communicator of that number.
    pub fn add(&self, communicator: Option<u32>, measured: &Measured) {
        let mut record = self.record();
        let Some(record) = record.as_mut() else { return };
        // What comes after something that was left out would have a wrong gap.
        let is_full =
            record.left_out > 0 || record.operations.len() >= record.limits.operations_max;
        let Some(communicator) = communicator.filter(|_| !is_full) else {
            record.left_out += 1;
            return;
        };
        let Measured { kind, root, bytes, path, started_ns, ended_ns } = *measured;
        let gap_ns = started_ns.saturating_sub(record.last_ns);
        let length_ns = ended_ns.saturating_sub(started_ns);
        record.last_ns = ended_ns;
        let traced = Traced { communicator, kind, root, bytes, path, gap_ns, length_ns };
        record.operations.push(traced);
    }

    /// Counts a nonblocking operation.
    pub fn add_nonblocking(&self) {
        if let Some(record) = self.record().as_mut() {
            record.nonblocking += 1;
        }
    }

    /// What stands before the sections; nothing if nothing is recorded.
    #[must_use]
    pub fn head(&self) -> String {
        let record = self.record();
        record
            .as_ref()
            .map_or_else(String::new, |record| format!("{FIRST_LINE}\nranks {}\n", record.ranks))
    }

    /// The section of this rank, which ends now; nothing if nothing is recorded.
    #[must_use]
    pub fn section(&self, rank: u32, host: &str, now_ns: u64) -> String {
        let record = self.record();
        let Some(record) = record.as_ref() else { return String::new() };
        let host: String = host.chars().filter(|letter| !letter.is_whitespace()).collect();
        let program_ns = now_ns.saturating_sub(record.began_ns);
        let Record { left_out, nonblocking, communicators, .. } = record;
        let mut text = format!(
            "rank {rank} host {host} program_ns {program_ns} left_out {left_out} nonblocking \
             {nonblocking}\n{communicators}"
        );
        for traced in &record.operations {
            let Traced { communicator, kind, root, bytes, path, gap_ns, length_ns } = traced;
            let (kind, path) = (kind.name(), path.name());
            writeln!(text, "{communicator} {kind} {root} {bytes} {path} {gap_ns} {length_ns}")
                .expect("a text takes everything");
        }
        text
    }
}
