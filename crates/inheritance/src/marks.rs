//! Which descriptors of a process its children must not keep.
//!
//! No call in here waits, allocates or enters the system, so a child of a process with threads may use it.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const WORD_BITS: usize = u64::BITS as usize;

/// One bit for each descriptor, in so many words of 64. Pages of it that are never written take no memory.
#[derive(Debug)]
pub struct Marks<const WORDS: usize> {
    words: [AtomicU64; WORDS],
    /// Words that were ever used.
    used: AtomicUsize,
}

// Relaxed, everywhere: `fork` copies the memory of the thread that calls it, and a descriptor that another thread makes at
// that moment may or may not be marked in the copy, whatever the ordering.
impl<const WORDS: usize> Marks<WORDS> {
    /// Of none.
    #[allow(
        clippy::new_without_default,
        reason = "it is made in constants, where a default is not"
    )]
    #[must_use]
    pub const fn new() -> Self {
        Self { words: [const { AtomicU64::new(0) }; WORDS], used: AtomicUsize::new(0) }
    }

    /// Children must not keep this one. One for which there is no room they do keep.
    pub fn mark(&self, descriptor: RawFd) {
        let Some((word, bit)) = place::<WORDS>(descriptor) else { return };
        self.words[word].fetch_or(bit, Ordering::Relaxed);
        self.used.fetch_max(word + 1, Ordering::Relaxed);
    }

    /// The number is about to be another descriptor's.
    pub fn unmark(&self, descriptor: RawFd) {
        let Some((word, bit)) = place::<WORDS>(descriptor) else { return };
        self.words[word].fetch_and(!bit, Ordering::Relaxed);
    }

    /// Whether children must not keep it.
    #[must_use]
    pub fn is_marked(&self, descriptor: RawFd) -> bool {
        place::<WORDS>(descriptor)
            .is_some_and(|(word, bit)| self.words[word].load(Ordering::Relaxed) & bit != 0)
    }

    /// In a child: what it must give up, ascending. Nothing is marked behind that.
    pub fn take(&self, mut each: impl FnMut(RawFd)) {
        #[cfg(feature = "planted-bugs")]
        if tributary_failover::planted::is_planted(tributary_failover::planted::Bug::CopiesKept) {
            return;
        }
        let used = self.used.load(Ordering::Relaxed);
        for (index, word) in self.words[..used].iter().enumerate() {
            let mut bits = word.swap(0, Ordering::Relaxed);
            while bits != 0 {
                each((index * WORD_BITS) as RawFd + bits.trailing_zeros() as RawFd);
                bits &= bits - 1;
            }
        }
    }
}

/// The word that has a descriptor's bit, and the bit.
fn place<const WORDS: usize>(descriptor: RawFd) -> Option<(usize, u64)> {
    let number = usize::try_from(descriptor).ok()?;
    (number / WORD_BITS < WORDS).then(|| (number / WORD_BITS, 1 << (number % WORD_BITS)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_marked_is_taken_once() {
        let marks = Marks::<2>::new();
        [0, 63, 64, 127, 128, -1, 5].into_iter().for_each(|descriptor| marks.mark(descriptor));
        marks.unmark(5);
        assert!(marks.is_marked(64) && !marks.is_marked(5) && !marks.is_marked(128));
        let mut taken = Vec::new();
        marks.take(|descriptor| taken.push(descriptor));
        assert_eq!(taken, [0, 63, 64, 127]);
        marks.take(|descriptor| panic!("{descriptor} was taken before"));
    }
}
