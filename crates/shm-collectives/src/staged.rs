//! The operation in progress: what it writes and reads in each of its steps.
//!
//! Everything that touches the caller's buffers for longer than one short exchange is here.

use std::ptr;
use std::slice;

use super::combine::{Combine, reduce_in_order};
use super::copy::{copy, copy_short};
use super::exchange::consume_exchanged;
use super::operation::{Action, Operation, Schedule, Step, share};
use super::ring::{Awaited, AwaitedEvent, Rings};
use super::segment::{EXCHANGE_RING, LINE_RING, LONG_RING, RINGS, SHORT_RING};

/// The operation in progress and how far it is.
pub(super) struct Staged {
    operation: Operation,
    schedule: Schedule,
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

impl Staged {
    /// The first step of `operation`; none if there is nothing to do or nobody to do it with.
    pub(super) fn new(operation: Operation, ranks: u32) -> Option<Self> {
        let element_bytes = operation.action.kernel().map_or(1, Combine::element_bytes);
        debug_assert!(operation.len_bytes.is_multiple_of(element_bytes));
        let is_barrier = matches!(operation.action, Action::Barrier);
        if ranks == 1 {
            let reduces = matches!(operation.action, Action::Allreduce(_) | Action::Reduce { .. });
            if reduces && operation.source != operation.target {
                // SAFETY: both are valid for `len_bytes`, and do not overlap, by the contract of
                // `start`; that they are not one is checked above.
                unsafe { copy(operation.source, operation.target, operation.len_bytes) };
            }
            return None;
        }
        if operation.len_bytes == 0 && !is_barrier {
            return None;
        }
        let short = operation.len_bytes <= RINGS[SHORT_RING].capacity_bytes || is_barrier;
        let schedule = Schedule::new(&operation.action, ranks, short);
        let ring = ring_for(&operation, schedule, ranks, short);
        let capacity_bytes = RINGS[ring].capacity_bytes;
        Some(Self {
            operation,
            schedule,
            ring,
            piece_bytes: capacity_bytes - capacity_bytes % element_bytes,
            offset: 0,
            step: schedule.first,
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
        self.operation.action.kernel()
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

    /// Drives the operation until it is done or something must be awaited.
    pub(super) fn advance(&mut self, rings: &mut Rings) -> Result<(), Awaited> {
        loop {
            let step = self.step;
            if !self.published && self.writes(rings.local_rank) {
                rings.claim(self.ring)?;
                // SAFETY: claimed just now, not published; a `Collect` follows a `Scatter`, which
                // has awaited all writers.
                unsafe { self.produce(rings) };
                rings.publish(self.ring, self.len_bytes());
            }
            self.published = true;
            if step.has_reader(rings.local_rank) {
                self.await_writers(rings)?;
                // SAFETY: `await_writers` has seen all writers' flags.
                unsafe { self.consume(rings) };
            }
            rings.finish(self.ring, step != Step::Scatter);
            if !self.next_step() {
                return Ok(());
            }
        }
    }

    /// The operation, if it is a broadcast of which this rank waits for the first piece.
    pub(super) fn as_awaited_broadcast(&self) -> Option<Operation> {
        let is_it = matches!(self.operation.action, Action::Broadcast { .. }) && self.offset == 0;
        is_it.then_some(self.operation)
    }

    /// Whether this is the last step, and this rank has written what it has to.
    pub(super) fn owes_nothing(&self) -> bool {
        let is_last = self.offset + self.len_bytes() >= self.operation.len_bytes;
        self.published && self.schedule.second.is_none() && is_last
    }

    /// Goes to the next step; false if there is none.
    fn next_step(&mut self) -> bool {
        self.published = false;
        self.seen = 0;
        if let Some(second) = self.schedule.second
            && self.step == self.schedule.first
        {
            self.step = second;
            return true;
        }
        self.offset += self.len_bytes();
        self.step = self.schedule.first;
        !matches!(self.operation.action, Action::Barrier) && self.offset < self.operation.len_bytes
    }

    /// Polls the flags of all writers but this rank.
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
            // SAFETY: the slot is claimed, and all flags of the step before were seen, by this
            // function's contract.
            return unsafe { self.produce_share(rings) };
        }
        let released = matches!(
            (self.step, self.operation.action),
            (Step::Spread { .. }, Action::Allreduce(_))
        );
        let from =
            if released { self.operation.target.cast_const() } else { self.operation.source };
        if len_bytes > 0 {
            // SAFETY: the piece lies within the buffer, valid until the operation is over by the
            // contract of `start`; the slot is claimed, by this function's contract, and the buffer
            // is not in the segment.
            unsafe { copy_short(from.add(self.offset), rings.own_slot(ring, len_bytes)) };
        }
    }

    /// Reduces this rank's share of the scattered pieces into its slot.
    ///
    /// # Safety
    /// The slot is claimed and not published, and all flags of the step before were seen.
    unsafe fn produce_share(&self, rings: &mut Rings) {
        let kernel = self.kernel().expect("only reductions are scattered");
        let (ring, len_bytes) = (self.ring, self.len_bytes());
        let (own, ranks) = (rings.local_rank, rings.ranks);
        let share = share(len_bytes, kernel.element_bytes(), own, ranks);
        let step = rings.step(ring);
        let payload = rings.segment.payload_to_fill(ring, own, step);
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
            Step::Exchange if self.ring == EXCHANGE_RING => {
                let kernel = self.kernel().expect("only reductions exchange data");
                let Operation { source, target, .. } = self.operation;
                // SAFETY: the peer's flag was seen, by this function's contract; `ring_for` gives
                // this ring to groups of two and vectors of one slot; the buffers are valid by the
                // contract of `start`.
                unsafe { consume_exchanged(rings, kernel, source, target, len_bytes) };
            }
            // SAFETY: all writers' flags were seen, by this function's contract.
            Step::Exchange | Step::Gather { .. } => unsafe { self.consume_reducing(rings) },
            Step::Spread { from } | Step::Transfer { from, .. } => {
                // SAFETY: the flag of `from` was seen, by this function's contract; the piece lies
                // within the target, valid by the contract of `start`.
                unsafe {
                    let piece = rings.slot(self.ring, from, step, len_bytes);
                    copy(piece.as_ptr(), self.operation.target.add(self.offset), len_bytes);
                }
            }
            Step::Collect { .. } => {
                let element_bytes = self.kernel().map_or(1, Combine::element_bytes);
                for rank in 0..rings.ranks {
                    let share = share(len_bytes, element_bytes, rank, rings.ranks);
                    // SAFETY: the flag of `rank` was seen, by this function's contract (or it is
                    // this rank's own slot); the share lies within the piece, and that within the
                    // target, valid by the contract of `start`.
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
    ///
    /// # Safety
    /// All writers' flags were seen.
    unsafe fn consume_reducing(&self, rings: &Rings) {
        let kernel = self.kernel().expect("only reductions have pieces of all ranks");
        let len_bytes = self.len_bytes();
        let step = rings.step(self.ring);
        let own_from_source = matches!(self.step, Step::Gather { .. }) && !self.stages_own();
        // SAFETY: the piece lies within the target, valid by the contract of `start`. It is apart
        // from the segment, and from `source` unless the own piece was put into the own slot.
        let target =
            unsafe { slice::from_raw_parts_mut(self.operation.target.add(self.offset), len_bytes) };
        reduce_in_order(kernel, target, rings.ranks, |rank, part| {
            // SAFETY: the piece of the source, which is valid and does not overlap the target here,
            // by the contract of `start`; or a slot whose flag was seen, or this rank's own.
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

/// The ring that an operation's steps use.
fn ring_for(operation: &Operation, schedule: Schedule, ranks: u32, short: bool) -> usize {
    let is_one_line = operation.len_bytes <= RINGS[LINE_RING].capacity_bytes;
    match operation.action {
        _ if !short => LONG_RING,
        Action::Reduce { .. } | Action::Broadcast { .. } if is_one_line => LINE_RING,
        _ if schedule.first == Step::Exchange && ranks == 2 => EXCHANGE_RING,
        _ => SHORT_RING,
    }
}
