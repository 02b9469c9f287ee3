//! How long a member waits for a contribution before it asks without evidence.
//!
//! Where a datagram is longer under way than that, every operation would ask for what is on its way. So what comes as a datagram
//! after it was asked for makes the wait longer, and many operations without a question make it shorter again. A wait
//! that is too long costs time only where a datagram is lost and its sender sends no other.

/// By how much the wait may grow.
const LONGEST: u64 = 32;

/// Operations in a row without a question after which the wait is halved.
const QUIET_OPERATIONS: u32 = 1024;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    least_ns: u64,
    ask_after_ns: u64,
    quiet_operations: u32,
}

impl Patience {
    pub(crate) fn new(least_ns: u64) -> Self {
        Self { least_ns, ask_after_ns: least_ns, quiet_operations: 0 }
    }

    /// How long a contribution may be late.
    pub(crate) fn ask_after_ns(&self) -> u64 {
        self.ask_after_ns
    }

    /// A contribution that was asked for was on its way.
    pub(crate) fn note_needless_question(&mut self) {
        let longest_ns = self.least_ns.saturating_mul(LONGEST);
        self.ask_after_ns = self.ask_after_ns.saturating_mul(2).min(longest_ns);
        self.quiet_operations = 0;
    }

    /// An operation is complete, and asked for nothing without evidence.
    pub(crate) fn note_quiet_operation(&mut self) {
        self.quiet_operations += 1;
        if self.quiet_operations == QUIET_OPERATIONS {
            self.ask_after_ns = (self.ask_after_ns / 2).max(self.least_ns);
            self.quiet_operations = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needless_questions_make_the_wait_longer_and_quiet_operations_shorter() {
        let mut patience = Patience::new(1000);
        patience.note_needless_question();
        patience.note_needless_question();
        assert_eq!(patience.ask_after_ns(), 4000);
        for (operations, expected) in [(1023, 4000), (1, 2000), (1024, 1000), (1024, 1000)] {
            (0..operations).for_each(|_| patience.note_quiet_operation());
            assert_eq!(patience.ask_after_ns(), expected);
        }
        (0..20).for_each(|_| patience.note_needless_question());
        assert_eq!(patience.ask_after_ns(), 32_000);
    }
}
