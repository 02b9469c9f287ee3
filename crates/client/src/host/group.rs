//! The group: one operation at a time, step by step.

use std::ptr;
use std::slice;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use rustix::time::{ClockId, Timespec};

use super::attach::Attachment;
use super::combine::{Combine, reduce_in_order};
use super::failure::{Lost, LostCause};
use super::liveness::Watch;
use super::offer::{AttachError, Keeper, Offer, OfferError};
use super::operation::{Action, Operation, Recipe, Step, share};
use super::ring::{Awaited, AwaitedEvent, Rings};
use super::segment::{LONG_RING, RINGS, SHORT_RING, Segment};
use crate::waiting::{CHECKUP_INTERVAL, Checkup, Policy, Waiter};

/// The processes of one host that share one communicator, as one of them sees it.
///
/// All ranks perform the same operations in the same order, one at a time; the caller queues. An
/// operation is either [`run`](Self::run) at once, or [`start`](Self::start)ed and
/// [`poll`](Self::poll)ed until it is done. Ranks may differ in which of the two they use.
pub struct HostGroup {
    rings: Rings,
    watches: Vec<Watch>,
    running: Option<Running>,
    lost: Option<Lost>,
    looked_at: Option<Timespec>,
}

// SAFETY: the pointers of a running operation are used only inside calls, and `start` obliges the
// caller to keep them usable from whichever thread polls.
unsafe impl Send for HostGroup {}

/// The operation in progress and how far it is.
struct Running {
    operation: Operation,
    recipe: Recipe,
    ring: usize,
    /// Bytes of a piece, whole elements.
    piece_bytes: usize,
    /// Where the current piece begins.
    offset: usize,
    step: Step,
    published: bool,
    /// Ranks below this one are known to have filled their slots.
    seen: u32,
}

impl HostGroup {
    /// Makes a segment for `ranks` processes and the offer of it; called by one of them.
    ///
    /// # Errors
    /// More ranks than [`RANKS_MAX`](super::RANKS_MAX), none, or no memory or descriptor.
    pub fn offer(ranks: u32) -> Result<(Offer, Keeper), OfferError> {
        Offer::make_anonymous(ranks)
    }

    /// The same with a named segment, for hosts where [`attach`](Self::attach) to an anonymous one
    /// is not permitted. The name is removed when the keeper is dropped.
    ///
    /// # Errors
    /// As [`offer`](Self::offer).
    pub fn offer_named(ranks: u32) -> Result<(Offer, Keeper), OfferError> {
        Offer::make_named(ranks)
    }

    /// Maps an offered segment and takes the place of `local_rank` in it.
    ///
    /// # Errors
    /// The offer does not fit, cannot be reached or is not there any more, or the place is taken.
    pub fn attach(offer: &Offer, local_rank: u32, ranks: u32) -> Result<Attachment, AttachError> {
        Attachment::new(offer, local_rank, ranks)
    }

    pub(super) fn new(
        segment: Segment,
        local_rank: u32,
        policy: Policy,
        watches: Vec<Watch>,
    ) -> Self {
        let rings = Rings::new(segment, local_rank, policy);
        Self { rings, watches, running: None, lost: None, looked_at: None }
    }

    /// This process's place in the group.
    #[must_use]
    pub fn local_rank(&self) -> u32 {
        self.rings.local_rank
    }

