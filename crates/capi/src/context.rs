//! What a process has of a job: the host library's context, the counters of its communicators, and what the
//! client and its environment asked for.

use std::ffi::c_int;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tributary_client::report::CounterRegistry;
use tributary_client::{Bootstrap, ProgressHook, Settings, SharpFailure, Switch, Verdict};

use crate::abi::{HIDE_ERRORS, InitSpec};
use crate::environment::{self, Environment};
use crate::failure::{Code, Failure};
use crate::handles::{Handle, Table};
use crate::log::{self, Level};
use crate::out_of_band::{Callbacks, Ranks};

/// The contexts of this process.
pub(crate) static CONTEXTS: Table<Context> = Table::new(1);

/// A process's part of a job.
pub(crate) struct Context {
    pub(crate) client: Arc<tributary_client::Context>,
    pub(crate) counters: CounterRegistry,
    pub(crate) environment: Environment,
    /// Called back for communicators; none where the process is alone in the job.
    pub(crate) callbacks: Option<Callbacks>,
    pub(crate) world_rank: u32,
    pub(crate) world_size: u32,
    pub(crate) job_id: u64,
    pub(crate) hides_errors: bool,
    /// What the client wants to be called while one of its calls waits.
    pub(crate) progress: Option<unsafe extern "C" fn() -> c_int>,
    /// How long a failed request stays pending before the process is aborted; none for ever.
    pub(crate) aborts_after: Option<Duration>,
    /// The addresses of the handles of its communicators, those of ended ones too.
    communicators: Mutex<Vec<usize>>,
}

impl Context {
    /// Opens the context of a job. Collective; the outcome is the same at all ranks, unless a rank's spec
    /// names no rank or no callbacks.
    ///
    /// # Errors
    /// If a setting of a rank is not allowed, or an exchange fails.
    ///
    /// # Safety
    /// The spec's callbacks may be called with its context during this call.
    pub(crate) unsafe fn open(spec: &InitSpec) -> Result<Self, Failure> {
        let has_callbacks = spec.world_size > 1;
        let callbacks = has_callbacks.then(|| Callbacks::of(&spec.oob_colls)).transpose()?;
        // SAFETY: as the caller promises.
        let ranks =
            unsafe { Ranks::new(spec.world_rank, spec.world_size, callbacks, spec.oob_ctx) };
        let mut world = ranks?;
        let (settings, environment) = agree(&mut world, read_environment())?;
        let aborts = settings.sharp_failure == SharpFailure::Abort;
        let client = tributary_client::Context::open(&mut world, settings)?;
        if let Some(remark) = client.remark().filter(|_| world.rank() == 0) {
            log::write(Level::Warn, || remark);
        }
        let hides_errors = spec.config.flags & HIDE_ERRORS != 0;
        let timeout_ms = u64::try_from(spec.config.coll_timeout).unwrap_or(0);
        Ok(Self {
            client: Arc::new(client),
            counters: CounterRegistry::default(),
            environment,
            callbacks,
            world_rank: world.rank(),
            world_size: world.size(),
            job_id: spec.job_id,
            hides_errors,
            progress: spec.progress_func,
            aborts_after: aborts.then(|| Duration::from_millis(timeout_ms)),
            communicators: Mutex::default(),
        })
    }

    /// What the host library calls while a blocking operation waits long.
    pub(crate) fn progress_hook(&self) -> ProgressHook {
        let progress = self.progress;
        Arc::new(move || {
            if let Some(progress) = progress {
                // SAFETY: the header asks for a function that may be called in blocking calls.
                unsafe { progress() };
            }
            Verdict::GoOn
        })
    }

    /// Notes a communicator, which ends with the context.
    pub(crate) fn note_communicator(&self, handle: Handle) {
        self.communicators.lock().unwrap_or_else(PoisonError::into_inner).push(handle.addr());
    }

    /// The handles of all its communicators so far.
    pub(crate) fn communicators(&self) -> Vec<Handle> {
        let addresses = self.communicators.lock().unwrap_or_else(PoisonError::into_inner);
        addresses.iter().copied().map(std::ptr::without_provenance_mut).collect()
    }

    /// A communicator is no more.
    pub(crate) fn forget_communicator(&self, handle: Handle) {
        let mut addresses = self.communicators.lock().unwrap_or_else(PoisonError::into_inner);
        addresses.retain(|address| *address != handle.addr());
    }
}

/// The context of a handle.
///
/// # Errors
/// If it is none.
pub(crate) fn find(handle: Handle) -> Result<Arc<Context>, Failure> {
    CONTEXTS
        .find(handle)
        .ok_or_else(|| Failure::invalid(format!("{handle:p} is no context: call sharp_coll_init")))
}

fn read_environment() -> Result<(Settings, Environment), Failure> {
    log::set_level(environment::log_level()?);
    let settings = environment::settings()?;
    if settings.offload == Switch::Off {
        return Err(Failure::not_supported("switched off (TRIBUTARY_OFFLOAD=off)"));
    }
    Ok((settings, Environment::read()?))
}

/// Room for one rank's code and words.
const CARD_BYTES: usize = 256;

/// Goes on only if every rank has succeeded; else all fail with the words of the first that has not.
pub(crate) fn agree<T>(
    ranks: &mut dyn Bootstrap,
    outcome: Result<T, Failure>,
) -> Result<T, Failure> {
    let mut card = [0; CARD_BYTES];
    if let Err(failure) = &outcome {
        card[0] = (failure.code as i8).to_le_bytes()[0];
        let end = failure.reason.floor_char_boundary(CARD_BYTES - 1);
        card[1..=end].copy_from_slice(&failure.reason.as_bytes()[..end]);
    }
    let mut cards = vec![0; CARD_BYTES * ranks.size() as usize];
    let exchanged = ranks.allgather(&card, &mut cards);
    exchanged.map_err(|error| Failure::new(Code::OutOfBand, error.to_string()))?;
    let failed = cards.chunks_exact(CARD_BYTES).position(|card| card[0] != 0);
    match (failed, outcome) {
        (None, outcome) => outcome,
        (Some(rank), _) => Err(read_card(rank, &cards[rank * CARD_BYTES..][..CARD_BYTES])),
    }
}

fn read_card(rank: usize, card: &[u8]) -> Failure {
    let number = i32::from(i8::from_le_bytes([card[0]]));
    let code = Code::ALL.into_iter().find(|code| *code as i32 == number).unwrap_or(Code::Error);
    let end = card.iter().position(|byte| *byte == 0).unwrap_or(card.len());
    Failure::new(code, format!("rank {rank}: {}", String::from_utf8_lossy(&card[1..end])))
}

/// Says once for all ranks what was set up.
pub(crate) fn announce(context: &Context) {
    if context.world_rank == 0 {
        let Context { world_size, job_id, .. } = context;
        log::write(Level::Info, || format!("job {job_id:#x} of {world_size} ranks"));
    }
}
