//! What a rank calls, in the bits that every flag carries beside the number of its step.
//!
//! All ranks must call the same operations in the same order. A flag that has the step that a rank waits for, and another
//! call in it, proves that two ranks do not, before anything of the slot is used. The bits depend on all earlier calls, too:
//! two ranks may both have sent where each should have received, and then meet in a barrier.

use super::combine::Combine;
use super::operation::{Action, Operation};

/// Bits of a call. The others of a flag have the number of the step, without its highest bits: slots are used again so soon
/// that a number comes round only after the one it could be taken for is long gone.
const BITS: u32 = 32;
const KIND_BITS: u32 = 4;
const KERNEL_BITS: u32 = 9;
const SHAPE_BITS: u32 = BITS - Called::BITS;
/// Bits of a root; that of a transfer is folded to them.
const ROOT_BITS: u32 = 10;
/// The call of a shorter operation tells its exact length.
pub(super) const EXACT_BYTES: usize = 1 << SHAPE_BITS;

/// Which collective a rank called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CallKind {
    /// Nothing that this build knows.
    Unknown,
    /// An allreduce.
    Allreduce,
    /// A reduction to one rank.
    Reduce,
    /// A broadcast.
    Broadcast,
    /// From one rank to one.
    Transfer,
    /// A barrier.
    Barrier,
    /// A reduce-scatter.
    ReduceScatter,
    /// An allgather.
    Allgather,
    /// A gather.
    Gather,
    /// A scatter.
    Scatter,
    /// An inclusive scan.
    Scan,
    /// An exclusive scan.
    Exscan,
}

impl CallKind {
    const ALL: [Self; 12] = [
        Self::Unknown,
        Self::Allreduce,
        Self::Reduce,
        Self::Broadcast,
        Self::Transfer,
        Self::Barrier,
        Self::ReduceScatter,
        Self::Allgather,
        Self::Gather,
        Self::Scatter,
        Self::Scan,
        Self::Exscan,
    ];

    fn of(action: &Action) -> Self {
        match action {
            Action::Allreduce(_) => Self::Allreduce,
            Action::Reduce { .. } => Self::Reduce,
            Action::Broadcast { .. } => Self::Broadcast,
            Action::Transfer { .. } => Self::Transfer,
            Action::Barrier => Self::Barrier,
            Action::ReduceScatter { .. } => Self::ReduceScatter,
            Action::Allgather => Self::Allgather,
            Action::Gather { .. } => Self::Gather,
            Action::Scatter { .. } => Self::Scatter,
            Action::Scan { inclusive: true, .. } => Self::Scan,
            Action::Scan { inclusive: false, .. } => Self::Exscan,
        }
    }
}

/// What a rank called, as far as others can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Called {
    /// Which collective.
    pub kind: CallKind,
    /// The kernel's number, as [`Combine::number`] gives it; zero where there is none.
    pub kernel: u16,
}

impl Called {
    /// How many bits [`Self::bits`] uses.
    pub(super) const BITS: u32 = KIND_BITS + KERNEL_BITS;

    pub(super) fn bits(self) -> u64 {
        self.kind as u64 | u64::from(self.kernel) << KIND_BITS
    }

    pub(super) fn from_bits(bits: u64) -> Self {
        let kind = (bits & ((1 << KIND_BITS) - 1)) as usize;
        let kernel = (bits >> KIND_BITS & ((1 << KERNEL_BITS) - 1)) as u16;
        Self { kind: CallKind::ALL.get(kind).copied().unwrap_or(CallKind::Unknown), kernel }
    }
}

/// A call, in [`BITS`] bits: the collective, the kernel, and what is left of the length and the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call(u64);

impl Call {
    /// No operation.
    pub(super) const NONE: Self = Self(0);
    /// A barrier.
    pub(super) const BARRIER: Self = Self(CallKind::Barrier as u64);

    /// The call of an operation.
    pub(super) fn of(operation: &Operation) -> Self {
        let kernel = operation.action.kernel().map_or(0, Combine::number);
        let root = match operation.action {
            Action::Reduce { to, .. } | Action::Gather { to } => to,
            Action::Broadcast { from } | Action::Scatter { from, .. } => from,
            Action::Transfer { from, to } => from.wrapping_mul(31).wrapping_add(to),
            Action::Barrier => return Self::BARRIER,
            _ => 0,
        };
        Self::new(CallKind::of(&operation.action), kernel, operation.len_bytes, root)
    }

    /// The call of an operation that is given by its parts.
    #[inline]
    pub(super) fn new(kind: CallKind, kernel: u16, len_bytes: usize, root: u32) -> Self {
        let folded_bytes = (len_bytes ^ len_bytes >> SHAPE_BITS) % EXACT_BYTES;
        Self::of_short(kind, kernel, folded_bytes, root)
    }

    /// The same for what fits a short slot, whose length has no bits to fold.
    #[inline]
    pub(super) fn of_short(kind: CallKind, kernel: u16, len_bytes: usize, root: u32) -> Self {
        debug_assert!(len_bytes < EXACT_BYTES);
        let shape = len_bytes as u64 ^ root_bits(root);
        Self(Called { kind, kernel }.bits() | shape << Called::BITS)
    }

