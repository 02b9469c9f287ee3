//! The exchange of two ranks: each reduces the peer's slot with its own contribution.
//!
//! The rule that a slot belongs to a rank in every other step is in the documentation of [`super`].

use std::mem::MaybeUninit;
use std::{ptr, slice};

use super::call::Call;
use super::combine::Combine;
use super::copy::copy;
use super::operation::{Action, Operation};
use super::ring::{Awaited, AwaitedEvent, Rings};
use super::segment::{EXCHANGE_RING, RINGS};

/// A short allreduce of two ranks, or without a kernel their barrier: each publishes its contribution, and
/// takes the result when the other has. [`HostGroup::exchange`](super::HostGroup::exchange) makes it.
#[derive(Clone, Copy)]
pub struct Exchange {
    pub(super) kernel: Option<&'static dyn Combine>,
    pub(super) source: *const u8,
    pub(super) target: *mut u8,
    pub(super) len_bytes: usize,
    /// What the other rank must call, too.
    pub(super) call: Call,
}

impl Exchange {
    /// What an operation of two ranks is as an exchange; none if it is another, or too long.
    pub(super) fn of(operation: &Operation) -> Option<Self> {
        let &Operation { source, target, len_bytes, .. } = operation;
        let (kernel, shortest) = match operation.action {
            Action::Allreduce(kernel) => (Some(kernel), 1),
            Action::Barrier => (None, 0),
            _ => return None,
        };
        let fits = (shortest..=RINGS[EXCHANGE_RING].capacity_bytes).contains(&len_bytes);
        fits.then(|| Self { kernel, source, target, len_bytes, call: Call::of(operation) })
    }

    /// Takes the result if the peer has come.
    pub(super) fn advance(self, rings: &mut Rings) -> Result<(), Awaited> {
        let peer = 1 - rings.local_rank;
        if !rings.is_filled(EXCHANGE_RING, peer) {
            let step = rings.step(EXCHANGE_RING);
            let event = AwaitedEvent::Filled;
            return Err(Awaited { peer, ring: EXCHANGE_RING, step, event });
        }
        // SAFETY: the peer's flag was seen.
        unsafe { self.take(self.kernel, rings) };
        Ok(())
    }

    /// Takes the result, by the exchange's kernel.
    ///
    /// # Safety
    /// The peer's flag was seen.
    #[inline]
    pub(super) unsafe fn take(self, kernel: Option<&(impl Combine + ?Sized)>, rings: &mut Rings) {
        let Self { source, target, len_bytes, .. } = self;
        if let Some(kernel) = kernel {
            // SAFETY: `post_exchange` puts exchanges here, in groups of two ranks and with buffers that
            // are valid until the operation is over; the vector fits a slot, as `of` has checked; the
            // peer's flag was seen, by this function's contract.
            unsafe { consume_exchanged(rings, kernel, source, target, len_bytes) };
        }
        rings.finish(EXCHANGE_RING, true);
    }
}

/// Reduces the peer's exchange slot of the step to come and this rank's `source` into `target`.
///
/// The own slot is not read: the peer may be filling it for the next step already.
///
/// # Safety
/// The group has two ranks, the peer's flag was seen, and the vector is not longer than an exchange
/// slot. `source` and `target` are valid for `len_bytes`, and are one or do not overlap.
#[inline]
pub(super) unsafe fn consume_exchanged(
    rings: &Rings,
    kernel: &(impl Combine + ?Sized),
    source: *const u8,
    target: *mut u8,
    len_bytes: usize,
) {
    if ptr::eq(source, target) {
        // SAFETY: this function's contract is that of the callee, whose `target` is both.
        return unsafe { consume_exchanged_in_place(rings, kernel, target, len_bytes) };
    }
    // SAFETY: `source` is valid for `len_bytes` by this function's contract, and apart from the
    // target.
    let mine = unsafe { slice::from_raw_parts(source, len_bytes) };
    // SAFETY: the peer's flag was seen and `target` is valid, by this function's contract; `mine`
    // does not overlap it, for source and target are not one.
    unsafe { combine_exchanged(rings, kernel, mine, target) };
}

/// The same where this rank's contribution is what the result overwrites. On its own, because the
/// copy needs more of the stack than a call should touch.
///
/// # Safety
/// As [`consume_exchanged`], with `target` as the source too.
#[inline(never)]
unsafe fn consume_exchanged_in_place(
    rings: &Rings,
    kernel: &(impl Combine + ?Sized),
    target: *mut u8,
    len_bytes: usize,
) {
    let mut aside = [MaybeUninit::<u8>::uninit(); RINGS[EXCHANGE_RING].capacity_bytes];
    // SAFETY: `target` is valid for `len_bytes` by this function's contract; that is not more than
    // an exchange slot has, as `aside` does, which no other pointer refers to.
    let mine = unsafe {
        copy(target, aside.as_mut_ptr().cast(), len_bytes);
        slice::from_raw_parts(aside.as_ptr().cast(), len_bytes)
    };
    // SAFETY: the peer's flag was seen and `target` is valid, by this function's contract; `mine`
    // is the copy.
    unsafe { combine_exchanged(rings, kernel, mine, target) };
}

/// Reduces `mine` and the peer's exchange slot into `target`.
///
/// # Safety
/// The group has two ranks, and the peer's flag was seen. `target` is valid for writing as many
/// bytes as `mine` has, and does not overlap it.
#[inline]
unsafe fn combine_exchanged(
    rings: &Rings,
    kernel: &(impl Combine + ?Sized),
    mine: &[u8],
    target: *mut u8,
) {
    let own = rings.local_rank;
    // SAFETY: the peer's flag was seen, by this function's contract, and the peer writes this slot
    // again only after this rank's next step; `target` is valid by the same contract, and no buffer
    // of a caller lies in the segment, whose address it never gets.
    let (theirs, result) = unsafe {
        (
            rings.slot(EXCHANGE_RING, 1 - own, rings.step(EXCHANGE_RING), mine.len()),
            slice::from_raw_parts_mut(target, mine.len()),
        )
    };
    let (left, right) = if own == 0 { (mine, theirs) } else { (theirs, mine) };
    kernel.combine_into(result, left, right);
}
