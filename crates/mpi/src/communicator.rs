//! `tributary_communicator`: a communicator's counters, and the communicator itself once it is set up.

use std::ffi::{CStr, c_char, c_int};
use std::io::{self, Write};
use std::sync::{Arc, OnceLock};

use tributary_client::report::Counters;
use tributary_client::{
    CollectiveError, CollectiveKind, Combiner, Communicator, Sums, Unavailable,
};

use crate::combiner::Kept;
use crate::message;
use crate::names::{COperation, FAILED, GIVEN_UP, PASS_REASONS, PASS_UNAVAILABLE, UnknownNumber};
use crate::process::{
    CBootstrap, CProgressHook, JOINED, Ranks, UNAVAILABLE, UNMET, context, counters,
};
use crate::request::CRequest;

/// C holds a pointer to it.
pub struct CCommunicator {
    counters: Arc<Counters>,
    /// Set by the join, if it succeeds.
    communicator: OnceLock<Communicator>,
    /// Set by the join, if it fails: why.
    problem: OnceLock<String>,
    /// How floats are added; none if the settings say it.
    sums: Option<Sums>,
}

impl CCommunicator {
    /// The communicator; why there is none before a join, or after one that failed.
    #[inline]
    pub(crate) fn communicator_joined(&self) -> Result<&Communicator, Problem<'_>> {
        match self.communicator.get() {
            Some(communicator) => Ok(communicator),
            None => Err(self.not_joined()),
        }
    }

    #[cold]
    fn not_joined(&self) -> Problem<'_> {
        let problem = self.problem.get();
        Problem::NotJoined(problem.map_or(
            "the communicator is not set up: call tributary_communicator_join first",
            String::as_str,
        ))
    }
}

/// Registers a communicator for counting.
///
/// # Safety
/// `label` is a terminated string, valid during this call; so is `sums`, unless it is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_communicator_new(
    label: *const c_char,
    size: u32,
    counted: c_int,
    sums: *const c_char,
) -> *mut CCommunicator {
    // SAFETY: the header asks for a terminated string that is valid during this call.
    let label = unsafe { CStr::from_ptr(label) }.to_string_lossy();
    // SAFETY: as above, and it is not null.
    let sums = (!sums.is_null()).then(|| unsafe { CStr::from_ptr(sums) }.to_string_lossy());
    let counters = counters().open(&label, size, counted != 0);
    Box::into_raw(Box::new(CCommunicator {
        counters,
        communicator: OnceLock::new(),
        problem: OnceLock::new(),
        sums: sums.and_then(|word| sums_of(&label, &word, counted != 0)),
    }))
}

/// How floats are added, by a program's word; none if it has none, or one that there is not. Of the latter one rank tells.
fn sums_of(label: &str, word: &str, tells: bool) -> Option<Sums> {
    let sums = Sums::parse(word);
    if sums.is_none() && !word.is_empty() && tells {
        let _ = writeln!(
            io::stderr().lock(),
            "tributary: a communicator ({label}) was made with the info tributary_sums={word}; it is ignored, \
             for sums are ordered or exact"
        );
    }
    sums
}

/// The blocking collective at which a communicator that was just created is to be set up; 0 if that is now.
///
/// # Safety
/// `members` points to a bootstrap of the communicator's ranks, valid during this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_communicator_joins_after(members: *const CBootstrap) -> u32 {
    // SAFETY: `members` points to a bootstrap that is valid during this call: the header's rule on
    // pointers.
    let members = unsafe { &*members };
    // Without a context, or after a failed exchange, join now: the join reports the reason.
    context().map_or(0, |context| context.sets_up_after(&mut Ranks(members)).unwrap_or(0))
}

