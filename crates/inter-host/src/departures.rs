//! What this host has left, and other hosts may still need: links with something on its way, replicated groups, and places in
//! trees.
//!
//! A host that completes the last operation of a communicator may be the only one that has what another lacks, and what it has
//! sent may not have arrived. It can't keep the program waiting until then: freeing a communicator waits for nobody. So links
//! and groups stay with the thread that watches links ([`crate::watch`]), which answers for them until nobody needs them any
//! more. That takes some round trips between these threads, or, where a link's first packets were lost, seconds. There are
//! never more of them than communicators that some host still has.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::watch::{Alarm, Attend, Watched};

/// How often a process that ends looks whether what it has sent has arrived, at first and at most: nothing says so.
const NAPS: [Duration; 2] = [Duration::from_micros(100), Duration::from_millis(5)];

/// What a host has left of one communicator.
pub(crate) trait Leaving: Send {
    /// Whether nobody needs it any more; one round of what has to be done before.
    fn may_end(&mut self) -> bool;

    /// Where something comes when there is something to do.
    fn descriptors(&self) -> Box<dyn Iterator<Item = BorrowedFd<'_>> + '_>;

    /// Whether there is something to do though nothing comes.
    fn has_more_to_do(&self) -> bool;

    /// How long a process that ends waits for it at most, however patient it is.
    fn patience(&self) -> Duration {
        Duration::MAX
    }
}

/// Something that this host has left.
struct Departure {
    number: u64,
    left: Mutex<Box<dyn Leaving>>,
}

/// All of this process.
#[derive(Default)]
struct Departures {
    made: u64,
    /// By number.
    open: HashMap<u64, Open>,
}

/// A departure that is not over.
struct Open {
    /// It owns the departure, which attends to it.
    alarm: Arc<Alarm>,
    /// How long a process that ends waits for it.
    patience: Duration,
}

impl Departures {
    /// Whether there are any for which a process waits that has waited for so long.
    fn hold_process(&self, waited: Duration) -> bool {
        self.open.values().any(|open| waited < open.patience)
    }
}

/// The process that they belong to: a child that it forks has no thread for them, and perhaps a lock that nobody unlocks.
static PROCESS: AtomicU32 = AtomicU32::new(0);
static DEPARTURES: LazyLock<Mutex<Departures>> = LazyLock::new(Mutex::default);
static HAS_ENDED: Condvar = Condvar::new();

fn departures() -> MutexGuard<'static, Departures> {
    DEPARTURES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps what this host leaves until nobody needs it.
pub(crate) fn keep(mut left: Box<dyn Leaving>) {
    if left.may_end() {
        return;
    }
    // Without a thread nobody answers, and others find the links ended.
    let Ok(alarm) = Alarm::new() else { return };
    let patience = left.patience();
    // An alarm of the communicator may have watched them so far.
    alarm.ignore(left.descriptors());
    let mut all = departures();
    // Relaxed: only a number.
    PROCESS.store(std::process::id(), Ordering::Relaxed);
    let number = all.made;
    all.made += 1;
    alarm.attended_by(Box::new(Departure { number, left: Mutex::new(left) }));
    alarm.call();
    all.open.insert(number, Open { alarm, patience });
}

/// Waits until no other host needs what this process has left, for `patience` at most.
pub fn wait_for_departures(patience: Duration) {
    if PROCESS.load(Ordering::Relaxed) != std::process::id() {
        return;
    }
    let began = Instant::now();
    let [mut nap, nap_max] = NAPS;
    let mut all = departures();
    // What nobody has answered for so long ends with the process.
    while all.hold_process(began.elapsed()) && began.elapsed() < patience {
        all.open.values().for_each(|open| open.alarm.call());
        let are_open = |all: &mut Departures| !all.open.is_empty();
        let waited = HAS_ENDED.wait_timeout_while(all, nap, are_open);
        all = waited.unwrap_or_else(PoisonError::into_inner).0;
        nap = (2 * nap).min(nap_max);
    }
}

impl Attend for Departure {
    fn attend(&self) -> bool {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let may_end = left.may_end();
        let mut all = departures();
        if may_end {
            // The thread that attends has the alarm, too, until this returns.
            all.open.remove(&self.number);
            HAS_ENDED.notify_all();
            return false;
        }
        if let Some(open) = all.open.get(&self.number) {
            open.alarm.watch(left.descriptors().map(Watched::Input));
        }
        left.has_more_to_do()
    }
}
