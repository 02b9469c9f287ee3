//! Short operations of a blocking call: one step, straight through.
//!
//! What `Running` does for operations that may stop at any step, for those that take a single one.
//! The slots and the counting of steps are the same, so some ranks may come this way and others poll
//! `Running`.

use std::mem::MaybeUninit;
use std::{ptr, slice};

use super::combine::{Combine, reduce_in_order};
use super::failure::Lost;
use super::group::HostGroup;
use super::operation::{Action, Operation};
use super::ring::{Awaited, AwaitedEvent};
use super::running::{consume_traded, copy_short};
use super::scan::{is_traded_scan, reduce_prefix};
use super::segment::{LINE_RING, RINGS, TRADE_RING};

impl HostGroup {
    /// Runs `operation` if it takes one short step; `None` if it takes more.
    ///
    /// # Safety
    /// As [`run`](Self::run); no operation is in progress.
    #[inline]
    pub(super) unsafe fn run_at_once(&mut self, operation: &Operation) -> Option<Result<(), Lost>> {
        // A rank that only sends would never look at it else.
        if let Err(lost) = self.check_failure_word() {
            return Some(Err(lost));
        }
        let ranks = self.rings.ranks;
        let len_bytes = operation.len_bytes;
        let is_one_line = (1..=RINGS[LINE_RING].capacity_bytes).contains(&len_bytes);
        // SAFETY: the caller's promise, in all arms.
        unsafe {
            match operation.action {
                Action::Allreduce(kernel) if ranks == 2 => {
                    let fits = (1..=RINGS[TRADE_RING].capacity_bytes).contains(&len_bytes);
                    fits.then(|| self.trade_and_reduce(kernel, operation))
                }
                Action::Barrier if ranks == 2 => Some(self.trade(ptr::null(), 0)),
                Action::Broadcast { from } if is_one_line && ranks > 1 => {
                    Some(self.broadcast_line(from, operation))
                }
                Action::Reduce { to, kernel } if is_one_line && ranks > 1 => {
                    Some(self.reduce_lines(to, kernel, operation))
                }
                Action::Scan { kernel, inclusive } if is_traded_scan(len_bytes, ranks) => {
                    Some(self.trade_and_scan(kernel, inclusive, operation))
                }
                Action::Scan { kernel, inclusive } if is_one_line && ranks > 1 => {
                    Some(self.scan_lines(kernel, inclusive, operation))
                }
                _ => None,
            }
        }
    }

    /// An allreduce of at most one box between two ranks.
    #[inline]
    unsafe fn trade_and_reduce(
        &mut self,
        kernel: &dyn Combine,
        operation: &Operation,
    ) -> Result<(), Lost> {
        // SAFETY: the caller's promise.
        unsafe { self.trade_unfinished(operation.source, operation.len_bytes)? };
        // SAFETY: the peer's flag was seen just now; the buffers are the caller's.
        unsafe { consume_traded(&self.rings, kernel, operation) };
        self.rings.finish(TRADE_RING, true);
        Ok(())
    }

    /// A scan between two ranks that trade boxes, though the first needs nothing from the second.
    unsafe fn trade_and_scan(
        &mut self,
        kernel: &dyn Combine,
        inclusive: bool,
        operation: &Operation,
    ) -> Result<(), Lost> {
        let &Operation { source, target, len_bytes, .. } = operation;
        // SAFETY: the caller's promise; afterwards the peer's flag was seen, and its box is read
        // before this rank's next step.
        unsafe {
            self.trade_unfinished(source, len_bytes)?;
            match (self.rings.local_rank, inclusive) {
                (1, true) => consume_traded(&self.rings, kernel, operation),
                (1, false) => {
                    let step = self.rings.step(TRADE_RING);
                    let first = self.rings.slot(TRADE_RING, 0, step, len_bytes);
                    copy_short(first.as_ptr(), slice::from_raw_parts_mut(target, len_bytes));
                }
                (_, true) if source != target.cast_const() => {
                    copy_short(source, slice::from_raw_parts_mut(target, len_bytes));
                }
                _ => {}
            }
        }
        self.rings.finish(TRADE_RING, true);
        Ok(())
    }

    /// Gives the peer `len_bytes`, and waits for its box.
    #[inline]
    unsafe fn trade(&mut self, source: *const u8, len_bytes: usize) -> Result<(), Lost> {
        // SAFETY: the caller's promise.
        unsafe { self.trade_unfinished(source, len_bytes)? };
        self.rings.finish(TRADE_RING, true);
        Ok(())
    }

    #[inline]
    unsafe fn trade_unfinished(&mut self, source: *const u8, len_bytes: usize) -> Result<(), Lost> {
        if len_bytes > 0 {
            // SAFETY: a traded box is free in its step; `source` is valid for `len_bytes` by the
            // caller's promise, and not in the segment, which only this module has slices of.
            unsafe { copy_short(source, self.rings.own_slot(TRADE_RING, len_bytes)) };
        }
        self.rings.publish(TRADE_RING, len_bytes);
        self.await_slot_of(TRADE_RING, 1 - self.rings.local_rank)
    }