/// Sets a communicator up.
///
/// # Safety
/// `communicator` came from `tributary_communicator_new` and was not freed. `members` points to a
/// bootstrap of its ranks and `progress_hook` to a hook, both valid during this call; the hook's
/// context is valid until the communicator is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_communicator_join(
    communicator: *mut CCommunicator,
    members: *const CBootstrap,
    progress_hook: *const CProgressHook,
) -> c_int {
    // SAFETY: `communicator` came from `tributary_communicator_new` and was not freed, and `members`
    // points to a bootstrap that is valid during this call: the header's rule on pointers.
    let (communicator, members) = unsafe { (&*communicator, &*members) };
    // SAFETY: `progress_hook` points to a hook that is valid during this call, by the same rule; it
    // is copied.
    let progress_hook = unsafe { *progress_hook }.into_hook();
    let made = context().map(|context| {
        let CCommunicator { counters, sums, .. } = communicator;
        Communicator::create_with(&context, &mut Ranks(members), counters, progress_hook, *sums)
    });
    let (outcome, problem) = match made {
        Ok(Ok(joined)) => {
            // The header allows one join; a second would change nothing.
            let _ = communicator.communicator.set(joined);
            return JOINED;
        }
        Ok(Err(unmet @ Unavailable::Unmet { .. })) => (UNMET, unmet.to_string()),
        Ok(Err(unavailable)) => (UNAVAILABLE, unavailable.to_string()),
        Err(no_context) => (UNAVAILABLE, no_context.to_string()),
    };
    message::keep(&problem);
    let _ = communicator.problem.set(problem);
    outcome
}

/// The longest contribution with which a collective is offloaded.
///
/// # Safety
/// `communicator` came from `tributary_communicator_new` and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_communicator_longest(
    communicator: *const CCommunicator,
    collective: u32,
) -> u64 {
    // SAFETY: `communicator` came from `tributary_communicator_new` and was not freed: the
    // header's rule on pointers.
    let joined = unsafe { &*communicator }.communicator_joined();
    match (joined, CollectiveKind::from_number(collective)) {
        (Ok(communicator), Some(kind)) => communicator.longest_bytes(kind).unwrap_or(u64::MAX),
        _ => 0,
    }
}

/// The longest elements that a combiner may have.
///
/// # Safety
/// `communicator` came from `tributary_communicator_new` and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_communicator_combines(
    communicator: *const CCommunicator,
    commutes: c_int,
) -> u64 {
    // SAFETY: `communicator` came from `tributary_communicator_new` and was not freed: the
    // header's rule on pointers.
    let joined = unsafe { &*communicator }.communicator_joined();
    joined.map_or(0, |communicator| communicator.combined_bytes_max(commutes != 0) as u64)
}

/// The longest contribution that is gathered to be combined.
///
/// # Safety
/// `communicator` came from `tributary_communicator_new` and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_communicator_gathers(communicator: *const CCommunicator) -> u64 {
    // SAFETY: `communicator` came from `tributary_communicator_new` and was not freed: the
    // header's rule on pointers.
    let joined = unsafe { &*communicator }.communicator_joined();
    joined.map_or(0, Communicator::gathered_bytes_max)
}

/// Whether a communicator's ranks are on one host.
///
/// # Safety
/// `communicator` came from `tributary_communicator_new` and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_communicator_is_on_one_host(
    communicator: *const CCommunicator,
) -> c_int {
    // SAFETY: `communicator` came from `tributary_communicator_new` and was not freed: the
    // header's rule on pointers.
    let joined = unsafe { &*communicator }.communicator_joined();
    c_int::from(joined.is_ok_and(Communicator::is_on_one_host))
}

/// Gives a communicator up at all its ranks.
///
/// # Safety
/// `communicator` came from `tributary_communicator_new` and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_communicator_give_up(communicator: *mut CCommunicator) {
    // SAFETY: `communicator` came from `tributary_communicator_new` and was not freed: the
    // header's rule on pointers.
    if let Ok(communicator) = unsafe { &*communicator }.communicator_joined() {
        communicator.give_up();
    }
}

/// Frees a communicator.
///
/// # Safety
/// `communicator` came from `tributary_communicator_new`, is not used any more, and has no
/// outstanding request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_communicator_free(communicator: *mut CCommunicator) {
    // SAFETY: `communicator` is the box of `tributary_communicator_new`; the header forbids every
    // later use of it.
    drop(unsafe { Box::from_raw(communicator) });
}

/// Runs one operation to its end.
///
/// # Safety
/// `communicator` came from `tributary_communicator_new` and was not freed. `operation` is valid
/// during this call, and its buffers are as `Communicator::run` asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_run(
    communicator: *mut CCommunicator,
    operation: *const COperation,
) -> c_int {
    // SAFETY: `communicator` came from `tributary_communicator_new` and was not freed, and
    // `operation` is valid during this call: the header's rule on pointers.
    let (communicator, operation) = unsafe { (&*communicator, &*operation) };
    // SAFETY: the contract of `run` is this function's.
    unsafe { run(communicator, operation, true) }
}

