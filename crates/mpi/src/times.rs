//! How long the program's collectives took, as C measures it.

use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tributary_client::report::{MembersId, PathTaken, TimeCells, Times};
use tributary_client::{CollectiveKind, Settings, Switch};

use crate::communicator::CCommunicator;
use crate::done::{Done, describe_done};
use crate::names::COperation;
use crate::trace;

static CELLS: TimeCells = TimeCells::new();
/// `TRIBUTARY_TIMES_NONE`: the communicator has no number.
const NONE: u32 = u32::MAX;
/// When measuring began; empty if nobody wants times.
static BEGAN_AT: Mutex<Option<Instant>> = Mutex::new(None);

fn began_at() -> MutexGuard<'static, Option<Instant>> {
    BEGAN_AT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What was measured until now; `None` if nothing was to be.
pub(crate) fn read_times() -> Option<Times> {
    let elapsed = (*began_at())?.elapsed();
    Some(CELLS.times(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)))
}

/// Whether the environment wants times in a report. A setting that is not allowed is none of this
/// function's concern: `tributary_open` names it.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_times_wanted() -> c_int {
    c_int::from(Settings::from_env().is_ok_and(|settings| settings.times == Switch::On))
}

/// Begins to measure.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_times_begin() {
    began_at().get_or_insert_with(Instant::now);
}

/// Ends measuring, and forgets what was measured.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_times_end() {
    *began_at() = None;
    CELLS.clear();
}

/// A communicator's number for the times of its operations.
///
/// # Safety
/// `members` points to `count` ranks, valid during this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_times_communicator(members: *const u32, count: usize) -> u32 {
    // SAFETY: the header asks for `count` ranks, valid during this call.
    let members = unsafe { std::slice::from_raw_parts(members, count) };
    CELLS.members(members).map_or(NONE, MembersId::number)
}

fn add(number: u32, (kind, path, len_bytes): (CollectiveKind, PathTaken, u64), duration_ns: u64) {
    if number == NONE {
        CELLS.add(kind, path, len_bytes, duration_ns);
    } else {
        CELLS.add_of(MembersId::from_number(number), (kind, path, len_bytes), duration_ns);
    }
}

/// Adds the time of an operation that ran.
///
/// # Safety
/// `communicator` came from `tributary_communicator_new` and was not freed. `operation` is valid during
/// this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_count_time(
    communicator: *const CCommunicator,
    number: u32,
    operation: *const COperation,
    duration_ns: u64,
) {
    // SAFETY: `communicator` came from `tributary_communicator_new` and was not freed, and
    // `operation` is valid during this call: the header's rule on pointers.
    let (communicator, operation) = unsafe { (&*communicator, &*operation) };
    if let Some(Done { kind, path, len_bytes }) = describe_done(communicator, operation) {
        add(number, (kind, path, len_bytes), duration_ns);
    }
}

/// Adds the time of an operation in the underlying MPI.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_count_time_passed(
    number: u32,
    collective: u32,
    len_bytes: u64,
    duration_ns: u64,
) {
    if let Some(kind) = CollectiveKind::from_number(collective) {
        add(number, (kind, PathTaken::PassedThrough, len_bytes), duration_ns);
    }
}

/// Counts an operation whose time nobody measures.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_count_not_measured(collective: u32) {
    if let Some(kind) = CollectiveKind::from_number(collective) {
        CELLS.add_not_measured(kind);
        trace::add_nonblocking();
    }
}
