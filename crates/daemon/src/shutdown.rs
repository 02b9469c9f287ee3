//! One request to stop, for threads, event loops and async tasks alike.
//!
//! Owns the flag and the waiters. Knows nothing of signals: the program maps those to
//! [`Shutdown::request`].

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

type Waker = Box<dyn Fn() + Send>;

/// A request to stop. Clones share it; once requested it stays requested.
#[derive(Clone)]
pub struct Shutdown {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    watched: watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    requested: bool,
    wakers: Vec<Waker>,
}

impl Shutdown {
    /// Nobody has requested to stop yet.
    #[must_use]
    pub fn new() -> Self {
        let (watched, _) = watch::channel(false);
        let state = Mutex::new(State::default());
        Self { shared: Arc::new(Shared { state, changed: Condvar::new(), watched }) }
    }

    /// Asks everybody who holds a clone to stop. Returns at once; a second call does nothing.
    pub fn request(&self) {
        self.note();
        self.wake();
    }

    /// Makes several requests at once: a waiter that wakes up for one finds the others made too, so
    /// that it does not take the end of another daemon for a failure.
    pub(crate) fn request_together<'a>(requests: impl Iterator<Item = &'a Self> + Clone) {
        requests.clone().for_each(Self::note);
        requests.for_each(Self::wake);
    }

    fn note(&self) {
        self.state().requested = true;
    }

    fn wake(&self) {
        let wakers = std::mem::take(&mut self.state().wakers);
        self.shared.changed.notify_all();
        self.shared.watched.send_replace(true);
        for wake in wakers {
            wake();
        }
    }

    /// Whether somebody has asked.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.state().requested
    }

    /// Blocks this thread until somebody asks.
    pub fn wait(&self) {
        let mut state = self.state();
        while !state.requested {
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Completes when somebody asks.
    pub async fn wait_for_request(&self) {
        let mut watched = self.shared.watched.subscribe();
        // The sender lives in `self`, so waiting can't fail.
        let _ = watched.wait_for(|requested| *requested).await;
    }

    /// Calls `wake` once when somebody asks, or at once if somebody has asked. For loops that sleep
    /// in a system call of their own.
    pub(crate) fn on_request(&self, wake: impl Fn() + Send + 'static) {
        let mut state = self.state();
        if state.requested {
            drop(state);
            wake();
        } else {
            state.wakers.push(Box::new(wake));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state is valid after every statement, so a panic elsewhere doesn't spoil it.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Shutdown {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Shutdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shutdown").field("requested", &self.is_requested()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn everybody_is_told_once() {
        let shutdown = Shutdown::new();
        let calls = Arc::new(AtomicU32::new(0));
        let count = || {
            let calls = Arc::clone(&calls);
            // Relaxed: the count is read after the thread that counts was joined.
            move || {
                calls.fetch_add(1, Ordering::Relaxed);
            }
        };
        shutdown.on_request(count());
        assert!(!shutdown.is_requested());
        let waiter = std::thread::spawn({
            let shutdown = shutdown.clone();
            move || shutdown.wait()
        });
        shutdown.request();
        shutdown.request();
        waiter.join().unwrap();
        shutdown.on_request(count());
        assert_eq!(calls.load(Ordering::Relaxed), 2);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(shutdown.wait_for_request());
    }

    #[test]
    fn requests_made_together_are_seen_together() {
        let requests = [Shutdown::new(), Shutdown::new()];
        let both = Arc::new(AtomicU32::new(0));
        for request in &requests {
            let (all, both) = (requests.clone(), Arc::clone(&both));
            request.on_request(move || {
                // Relaxed: one thread writes and reads it.
                let seen = all.iter().filter(|request| request.is_requested()).count() as u32;
                both.fetch_add(seen, Ordering::Relaxed);
            });
        }
        Shutdown::request_together(requests.iter());
        assert_eq!(both.load(Ordering::Relaxed), 4);
    }
}