    /// The number of processes in the group.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.rings.ranks
    }

    /// How this group waits; for a [`Waiter`] of the caller's own.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.rings.policy
    }

    /// Performs one operation and returns when this rank's part of it is done.
    ///
    /// # Errors
    /// A rank was lost. The target is then undefined.
    ///
    /// # Panics
    /// If another operation is in progress, or a rank in `operation` is not one of the group.
    ///
    /// # Safety
    /// `operation.source` and `operation.target` are valid for `len_bytes` as the action needs
    /// them, and are equal or do not overlap.
    #[inline]
    pub unsafe fn run(&mut self, operation: &Operation) -> Result<(), Lost> {
        if let Action::Allreduce(kernel) = operation.action {
            let fits = operation.len_bytes <= RINGS[SHORT_RING].capacity_bytes;
            if fits && self.rings.ranks == 2 && self.running.is_none() && self.lost.is_none() {
                // SAFETY: the caller's promise.
                return unsafe { self.exchange_with_peer(kernel, operation) };
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.start(*operation)? };
        self.complete()
    }

    /// Begins an operation, to be driven by [`poll`](Self::poll).
    ///
    /// # Errors
    /// A rank was lost earlier.
    ///
    /// # Panics
    /// As [`run`](Self::run).
    ///
    /// # Safety
    /// As [`run`](Self::run), until the operation is done, lost, or the group is dropped.
    pub unsafe fn start(&mut self, operation: Operation) -> Result<(), Lost> {
        assert!(self.running.is_none(), "one operation at a time runs in a host group");
        self.check_failure_word()?;
        let ranks = self.rings.ranks;
        assert!(
            match operation.action {
                Action::Reduce { to, .. } => to < ranks,
                Action::Broadcast { from } => from < ranks,
                Action::Transfer { from, to } => from < ranks && to < ranks && from != to,
                Action::Allreduce(_) | Action::Barrier => true,
            },
            "ranks of an operation are ranks of the group"
        );
        self.running = Running::new(operation, ranks);
        Ok(())
    }

    /// Drives the operation in progress as far as it goes without waiting. Ready if there is none.
    ///
    /// # Errors
    /// A rank was lost. The operation is over, its target undefined.
    pub fn poll(&mut self) -> Result<Poll<()>, Lost> {
        match self.advance() {
            Ok(()) => self.lost.map_or(Ok(Poll::Ready(())), Err),
            Err(awaited) => {
                self.check_failure_word()?;
                if self.is_checkup_due() {
                    self.look_after(awaited)?;
                }
                Ok(Poll::Pending)
            }
        }
    }

    /// Waits for the operation in progress.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    pub fn complete(&mut self) -> Result<(), Lost> {
        while let Err(awaited) = self.advance() {
            self.wait_for(awaited)?;
        }
        self.lost.map_or(Ok(()), Err)
    }

    /// Lets a little time pass in the way `waiter` says, or until the operation in progress can go
    /// on. For callers that drive something else besides, between two calls of `poll`.
    pub fn pause(&mut self, waiter: &mut Waiter) {
        if let Err(awaited) = self.advance() {
            waiter.pause(|time| self.rings.sleep(awaited, time));
        }
    }

    /// Ends the group: every rank that waits, now or later, gets [`Lost`] with this rank and `code`.
    pub fn fail(&mut self, code: u32) {
        let lost = Lost { local_rank: self.rings.local_rank, cause: LostCause::Reported(code) };
        self.report(lost);
    }

    /// An allreduce of at most one short slot between two ranks, without the state machine.
    #[inline]
    unsafe fn exchange_with_peer(
        &mut self,
        kernel: &dyn Combine,
        operation: &Operation,
    ) -> Result<(), Lost> {
        const RING: usize = SHORT_RING;
        let Operation { source, target, len_bytes, .. } = *operation;
        if len_bytes == 0 {
            return Ok(());
        }
        let rings = &mut self.rings;
        let peer = 1 - rings.local_rank;
        let step = rings.step(RING);
        while let Err(awaited) = self.rings.claim(RING) {
            self.wait_for(awaited)?;
        }
        let rings = &mut self.rings;
        // SAFETY: the slot was just claimed; `source` is valid for `len_bytes` by the caller's
        // promise, and not in the segment, which only this module hands out slices of.
        unsafe { copy_short(source, rings.own_slot(RING, len_bytes)) };
        rings.publish(RING);
        if !rings.is_filled(RING, peer) {
            self.wait_for(Awaited { peer, ring: RING, step, event: AwaitedEvent::Filled })?;
        }
        let rings = &mut self.rings;
        // SAFETY: both slots are filled, one by this rank, the other seen just now; `target` is
        // the caller's, valid and apart from the segment.
        unsafe {
            let target = slice::from_raw_parts_mut(target, len_bytes);
            let left = rings.slot(RING, 0, step, len_bytes);
            let right = rings.slot(RING, 1, step, len_bytes);
            kernel.combine_into(target, left, right);
        }
        rings.note_all_filled(RING);
        rings.finish(RING, true);
        Ok(())
    }

    /// Drives the operation until it is done or something must be awaited.
    fn advance(&mut self) -> Result<(), Awaited> {
        while let Some(running) = &mut self.running {
            let rings = &mut self.rings;
            let step = running.step;
            if !running.published && running.writes(rings.local_rank) {
                rings.claim(running.ring)?;
                // SAFETY: claimed just now, not published.
                unsafe { running.produce(rings) };
                rings.publish(running.ring);
            }
            running.published = true;
            if step.has_reader(rings.local_rank) {
                running.await_writers(rings)?;
                // SAFETY: all writers' flags were seen.
                unsafe { running.consume(rings) };
            }
            rings.finish(running.ring, step != Step::Scatter);
            if !running.next_step() {
                self.running = None;
            }
        }
        Ok(())
    }

    /// Waits until `awaited` has come about.
    #[inline]
    fn wait_for(&mut self, awaited: Awaited) -> Result<(), Lost> {
        let mut waiter = Waiter::new(self.rings.policy);
        while !self.rings.is_met(awaited) {
            match waiter.pause(|time| self.rings.sleep(awaited, time)) {
                Checkup::None => {}
                Checkup::Cheap => self.check_failure_word()?,
                Checkup::Full => self.look_after(awaited)?,
            }
        }
        Ok(())
    }

    /// Whether a caller that polls should look after its peers again.
    fn is_checkup_due(&mut self) -> bool {
        // The coarse clock costs a few nanoseconds and is exact to a few milliseconds.
        let now = rustix::time::clock_gettime(ClockId::MonotonicCoarse);
        let since = |then: Timespec| {
            let seconds = now.tv_sec - then.tv_sec;
            Duration::from_nanos((seconds * 1_000_000_000 + now.tv_nsec - then.tv_nsec) as u64)
        };
        let due = self.looked_at.is_some_and(|then| since(then) >= CHECKUP_INTERVAL);
        if due || self.looked_at.is_none() {
            self.looked_at = Some(now);
        }
        due
    }

    fn check_failure_word(&mut self) -> Result<(), Lost> {
        if self.lost.is_none() {
            // Acquire: pairs with the Release in `report` of the rank that failed.
            let word = self.rings.segment.head().failure.0.load(Ordering::Acquire);
            self.lost = Lost::from_word(word);
        }
        match self.lost {
            None => Ok(()),
            Some(lost) => {
                self.running = None;
                Err(lost)
            }
        }
    }

    /// Looks at the failure word, and at the peer that is waited for.
    #[cold]
    fn look_after(&mut self, awaited: Awaited) -> Result<(), Lost> {
        self.check_failure_word()?;
        let local_rank = awaited.peer;
        // Acquire: pairs with the Release in `drop` of the peer, after its last publication.
        let departed = self.rings.segment.control(local_rank).departed.load(Ordering::Acquire) != 0;
        let cause = if departed {
            LostCause::Left
        } else if self.watches[local_rank as usize].has_ended() {
            LostCause::Died
        } else {
            return Ok(());
        };
        // It may have done its part before it went.
        if self.rings.is_met(awaited) {
            return Ok(());
        }
        self.report(Lost { local_rank, cause });
        self.check_failure_word()
    }

    /// Tells all ranks, unless another failure was told before.
    fn report(&self, lost: Lost) {
        let word = &self.rings.segment.head().failure.0;
        // Release: pairs with the Acquire in `check_failure_word`. The first report stands, so that
        // all ranks name the same culprit.
        let _ = word.compare_exchange(0, lost.to_word(), Ordering::Release, Ordering::Relaxed);
        self.rings.wake_everyone();
    }
}

