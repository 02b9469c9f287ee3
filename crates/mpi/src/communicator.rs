//! `tributary_communicator`: a communicator's counts, and the communicator itself once it is set up.

use std::ffi::{CStr, c_char, c_int};
use std::sync::{Arc, OnceLock};

use tributary_client::report::Counters;
use tributary_client::{CollectiveError, CollectiveKind, Communicator};

use crate::message;
use crate::names::{COperation, FAILED, GIVEN_UP, PASS_REASONS, PASS_UNAVAILABLE, UnknownNumber};
use crate::process::{CBootstrap, CProgressHook, Ranks, context, counters};
use crate::request::CRequest;

/// What C holds a pointer to.
pub struct CCommunicator {
    counters: Arc<Counters>,
    /// Set by the join, if it succeeds.
    communicator: OnceLock<Communicator>,
    /// Set by the join, if it fails: why.
    problem: OnceLock<String>,
}

impl CCommunicator {
    /// The communicator; why there is none before a join, or after one that failed.
    #[inline]
    pub(crate) fn joined(&self) -> Result<&Communicator, Problem<'_>> {
        match self.communicator.get() {
            Some(communicator) => Ok(communicator),
            None => Err(self.not_joined()),
        }
    }

    #[cold]
    fn not_joined(&self) -> Problem<'_> {
        let problem = self.problem.get();
        Problem::NotJoined(problem.map_or("the communicator was not joined", String::as_str))
    }
}

/// Registers a communicator for counting.
///
/// # Safety
/// `label` is a terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_communicator_new(
    label: *const c_char,
    size: u32,
    counted: c_int,
) -> *mut CCommunicator {
    // SAFETY: the header asks C for it.
    let label = unsafe { CStr::from_ptr(label) }.to_string_lossy();
    let counters = counters().open(&label, size, counted != 0);
    Box::into_raw(Box::new(CCommunicator {
        counters,
        communicator: OnceLock::new(),
        problem: OnceLock::new(),
    }))
}

/// Whether to set a communicator up that was just created.
///
/// # Safety
/// `members` is a bootstrap of the communicator's ranks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_communicator_joins_now(members: *const CBootstrap) -> c_int {
    // SAFETY: the header asks C for it.
    let members = unsafe { &*members };
    // Without a context, or with a failed exchange, the join is what says why.
    let now =
        context().map_or(true, |context| context.sets_up_now(&mut Ranks(members)).unwrap_or(true));
    c_int::from(now)
}

/// Sets a communicator up.
///
/// # Safety
/// `communicator` came from `tributary_communicator_new`; `members` is a bootstrap of its ranks;
/// `progress_hook` is as the header asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_communicator_join(
    communicator: *mut CCommunicator,
    members: *const CBootstrap,
    progress_hook: *const CProgressHook,
) -> c_int {
    // SAFETY: the header asks C for it.
    let (communicator, members) = unsafe { (&*communicator, &*members) };
    // SAFETY: the header asks C for it.
    let progress_hook = unsafe { *progress_hook }.into_hook();
    let joined = context().map_err(|error| error.to_string()).and_then(|context| {
        Communicator::create(&context, &mut Ranks(members), &communicator.counters, progress_hook)
            .map_err(|error| error.to_string())
    });
    // The header allows one join; a second would change nothing.
    match joined {
        Ok(joined) => {
            let _ = communicator.communicator.set(joined);
            0
        }
        Err(problem) => {
            let _ = communicator.problem.set(problem);
            1
        }
    }
}

/// The longest contribution with which a collective is ours.
///
/// # Safety
/// `communicator` came from `tributary_communicator_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_communicator_longest(
    communicator: *const CCommunicator,
    collective: u32,
) -> u64 {
    // SAFETY: the header asks C for it.
    let joined = unsafe { &*communicator }.joined();
    match (joined, CollectiveKind::from_number(collective)) {
        (Ok(communicator), Some(kind)) => communicator.longest_bytes(kind).unwrap_or(u64::MAX),
        _ => 0,
    }
}

/// Whether a communicator's ranks are on one host.
///
/// # Safety
/// `communicator` came from `tributary_communicator_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_communicator_is_on_one_host(
    communicator: *const CCommunicator,
) -> c_int {
    // SAFETY: the header asks C for it.
    let joined = unsafe { &*communicator }.joined();
    c_int::from(joined.is_ok_and(Communicator::is_on_one_host))
}

/// Gives a communicator up at all its ranks.
///
/// # Safety
/// `communicator` came from `tributary_communicator_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_communicator_give_up(communicator: *mut CCommunicator) {
    // SAFETY: the header asks C for it.
    if let Ok(communicator) = unsafe { &*communicator }.joined() {
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
    // SAFETY: the header asks C for it.
    drop(unsafe { Box::from_raw(communicator) });
}

/// Runs one operation to its end.
///
/// # Safety
/// As the header says; `operation`'s buffers are as `Communicator::run` asks for them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_run(
    communicator: *mut CCommunicator,
    operation: *const COperation,
) -> c_int {
    // SAFETY: the header asks C for it.
    let (communicator, operation) = unsafe { (&*communicator, &*operation) };
    let problem = match (communicator.joined(), operation.operation()) {
        (Ok(communicator), Ok(operation)) => {
            // SAFETY: the header asks C for it.
            match unsafe { communicator.run(&operation) } {
                Ok(()) => return 0,
                Err(error) => Problem::Failed(error),
            }
        }
        (Err(problem), _) => problem,
        (_, Err(error)) => Problem::Unknown(error),
    };
    problem.tell()
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
    /// What C returns for it; the message is kept.
    #[cold]
    pub(crate) fn tell(self) -> c_int {
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
/// As the header says; `operation`'s buffers are as `Communicator::start` asks for them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_start(
    communicator: *mut CCommunicator,
    operation: *const COperation,
) -> *mut CRequest {
    // SAFETY: the header asks C for it.
    let (communicator, operation) = unsafe { (&*communicator, &*operation) };
    let problem = match (communicator.joined(), operation.operation()) {
        (Ok(communicator), Ok(operation)) => {
            // SAFETY: the header asks C for it.
            match unsafe { communicator.start(operation) } {
                Ok(request) => return CRequest::into_raw(request),
                Err(error) => Problem::Failed(error),
            }
        }
        (Err(problem), _) => problem,
        (_, Err(error)) => Problem::Unknown(error),
    };
    problem.tell();
    std::ptr::null_mut()
}

/// Counts one operation that goes to the underlying MPI.
///
/// # Safety
/// `communicator` came from `tributary_communicator_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_count_passed(
    communicator: *mut CCommunicator,
    collective: u32,
    reason: u32,
) {
    // SAFETY: the header asks C for it.
    let communicator = unsafe { &*communicator };
    let Some(kind) = CollectiveKind::from_number(collective) else { return };
    let reason = match (reason, communicator.problem.get()) {
        (PASS_UNAVAILABLE, Some(problem)) => problem.as_str(),
        _ => PASS_REASONS.get(reason as usize).copied().unwrap_or("a reason without a name"),
    };
    communicator.counters.count_passed(kind, reason);
}
