//! The blocking call, and its fast path: short operations of one step, straight through.
//!
//! The fast path does for operations of a single step what `staged` does for operations that may
//! stop at any step. Slots and step numbers are the same, so some ranks may take the fast path
//! while others poll a staged operation.

use std::mem::MaybeUninit;
use std::{ptr, slice};

use super::call::{Call, CallKind};
use super::combine::{Combine, reduce_in_order};
use super::copy::copy_short;
use super::exchange::consume_exchanged;
use super::failure::Lost;
use super::group::HostGroup;
use super::job::Job;
use super::operation::{Action, Operation};
use super::scan::reduce_prefix;
use super::segment::{EXCHANGE_RING, LINE_RING, RINGS};
use super::staged::Staged;
use super::waiting::Policy;

impl HostGroup {
    /// Performs one operation and returns when this rank's part of it is done.
    ///
    /// # Errors
    /// A rank was lost. The target is then undefined.
    ///
    /// # Panics
    /// If another operation is in progress, or a rank in `operation` is not one of the group.
    ///
    /// # Safety
    /// `operation.source` and `operation.target` are valid for the lengths that the action asks for,
    /// and are in place as it says or do not overlap; so are the blocks of a reduce-scatter.
    #[inline]
    pub unsafe fn run(&mut self, operation: &Operation) -> Result<(), Lost> {
        // SAFETY: the buffers are valid for this call, by the contract of `run`.
        if let Some(outcome) = unsafe { self.run_at_once(operation) } {
            return outcome;
        }
        // SAFETY: the buffers are valid for this call, by the contract of `run`, and the operation is
        // over when `complete` returns.
        unsafe { self.start(*operation)? };
        self.complete()
    }

    /// Runs `operation` if it takes one short step; `None` if it takes more.
    ///
    /// # Safety
    /// As [`run`](Self::run).
    #[inline]
    unsafe fn run_at_once(&mut self, operation: &Operation) -> Option<Result<(), Lost>> {
        let &Operation { source, target, len_bytes, .. } = operation;
        // SAFETY: the buffers are valid for the lengths of the action by the contract of `run`,
        // which all arms share.
        unsafe {
            match operation.action {
                Action::Allreduce(kernel) => {
                    self.allreduce_of_two(kernel, source, target, len_bytes)
                }
                Action::Barrier => self.barrier_of_two(),
                Action::Broadcast { from } => self.broadcast_line(from, source, target, len_bytes),
                Action::Reduce { to, kernel } => {
                    self.reduce_lines(to, kernel, source, target, len_bytes)
                }
                Action::Scan { kernel, inclusive }
                    if self.is_ready() && self.is_one_line(len_bytes) =>
                {
                    Some(self.scan_lines(kernel, inclusive, operation))
                }
                _ => None,
            }
        }
    }

    /// Whether a vector goes with its flag in one line to another rank.
    #[inline]
    fn is_one_line(&self, len_bytes: usize) -> bool {
        self.rings.ranks > 1 && (1..=RINGS[LINE_RING].capacity_bytes).contains(&len_bytes)
    }

    /// An allreduce among two ranks of `len_bytes` that fit one exchange slot (1 to 4,152 bytes).
    /// `None` if the group or the vector is larger, or another operation is in progress, or a rank
    /// was lost: nothing has been done then, and [`run`](Self::run) does it or says why not.
    ///
    /// # Safety
    /// As [`run`](Self::run).
    #[inline]
    pub unsafe fn allreduce_of_two(
        &mut self,
        kernel: &(impl Combine + ?Sized),
        source: *const u8,
        target: *mut u8,
        len_bytes: usize,
    ) -> Option<Result<(), Lost>> {
        let fits = (1..=RINGS[EXCHANGE_RING].capacity_bytes).contains(&len_bytes);
        if self.rings.ranks != 2 || !fits || !self.is_ready() {
            return None;
        }
        self.rings.begin(Call::of_short(CallKind::Allreduce, kernel.number(), len_bytes, 0));
        // SAFETY: `source` is valid for `len_bytes` by the contract of `run`, and no caller's
        // buffer lies in the segment; an exchange slot is free in its step.
        unsafe { self.rings.fill(EXCHANGE_RING, source, len_bytes) };
        if let Err(lost) = self.await_exchange() {
            return Some(Err(lost));
        }
        // SAFETY: there are two ranks, checked above, and `await_exchange` has seen the peer's
        // flag; the buffers are valid by the contract of `run`, and the vector fits, checked above.
        unsafe { consume_exchanged(&self.rings, kernel, source, target, len_bytes) };
        self.rings.finish(EXCHANGE_RING, true);
        Some(Ok(()))
    }