impl Drop for HostGroup {
    fn drop(&mut self) {
        if self.running.is_some() {
            self.report(Lost { local_rank: self.rings.local_rank, cause: LostCause::Left });
        }
        let control = self.rings.segment.control(self.rings.local_rank);
        // Release: pairs with the Acquire in `look_after`: what was published before is seen.
        control.departed.store(1, Ordering::Release);
    }
}

impl Running {
    /// The first step of `operation`; none if there is nothing to do or nobody to do it with.
    fn new(operation: Operation, ranks: u32) -> Option<Self> {
        let element_bytes = match operation.action {
            Action::Allreduce(kernel) | Action::Reduce { kernel, .. } => kernel.element_bytes(),
            Action::Broadcast { .. } | Action::Transfer { .. } | Action::Barrier => 1,
        };
        debug_assert!(operation.len_bytes.is_multiple_of(element_bytes));
        let is_barrier = matches!(operation.action, Action::Barrier);
        if ranks == 1 {
            let reduces = matches!(operation.action, Action::Allreduce(_) | Action::Reduce { .. });
            if reduces && operation.source != operation.target {
                // SAFETY: valid for `len_bytes` and not overlapping, by the promise to `start`.
                unsafe { copy(operation.source, operation.target, operation.len_bytes) };
            }
            return None;
        }
        if operation.len_bytes == 0 && !is_barrier {
            return None;
        }
        let short = operation.len_bytes <= RINGS[SHORT_RING].capacity_bytes || is_barrier;
        let ring = if short { SHORT_RING } else { LONG_RING };
        let recipe = Recipe::new(&operation.action, ranks, short);
        let capacity_bytes = RINGS[ring].capacity_bytes;
        Some(Self {
            operation,
            recipe,
            ring,
            piece_bytes: capacity_bytes - capacity_bytes % element_bytes,
            offset: 0,
            step: recipe.first,
            published: false,
            seen: 0,
        })
    }

