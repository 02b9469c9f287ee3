//! What the process's communicators share: places at the manager, counts and times, and the report.

use std::io::{self, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use tributary_client::report::{
    CounterRegistry, Counters, PathTaken, Report, TimeCells, add_to_file,
};
use tributary_client::{
    Bootstrap, BootstrapError, Context, OpenError, Operation, SettingError, Settings, Switch,
    WaitChoice, knobs,
};

static COUNTERS: OnceLock<CounterRegistry> = OnceLock::new();
static TIMES: TimeCells = TimeCells::new();
/// When measuring began; empty if nobody wants times.
static BEGAN_AT: OnceLock<Instant> = OnceLock::new();
/// The run that the report is of.
static RUN_ID: OnceLock<String> = OnceLock::new();
/// Which process counts for it: a child that a fork made has its parent's counts, too.
static COUNTING: OnceLock<u32> = OnceLock::new();
/// Jobs whose rank 0 this process is.
static JOBS: AtomicU64 = AtomicU64::new(0);

/// Why a job's processes have nothing in common.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoContext {
    #[error(transparent)]
    Setting(#[from] SettingError),
    #[error("rank {0} has a setting that is not allowed: correct it there")]
    OtherRank(usize),
    #[error("switched off (TRIBUTARY_OFFLOAD), and there is nothing beneath that could take over")]
    SwitchedOff,
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// Where a communicator's place at the manager, and its settings, come from.
pub(crate) enum ContextOf {
    Parent(Arc<Context>),
    New { computes_beside: bool },
}

impl From<BootstrapError> for NoContext {
    fn from(error: BootstrapError) -> Self {
        Self::Open(error.into())
    }
}

/// Opens a job's context by the environment. Collective, and the outcome is the same on all ranks. Where ranks
/// compute beside their operations (`computes_beside`), a wait leaves its core to others, unless the
/// environment says how to wait.
pub(crate) fn open(
    world: &mut dyn Bootstrap,
    computes_beside: bool,
) -> Result<Arc<Context>, NoContext> {
    let mut settings = Settings::from_env();
    if let Ok(settings) = &mut settings
        && computes_beside
        && settings.wait == WaitChoice::Auto
    {
        settings.wait = WaitChoice::Sleep;
    }
    let is_off = settings.as_ref().is_ok_and(|settings| settings.offload == Switch::Off);
    let mut mine = vec![u8::from(settings.is_err()), u8::from(is_off)];
    mine.extend(new_run_number().to_le_bytes());
    let mut all = vec![0; mine.len() * world.size() as usize];
    world.allgather(&mine, &mut all)?;
    let settings = settings?;
    if let Some(rank) = all.chunks_exact(mine.len()).position(|rank| rank[0] != 0) {
        return Err(NoContext::OtherRank(rank));
    }
    // Rank 0's word decides.
    if all[1] != 0 {
        return Err(NoContext::SwitchedOff);
    }
    begin_report(&settings, &all[2..mine.len()]);
    let context = Context::open(world, settings)?;
    if world.rank() == 0 {
        // Relaxed: a statistic.
        JOBS.fetch_add(1, Ordering::Relaxed);
        if let Some(remark) = context.remark() {
            // Standard error may be closed; the report says so, too.
            let _ = writeln!(io::stderr().lock(), "tributary: {remark}");
        }
    }
    Ok(Arc::new(context))
}

/// A number that no other run has, as far as its rank 0 can tell.
fn new_run_number() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (since_epoch.as_nanos() as u64) ^ (u64::from(std::process::id()) << 48)
}

/// A report has the name that the environment gives it, or one that all ranks have from rank 0.
fn begin_report(settings: &Settings, number: &[u8]) {
    if knob(&knobs::REPORT).is_empty() {
        return;
    }
    let named = Some(knob(&knobs::RUN_ID)).filter(|name| !name.is_empty());
    let drawn = || number.iter().map(|byte| format!("{byte:02x}")).collect();
    RUN_ID.get_or_init(|| named.unwrap_or_else(drawn));
    COUNTING.get_or_init(std::process::id);
    if settings.times == Switch::On {
        BEGAN_AT.get_or_init(Instant::now);
    }
}

fn knob(knob: &'static knobs::Knob) -> String {
    knob.value(|name| std::env::var(name).ok()).value
}

/// Counters for a communicator; rank 0 counts.
pub(crate) fn counters(label: &str, rank: u32, size: u32) -> Arc<Counters> {
    COUNTERS.get_or_init(CounterRegistry::default).open(label, size, rank == 0)
}

/// Whether blocking operations are to be timed.
pub(crate) fn wants_times() -> bool {
    BEGAN_AT.get().is_some()
}

/// Adds the time of a blocking operation.
pub(crate) fn count_time(operation: &Operation, path: PathTaken, duration: Duration) {
    let kind = operation.collective.kind();
    let duration_ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    TIMES.add(kind, path, operation.len_bytes() as u64, duration_ns);
}

/// Counts a nonblocking operation, which nobody times.
pub(crate) fn count_not_measured(operation: &Operation) {
    if wants_times() {
        TIMES.add_not_measured(operation.collective.kind());
    }
}

fn current_report() -> Report {
    let mut report = COUNTERS.get_or_init(CounterRegistry::default).report();
    report.run_id = RUN_ID.get().cloned().unwrap_or_default();
    // Relaxed: a statistic.
    report.jobs = JOBS.load(Ordering::Relaxed);
    report.times = BEGAN_AT.get().map(|began_at| {
        TIMES.times(u64::try_from(began_at.elapsed().as_nanos()).unwrap_or(u64::MAX))
    });
    report
}

/// What this process has counted until now, as JSON text. A communicator's operations are counted at its
/// rank 0; times, if they are measured, at every rank.
#[pyfunction]
pub(crate) fn report() -> String {
    serde_json::to_string(&current_report()).expect("a report is plain data")
}

/// Adds this process's counts to the report that the environment asks for. The package calls it when the
/// interpreter exits.
#[pyfunction]
pub(crate) fn finish() -> PyResult<()> {
    if COUNTING.get() != Some(&std::process::id()) {
        return Ok(());
    }
    let (path, report) = (knob(&knobs::REPORT), current_report());
    if path != "-" {
        return add_to_file(Path::new(&path), &report)
            .map_err(|error| PyOSError::new_err(error.to_string()));
    }
    if report.communicators.is_empty() {
        return Ok(());
    }
    Ok(std::io::stderr().write_all(report.to_string().as_bytes())?)
}
