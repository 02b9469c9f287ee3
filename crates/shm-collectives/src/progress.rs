//! How far a rank has come with its part of a direct operation, and what the others do of it where the kernel
//! has refused the rest.
//!
//! Owns how shares are cut, and the words that ranks publish when they are done. It must not know rings.

use std::ops::Range;

use super::operation::{Action, Operation, share_in_units};

/// Words that a rank publishes in the opening: source, target, whether it can access all peers; in the closing:
/// those of a [`Progress`].
pub(super) const WORDS: usize = 3;
/// Elements between two places where shares and pieces may be cut: whole lines, or pages, whatever
/// the element, of those that kernels have.
const UNIT_ELEMENTS: usize = 256;
/// Bytes between two such places, at most; one element, if it is longer. Else long elements would make
/// long pieces.
const UNIT_MAX_BYTES: usize = UNIT_ELEMENTS * 16;

/// How far a rank has come with its part.
#[derive(Clone, Copy)]
pub(super) struct Progress {
    pub(super) is_refused: bool,
    /// Where it has stopped in the vector.
    pub(super) offset: usize,
    /// From there on it has so many bytes of the result, which other ranks may not have.
    pub(super) known_bytes: usize,
}

impl Progress {
    pub(super) const DONE: Self = Self { is_refused: false, offset: 0, known_bytes: 0 };

    pub(super) fn to_words(self) -> [u64; WORDS] {
        [u64::from(self.is_refused), self.offset as u64, self.known_bytes as u64]
    }

    pub(super) fn from_words([is_refused, offset, known_bytes]: [u64; WORDS]) -> Self {
        let (offset, known_bytes) = (offset as usize, known_bytes as usize);
        Self { is_refused: is_refused != 0, offset, known_bytes }
    }
}

/// The operations by which all ranks do what `rank` has left of its part.
pub(super) fn left_by(
    operation: &Operation,
    rank: u32,
    ranks: u32,
    Progress { offset, known_bytes, .. }: Progress,
) -> impl Iterator<Item = Operation> {
    let part = |action, range: Range<usize>| Operation {
        action,
        source: operation.source.wrapping_add(range.start),
        target: operation.target.wrapping_add(range.start),
        len_bytes: range.len(),
    };
    let (known, rest) = match operation.action {
        Action::Allreduce(kernel) => {
            let unit_bytes = unit_bytes(kernel.element_bytes());
            let share = share_in_units(operation.len_bytes, unit_bytes, rank, ranks);
            let known = offset..offset + known_bytes;
            // A broadcast takes what its source has: the result, which is in the target.
            let known = Operation {
                source: operation.target.wrapping_add(offset).cast_const(),
                ..part(Action::Broadcast { from: rank }, known)
            };
            (known, part(operation.action, offset + known_bytes..share.end))
        }
        whole => (part(whole, 0..0), part(whole, 0..operation.len_bytes)),
    };
    [known, rest].into_iter().filter(|left| left.len_bytes > 0)
}

pub(super) fn unit_bytes(element_bytes: usize) -> usize {
    UNIT_ELEMENTS.min(UNIT_MAX_BYTES / element_bytes).max(1) * element_bytes
}
