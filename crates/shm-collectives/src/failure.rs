//! How a group ends early, and the encoding of that in the failure word of the segment.

use std::fmt;
use std::num::NonZeroU64;

use super::call::Called;

/// A rank of the group was lost: it ended, left or gave up. The group can do nothing more: this and
/// every later call of every rank returns the same error. Drop the group, and make a new one
/// without that rank.
// The failure word itself: the outcome of a step then fits a register, and short operations notice.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("local rank {} of the host group {}", self.local_rank(), self.cause())]
pub struct Lost(NonZeroU64);

/// What became of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LostCause {
    /// Its process ended while others waited for it.
    #[error("died")]
    Died,
    /// It left the group while others waited for it.
    #[error("left")]
    Left,
    /// It called [`HostGroup::fail`](super::HostGroup::fail).
    #[error("reported failure {0}")]
    Reported(u32),
    /// It called another operation than a rank that waits for it, so the program has an error.
    #[error("called another operation than local rank {with}")]
    Disagrees {
        /// The rank that waited.
        with: u32,
        /// What the rank at fault called.
        called: Called,
        /// What the rank that waited called.
        with_called: Called,
    },
}

/// Why the kernel has moved no bytes from or to a peer's memory.
#[derive(Clone, Copy, Debug)]
pub(super) enum Unmoved {
    /// The peer is no more.
    Lost(Lost),
    /// It refuses, though it granted the access once: the peer may have become undumpable, a filter may have
    /// come, or the vector may lie in memory that no other process can have.
    Refused,
}

/// Bits of a rank in the word of a disagreement.
const RANK_BITS: u32 = 10;
const _: () = assert!(1 << RANK_BITS == super::segment::RANKS_MAX);

/// Where the number of a cause begins in the word.
const CAUSE_SHIFT: u32 = 56;
const DIED: NonZeroU64 = NonZeroU64::new(1 << CAUSE_SHIFT).unwrap();
const LEFT: NonZeroU64 = NonZeroU64::new(2 << CAUSE_SHIFT).unwrap();
const REPORTED: NonZeroU64 = NonZeroU64::new(3 << CAUSE_SHIFT).unwrap();
const DISAGREES: NonZeroU64 = NonZeroU64::new(5 << CAUSE_SHIFT).unwrap();

impl Lost {
    /// A rank below 1,024, and what became of it.
    pub(super) fn new(local_rank: u32, cause: LostCause) -> Self {
        let rank = u64::from(local_rank);
        // From the top: what became of it, the rank, the code.
        let (number, rest) = match cause {
            LostCause::Died => (DIED, rank << 32),
            LostCause::Left => (LEFT, rank << 32),
            LostCause::Reported(code) => (REPORTED, rank << 32 | u64::from(code)),
            LostCause::Disagrees { with, called, with_called } => {
                let ranks = rank << RANK_BITS | u64::from(with);
                let calls = called.bits() << Called::BITS | with_called.bits();
                (DISAGREES, ranks << (2 * Called::BITS) | calls)
            }
        };
        Self(number | rest)
    }

    pub(super) fn to_word(self) -> u64 {
        self.0.get()
    }

    /// What the word says; `None` if no rank has failed.
    pub(super) fn from_word(word: u64) -> Option<Self> {
        NonZeroU64::new(word).map(Self)
    }

    /// The rank at fault.
    #[must_use]
    pub fn local_rank(self) -> u32 {
        let word = self.to_word();
        match self.cause() {
            LostCause::Disagrees { .. } => rank_in(word >> (2 * Called::BITS + RANK_BITS)),
            _ => (word >> 32 & 0xff_ffff) as u32,
        }
    }

    /// What became of it.
    #[must_use]
    pub fn cause(self) -> LostCause {
        let word = self.to_word();
        match word >> CAUSE_SHIFT << CAUSE_SHIFT {
            it if it == DIED.get() => LostCause::Died,
            it if it == LEFT.get() => LostCause::Left,
            it if it == DISAGREES.get() => LostCause::Disagrees {
                with: rank_in(word >> (2 * Called::BITS)),
                called: Called::from_bits(word >> Called::BITS),
                with_called: Called::from_bits(word),
            },
            // The word is this library's own; a code is the best reading of anything else.
            _ => LostCause::Reported(word as u32),
        }
    }
}

/// The rank of a disagreement in the lowest bits.
fn rank_in(bits: u64) -> u32 {
    (bits & ((1 << RANK_BITS) - 1)) as u32
}

impl fmt::Debug for Lost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (local_rank, cause) = (self.local_rank(), self.cause());
        formatter
            .debug_struct("Lost")
            .field("local_rank", &local_rank)
            .field("cause", &cause)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::super::call::CallKind;
    use super::*;

    #[test]
    fn words_say_what_was_meant() {
        for cause in [
            LostCause::Died,
            LostCause::Left,
            LostCause::Reported(u32::MAX),
            LostCause::Disagrees {
                with: 1022,
                called: Called { kind: CallKind::Exscan, kernel: 511 },
                with_called: Called { kind: CallKind::Barrier, kernel: 0 },
            },
        ] {
            for local_rank in [0, 1023] {
                let lost = Lost::new(local_rank, cause);
                assert_eq!((lost.local_rank(), lost.cause()), (local_rank, cause));
                assert_eq!(Lost::from_word(lost.to_word()), Some(lost));
            }
        }
        assert_eq!(Lost::from_word(0), None);
    }
}