    /// A broadcast of at most one line.
    unsafe fn broadcast_line(&mut self, from: u32, operation: &Operation) -> Result<(), Lost> {
        let &Operation { source, target, len_bytes, .. } = operation;
        if self.rings.local_rank == from {
            // SAFETY: the caller's promise.
            return unsafe { self.send_line(source, len_bytes) };
        }
        self.await_slot_of(LINE_RING, from)?;
        let step = self.rings.step(LINE_RING);
        // SAFETY: the flag of `from` was seen; the target is the caller's, apart from the segment.
        unsafe {
            let line = self.rings.slot(LINE_RING, from, step, len_bytes);
            copy_short(line.as_ptr(), slice::from_raw_parts_mut(target, len_bytes));
        }
        self.rings.finish(LINE_RING, true);
        Ok(())
    }

    /// A reduction of at most one line.
    unsafe fn reduce_lines(
        &mut self,
        to: u32,
        kernel: &dyn Combine,
        operation: &Operation,
    ) -> Result<(), Lost> {
        let &Operation { source, target, len_bytes, .. } = operation;
        let own = self.rings.local_rank;
        if own != to {
            // SAFETY: the caller's promise.
            return unsafe { self.send_line(source, len_bytes) };
        }
        for peer in self.rings.peers() {
            self.await_slot_of(LINE_RING, peer)?;
        }
        let mut aside = [MaybeUninit::<u8>::uninit(); RINGS[LINE_RING].capacity_bytes];
        // SAFETY: the contribution is not longer than a line; the copy is apart from the target,
        // even where the two are one.
        let mine = unsafe {
            let aside = slice::from_raw_parts_mut(aside.as_mut_ptr().cast::<u8>(), len_bytes);
            copy_short(source, aside);
            &*aside
        };
        // SAFETY: the caller's, apart from the segment and from the copy.
        let result = unsafe { slice::from_raw_parts_mut(target, len_bytes) };
        let rings = &self.rings;
        let step = rings.step(LINE_RING);
        reduce_in_order(kernel, result, rings.ranks, |rank, part| {
            if rank == own {
                return &mine[part];
            }
            // SAFETY: the flag of `rank` was seen above.
            unsafe { &rings.slot(LINE_RING, rank, step, len_bytes)[part] }
        });
        self.rings.note_all_filled(LINE_RING);
        self.rings.finish(LINE_RING, true);
        Ok(())
    }

    /// A scan of at most one line: every rank but the last sends, and reads those before it.
    unsafe fn scan_lines(
        &mut self,
        kernel: &dyn Combine,
        inclusive: bool,
        operation: &Operation,
    ) -> Result<(), Lost> {
        let &Operation { source, target, len_bytes, .. } = operation;
        let own = self.rings.local_rank;
        let mut aside = [MaybeUninit::<u8>::uninit(); RINGS[LINE_RING].capacity_bytes];
        // SAFETY: the contribution is not longer than a line; the copy is apart from the target,
        // even where the two are one.
        let mine = unsafe {
            let aside = slice::from_raw_parts_mut(aside.as_mut_ptr().cast::<u8>(), len_bytes);
            copy_short(source, aside);
            &*aside
        };
        if own + 1 < self.rings.ranks {
            // SAFETY: the caller's promise.
            unsafe { self.publish_line(source, len_bytes)? };
        }
        for peer in 0..own {
            self.await_slot_of(LINE_RING, peer)?;
        }
        let contributions = own + u32::from(inclusive);
        if contributions > 0 {
            // SAFETY: the caller's, apart from the segment and from the copy; a rank without a
            // result does not get here.
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
    unsafe fn send_line(&mut self, source: *const u8, len_bytes: usize) -> Result<(), Lost> {
        // SAFETY: the caller's promise.
        unsafe { self.publish_line(source, len_bytes)? };
        self.rings.finish(LINE_RING, true);
        Ok(())
    }

    /// Publishes a line of the step to come.
    unsafe fn publish_line(&mut self, source: *const u8, len_bytes: usize) -> Result<(), Lost> {
        while let Err(awaited) = self.rings.claim(LINE_RING) {
            self.wait_for(awaited)?;
        }
        // SAFETY: claimed just now; `source` is valid by the caller's promise, and not in the
        // segment.
        unsafe { copy_short(source, self.rings.own_slot(LINE_RING, len_bytes)) };
        self.rings.publish(LINE_RING, len_bytes);
        Ok(())
    }

    /// Waits until `peer` has filled its slot of the step to come.
    #[inline]
    fn await_slot_of(&mut self, ring: usize, peer: u32) -> Result<(), Lost> {
        if self.rings.is_filled(ring, peer) {
            return Ok(());
        }
        let step = self.rings.step(ring);
        self.wait_for(Awaited { peer, ring, step, event: AwaitedEvent::Filled })
    }
}
