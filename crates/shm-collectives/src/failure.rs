//! How a group ends early, and the encoding of that in the failure word of the segment.

use super::call::Called;

/// A rank of the group was lost: it ended, left or gave up. The group can do nothing more: this and
/// every later call of every rank returns the same error. Drop the group, and make a new one
/// without that rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("local rank {local_rank} of the host group {cause}")]
pub struct Lost {
    /// The rank at fault.
    pub local_rank: u32,
    /// What became of it.
    pub cause: LostCause,
}

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

impl Lost {
    /// As a word that is not zero: cause, rank, code, from the top.
    pub(super) fn to_word(self) -> u64 {
        let (cause, code) = match self.cause {
            LostCause::Disagrees { with, called, with_called } => {
                let ranks = u64::from(self.local_rank) << RANK_BITS | u64::from(with);
                let calls = called.bits() << Called::BITS | with_called.bits();
                return 5 << 56 | ranks << (2 * Called::BITS) | calls;
            }
            LostCause::Died => (1, 0),
            LostCause::Left => (2, 0),
            LostCause::Reported(code) => (3, code),
        };
        cause << 56 | u64::from(self.local_rank) << 32 | u64::from(code)
    }

    /// What the word says; `None` if no rank has failed.
    pub(super) fn from_word(word: u64) -> Option<Self> {
        let cause = match word >> 56 {
            0 => return None,
            1 => LostCause::Died,
            2 => LostCause::Left,
            5 => return Some(Self::disagreement_from_word(word)),
            // The word is this library's own; a code is the best reading of anything else.
            _ => LostCause::Reported(word as u32),
        };
        Some(Self { local_rank: (word >> 32 & 0xff_ffff) as u32, cause })
    }

    fn disagreement_from_word(word: u64) -> Self {
        let ranks = word >> (2 * Called::BITS);
        let rank = |bits: u64| (bits & ((1 << RANK_BITS) - 1)) as u32;
        let cause = LostCause::Disagrees {
            with: rank(ranks),
            called: Called::from_bits(word >> Called::BITS),
            with_called: Called::from_bits(word),
        };
        Self { local_rank: rank(ranks >> RANK_BITS), cause }
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
                let lost = Lost { local_rank, cause };
                assert_eq!(Lost::from_word(lost.to_word()), Some(lost));
            }
        }
        assert_eq!(Lost::from_word(0), None);
    }
}