    /// A barrier of two ranks. `None` as for [`allreduce_of_two`](Self::allreduce_of_two).
    #[inline]
    pub fn barrier_of_two(&mut self) -> Option<Result<(), Lost>> {
        if self.rings.ranks != 2 || !self.is_ready() {
            return None;
        }
        self.rings.begin(Call::BARRIER);
        self.rings.publish(EXCHANGE_RING, 0);
        let outcome = self.await_exchange();
        if outcome.is_ok() {
            self.rings.finish(EXCHANGE_RING, true);
        }
        Some(outcome)
    }

    /// A broadcast of at most one line (1 to 56 bytes), among any number of ranks. `None` as for
    /// [`allreduce_of_two`](Self::allreduce_of_two), or if `from` is no rank of the group.
    ///
    /// # Safety
    /// As [`run`](Self::run).
    #[inline]
    pub unsafe fn broadcast_line(
        &mut self,
        from: u32,
        source: *const u8,
        target: *mut u8,
        len_bytes: usize,
    ) -> Option<Result<(), Lost>> {
        if from >= self.rings.ranks || !self.is_one_line(len_bytes) || !self.is_ready() {
            return None;
        }
        self.rings.begin(Call::of_short(CallKind::Broadcast, 0, len_bytes, from));
        if self.rings.local_rank == from {
            // SAFETY: `source` is valid for `len_bytes` by the contract of `run`, and fits a line,
            // checked above.
            return Some(unsafe { self.send_line(source, len_bytes) });
        }
        let call = self.rings.call();
        if let Err(lost) = self.await_slot_of(LINE_RING, from) {
            return Some(Err(lost));
        }
        if self.rings.call() != call {
            // SAFETY: `target` is valid for `len_bytes`, and so for less, until this call returns, by the contract of
            // `run`.
            return Some(unsafe { self.receive_shorter(from, target) });
        }
        let step = self.rings.step(LINE_RING);
        // SAFETY: `await_slot_of` has seen the flag of `from`; `target` is valid for `len_bytes` by
        // the contract of `run`, and apart from the segment.
        unsafe {
            let line = self.rings.slot(LINE_RING, from, step, len_bytes);
            copy_short(line.as_ptr(), slice::from_raw_parts_mut(target, len_bytes));
        }
        self.rings.finish(LINE_RING, true);
        Some(Ok(()))
    }

    /// A reduction to one rank of at most one line (1 to 56 bytes), among any number of ranks.
    /// `None` as for [`allreduce_of_two`](Self::allreduce_of_two), or if `to` is no rank of the
    /// group.
    ///
    /// # Safety
    /// As [`run`](Self::run).
    #[inline]
    pub unsafe fn reduce_lines(
        &mut self,
        to: u32,
        kernel: &(impl Combine + ?Sized),
        source: *const u8,
        target: *mut u8,
        len_bytes: usize,
    ) -> Option<Result<(), Lost>> {
        if to >= self.rings.ranks || !self.is_one_line(len_bytes) || !self.is_ready() {
            return None;
        }
        self.rings.begin(Call::of_short(CallKind::Reduce, kernel.number(), len_bytes, to));
        if self.rings.local_rank != to {
            // SAFETY: `source` is valid for `len_bytes` by the contract of `run`, and fits a line,
            // checked above.
            return Some(unsafe { self.send_line(source, len_bytes) });
        }
        // Without the iterator of the peers, which takes twenty instructions more.
        for peer in 0..self.rings.ranks {
            if peer == to {
                continue;
            }
            if let Err(lost) = self.await_slot_of(LINE_RING, peer) {
                return Some(Err(lost));
            }
        }
        // SAFETY: `await_slot_of` has seen all flags; the buffers are valid by the contract of
        // `run`.
        unsafe { self.take_lines(kernel, source, target, len_bytes) };
        self.rings.note_all_filled(LINE_RING);
        self.rings.finish(LINE_RING, true);
        Some(Ok(()))
    }

