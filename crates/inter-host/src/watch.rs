//! A thread that sleeps until a tree may be lost, or a host asks for what it lacks.
//!
//! A program that computes does not look at its links; but if an aggregation node dies, another host may need
//! a result that only this one has. So the kernel watches: one thread of the process sleeps on the links'
//! hang-up and on calls of other leaders, raises the communicator's [`Alarm`], and sees to it that somebody
//! attends. While trees stand it never runs.

use std::collections::HashMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;

use crate::threads;

/// While something is being attended to, how often the thread lends a hand.
const TURN_NS: i64 = 500_000;

/// One who can be told that something has happened to a tree.
pub trait Attend: Send + Sync {
    /// Does what is due, unless another thread is there to do it. Whether more may be due soon.
    fn attend(&self) -> bool;
}

/// Has everybody attend who can be told.
pub(crate) fn call_all() {
    // Where the watch could not be made there are no alarms.
    if let Ok(watch) = Watch::of_process() {
        let numbers: Vec<u64> = watch.alarms().keys().copied().collect();
        watch.call(&numbers);
    }
}

/// An alarm's states.
const QUIET: u8 = 0;
const RAISED: u8 = 1;
const ATTENDED: u8 = 2;

/// The number of no alarm: the thread is woken by hand.
const WAKE: u64 = u64::MAX;

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
    state: AtomicU8,
    attendant: OnceLock<Box<dyn Attend>>,
    watch: &'static Watch,
}

/// Why links can't be watched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("can't watch links: {0}")]
pub struct WatchError(String);

struct Watch {
    epoll: OwnedFd,
    /// Wakes the thread by hand, for the alarms in `called`.
    wake: OwnedFd,
    called: Mutex<Vec<u64>>,
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
        let alarm = Arc::new(Self { number, state: AtomicU8::new(QUIET), attendant, watch });
        watch.alarms().insert(number, Arc::downgrade(&alarm));
        Ok(alarm)
    }

    /// Sets the attendant that attends when it is raised. Once.
    pub fn attended_by(&self, attendant: Box<dyn Attend>) {
        let is_first = self.attendant.set(attendant).is_ok();
        debug_assert!(is_first, "an alarm belongs to one communicator");
    }

    /// Raises it when something happens there, or has happened. Descriptors that are closed are forgotten; those that
    /// are watched already stay so.
    pub(crate) fn watch<'a>(&self, watched: impl Iterator<Item = Watched<'a>>) {
        for it in watched {
            let (descriptor, flags) = match it {
                Watched::Hangup(descriptor) => (descriptor, epoll::EventFlags::RDHUP),
                Watched::Input(descriptor) => (descriptor, epoll::EventFlags::IN),
            };
            let data = epoll::EventData::new_u64(self.number);
            let flags = flags | epoll::EventFlags::ET;
            match epoll::add(&self.watch.epoll, descriptor, data, flags) {
                Ok(()) | Err(Errno::EXIST) => {}
                // A thread that polls still finds out; so that nothing is missed, that is now.
                Err(_) => self.raise(),
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

    /// Whether something has happened that was not attended to, to its end.
    #[must_use]
    #[inline]
    pub fn is_raised(&self) -> bool {
        // Relaxed, here and below: what has happened is found out by system calls.
        self.state.load(Ordering::Relaxed) != QUIET
    }

    pub(crate) fn raise(&self) {
        self.state.store(RAISED, Ordering::Relaxed);
    }

    /// Wakes the thread, because there is something to attend to even if the thread that has found it goes away.
    pub(crate) fn call(&self) {
        self.watch.call(&[self.number]);
    }

    /// Somebody attends from now on, until [`Self::lower`].
    pub(crate) fn attend_to(&self) {
        self.state.store(ATTENDED, Ordering::Relaxed);
    }

    /// What was attended to is over. What has happened since is not.
    pub(crate) fn lower(&self) {
        let states = (Ordering::Relaxed, Ordering::Relaxed);
        // It may be quiet already, or have been raised again.
        let _ = self.state.compare_exchange(ATTENDED, QUIET, states.0, states.1);
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
    fn new() -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let data = epoll::EventData::new_u64(WAKE);
        epoll::add(&epoll, &wake, data, epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        let (called, alarms, next) = (Mutex::default(), Mutex::default(), AtomicU64::new(0));
        Ok(Self { epoll, wake, called, alarms, next })
    }

    fn of_process() -> Result<&'static Self, WatchError> {
        static WATCH: OnceLock<Result<Watch, WatchError>> = OnceLock::new();
        static THREAD: OnceLock<Result<(), WatchError>> = OnceLock::new();
        let watch =
            WATCH.get_or_init(|| Watch::new().map_err(|error| WatchError(error.to_string())));
        let watch = watch.as_ref().map_err(Clone::clone)?;
        let thread = THREAD.get_or_init(|| {
            threads::spawn("tributary-watch", || watch.run())
                .map(drop)
                .map_err(|error| WatchError(error.to_string()))
        });
        thread.clone().map(|()| watch)
    }

    /// Wakes the thread for these alarms.
    fn call(&self, numbers: &[u64]) {
        let mut called = self.called.lock().unwrap_or_else(PoisonError::into_inner);
        called.extend_from_slice(numbers);
        drop(called);
        // Edges are what counts: a counter that is full has woken the thread already.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    fn alarms(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Weak<Alarm>>> {
        self.alarms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        const TURN: Timespec = Timespec { tv_sec: 0, tv_nsec: TURN_NS };
        let mut events: Vec<epoll::Event> = Vec::with_capacity(16);
        let mut busy: Vec<Weak<Alarm>> = Vec::new();
        loop {
            let timeout = (!busy.is_empty()).then_some(&TURN);
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
            let mut numbers: Vec<u64> = events.drain(..).map(|it| it.data.u64()).collect();
            numbers.append(&mut self.called.lock().unwrap_or_else(PoisonError::into_inner));
            for number in numbers {
                let alarm = self.alarms().get(&number).and_then(Weak::upgrade);
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