/// Runs another piece of an operation that was counted.
///
/// # Safety
/// As [`tributary_run`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_run_on(
    communicator: *mut CCommunicator,
    operation: *const COperation,
) -> c_int {
    // SAFETY: `communicator` came from `tributary_communicator_new` and was not freed, and
    // `operation` is valid during this call: the header's rule on pointers.
    let (communicator, operation) = unsafe { (&*communicator, &*operation) };
    // SAFETY: the contract of `run` is this function's.
    unsafe { run(communicator, operation, false) }
}

/// # Safety
/// The buffers of `operation` are as `Communicator::run` asks.
#[inline(always)]
unsafe fn run(communicator: &CCommunicator, operation: &COperation, counts: bool) -> c_int {
    let communicator = match communicator.communicator_joined() {
        Ok(communicator) => communicator,
        Err(problem) => return problem.report(),
    };
    let combining = operation.combining();
    let combiner =
        combining.as_ref().map(|(combining, commutes)| Combiner::new(combining, *commutes));
    let operation = match operation.operation(combiner) {
        Ok(operation) => operation,
        Err(error) => return Problem::Unknown(error).report(),
    };
    // SAFETY: the header asks that the buffers and cuts be valid, and used by nobody else, until
    // tributary_run() returns: what `Communicator::run` asks for. The combiner outlives the call.
    let outcome = unsafe {
        if counts { communicator.run(&operation) } else { communicator.run_on(&operation) }
    };
    match outcome {
        Ok(()) => combining.map_or(0, |(combining, _)| combining.outcome()),
        Err(error) => Problem::Failed(error).report(),
    }
}

/// Why an operation ended without a result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem<'a> {
    #[error("{0}")]
    NotJoined(&'a str),
    #[error(transparent)]
    Unknown(UnknownNumber),
    #[error(transparent)]
    Failed(CollectiveError),
}

impl Problem<'_> {
    /// Keeps the message and returns the code for C.
    #[cold]
    pub(crate) fn report(self) -> c_int {
        if matches!(self, Self::Failed(CollectiveError::GivenUp { .. })) {
            return GIVEN_UP;
        }
        message::keep(&self);
        FAILED
    }
}

/// Starts one operation.
///
/// # Safety
/// `communicator` came from `tributary_communicator_new` and was not freed. `operation` is valid
/// during this call, and its buffers are as `Communicator::start` asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_start(
    communicator: *mut CCommunicator,
    operation: *const COperation,
) -> *mut CRequest {
    // SAFETY: `communicator` came from `tributary_communicator_new` and was not freed, and
    // `operation` is valid during this call: the header's rule on pointers.
    let (communicator, operation) = unsafe { (&*communicator, &*operation) };
    let combining = Kept::of(operation.combining());
    let problem =
        match (communicator.communicator_joined(), operation.operation(combining.combiner())) {
            (Ok(communicator), Ok(operation)) => {
                // SAFETY: the header asks that the buffers and cuts be valid, and used by nobody else, until
                // tributary_test() says that the operation is over: what `Communicator::start` asks for.
                match unsafe { communicator.start(operation) } {
                    Ok(request) => return CRequest::into_raw(request, combining),
                    Err(error) => Problem::Failed(error),
                }
            }
            (Err(problem), _) => problem,
            (_, Err(error)) => Problem::Unknown(error),
        };
    problem.report();
    std::ptr::null_mut()
}

/// Counts one operation that goes to the underlying MPI.
///
/// # Safety
/// `communicator` came from `tributary_communicator_new` and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_count_passed(
    communicator: *mut CCommunicator,
    collective: u32,
    reason: u32,
) {
    // SAFETY: `communicator` came from `tributary_communicator_new` and was not freed: the
    // header's rule on pointers.
    let communicator = unsafe { &*communicator };
    let Some(kind) = CollectiveKind::from_number(collective) else { return };
    let reason = match (reason, communicator.problem.get()) {
        (PASS_UNAVAILABLE, Some(problem)) => problem.as_str(),
        _ => PASS_REASONS.get(reason as usize).copied().unwrap_or("unknown reason"),
    };
    communicator.counters.count_passed(kind, reason);
}
