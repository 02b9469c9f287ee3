//! A thread that sleeps until a tree may be lost.
//!
//! A program that computes does not look at its links; but if an aggregation node dies, another host may need
//! a result that only this one has. So the kernel watches: one thread of the process sleeps on the links'
//! hang-up and on calls of other leaders, raises the communicator's [`Alarm`], and sees to it that somebody
//! attends. While trees stand it never runs.

use std::collections::HashMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use crate::threads;

/// While something is being attended to, how often the thread lends a hand.
const TURN_NS: i64 = 500_000;

/// One who can be told that something has happened to a tree.
pub trait Attend: Send + Sync {
    /// Does what is due, unless another thread is there to do it. Whether more may be due soon.
    fn attend(&self) -> bool;
}

/// What to look for at a descriptor.
#[derive(Clone, Copy, Debug)]
pub enum Watched<'a> {
    /// The other end is closed.
    Hangup(BorrowedFd<'a>),
    /// Something arrives.
    Input(BorrowedFd<'a>),
}

/// Tells the leader of one communicator that its tree may be lost.
pub struct Alarm {
    number: u64,
    is_raised: AtomicBool,
    attendant: OnceLock<Box<dyn Attend>>,
    watch: &'static Watch,
}

/// Why links can't be watched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("can't watch links: {0}")]
pub struct WatchError(String);

struct Watch {
    epoll: OwnedFd,
    alarms: Mutex<HashMap<u64, Weak<Alarm>>>,
    next: AtomicU64,
}

impl Alarm {
    /// An alarm of a communicator, whose links are not watched yet.
    ///
    /// # Errors
    /// If the process can't have the descriptor or the thread for it.
    pub fn new() -> Result<Arc<Self>, WatchError> {
        let watch = Watch::of_process()?;
        // Relaxed: only a number.
        let number = watch.next.fetch_add(1, Ordering::Relaxed);
        let attendant = OnceLock::new();
        let alarm = Arc::new(Self { number, is_raised: AtomicBool::new(false), attendant, watch });
        watch.alarms().insert(number, Arc::downgrade(&alarm));
        Ok(alarm)
    }

    /// Who attends when it is raised. Once.
    pub fn attended_by(&self, attendant: Box<dyn Attend>) {
        let is_first = self.attendant.set(attendant).is_ok();
        debug_assert!(is_first, "an alarm belongs to one communicator");
    }

    /// Raises it when something happens there. Descriptors that are closed are forgotten.
    pub(crate) fn watch<'a>(&self, watched: impl Iterator<Item = Watched<'a>>) {
        for it in watched {
            let (descriptor, flags) = match it {
                Watched::Hangup(descriptor) => (descriptor, epoll::EventFlags::RDHUP),
                Watched::Input(descriptor) => (descriptor, epoll::EventFlags::IN),
            };
            let data = epoll::EventData::new_u64(self.number);
            let flags = flags | epoll::EventFlags::ET;
            if epoll::add(&self.watch.epoll, descriptor, data, flags).is_err() {
                // Whoever polls still finds out; so that nothing is missed, that is now.
                self.raise();
            }
        }
    }

    /// Ignores them again.
    pub(crate) fn ignore<'a>(&self, descriptors: impl Iterator<Item = BorrowedFd<'a>>) {
        for descriptor in descriptors {
            // What was not watched need not be ignored.
            let _ = epoll::delete(&self.watch.epoll, descriptor);
        }
    }

    /// Whether something has happened that was not looked at.
    #[must_use]
    #[inline]
    pub fn is_raised(&self) -> bool {
        self.is_raised.load(Ordering::Relaxed)
    }

    pub(crate) fn raise(&self) {
        // Relaxed, here and below: what has happened is found out by system calls.
        self.is_raised.store(true, Ordering::Relaxed);
    }

    pub(crate) fn lower(&self) {
        self.is_raised.store(false, Ordering::Relaxed);
    }

    /// Whether more is to be done soon.
    fn attend(&self) -> bool {
        self.attendant.get().is_some_and(|attendant| attendant.attend())
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.watch.alarms().remove(&self.number);
    }
}

impl Watch {
    fn of_process() -> Result<&'static Self, WatchError> {
        static WATCH: OnceLock<Result<Watch, WatchError>> = OnceLock::new();
        static THREAD: OnceLock<Result<(), WatchError>> = OnceLock::new();
        let watch = WATCH.get_or_init(|| {
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC);
            let epoll = epoll.map_err(|error| WatchError(error.to_string()))?;
            Ok(Watch { epoll, alarms: Mutex::default(), next: AtomicU64::new(0) })
        });
        let watch = watch.as_ref().map_err(Clone::clone)?;
        let thread = THREAD.get_or_init(|| {
            threads::spawn("tributary-watch", || watch.run())
                .map(drop)
                .map_err(|error| WatchError(error.to_string()))
        });
        thread.clone().map(|()| watch)
    }

    fn alarms(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Weak<Alarm>>> {
        self.alarms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        const TURN: Timespec = Timespec { tv_sec: 0, tv_nsec: TURN_NS };
        let mut events = Vec::with_capacity(16);
        let mut busy: Vec<Weak<Alarm>> = Vec::new();
        loop {
            let timeout = (!busy.is_empty()).then_some(&TURN);
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
            for event in events.drain(..) {
                let alarm = self.alarms().get(&event.data.u64()).and_then(Weak::upgrade);
                let Some(alarm) = alarm else { continue };
                alarm.raise();
                let alarm = Arc::downgrade(&alarm);
                if !busy.iter().any(|known| known.ptr_eq(&alarm)) {
                    busy.push(alarm);
                }
            }
            busy.retain(|alarm| alarm.upgrade().is_some_and(|alarm| alarm.attend()));
        }
    }
}
