//! Counts of the collectives that are always the underlying MPI's.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use tributary_client::report::OtherCalls;

/// Their names, by the numbers of `tributary_core.h`.
const NAMES: [&str; 7] =
    ["alltoall", "alltoallv", "alltoallw", "gather", "gatherv", "scatter", "scatterv"];

/// Calls at this process, and time inside those that were measured.
struct Cell {
    calls: AtomicU64,
    total_ns: AtomicU64,
}

static CELLS: [Cell; NAMES.len()] =
    [const { Cell { calls: AtomicU64::new(0), total_ns: AtomicU64::new(0) } }; NAMES.len()];

/// What was counted so far.
pub(crate) fn read_others() -> BTreeMap<String, OtherCalls> {
    // Relaxed, here and below: counts, nothing is published with them.
    let counted = NAMES.iter().zip(&CELLS).map(|(name, cell)| {
        let [calls, total_ns] = [&cell.calls, &cell.total_ns].map(|it| it.load(Ordering::Relaxed));
        ((*name).to_owned(), OtherCalls { calls, total_ns })
    });
    counted.filter(|(_, counted)| counted.calls > 0).collect()
}

/// Forgets what was counted.
pub(crate) fn forget_others() {
    for cell in &CELLS {
        cell.calls.store(0, Ordering::Relaxed);
        cell.total_ns.store(0, Ordering::Relaxed);
    }
}

/// Counts a call of one of them.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_count_other(collective: u32, duration_ns: u64) {
    if let Some(cell) = CELLS.get(collective as usize) {
        cell.calls.fetch_add(1, Ordering::Relaxed);
        cell.total_ns.fetch_add(duration_ns, Ordering::Relaxed);
    }
}
