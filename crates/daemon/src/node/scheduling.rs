//! How soon the kernel runs the data thread once a frame has woken it.
//!
//! Owns the thread's time slice only: scheduling policy and nice level stay as they are. Knows
//! nothing of what the thread does.
//!
//! An aggregator that shares its cores with ranks (`tributary run`) cannot rely on them to yield to it:
//! `sched_yield` hands a core over only within one scheduling group, and a launcher that starts
//! every rank in a session of its own (MPICH's Hydra) makes each of them a group. Linux lets a
//! woken thread preempt the running one at once if it asks for the shorter slice
//! (Documentation/scheduler/sched-eevdf.rst). Its share of the core stays what it was, so computing
//! ranks lose no more time to the aggregator than before.
//!
//! Only aggregators that sleep at once use this. An aggregator that polls yields between its polls, and a yield
//! gives up no more than a slice. With slices of 100 us among slices of milliseconds, an aggregator that
//! shared a core with 4 ranks ran 15 time slices per operation of 8 bytes, 11 of them before any
//! rank had run.

use std::io;

use libc::{SYS_sched_getattr, SYS_sched_setattr, c_long, sched_attr};

/// The slice to ask for, in nanoseconds: the shortest that Linux grants. An aggregator handles a frame in
/// a few microseconds and then sleeps.
const SLICE_NS: u64 = 100_000;

/// Why the data thread keeps the default slice. The aggregator works nevertheless, but slower where cores
/// are shared.
#[derive(Debug, thiserror::Error)]
pub(super) enum SliceError {
    #[error("the kernel refused to say or set how the data thread is scheduled: {0}")]
    Refused(#[from] io::Error),
    #[error(
        "the data thread runs under scheduling policy {policy}, which has no slices to ask for"
    )]
    OtherPolicy { policy: u32 },
    #[error("the kernel left the slice at {granted_ns} ns; Linux grants them from 6.12 on")]
    NotGranted { granted_ns: u64 },
}

/// Asks for short time slices for the calling thread.
///
/// # Errors
/// If the kernel grants none; nothing is changed then.
pub(super) fn ask_for_short_slices() -> Result<(), SliceError> {
    let current = attributes()?;
    let policy = current.sched_policy;
    if policy != libc::SCHED_OTHER as u32 && policy != libc::SCHED_BATCH as u32 {
        return Err(SliceError::OtherPolicy { policy });
    }
    set_attributes(&sched_attr { sched_runtime: SLICE_NS, ..current })?;
    match attributes()?.sched_runtime {
        SLICE_NS => Ok(()),
        granted_ns => Err(SliceError::NotGranted { granted_ns }),
    }
}

/// The calling thread's scheduling attributes.
fn attributes() -> io::Result<sched_attr> {
    let size = size_of::<sched_attr>() as u32;
    let mut attributes = sched_attr {
        size,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the kernel writes at most `size` bytes, which is what the structure has; thread 0 is
    // the calling one.
    let outcome = unsafe { libc::syscall(SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    check_call(outcome).map(|()| attributes)
}

fn set_attributes(attributes: &sched_attr) -> io::Result<()> {
    // SAFETY: the kernel only reads the structure, whose first field states its size.
    check_call(unsafe { libc::syscall(SYS_sched_setattr, 0, std::ptr::from_ref(attributes), 0) })
}

fn check_call(outcome: c_long) -> io::Result<()> {
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Major and minor number of the running kernel.
    fn kernel_version() -> (u32, u32) {
        let name = rustix::system::uname();
        let release = name.release().to_str().unwrap();
        let mut numbers = release.split('.').map(|number| number.parse().unwrap());
        (numbers.next().unwrap(), numbers.next().unwrap())
    }

    #[test]
    fn slices_are_short_and_the_rest_stays() {
        let thread = thread::spawn(|| {
            rustix::process::nice(3).unwrap();
            let before = attributes().unwrap();
            let outcome = ask_for_short_slices();
            (before, outcome, attributes().unwrap())
        });
        let (before, outcome, after) = thread.join().unwrap();
        assert_eq!(after.sched_policy, before.sched_policy);
        assert_eq!(after.sched_nice, before.sched_nice);
        match outcome {
            Ok(()) => assert_eq!(after.sched_runtime, SLICE_NS),
            Err(SliceError::NotGranted { .. }) => assert!(kernel_version() < (6, 12)),
            Err(other) => panic!("{other}"),
        }
    }
}
