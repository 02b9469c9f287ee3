//! A long vector at a host with several ranks: while one part of it is in the tree, the ranks reduce the next one to their
//! leader, and copy out the one before.
//!
//! Owns the order of those steps, which is the same at all ranks of a host and follows from the number of parts alone: what
//! the host's ranks do together they must do in one order. Which step waits for what: a part goes up once it is reduced,
//! and out once its result has come down; everything else goes on.
//!
//! The leader asks for the stream lock only when the first part is reduced, which proves that all ranks of its host have
//! come to the operation. The tree gives the lock to a group when all its leaders have asked. So an operation that holds
//! the lock waits for no rank that may be waiting for the lock in another operation.

/// Parts that are reduced before the first is copied out: as many as fill the stream's window, and one that is being
/// copied.
const LEAD: usize = 3;

/// How far one rank has come with one operation.
#[derive(Clone, Debug)]
pub struct Pipeline {
    parts: usize,
    /// Whether results are copied out to the ranks of this host.
    spreads: bool,
    reduced: usize,
    spread: usize,
}

/// What a rank does next, to which part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Reduce it to the leader, with the other ranks.
    Reduce(usize),
    /// Copy its result out of the leader, once that has it.
    Spread(usize),
    /// Nothing: this rank's part is done.
    Done,
}

impl Pipeline {
    /// Of so many parts; `spreads` where the host's ranks get the result.
    #[must_use]
    pub const fn new(parts: usize, spreads: bool) -> Self {
        Self { parts, spreads, reduced: 0, spread: 0 }
    }

    /// The step that is under way, or next.
    #[must_use]
    pub const fn step(&self) -> Step {
        if self.reduced < self.parts && (!self.spreads || self.reduced < self.spread + LEAD) {
            Step::Reduce(self.reduced)
        } else if self.spreads && self.spread < self.parts {
            Step::Spread(self.spread)
        } else {
            Step::Done
        }
    }

    /// That step is over.
    pub const fn on_step_over(&mut self) {
        match self.step() {
            Step::Reduce(_) => self.reduced += 1,
            Step::Spread(_) => self.spread += 1,
            Step::Done => {}
        }
    }

    /// Parts that lie at the leader, ready to go up.
    #[must_use]
    pub const fn reduced_parts(&self) -> usize {
        self.reduced
    }

    /// Whether the leader may ask for the stream lock.
    #[must_use]
    pub fn may_ask_for_lock(&self) -> bool {
        #[cfg(feature = "planted-bugs")]
        if crate::planted::is_planted(crate::planted::Bug::LockBeforeRanks) {
            return true;
        }
        self.reduced > 0
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::Step::{Reduce, Spread};
    use super::*;

    fn steps(mut pipeline: Pipeline) -> Vec<Step> {
        let mut steps = Vec::new();
        while pipeline.step() != Step::Done {
            steps.push(pipeline.step());
            pipeline.on_step_over();
        }
        steps
    }

    #[test]
    fn parts_are_reduced_ahead_of_what_is_copied_out() {
        assert_eq!(
            steps(Pipeline::new(4, true)),
            [
                Reduce(0),
                Reduce(1),
                Reduce(2),
                Spread(0),
                Reduce(3),
                Spread(1),
                Spread(2),
                Spread(3)
            ]
        );
        assert_eq!(steps(Pipeline::new(2, false)), [Reduce(0), Reduce(1)]);
    }

    #[test]
    fn the_lock_is_asked_for_when_all_ranks_have_come() {
        let mut pipeline = Pipeline::new(2, true);
        assert!(!pipeline.may_ask_for_lock());
        pipeline.on_step_over();
        assert!(pipeline.may_ask_for_lock());
    }
}
