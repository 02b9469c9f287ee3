//! The set of children whose message has come.

use alloc::boxed::Box;
use alloc::vec;

use tributary_wire::ChildIndex;

/// A set of children, and its size.
#[derive(Debug)]
pub(super) struct Arrivals {
    words: Box<[u64]>,
    count: u16,
}

impl Arrivals {
    /// An empty set with room for the children `0..children`.
    pub(super) fn new(children: usize) -> Self {
        Self { words: vec![0; children.div_ceil(64)].into_boxed_slice(), count: 0 }
    }

    pub(super) fn clear(&mut self) {
        self.words.fill(0);
        self.count = 0;
    }

    pub(super) fn has(&self, child: ChildIndex) -> bool {
        self.words[usize::from(child.0) / 64] >> (child.0 % 64) & 1 == 1
    }

    /// Puts a child in; false if it was there.
    pub(super) fn mark(&mut self, child: ChildIndex) -> bool {
        let is_new = !self.has(child);
        self.words[usize::from(child.0) / 64] |= 1 << (child.0 % 64);
        self.count += u16::from(is_new);
        is_new
    }

    pub(super) fn count(&self) -> usize {
        usize::from(self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_counted_beyond_one_word() {
        let mut arrivals = Arrivals::new(130);
        for child in [0, 63, 64, 127, 128, 129].map(ChildIndex) {
            assert!(!arrivals.has(child));
            assert!(arrivals.mark(child));
            assert!(arrivals.has(child));
            assert!(!arrivals.mark(child), "counted once");
        }
        assert_eq!(arrivals.count(), 6);
        assert!(!arrivals.has(ChildIndex(65)));
        arrivals.clear();
        assert_eq!((arrivals.count(), arrivals.has(ChildIndex(129))), (0, false));
    }
}
