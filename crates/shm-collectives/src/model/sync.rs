//! Words, fences and futexes that loom watches, and what a canary takes away from them.

use std::cell::Cell;
use std::ops::Deref;
use std::time::Duration;

use loom::sync::atomic;
use loom::sync::{Condvar, Mutex};

pub(super) use std::sync::atomic::Ordering;

/// What a canary takes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    Nothing,
    /// Release and Acquire of the words of one purpose.
    Order(Purpose),
    /// All fences.
    Fences,
    /// Waiting until the readers of a slot are done with it.
    Claims,
}

/// What a word is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Flag,
    Done,
    Doorbell,
    Sleepers,
    Departed,
    Writing,
    Failure,
}

thread_local! {
    // Loom runs all threads of an execution on one thread of the system.
    static BROKEN: Cell<Broken> = const { Cell::new(Broken::Nothing) };
}

/// Explores all interleavings of `body`, in which a thread loses its core `preemptions_max` times
/// at most where it need not.
pub(super) fn explore(
    broken: Broken,
    preemptions_max: usize,
    body: impl Fn() + Send + Sync + 'static,
) {
    BROKEN.set(broken);
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions_max);
    model.max_branches = 10_000;
    model.check(body);
}

pub(super) fn broken() -> Broken {
    BROKEN.get()
}

fn order_of(purpose: Purpose, order: Ordering) -> Ordering {
    if broken() == Broken::Order(purpose) { Ordering::Relaxed } else { order }
}

macro_rules! watched_word {
    ($name:ident, $word:ident, $value:ty) => {
        pub(super) struct $name {
            word: atomic::$word,
            purpose: Purpose,
        }

        impl $name {
            pub(super) fn new(purpose: Purpose) -> Self {
                Self { word: atomic::$word::new(0), purpose }
            }

            pub(super) fn load(&self, order: Ordering) -> $value {
                if broken() == Broken::Claims && self.purpose == Purpose::Done {
                    // Every rank seems to be done with everything.
                    return <$value>::MAX / 2;
                }
                self.word.load(order_of(self.purpose, order))
            }

            pub(super) fn store(&self, value: $value, order: Ordering) {
                self.word.store(value, order_of(self.purpose, order));
            }

            pub(super) fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                self.word.fetch_add(value, order_of(self.purpose, order))
            }

            pub(super) fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                self.word.fetch_sub(value, order_of(self.purpose, order))
            }

            pub(super) fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                let success = order_of(self.purpose, success);
                self.word.compare_exchange(current, new, success, failure)
            }
        }
    };
}

watched_word!(Word32, AtomicU32, u32);
watched_word!(AtomicU64, AtomicU64, u64);

pub(super) fn fence(order: Ordering) {
    if broken() != Broken::Fences {
        atomic::fence(order);
    }
}

/// A futex: the kernel compares the word and enqueues the sleeper under one lock, and wakes under
/// it.
pub(super) struct AtomicU32 {
    word: Word32,
    queue: Mutex<Queue>,
    woken: Condvar,
}

#[derive(Default)]
struct Queue {
    asleep: u32,
    /// Whether nobody will wake anyone any more.
    is_over: bool,
}

impl AtomicU32 {
    pub(super) fn new(purpose: Purpose) -> Self {
        let queue = Mutex::new(Queue::default());
        Self { word: Word32::new(purpose), queue, woken: Condvar::new() }
    }

    /// Nobody will wake anyone any more: who is asleep, or falls asleep, returns and stays counted.
    /// A sleep without end is then something that can be asked about; loom ends it as a deadlock.
    pub(super) fn end(&self) {
        self.queue.lock().expect("no thread panics").is_over = true;
        self.woken.notify_all();
    }

    /// How many were never woken.
    pub(super) fn asleep(&self) -> u32 {
        self.queue.lock().expect("no thread panics").asleep
    }
}

impl Deref for AtomicU32 {
    type Target = Word32;

    fn deref(&self) -> &Word32 {
        &self.word
    }
}

/// Sleeps without end, so that a lost wake-up is a deadlock, which loom reports.
pub(super) fn sleep_on(futex: &AtomicU32, value: u32, _time: Duration) {
    let mut queue = futex.queue.lock().expect("no thread panics");
    if futex.load(Ordering::Relaxed) != value {
        return;
    }
    queue.asleep += 1;
    if !queue.is_over {
        drop(futex.woken.wait(queue).expect("no thread panics"));
    }
}

pub(super) fn wake_all(futex: &AtomicU32) {
    futex.queue.lock().expect("no thread panics").asleep = 0;
    futex.woken.notify_all();
}

pub(super) fn nap(_time: Duration) {
    loom::thread::yield_now();
}
