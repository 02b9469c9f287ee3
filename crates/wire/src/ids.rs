//! Newtypes for ids and counters on the wire.

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "control", derive(serde::Serialize, serde::Deserialize))]
        #[cfg_attr(feature = "control", serde(transparent))]
        pub struct $name(pub $inner);

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// A group: small and dense, because aggregation nodes index tables with it.
    GroupId(u32)
}
id! {
    /// Which incarnation of a group: grows when the manager moves the group to another tree,
    /// and never repeats within one manager's life.
    Epoch(u32)
}
id! {
    /// Position of a child in its parent's fixed reduction order.
    ChildIndex(u16)
}
id! {
    /// A member of a group, numbered depth first along the tree, so that the members below any
    /// child are one contiguous range.
    EndpointId(u32)
}
id! {
    /// Which collective operation of its group: counts up and wraps.
    OperationNumber(u32)
}
id! {
    /// Which piece of its operation's vector: the number of pieces that follow it, so the last is
    /// 0. Members whose vectors differ in length therefore disagree on the first piece already, and
    /// none takes a part of a longer vector for its whole one.
    SegmentIndex(u32)
}
id! {
    /// An admitted job.
    JobId(u32)
}
id! {
    /// An aggregation node, as the manager numbers it.
    NodeId(u32)
}

id! {
    /// One of the trees that aggregation nodes form; each has a stream lock of its own.
    TreeId(u16)
}

/// The running number of a segment in its group: counts every outstanding-operation slot ever
/// used, across operations, and wraps.
///
/// All members start the same operations in the same order, so they agree on it without talking.
/// Not `Ord`: a wrapping counter has no total order; use [`Sequence::distance_from`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sequence(pub u32);

/// Counters start this far before they wrap, so that every group crosses the wrap early, in every
/// test and on every machine.
const FIRST: u32 = 64_u32.wrapping_neg();

impl Sequence {
    /// The first segment of every group.
    pub const FIRST: Self = Self(FIRST);

    /// The number after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// How far this number lies after `earlier`, in `0..2^32`, across the wrap.
    #[must_use]
    pub fn distance_from(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// The earliest of several that lie within half of all numbers of each other, across the wrap; none of none.
    pub fn earliest(mut sequences: impl Iterator<Item = Self>) -> Option<Self> {
        let first = sequences.next()?;
        let ahead = |sequence: &Self| sequence.distance_from(first) as i32;
        Some(sequences.min_by_key(ahead).filter(|other| ahead(other) < 0).unwrap_or(first))
    }
}

impl OperationNumber {
    /// The first operation of every group.
    pub const FIRST: Self = Self(FIRST);

    /// Whether this operation was started before `other`: half of all numbers lie behind.
    #[must_use]
    pub fn is_before(self, other: Self) -> bool {
        (1..1 << 31).contains(&other.0.wrapping_sub(self.0))
    }

    /// The number after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_is_found_across_the_wrap() {
        let earliest = |numbers: &[u32]| Sequence::earliest(numbers.iter().copied().map(Sequence));
        assert_eq!(earliest(&[3, 2, 9]), Some(Sequence(2)));
        assert_eq!(earliest(&[1, u32::MAX, 0, u32::MAX - 4]), Some(Sequence(u32::MAX - 4)));
        assert_eq!(earliest(&[]), None);
    }

    #[test]
    fn sequence_distance_crosses_the_wrap() {
        let before = Sequence(u32::MAX);
        assert_eq!(before.next(), Sequence(0));
        assert_eq!(before.next().next().distance_from(before), 2);
        assert_eq!(before.distance_from(before.next()), u32::MAX);
    }
}
