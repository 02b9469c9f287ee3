//! The process's context and counters, and the bootstrap through which it reaches the other ranks.

use std::ffi::{c_int, c_void};
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tributary_client::report::CounterRegistry;
use tributary_client::{
    Bootstrap, BootstrapError, Context, OpenError, ProgressHook, SettingError, Settings, Switch,
    Verdict, knobs, misspelt,
};

use crate::message;
use crate::others;

/// `tributary_bootstrap`.
#[repr(C)]
pub(crate) struct CBootstrap {
    rank: u32,
    size: u32,
    allgather: unsafe extern "C" fn(
        context: *mut c_void,
        mine: *const c_void,
        all: *mut c_void,
        len_bytes: usize,
    ) -> c_int,
    context: *mut c_void,
}

/// The ranks behind a [`CBootstrap`].
pub(crate) struct Ranks<'a>(pub(crate) &'a CBootstrap);

impl Bootstrap for Ranks<'_> {
    fn rank(&self) -> u32 {
        self.0.rank
    }

    fn size(&self) -> u32 {
        self.0.size
    }

    fn is_mpi(&self) -> bool {
        true
    }

    fn allgather(&mut self, mine: &[u8], all: &mut [u8]) -> Result<(), BootstrapError> {
        assert_eq!(all.len(), mine.len() * self.0.size as usize, "room for every rank's bytes");
        // SAFETY: the header asks for a function that reads `len_bytes` from `mine` and writes `size`
        // times as many to `all`; the assertion above makes `all` so long.
        let status = unsafe {
            (self.0.allgather)(
                self.0.context,
                mine.as_ptr().cast(),
                all.as_mut_ptr().cast(),
                mine.len(),
            )
        };
        if status == 0 {
            Ok(())
        } else {
            Err(BootstrapError(format!("the underlying MPI failed to gather {} bytes", mine.len())))
        }
    }
}

/// Why the process has no context.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum NoContext {
    #[error("the process has no context: call tributary_open first")]
    NotOpened,
    #[error(transparent)]
    Setting(#[from] SettingError),
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Another rank has a setting that is not allowed; this rank has none.
    #[error("{0}")]
    OtherRank(String),
    #[error("switched off (TRIBUTARY_OFFLOAD)")]
    SwitchedOff,
    /// Rank 0's job must have what it can't have without a context.
    #[error("TRIBUTARY_REQUIRE asks for more, but {0}")]
    Unmet(Box<Self>),
}

/// `TRIBUTARY_JOINED`, `TRIBUTARY_UNAVAILABLE` and `TRIBUTARY_UNMET`.
pub(crate) const JOINED: c_int = 0;
pub(crate) const UNAVAILABLE: c_int = 1;
pub(crate) const UNMET: c_int = 2;

static CONTEXT: Mutex<Result<Arc<Context>, NoContext>> = Mutex::new(Err(NoContext::NotOpened));

/// The process's context.
pub(crate) fn context() -> Result<Arc<Context>, NoContext> {
    CONTEXT.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Of what this process has not reported yet.
static COUNTERS: Mutex<Option<Arc<CounterRegistry>>> = Mutex::new(None);

/// The process's counters.
pub(crate) fn counters() -> Arc<CounterRegistry> {
    let mut counters = COUNTERS.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(counters.get_or_insert_default())
}

/// `tributary_progress_hook`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CProgressHook {
    call: unsafe extern "C" fn(context: *mut c_void) -> c_int,
    context: *mut c_void,
}

// SAFETY: the header asks for a `call` that any thread may make with `context`.
unsafe impl Send for CProgressHook {}
// SAFETY: as above.
unsafe impl Sync for CProgressHook {}

impl CProgressHook {
    pub(crate) fn into_hook(self) -> ProgressHook {
        Arc::new(move || self.verdict())
    }

    fn verdict(&self) -> Verdict {
        // SAFETY: the header asks that `context` be valid until the communicator is freed, and only an
        // operation that waits on the communicator calls the hook.
        let answer = unsafe { (self.call)(self.context) };
        if answer == 0 { Verdict::GoOn } else { Verdict::GiveUp }
    }
}

static TAKE_TURNS: AtomicBool = AtomicBool::new(false);

