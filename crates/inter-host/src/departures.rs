//! Replicated groups that this host has left, and that other hosts may still need.
//!
//! A host that completes the last operation of a communicator may be the only one that has what another lacks. It can't keep the
//! program waiting until that one has it: freeing a communicator waits for nobody. So the groups stay with the thread that
//! watches links ([`crate::watch`]), which answers for them until nobody needs them any more. That takes some round trips between
//! these threads, or, where a link's first packets were lost, seconds. There are never more of them than communicators that some
//! host still has.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::replicated::ReplicatedLevels;
use crate::watch::{Alarm, Attend, Watched};

/// The groups of one communicator that this host has left.
struct Departure {
    number: u64,
    levels: Mutex<ReplicatedLevels>,
}

/// All of this process.
#[derive(Default)]
struct Departures {
    made: u64,
    /// By number. Each alarm owns the departure that attends to it.
    open: HashMap<u64, Arc<Alarm>>,
}

/// The process that they belong to: a child that it forks has no thread for them, and perhaps a lock that nobody unlocks.
static PROCESS: AtomicU32 = AtomicU32::new(0);
static DEPARTURES: LazyLock<Mutex<Departures>> = LazyLock::new(Mutex::default);
static HAS_ENDED: Condvar = Condvar::new();

fn departures() -> MutexGuard<'static, Departures> {
    DEPARTURES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Leaves groups that have raised `alarm` so far.
pub(crate) fn keep(mut levels: ReplicatedLevels, alarm: &Alarm) {
    levels.begin_leaving();
    if levels.may_end() {
        return;
    }
    alarm.ignore(levels.descriptors());
    // There was one for the groups already; without it nobody answers, and others find the links ended.
    let Ok(alarm) = Alarm::new() else { return };
    let mut all = departures();
    // Relaxed: only a number.
    PROCESS.store(std::process::id(), Ordering::Relaxed);
    let number = all.made;
    all.made += 1;
    alarm.attended_by(Box::new(Departure { number, levels: Mutex::new(levels) }));
    alarm.call();
    all.open.insert(number, alarm);
}

/// Waits until no other host needs groups that this process has left, for `patience` at most.
pub fn wait_for_departures(patience: Duration) {
    if PROCESS.load(Ordering::Relaxed) != std::process::id() {
        return;
    }
    let are_open = |all: &mut Departures| !all.open.is_empty();
    // What nobody has answered for so long ends with the process.
    let _ = HAS_ENDED.wait_timeout_while(departures(), patience, are_open);
}

impl Attend for Departure {
    fn attend(&self) -> bool {
        let mut levels = self.levels.lock().unwrap_or_else(PoisonError::into_inner);
        let may_end = levels.may_end();
        let mut all = departures();
        if may_end {
            // The thread that attends has the alarm, too, until this returns.
            all.open.remove(&self.number);
            HAS_ENDED.notify_all();
            return false;
        }
        if let Some(alarm) = all.open.get(&self.number) {
            alarm.watch(levels.descriptors().map(Watched::Input));
        }
        levels.has_more_to_do()
    }
}