    /// Reduces all ranks' lines of the step to come, this rank's `source` among them.
    ///
    /// # Safety
    /// All flags of the step were seen; the buffers are as [`run`](Self::run) asks.
    #[inline]
    unsafe fn take_lines(
        &self,
        kernel: &(impl Combine + ?Sized),
        source: *const u8,
        target: *mut u8,
        len_bytes: usize,
    ) {
        let (rings, own) = (&self.rings, self.rings.local_rank);
        let mut aside = MaybeUninit::<Aside>::uninit();
        // SAFETY: the contribution is not longer than a line (`is_one_line`); both buffers are
        // valid, and one or apart, by the contract of `run`.
        let mine = unsafe { apart(source, target, len_bytes, &mut aside) };
        // SAFETY: `target` is valid for `len_bytes` by the contract of `run`; it is apart from the
        // segment, and `apart` has made it so from `mine`.
        let result = unsafe { slice::from_raw_parts_mut(target, len_bytes) };
        let step = rings.step(LINE_RING);
        // SAFETY: the flag of every rank was seen.
        let line = |rank: u32| unsafe { rings.slot(LINE_RING, rank, step, len_bytes) };
        if rings.ranks == 2 {
            let (left, right) = if own == 0 { (mine, line(1)) } else { (line(0), mine) };
            return kernel.combine_into(result, left, right);
        }
        reduce_in_order(kernel, result, rings.ranks, |rank, part| {
            if rank == own { &mine[part] } else { &line(rank)[part] }
        });
    }

    /// A scan of at most one line: every rank but the last sends, and reads those before it.
    ///
    /// # Safety
    /// As [`run`](Self::run); the vector is not longer than a line.
    unsafe fn scan_lines(
        &mut self,
        kernel: &dyn Combine,
        inclusive: bool,
        operation: &Operation,
    ) -> Result<(), Lost> {
        let &Operation { source, target, len_bytes, .. } = operation;
        self.rings.begin(Call::of(operation));
        let own = self.rings.local_rank;
        let mut aside = MaybeUninit::<Aside>::uninit();
        // SAFETY: the contribution is not longer than a line (`is_one_line`); both buffers are
        // valid, and one or apart, by the contract of `run`.
        let mine = unsafe { apart(source, target, len_bytes, &mut aside) };
        if own + 1 < self.rings.ranks {
            // SAFETY: `source` is valid by the contract of `run`, and fits a line (`is_one_line`).
            unsafe { self.publish_line(source, len_bytes)? };
        }
        for peer in 0..own {
            self.await_slot_of(LINE_RING, peer)?;
        }
        let contributions = own + u32::from(inclusive);
        if contributions > 0 {
            // SAFETY: this rank has a result, so `target` is valid for it by the contract of `run`;
            // it is apart from the segment, and `apart` has made it so from `mine`.
            let result = unsafe { slice::from_raw_parts_mut(target, len_bytes) };
            let (rings, step) = (&self.rings, self.rings.step(LINE_RING));
            reduce_prefix(kernel, result, contributions, |rank| {
                if rank == own {
                    return mine;
                }
                // SAFETY: the flag of `rank` was seen above.
                unsafe { rings.slot(LINE_RING, rank, step, len_bytes) }
            });
        }
        self.rings.finish(LINE_RING, true);
        Ok(())
    }

