//! Bugs that can be planted on purpose, to see whether the simulator's swarm finds them.
//!
//! Only with the feature `planted-bugs`, which nothing but the swarm's own test asks for. One bug at
//! a time, for the whole process, because machines know nothing of each other.

use core::sync::atomic::{AtomicU8, Ordering};

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// A contribution that comes again over a link is counted again.
    DoubleCount = 1,
    /// The same for one that comes again as a datagram.
    DoubleDatagram = 2,
    /// A stream lock is given to whoever asks, be it free or not.
    SharedLock = 3,
    /// The stream lock of a group that fails while it streams never comes back.
    LostLock = 4,
    /// A stream lock goes to whoever came last.
    UnfairLock = 5,
    /// Reliable copies are spared for a child that asked over its link, and so never asks again.
    SparedCopy = 6,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::DoubleCount,
        Self::DoubleDatagram,
        Self::SharedLock,
        Self::LostLock,
        Self::UnfairLock,
        Self::SparedCopy,
    ];
}

static PLANTED: AtomicU8 = AtomicU8::new(0);

/// Plants a bug in every machine of this process, in place of the one before it; or none.
pub fn plant(bug: Option<Bug>) {
    // Ordering: nothing else is published with it. Whoever plants a bug starts the threads that
    // run into it afterwards.
    PLANTED.store(bug.map_or(0, |bug| bug as u8), Ordering::Relaxed);
}

pub(crate) fn is_planted(bug: Bug) -> bool {
    // Ordering: pairs with the store in `plant`, which explains it.
    PLANTED.load(Ordering::Relaxed) == bug as u8
}
