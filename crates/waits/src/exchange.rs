//! One exchange of a communicator's set-up, at the process that gathers all parts and hands them out.
//!
//! Parts come in any order. A process that is gone ends the exchange at once, whether or not its own part has come, and
//! however late others are: all of them wait for the end of this exchange.

use alloc::vec;
use alloc::vec::Vec;

/// The participants that have brought their parts, by number.
#[derive(Clone, Debug)]
pub struct Exchange {
    has_brought: Vec<bool>,
}

impl Exchange {
    /// Between the one that gathers and so many others.
    #[must_use]
    pub fn new(others: usize) -> Self {
        Self { has_brought: vec![false; others] }
    }

    /// Those whose connections have to be looked at: for parts, and for the ends of connections.
    pub fn peers_to_watch(&self) -> impl Iterator<Item = usize> {
        #[cfg(feature = "planted-bugs")]
        if crate::planted::is_planted(crate::planted::Bug::GatheredInTurn) {
            let next = self.awaited_peers().next();
            return next.map_or(0..0, |next| next..next + 1);
        }
        0..self.has_brought.len()
    }

    /// Those whose parts have not come.
    pub fn awaited_peers(&self) -> impl Iterator<Item = usize> {
        (0..self.has_brought.len()).filter(|at| !self.has_brought[*at])
    }

    /// Whether the part of this one has not come. Whatever it has sent behind it is for the next exchange.
    #[must_use]
    pub fn awaits(&self, other: usize) -> bool {
        !self.has_brought[other]
    }

    /// The part of one has come.
    pub fn on_part(&mut self, other: usize) {
        self.has_brought[other] = true;
    }

    /// Whether all parts have come.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.has_brought.iter().all(|has| *has)
    }
}

#[cfg(all(test, not(feature = "planted-bugs")))]
mod tests {
    use super::*;

    #[test]
    fn all_are_watched_until_the_last_part_has_come() {
        let mut exchange = Exchange::new(3);
        for other in [2, 0, 1] {
            assert!(exchange.awaits(other) && !exchange.is_complete());
            assert!(exchange.peers_to_watch().eq(0..3), "who has brought its part may still go");
            exchange.on_part(other);
            assert!(!exchange.awaits(other));
        }
        assert!(exchange.is_complete() && exchange.awaited_peers().next().is_none());
        assert!(Exchange::new(0).is_complete(), "one process needs nobody");
    }
}
