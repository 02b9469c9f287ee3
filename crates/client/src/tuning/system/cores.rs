//! Which cores this process, and those it starts, run on.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::failed;
use crate::tuning::measure::MeasureError;

/// Does `work` with this process, and those that it starts, kept to the first `count` of its cores.
///
/// # Errors
/// If it has not so many.
pub fn on_cores<T>(count: usize, work: impl FnOnce() -> T) -> Result<T, MeasureError> {
    let granted = sched_getaffinity(None).map_err(|error| failed("cores")(&error))?;
    keep_to_cores(count)?;
    let outcome = work();
    sched_setaffinity(None, &granted).map_err(|error| failed("cores")(&error))?;
    Ok(outcome)
}

/// Keeps this process, and those it starts from now on, to the first `count` of the cores that it may
/// run on: what is measured then, and what is measured against, share them.
///
/// # Errors
/// If it has not so many.
pub fn keep_to_cores(count: usize) -> Result<(), MeasureError> {
    let granted = sched_getaffinity(None).map_err(|error| failed("cores")(&error))?;
    let mut kept = CpuSet::new();
    let cores = (0..CpuSet::MAX_CPU).filter(|&core| granted.is_set(core));
    cores.take(count).for_each(|core| kept.set(core));
    let has = kept.count() as usize;
    if has < count {
        return Err(MeasureError(format!("{count} cores were asked for, there are {has}")));
    }
    sched_setaffinity(None, &kept).map_err(|error| failed("cores")(&error))
}

/// Has this thread run on one core.
pub(super) fn pin(core: usize) -> Result<(), MeasureError> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).map_err(|error| failed("a core")(&error))
}