    /// Length of the current piece.
    fn len_bytes(&self) -> usize {
        match self.operation.action {
            Action::Barrier => 0,
            _ => self.piece_bytes.min(self.operation.len_bytes - self.offset),
        }
    }

    fn kernel(&self) -> Option<&'static dyn Combine> {
        match self.operation.action {
            Action::Allreduce(kernel) | Action::Reduce { kernel, .. } => Some(kernel),
            Action::Broadcast { .. } | Action::Transfer { .. } | Action::Barrier => None,
        }
    }

    /// Whether the reader of a gather must put its own contribution aside, because the result
    /// overwrites it.
    fn stages_own(&self) -> bool {
        matches!(self.step, Step::Gather { .. })
            && ptr::eq(self.operation.source, self.operation.target)
    }

    fn writes(&self, rank: u32) -> bool {
        self.step.has_writer(rank) || self.step.has_reader(rank) && self.stages_own()
    }

    /// Goes to the next step; false if there is none.
    fn next_step(&mut self) -> bool {
        self.published = false;
        self.seen = 0;
        if let Some(second) = self.recipe.second
            && self.step == self.recipe.first
        {
            self.step = second;
            return true;
        }
        self.offset += self.len_bytes();
        self.step = self.recipe.first;
        !matches!(self.operation.action, Action::Barrier) && self.offset < self.operation.len_bytes
    }

    /// Looks for the flags of all writers but this rank.
    fn await_writers(&mut self, rings: &mut Rings) -> Result<(), Awaited> {
        let own = rings.local_rank;
        let ring = self.ring;
        while self.seen < rings.ranks {
            let peer = self.seen;
            if peer != own && self.step.has_writer(peer) && !rings.is_filled(ring, peer) {
                let step = rings.step(ring);
                return Err(Awaited { peer, ring, step, event: AwaitedEvent::Filled });
            }
            self.seen += 1;
        }
        if !matches!(self.step, Step::Spread { .. } | Step::Transfer { .. }) {
            rings.note_all_filled(ring);
        }
        Ok(())
    }

    /// Fills this rank's slot.
    ///
    /// # Safety
    /// The slot is claimed and not published; for a `Collect`, all flags of the step before were
    /// seen.
    unsafe fn produce(&self, rings: &mut Rings) {
        let len_bytes = self.len_bytes();
        let ring = self.ring;
        if self.step.is_collect() {
            // SAFETY: as the caller promises.
            return unsafe { self.produce_share(rings) };
        }
        let released = matches!(
            (self.step, self.operation.action),
            (Step::Spread { .. }, Action::Allreduce(_))
        );
        let from =
            if released { self.operation.target.cast_const() } else { self.operation.source };
        if len_bytes > 0 {
            // SAFETY: the piece lies within the caller's buffer; the slot is claimed, and the
            // buffer is not in the segment.
            unsafe { copy_short(from.add(self.offset), rings.own_slot(ring, len_bytes)) };
        }
    }

    /// Reduces this rank's share of the scattered pieces into its slot.
    unsafe fn produce_share(&self, rings: &mut Rings) {
        let kernel = self.kernel().expect("only reductions are scattered");
        let (ring, len_bytes) = (self.ring, self.len_bytes());
        let (own, ranks) = (rings.local_rank, rings.ranks);
        let share = share(len_bytes, kernel.element_bytes(), own, ranks);
        let step = rings.step(ring);
        let payload = rings.segment.payload(ring, own, step);
        // SAFETY: the share lies within the claimed slot, and no one else has a slice of it.
        let target = unsafe { slice::from_raw_parts_mut(payload.add(share.start), share.len()) };
        reduce_in_order(kernel, target, ranks, |rank, part| {
            // SAFETY: all flags of the step before were seen, and its counter is published only
            // after this step; its slots are others than this step's, for there are at least two.
            let piece = unsafe { rings.slot(ring, rank, step - 1, len_bytes) };
            &piece[share.start + part.start..share.start + part.end]
        });
    }

    /// Takes what this step brings to this rank.
    ///
    /// # Safety
    /// All writers' flags were seen.
    unsafe fn consume(&self, rings: &Rings) {
        let len_bytes = self.len_bytes();
        if len_bytes == 0 {
            return;
        }
        let step = rings.step(self.ring);
        match self.step {
            Step::Scatter => {}
            // SAFETY: as the caller promises.
            Step::Exchange | Step::Gather { .. } => unsafe { self.consume_reducing(rings) },
            Step::Spread { from } | Step::Transfer { from, .. } => {
                // SAFETY: the flag of `from` was seen; the piece lies within the caller's buffer.
                unsafe {
                    let piece = rings.slot(self.ring, from, step, len_bytes);
                    copy(piece.as_ptr(), self.operation.target.add(self.offset), len_bytes);
                }
            }
            Step::Collect { .. } => {
                let element_bytes = self.kernel().map_or(1, Combine::element_bytes);
                for rank in 0..rings.ranks {
                    let share = share(len_bytes, element_bytes, rank, rings.ranks);
                    // SAFETY: the flag of `rank` was seen (or it is this rank's own slot); the
                    // share lies within the piece, and that within the caller's buffer.
                    unsafe {
                        let piece = &rings.slot(self.ring, rank, step, len_bytes)[share.clone()];
                        let target = self.operation.target.add(self.offset + share.start);
                        copy(piece.as_ptr(), target, share.len());
                    }
                }
            }
        }
    }

    /// Reduces the pieces of all ranks into the target.
    unsafe fn consume_reducing(&self, rings: &Rings) {
        let kernel = self.kernel().expect("only reductions have pieces of all ranks");
        let len_bytes = self.len_bytes();
        let step = rings.step(self.ring);
        let own_from_source = matches!(self.step, Step::Gather { .. }) && !self.stages_own();
        // SAFETY: the piece lies within the caller's buffer, which is apart from the segment, and
        // apart from `source` unless the own piece was put aside.
        let target =
            unsafe { slice::from_raw_parts_mut(self.operation.target.add(self.offset), len_bytes) };
        reduce_in_order(kernel, target, rings.ranks, |rank, part| {
            // SAFETY: the piece of the caller's source, which does not overlap the target; or a
            // slot whose flag was seen, or this rank's own.
            let piece = unsafe {
                if own_from_source && rank == rings.local_rank {
                    slice::from_raw_parts(self.operation.source.add(self.offset), len_bytes)
                } else {
                    rings.slot(self.ring, rank, step, len_bytes)
                }
            };
            &piece[part]
        });
    }
}

/// Copies a contribution into a slot; the commonest lengths without a call.
#[inline]
unsafe fn copy_short(source: *const u8, slot: &mut [u8]) {
    let target = slot.as_mut_ptr();
    // SAFETY: `source` is valid for the slot's length and does not overlap it, by the caller's
    // promise; fixed lengths are those of the slot.
    unsafe {
        match slot.len() {
            8 => ptr::copy_nonoverlapping(source, target, 8),
            4 => ptr::copy_nonoverlapping(source, target, 4),
            len_bytes => ptr::copy_nonoverlapping(source, target, len_bytes),
        }
    }
}

/// Copies `len_bytes`.
unsafe fn copy(source: *const u8, target: *mut u8, len_bytes: usize) {
    // SAFETY: valid and not overlapping, by the caller's promise.
    unsafe { ptr::copy_nonoverlapping(source, target, len_bytes) }
}
