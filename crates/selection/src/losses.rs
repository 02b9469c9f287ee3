//! Whether links lose packets, as all ranks of a communicator agree.
//!
//! What TCP carries waits for the kernel's timers when a packet is lost, at least 8 ms; what is in datagrams is sent
//! again within hundreds of microseconds. So where losses are seen, vectors that direct links carry as a rule go
//! through the tree, cut into packets (docs/decisions/0045).
//!
//! The ranks ask each other now and then, between two blocking operations: after 16 of those over direct links that
//! could go elsewhere, then after ever more. Losses that were seen are expected for a while, then links are tried
//! again. Counts of operations decide all of that, which are the same at all ranks.

use serde::{Deserialize, Serialize};
use tributary_algorithms::CollectiveKind;
use tributary_settings::AvoidLosses;

use super::question::Question;

/// Operations over direct links before the first question, and before the last.
const ASK_AFTER_MIN: u32 = 16;
const ASK_AFTER_MAX: u32 = 512;

/// Operations for which losses are expected, the first time and at most.
const EXPECT_FOR_MIN: u32 = 512;
const EXPECT_FOR_MAX: u32 = 1 << 20;

/// Segments sent again per operation from which on the tree is the better way: every one costs milliseconds.
const OPERATIONS_PER_LOSS: u64 = 8;
/// Fewer say nothing.
const LOSSES_MIN: u64 = 4;

/// Longest vector that goes through the tree in packets where some are lost. 8 hosts of a lab, 1% lost, the tree and
/// direct links: 64 KiB 2.3 and 16.6 ms, 1 MiB 63 and 37 ms.
const BYTES_MAX: u64 = 256 << 10;

/// Which operations avoid links that lose packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Avoided {
    /// Those whose result is the same in whatever order values are combined: the path may change in the middle of a
    /// program, and in another run elsewhere.
    Exact,
    All,
}

impl Avoided {
    pub(super) fn of(asked: AvoidLosses) -> Option<Self> {
        match asked {
            AvoidLosses::Off => None,
            AvoidLosses::Exact => Some(Self::Exact),
            AvoidLosses::All => Some(Self::All),
        }
    }

    /// Whether the tree carries such an operation where links lose packets. It calls no operators of the caller's own,
    /// and where every host has a part of its own it would carry those of all.
    fn has(self, question: &Question) -> bool {
        let is_suited = match question.kind {
            CollectiveKind::Barrier | CollectiveKind::Broadcast => true,
            CollectiveKind::Allreduce | CollectiveKind::Reduce => {
                self == Self::All || question.is_exact
            }
            _ => false,
        };
        is_suited && !question.has_own_operator && question.len_bytes <= BYTES_MAX
    }
}

/// See the module documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Losses {
    avoided: Avoided,
    state: State,
    /// How long losses are expected once they are seen.
    expect_for: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Operations since the last question, and after how many the next comes.
    Watching { operations: u32, ask_after: u32 },
    /// Operations for which losses are still expected.
    Expecting { operations: u32 },
}

impl State {
    fn watching(ask_after: u32) -> Self {
        Self::Watching { operations: 0, ask_after }
    }
}

impl Losses {
    pub(super) fn new(avoided: Avoided) -> Self {
        Self { avoided, state: State::watching(ASK_AFTER_MIN), expect_for: EXPECT_FOR_MIN }
    }

    /// Whether an operation avoids direct links where they lose packets.
    pub(super) fn concern(self, question: &Question) -> bool {
        self.avoided.has(question)
    }

    /// Whether the ranks are to ask each other.
    pub(super) fn is_due(self) -> bool {
        matches!(self.state, State::Watching { operations, ask_after } if operations >= ask_after)
    }

    /// Whether links are expected to lose packets.
    pub(super) fn is_expecting(self) -> bool {
        matches!(self.state, State::Expecting { .. })
    }

    /// Counts a blocking operation that avoids direct links where they lose packets.
    pub(super) fn count(&mut self) {
        match &mut self.state {
            State::Watching { operations, .. } => *operations += 1,
            State::Expecting { operations: 0 | 1 } => self.state = State::watching(ASK_AFTER_MIN),
            State::Expecting { operations } => *operations -= 1,
        }
    }

    /// Takes how many segments all ranks have sent again since they last asked.
    pub(super) fn on_answer(&mut self, lost: u64) {
        let State::Watching { operations, ask_after } = self.state else { return };
        if lost >= LOSSES_MIN && lost * OPERATIONS_PER_LOSS >= u64::from(operations) {
            self.state = State::Expecting { operations: self.expect_for };
            self.expect_for = (2 * self.expect_for).min(EXPECT_FOR_MAX);
        } else {
            self.state = State::watching((2 * ask_after).min(ASK_AFTER_MAX));
            if ask_after == ASK_AFTER_MAX {
                self.expect_for = EXPECT_FOR_MIN;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts operations until the ranks ask.
    fn until_due(losses: &mut Losses) -> u32 {
        let mut operations = 0;
        while !losses.is_due() {
            losses.count();
            operations += 1;
        }
        operations
    }

    #[test]
    fn questions_become_rare_where_nothing_is_lost() {
        let mut losses = Losses::new(Avoided::All);
        for expected in [16, 32, 64, 128, 256, 512, 512] {
            assert_eq!(until_due(&mut losses), expected);
            losses.on_answer(LOSSES_MIN - 1);
            assert!(!losses.is_expecting());
        }
    }

    #[test]
    fn losses_are_expected_for_a_while_and_longer_if_they_come_back() {
        let mut losses = Losses::new(Avoided::All);
        for expected in [512, 1024, 2048] {
            assert_eq!(until_due(&mut losses), ASK_AFTER_MIN);
            losses.on_answer(LOSSES_MIN);
            for _ in 0..expected {
                assert!(losses.is_expecting());
                losses.count();
            }
            assert!(!losses.is_expecting());
        }
        // A long quiet makes the next time short again.
        for _ in 0..7 {
            until_due(&mut losses);
            losses.on_answer(0);
        }
        until_due(&mut losses);
        losses.on_answer(1000);
        losses.count();
        assert!(losses.is_expecting());
        (1..512).for_each(|_| losses.count());
        assert!(!losses.is_expecting());
    }

    #[test]
    fn few_losses_among_many_operations_change_nothing() {
        let mut losses = Losses::new(Avoided::All);
        for _ in 0..5 {
            until_due(&mut losses);
            losses.on_answer(0);
        }
        assert_eq!(until_due(&mut losses), 512);
        losses.on_answer(512 / OPERATIONS_PER_LOSS - 1);
        assert!(!losses.is_expecting());
        until_due(&mut losses);
        losses.on_answer(512 / OPERATIONS_PER_LOSS);
        assert!(losses.is_expecting());
    }
}
