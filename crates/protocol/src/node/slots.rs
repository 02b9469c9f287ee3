//! A window of slots: a group's own, or a tree's, which groups use one after the other to stream.
//!
//! Maps sequence numbers to slots, decides who may open one, and keeps the order of reduction. It
//! knows neither links nor where results go.

use alloc::boxed::Box;
use core::ops::Index;

use tributary_wire::frame::{Abort, AbortReason, Part};
use tributary_wire::{ChildIndex, Operator, Sequence};

use super::FrameError;
use super::group::Child;
use super::slot::{NewestAttempt, Phase, Slot};
use crate::payloads::{Arena, ArenaId, Lane, Payloads, Place, Source};
use crate::{Carrier, Time};

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Slots {
    arena: ArenaId,
    window: u16,
    payload_max_bytes: u32,
    /// Whether members may have a result before this node has it.
    may_be_overtaken: bool,
    slots: Box<[Slot]>,
}

/// What a contribution leads to.
pub(super) enum Outcome {
    /// Other contributions have not come.
    Gathering,
    /// It was counted before.
    Repeat(Repeated),
    /// It was the last.
    Complete,
    /// It does not fit what the others started, or one of them has left.
    Failed(Abort),
}

/// State of the slot when a contribution comes again.
#[derive(Clone, Copy)]
pub(super) enum Repeated {
    /// Its slot waits for others.
    Waiting,
    /// Its slot has the result.
    Done,
    /// Its slot has moved on: the member has had the result.
    Past,
}

/// Whose contribution it is, and when and how it came.
#[derive(Clone, Copy)]
pub(super) struct From {
    pub(super) now: Time,
    pub(super) child: ChildIndex,
    pub(super) carrier: Carrier,
}

impl Slots {
    /// Slots for `window` segments in flight of up to `payload_max_bytes`, from up to `children`
    /// children.
    pub(super) fn new(
        arena: ArenaId,
        window: u16,
        payload_max_bytes: u32,
        children: usize,
    ) -> Self {
        let slots = (0..slots_for(window)).map(|_| Slot::new(children)).collect();
        Self { arena, window, payload_max_bytes, may_be_overtaken: false, slots }
    }

    /// Forgets everything and serves a group with these terms, which are no wider than those that
    /// the slots were made for.
    pub(super) fn start_over(&mut self, window: u16, payload_max_bytes: u32) {
        debug_assert!(slots_for(window) as usize <= self.slots.len());
        (self.window, self.payload_max_bytes) = (window, payload_max_bytes);
        self.slots.iter_mut().for_each(Slot::forget);
    }

    /// Lets members go on with results that have not come to this node, because they came by
    /// multicast.
    ///
    /// The next request of such a member shows that the root had completed the segment. Hence every
    /// child here had contributed to it, and no child will repeat requests from a window before it.
    pub(super) fn let_be_overtaken(&mut self) {
        self.may_be_overtaken = true;
    }