    /// Publishes a line and goes on.
    ///
    /// # Safety
    /// As [`publish_line`](Self::publish_line).
    #[inline(always)]
    unsafe fn send_line(&mut self, source: *const u8, len_bytes: usize) -> Result<(), Lost> {
        // SAFETY: this function's contract is that of `publish_line`.
        unsafe { self.publish_line(source, len_bytes)? };
        self.rings.finish(LINE_RING, true);
        Ok(())
    }

    /// Publishes a line of the step to come.
    ///
    /// # Safety
    /// `source` is valid for reading `len_bytes`, which fit a line.
    #[inline(always)]
    unsafe fn publish_line(&mut self, source: *const u8, len_bytes: usize) -> Result<(), Lost> {
        if !self.rings.is_claimed(LINE_RING) {
            self.claim_line()?;
        }
        // SAFETY: claimed just now; `source` is valid by this function's contract, and not in the
        // segment.
        unsafe { self.rings.fill(LINE_RING, source, len_bytes) };
        Ok(())
    }

    /// Waits until this rank's line of the step to come may be overwritten.
    #[cold]
    fn claim_line(&mut self) -> Result<(), Lost> {
        while let Err(awaited) = self.rings.claim(LINE_RING) {
            self.wait_for(awaited)?;
        }
        Ok(())
    }

    /// Waits until the peer of two has filled its exchange slot of the step to come. With a core
    /// for each, this begins with a pause: the two come at the same time, and the slot is not
    /// filled yet.
    #[inline]
    pub(super) fn await_exchange(&mut self) -> Result<(), Lost> {
        let peer = 1 - self.rings.local_rank;
        if self.rings.policy == Policy::Sleep && self.rings.is_filled(EXCHANGE_RING, peer) {
            return Ok(());
        }
        self.wait_for_slot(EXCHANGE_RING, peer)
    }

    /// Takes part in a broadcast that has turned out to be shorter than this rank expected.
    ///
    /// # Safety
    /// `target` is valid for the length that was expected, until this call returns.
    #[cold]
    unsafe fn receive_shorter(&mut self, from: u32, target: *mut u8) -> Result<(), Lost> {
        let len_bytes = self.rings.broadcast_bytes(from);
        let (action, source) = (Action::Broadcast { from }, ptr::null());
        let operation = Operation { action, source, target, len_bytes };
        self.running = Staged::new(operation, self.rings.ranks).map(Job::Staged);
        self.complete()
    }

    /// Waits until `peer` has filled its slot of the step to come.
    #[inline]
    fn await_slot_of(&mut self, ring: usize, peer: u32) -> Result<(), Lost> {
        if self.rings.is_filled(ring, peer) {
            return Ok(());
        }
        self.wait_for_slot(ring, peer)
    }
}

/// Room for a contribution of one line.
type Aside = [u8; RINGS[LINE_RING].capacity_bytes];

/// This rank's contribution, as something that the result does not overwrite: a copy, if the two
/// are one.
///
/// # Safety
/// Both are valid for `len_bytes`, which fit `aside`, and do not overlap unless they are one.
#[inline]
unsafe fn apart(
    source: *const u8,
    target: *const u8,
    len_bytes: usize,
    aside: &mut MaybeUninit<Aside>,
) -> &[u8] {
    let mut mine = source;
    if ptr::eq(source, target) {
        mine = aside.as_ptr().cast();
        // SAFETY: `source` is valid for `len_bytes`, which fit `aside`, by this function's
        // contract.
        unsafe { ptr::copy_nonoverlapping(source, aside.as_mut_ptr().cast::<u8>(), len_bytes) };
    }
    // SAFETY: `source`, which is valid for `len_bytes` by this function's contract, or the copy
    // made just now.
    unsafe { slice::from_raw_parts(mine, len_bytes) }
}
