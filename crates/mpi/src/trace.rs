//! The trace of the program's collectives: recorded here, and written at the end where the environment says.

use std::ffi::{c_char, c_int};
use std::fs;
use std::io;
use std::path::PathBuf;

use tributary_client::report::PathTaken;
use tributary_client::{CollectiveKind, knobs, machine_name};
use tributary_workload::trace::{Measured, Path, Recorder};

use crate::communicator::CCommunicator;
use crate::done::describe_done;
use crate::message;
use crate::names::COperation;
use crate::texts;

static RECORDER: Recorder = Recorder::new();

/// `TRIBUTARY_TRACE_NONE`: the communicator has no place in the trace.
const NONE: u32 = u32::MAX;

/// Why a trace was not written.
#[derive(Debug, thiserror::Error)]
#[error("trace {}: {problem}", .path.display())]
struct WriteError {
    path: PathBuf,
    problem: io::Error,
}

/// Whether the environment asks for a trace.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_trace_wanted() -> c_int {
    c_int::from(!texts::knob(&knobs::TRACE).is_empty())
}

/// Begins to record, at `now_ns` on the caller's clock.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_trace_begin(ranks: u32, now_ns: u64) {
    RECORDER.begin(ranks, now_ns);
}

/// A communicator's number in the trace.
///
/// # Safety
/// `members` points to `count` ranks, valid during this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_trace_communicator(members: *const u32, count: usize) -> u32 {
    // SAFETY: the header asks for `count` ranks, valid during this call.
    let members = unsafe { std::slice::from_raw_parts(members, count) };
    RECORDER.communicator(members).unwrap_or(NONE)
}

/// Adds an operation that ran, between two readings of the caller's clock.
///
/// # Safety
/// `communicator` came from `tributary_communicator_new` and was not freed. `operation` is valid during
/// this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_trace_add(
    communicator: *const CCommunicator,
    number: u32,
    operation: *const COperation,
    started_ns: u64,
    ended_ns: u64,
) {
    // SAFETY: `communicator` came from `tributary_communicator_new` and was not freed, and
    // `operation` is valid during this call: the header's rule on pointers.
    let (communicator, operation) = unsafe { (&*communicator, &*operation) };
    if let Some(done) = describe_done(communicator, operation) {
        let path = match done.path {
            PathTaken::InHost => Path::Host,
            PathTaken::InTree => Path::Tree,
            PathTaken::Direct => Path::Direct,
            PathTaken::PassedThrough => Path::Passed,
        };
        let (kind, bytes, root) = (done.kind, done.len_bytes, operation.root());
        add(number, Measured { kind, root, bytes, path, started_ns, ended_ns });
    }
}

/// Adds an operation of the underlying MPI.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_trace_add_passed(
    number: u32,
    collective: u32,
    root: u32,
    len_bytes: u64,
    started_ns: u64,
    ended_ns: u64,
) {
    if let Some(kind) = CollectiveKind::from_number(collective) {
        let (bytes, path) = (len_bytes, Path::Passed);
        add(number, Measured { kind, root, bytes, path, started_ns, ended_ns });
    }
}

fn add(number: u32, measured: Measured) {
    let root = measured.kind.rooted_at(measured.root).root().unwrap_or(0);
    RECORDER.add((number != NONE).then_some(number), &Measured { root, ..measured });
}

/// Counts a nonblocking operation.
pub(crate) fn add_nonblocking() {
    RECORDER.add_nonblocking();
}

/// This process's record as text.
///
/// # Safety
/// `len_bytes` is valid for writing during this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_trace_section(
    rank: u32,
    ranks: u32,
    now_ns: u64,
    len_bytes: *mut usize,
) -> *mut c_char {
    let section = RECORDER.section(rank, &host(rank, ranks), now_ns);
    // SAFETY: `len_bytes` is valid during this call: the header's rule on pointers.
    unsafe { texts::give_away(section.into_bytes(), len_bytes) }
}

/// The name of a rank's host: one of the emulated ones, if there are such, in blocks of ranks.
fn host(rank: u32, ranks: u32) -> String {
    let machine = machine_name();
    match texts::knob(&knobs::HOSTS).parse::<u64>() {
        Ok(hosts @ 2..) => {
            format!("{machine}#{}", u64::from(rank) * hosts / u64::from(ranks.max(1)))
        }
        _ => machine,
    }
}

/// Writes the records of all processes.
///
/// # Safety
/// `len_bytes` points to `ranks` lengths and `texts` to as many bytes as they add up to, both valid
/// during this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_trace_publish(
    texts: *const c_char,
    len_bytes: *const usize,
    ranks: usize,
) -> c_int {
    // SAFETY: this function's contract is that of `given`.
    let (texts, _) = unsafe { texts::slices_of(texts, len_bytes, ranks) };
    let path = PathBuf::from(texts::knob(&knobs::TRACE));
    let whole = [RECORDER.head().as_bytes(), texts].concat();
    let written = fs::write(&path, whole).map_err(|problem| WriteError { path, problem });
    message::status(written)
}