    /// The memory that these slots need.
    pub(super) fn arena(&self, children: u16) -> Arena {
        Arena {
            id: self.arena,
            slots: self.slots.len() as u16,
            children,
            payload_max_bytes: self.payload_max_bytes,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn arena_id(&self) -> ArenaId {
        self.arena
    }

    /// Segments in flight at most.
    pub(super) fn window(&self) -> u16 {
        self.window
    }

    pub(super) fn index_of(&self, sequence: Sequence) -> usize {
        // The number of slots is a power of two, so this stays right when sequences wrap.
        sequence.0 as usize & (self.slots.len() - 1)
    }

    pub(super) fn slot_mut(&mut self, index: usize) -> &mut Slot {
        &mut self.slots[index]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter()
    }

    pub(super) fn accumulator(&self, index: usize) -> Place {
        Place { arena: self.arena, slot: index as u16, lane: Lane::Accumulator }
    }

    fn parked(&self, index: usize, child: ChildIndex) -> Place {
        Place { arena: self.arena, slot: index as u16, lane: Lane::Parked(child) }
    }

    /// Takes a contribution, and reduces all that can be reduced in child order.
    pub(super) fn contribute(
        &mut self,
        children: &[Child],
        from: From,
        part: &Part,
        payload: &[u8],
        payloads: &mut impl Payloads,
    ) -> Result<Outcome, FrameError> {
        let From { child, carrier, .. } = from;
        if part.shape.bytes() > self.payload_max_bytes as usize {
            let bytes = part.shape.bytes() as u32;
            return Err(FrameError::TooLong { bytes, max_bytes: self.payload_max_bytes });
        }
        if children[usize::from(child.0)].has_left {
            return Err(FrameError::WrongPort);
        }
        let index = self.index_of(part.sequence);
        if self.slots[index].is_past(part.sequence) {
            return Ok(Outcome::Repeat(Repeated::Past));
        }
        if !self.slots[index].holds(part.sequence)
            && let Some(abort) = self.open(children, index, part)?
        {
            return Ok(Outcome::Failed(abort));
        }
        let slot = &self.slots[index];
        if slot.arrived.has(child) {
            #[cfg(feature = "planted-bugs")]
            self.count_twice(index, from, payload, payloads);
            let is_done = self.slots[index].phase == Phase::Done;
            return Ok(Outcome::Repeat(if is_done { Repeated::Done } else { Repeated::Waiting }));
        }
        let brings_second_copy = part.has_data
            && part.shape.operator() == Operator::Broadcast
            && slot.data_from.is_some();
        if !slot.agrees_with(part) || brings_second_copy {
            let at_fault = children[usize::from(child.0)].members.start;
            return Ok(Outcome::Failed(Abort { reason: AbortReason::Disagreement, at_fault }));
        }
        self.slots[index]
            .mark_arrived(child, NewestAttempt { carrier, attempt: part.retransmit.attempt });
        if part.shape.operator().is_reduction() {
            self.reduce(children.len(), index, child, payload, payloads);
        } else if part.has_data {
            payloads.store(self.accumulator(index), payload);
            let slot = &mut self.slots[index];
            slot.has_data = true;
            slot.data_from = Some(child);
        }
        let is_complete = self.slots[index].arrived.count() == children.len();
        Ok(if is_complete { Outcome::Complete } else { Outcome::Gathering })
    }

    /// Opens a slot for a segment that it does not hold yet, if the sender has the credit.
    fn open(
        &mut self,
        children: &[Child],
        index: usize,
        part: &Part,
    ) -> Result<Option<Abort>, FrameError> {
        // For honest members the second condition follows from the first. Colluding members could
        // number their segments with gaps.
        if !self.has_credit(part.sequence) || !self.is_spent(&self.slots[index]) {
            let sequence = part.sequence.0;
            return Err(FrameError::OutsideWindow { sequence, osos: self.window });
        }
        if let Some(gone) = children.iter().find(|child| child.has_left) {
            let at_fault = gone.members.start;
            return Ok(Some(Abort { reason: AbortReason::MemberLost, at_fault }));
        }
        self.slots[index].open(part);
        Ok(None)
    }

    /// Whether a segment's result is here, or is not needed any more.
    pub(super) fn is_answered(&self, sequence: Sequence) -> bool {
        let slot = &self.slots[self.index_of(sequence)];
        slot.is_past(sequence) || (slot.holds(sequence) && slot.phase == Phase::Done)
    }

    /// Whether the segment a window later may be sent while this slot is in its present phase.
    fn is_spent(&self, slot: &Slot) -> bool {
        slot.phase == Phase::Done || (self.may_be_overtaken && slot.phase == Phase::Forwarded)
    }

    /// Whether a member may have this segment in flight. Everything a window before it must be
    /// complete at the member, hence here.
    fn has_credit(&self, sequence: Sequence) -> bool {
        let earlier = Sequence(sequence.0.wrapping_sub(u32::from(self.window)));
        let slot = &self.slots[self.index_of(earlier)];
        match slot.part {
            Some(_) => slot.holds(earlier) && self.is_spent(slot),
            // The slot was never used: the group is still in its first window.
            None => sequence.distance_from(Sequence::FIRST) < u32::from(self.window),
        }
    }

    /// One of the bugs that the swarm has to find.
    #[cfg(feature = "planted-bugs")]
    fn count_twice(
        &mut self,
        index: usize,
        from: From,
        payload: &[u8],
        payloads: &mut impl Payloads,
    ) {
        use crate::planted::{Bug, is_planted};
        let is_datagram = from.carrier == Carrier::Datagram;
        let bug = if is_datagram { Bug::DoubleDatagram } else { Bug::DoubleCount };
        if !is_planted(bug) {
            return;
        }
        let child = from.child;
        let slot = &self.slots[index];
        let shape = slot.shape();
        let is_counted = child.0 < slot.next_child && slot.phase == Phase::Gathering;
        if is_counted && shape.operator().is_reduction() {
            payloads.fold(self.accumulator(index), shape, Source::Frame(payload));
        }
    }

    /// Reduces a contribution if those of all earlier children are reduced, and then every parked
    /// one that follows; parks it otherwise. So contributions are reduced in child order, whatever
    /// the order of arrival.
    fn reduce(
        &mut self,
        children: usize,
        index: usize,
        child: ChildIndex,
        payload: &[u8],
        payloads: &mut impl Payloads,
    ) {
        let accumulator = self.accumulator(index);
        let shape = self.slots[index].shape();
        if child.0 != self.slots[index].next_child {
            payloads.park(self.parked(index, child), payload);
            return;
        }
        if child.0 == 0 {
            payloads.begin(accumulator, shape, Source::Frame(payload));
        } else {
            payloads.fold(accumulator, shape, Source::Frame(payload));
        }
        let mut next = child.0 + 1;
        while usize::from(next) < children && self.slots[index].arrived.has(ChildIndex(next)) {
            let parked = self.parked(index, ChildIndex(next));
            payloads.fold(accumulator, shape, Source::Parked(parked));
            next += 1;
        }
        let slot = &mut self.slots[index];
        slot.next_child = next;
        slot.has_data = true;
    }
}

impl Index<usize> for Slots {
    type Output = Slot;

    fn index(&self, index: usize) -> &Slot {
        &self.slots[index]
    }
}

/// Slots for `window` segments in flight: twice as many, because slower members may still need
/// earlier results, rounded up to a power of two, so that sequence numbers map to slots across the
/// wrap.
pub(super) fn slots_for(window: u16) -> u16 {
    (2 * window).next_power_of_two()
}