    /// The same call behind others: its bits differ, as far as there are enough, if theirs do.
    #[inline]
    pub(super) fn behind(self, history: History) -> Self {
        Self(self.0 ^ history.0 >> (u64::BITS - SHAPE_BITS) << Called::BITS)
    }

    /// The length of a broadcast from `root` behind `history`, if it is shorter than [`EXACT_BYTES`].
    pub(super) fn broadcast_bytes(self, root: u32, history: History) -> usize {
        let shape = self.behind(history).0 >> Called::BITS ^ root_bits(root);
        (shape & ((1 << SHAPE_BITS) - 1)) as usize
    }

    /// The flag of a slot that was filled in `step` of this call.
    #[inline]
    pub(super) fn flag(self, step: u64) -> u64 {
        step << BITS | self.0
    }

    /// The call in a flag of `step`; none if the slot was filled in another.
    pub(super) fn in_flag(flag: u64, step: u64) -> Option<Self> {
        let call = flag & ((1 << BITS) - 1);
        (flag == step << BITS | call).then_some(Self(call))
    }

    /// The call in a flag of whatever step.
    pub(super) fn of_flag(flag: u64) -> Self {
        Self(flag & ((1 << BITS) - 1))
    }

    /// Whether a flag is of a step behind `step`.
    pub(super) fn is_of_later_step(flag: u64, step: u64) -> bool {
        let behind = (flag >> BITS).wrapping_sub(step) << BITS;
        behind != 0 && behind >> (u64::BITS - 1) == 0
    }

    /// What others can tell of it.
    pub(super) fn as_called(self) -> Called {
        Called::from_bits(self.0)
    }
}

/// A root, in the bits that short lengths do not use: a group has fewer ranks than these can tell apart.
#[inline]
fn root_bits(root: u32) -> u64 {
    u64::from(root) << (SHAPE_BITS - ROOT_BITS) & ((1 << SHAPE_BITS) - 1)
}

/// All calls so far, in one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct History(u64);

impl History {
    /// With one call more.
    #[inline]
    pub(super) fn and(self, call: Call) -> Self {
        // The golden ratio: every bit of a call reaches the highest bits.
        Self((self.0 ^ call.0).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// With a number that all ranks have to have alike.
    pub(super) fn and_number(self, number: u32) -> Self {
        // Beside the bits of calls, so that it is not taken for one.
        self.and(Call(u64::from(number) << BITS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_behind_others_shows_what_they_were() {
        let [sum, maximum] = [1, 2].map(|kernel| Call::new(CallKind::Allreduce, kernel, 8, 0));
        let behind = |calls: &[Call]| {
            let history = calls.iter().fold(History::default(), |past, call| past.and(*call));
            Call::BARRIER.behind(history)
        };
        assert_eq!(behind(&[]), Call::BARRIER);
        assert_eq!(behind(&[sum, maximum]), behind(&[sum, maximum]));
        let all = [behind(&[]), behind(&[sum]), behind(&[maximum]), behind(&[sum, maximum])];
        for (index, one) in all.iter().enumerate() {
            assert!(all[index + 1..].iter().all(|other| other != one), "{all:?}");
            assert_eq!(one.as_called(), Call::BARRIER.as_called(), "the collective stays");
        }
        assert_ne!(behind(&[sum, maximum]), behind(&[maximum, sum]));
        let history = History::default().and(sum).and(maximum);
        for len_bytes in [1, 40, 4096, EXACT_BYTES - 1] {
            let broadcast = Call::new(CallKind::Broadcast, 0, len_bytes, 5).behind(history);
            assert_eq!(broadcast.broadcast_bytes(5, history), len_bytes);
        }
    }

    #[test]
    fn a_flag_gives_back_its_call_for_its_own_step_alone() {
        for (number, kind) in (0..).zip(CallKind::ALL) {
            assert_eq!(kind as usize, number);
            for kernel in [0, 1, 511] {
                for step in [1, 2, 1 << 31, (1 << 40) + 7] {
                    let call = Call::new(kind, kernel, 12_345_678, 77);
                    let flag = call.flag(step);
                    assert_eq!(Call::in_flag(flag, step), Some(call));
                    assert_eq!(Call::in_flag(flag, step + 64), None);
                    assert_eq!(call.as_called(), Called { kind, kernel });
                    assert_eq!(Called::from_bits(call.as_called().bits()), call.as_called());
                }
            }
        }
        assert_eq!(Call::in_flag(0, 1), None, "a slot that nobody filled has no call");
    }

    #[test]
    fn calls_differ_if_lengths_or_roots_of_short_operations_do() {
        let call = |len_bytes, root| Call::new(CallKind::Reduce, 7, len_bytes, root);
        let of_lengths: std::collections::BTreeSet<u64> =
            (0..2048).map(|len| call(len, 3).0).collect();
        assert_eq!(of_lengths.len(), 2048);
        let of_roots: std::collections::BTreeSet<u64> =
            (0..64).map(|root| call(8, root).0).collect();
        assert_eq!(of_roots.len(), 64);
        assert_ne!(call(80, 0), call(160, 0));
        assert_ne!(call(1 << 20, 0), call((1 << 20) + 8, 0));
    }
}