/// Promises that no two threads are in one communicator at a time.
///
/// # Safety
/// Calls on one communicator, and on its requests, happen one after the other, whichever threads make
/// them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_take_turns() {
    TAKE_TURNS.store(true, Ordering::Relaxed);
}

/// Opens the process's context.
///
/// # Safety
/// `world` points to a bootstrap of all ranks, valid during this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tributary_open(world: *const CBootstrap) -> c_int {
    // SAFETY: `world` points to a bootstrap that is valid during this call: the header's rule on
    // pointers.
    let mut world = Ranks(unsafe { &*world });
    let opened = open(&mut world);
    let outcome = opened.as_ref().map(|_| ()).map_err(Clone::clone);
    *CONTEXT.lock().unwrap_or_else(PoisonError::into_inner) = opened;
    let is_unmet = matches!(outcome, Err(NoContext::Unmet(_)));
    let status = message::status(outcome);
    if is_unmet { UNMET } else { status }
}

fn open(world: &mut Ranks<'_>) -> Result<Arc<Context>, NoContext> {
    let settings = Settings::from_env();
    // The environment may differ from rank to rank; the decision may not.
    let is_off = settings.as_ref().is_ok_and(|settings| settings.offload == Switch::Off);
    let mine = [u8::from(settings.is_err()), u8::from(is_off), u8::from(requires_anything())];
    let mut all = vec![0; mine.len() * world.size() as usize];
    world.allgather(&mine, &mut all).map_err(OpenError::from)?;
    let failed = all.chunks_exact(mine.len()).position(|rank| rank[0] != 0);
    // Rank 0's values decide.
    let (is_off, requires_anything) = (all[1] != 0, all[2] != 0);
    let problem = match (settings.as_ref().err(), failed) {
        (Some(problem), _) => Some(problem.clone().into()),
        (None, Some(rank)) => Some(NoContext::OtherRank(format!(
            "rank {rank} has a setting that is not allowed: correct it there"
        ))),
        (None, None) => is_off.then_some(NoContext::SwitchedOff),
    };
    let settings = match (problem, settings) {
        (Some(problem), _) if requires_anything => return Err(NoContext::Unmet(Box::new(problem))),
        (Some(problem), _) => return Err(problem),
        (None, settings) => settings?,
    };
    let mut context = Context::open(world, settings)?;
    // Relaxed: this thread stored it, or none did.
    if TAKE_TURNS.load(Ordering::Relaxed) {
        // SAFETY: the contract of `tributary_take_turns`, which was called.
        unsafe { context.callers_take_turns() };
    }
    if world.rank() == 0 {
        tell_of_links(&context);
        for wrong in misspelt(std::env::vars_os().map(|(name, _)| name)) {
            let _ = writeln!(io::stderr().lock(), "tributary: {wrong}");
        }
    }
    Ok(Arc::new(context))
}

/// Whether the environment says that the job must have something, or says it wrongly.
fn requires_anything() -> bool {
    let named = knobs::REQUIRE.value(|name| std::env::var(name).ok()).value;
    named != knobs::REQUIRE.default
}

/// Says what the user may want to change on the network. Standard error may be closed: where hosts are not joined, the report
/// says so, too.
fn tell_of_links(context: &Context) {
    if let Some(remark) = context.remark() {
        let _ = writeln!(io::stderr().lock(), "tributary: {remark}");
    }
    let consequence = "collectives between hosts are left to the underlying MPI (open TCP between the hosts, \
                       name another network by TRIBUTARY_INTERFACE, or set TRIBUTARY_FABRIC=off)";
    let told = match (context.unreachable(), context.passed_over()) {
        (Some(problem), _) => format!("{problem}; {consequence}"),
        (None, Some(problem)) => format!(
            "{problem}; another network of the hosts is used (TRIBUTARY_INTERFACE names one)"
        ),
        (None, None) => return,
    };
    let _ = writeln!(io::stderr().lock(), "tributary: {told}");
}

/// Frees the context, and forgets what was counted.
#[unsafe(no_mangle)]
pub extern "C" fn tributary_close() {
    TAKE_TURNS.store(false, Ordering::Relaxed);
    others::forget_others();
    *COUNTERS.lock().unwrap_or_else(PoisonError::into_inner) = None;
    *CONTEXT.lock().unwrap_or_else(PoisonError::into_inner) = Err(NoContext::NotOpened);
}
