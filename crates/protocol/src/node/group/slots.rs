//! A window of slots: a group's own, or a tree's, which groups use one after the other to stream.
//!
//! Maps sequence numbers to slots, decides who may open one, and keeps the order of reduction. It
//! knows neither links nor where results go.

use alloc::boxed::Box;
use core::ops::Index;

use tributary_wire::frame::{AbortReason, Part};
use tributary_wire::{ChildIndex, Operator, Sequence};

use super::child::Child;
use super::error::GroupError;
use super::slot::{NewestAttempt, Phase, Slot};
use crate::node::FrameError;
use crate::node::planted_hooks;
use crate::payloads::{Arena, ArenaId, Lane, Payloads, Place, Source};
use crate::{Carrier, Time};

/// See the module documentation.
#[derive(Debug)]
pub(in crate::node) struct Slots {
    arena: ArenaId,
    window: u16,
    payload_max_bytes: u32,
    /// Whether members may have a result before this aggregator has it.
    may_members_be_ahead: bool,
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

/// Which child a frame came from, when and how.
#[derive(Clone, Copy, Debug)]
pub(in crate::node) struct Origin {
    pub(in crate::node) now: Time,
    pub(in crate::node) child: ChildIndex,
    pub(in crate::node) carrier: Carrier,
}

impl Slots {
    /// Slots for `window` segments in flight of up to `payload_max_bytes`, from up to `children`
    /// children.
    pub(in crate::node) fn new(
        arena: ArenaId,
        window: u16,
        payload_max_bytes: u32,
        children: usize,
    ) -> Self {
        let slots = (0..slots_for(window)).map(|_| Slot::new(children)).collect();
        Self { arena, window, payload_max_bytes, may_members_be_ahead: false, slots }
    }

    /// Forgets everything and serves a group with these terms, which are no wider than those that
    /// the slots were made for.
    pub(super) fn start_over(&mut self, window: u16, payload_max_bytes: u32) {
        debug_assert!(slots_for(window) as usize <= self.slots.len());
        (self.window, self.payload_max_bytes) = (window, payload_max_bytes);
        self.slots.iter_mut().for_each(Slot::forget);
    }

    /// Lets members go on with results that have not come to this aggregator, because they came by
    /// multicast.
    ///
    /// The next request of such a member shows that the root had completed the segment. Hence every
    /// child here had contributed to it, and no child will repeat requests from a window before it.
    pub(super) fn allow_members_ahead(&mut self) {
        self.may_members_be_ahead = true;
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

    fn parking_place(&self, index: usize, child: ChildIndex) -> Place {
        Place { arena: self.arena, slot: index as u16, lane: Lane::Parked(child) }
    }

    /// Takes a contribution, and reduces all that can be reduced in child order.
    pub(super) fn contribute(
        &mut self,
        children: &[Child],
        origin: Origin,
        part: &Part,
        payload: &[u8],
        payloads: &mut impl Payloads,
    ) -> Result<Outcome, GroupError> {
        let Origin { child, carrier, .. } = origin;
        if part.shape.bytes() > self.payload_max_bytes as usize {
            let bytes = part.shape.bytes() as u32;
            return Err(FrameError::TooLong { bytes, max_bytes: self.payload_max_bytes }.into());
        }
        if children[usize::from(child.0)].has_left {
            return Err(FrameError::WrongPort.into());
        }
        let index = self.index_of(part.sequence);
        if self.slots[index].is_past(part.sequence) {
            return Ok(Outcome::Repeat(Repeated::Past));
        }
        if !self.slots[index].holds(part.sequence) {
            self.open(children, index, part)?;
        }
        let slot = &self.slots[index];
        if slot.arrived.has(child) {
            let is_done = slot.phase == Phase::Done;
            let folded = (slot.phase == Phase::Gathering).then_some(slot.next_child);
            let at = (self.accumulator(index), slot.shape());
            planted_hooks::count_twice((child, carrier), folded, at, payload, payloads);
            return Ok(Outcome::Repeat(if is_done { Repeated::Done } else { Repeated::Waiting }));
        }
        let brings_second_copy = part.has_data
            && part.shape.operator() == Operator::Broadcast
            && slot.data_from.is_some();
        if !slot.agrees_with(part) || brings_second_copy {
            return Err(children[usize::from(child.0)].abort(AbortReason::Disagreement).into());
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
    fn open(&mut self, children: &[Child], index: usize, part: &Part) -> Result<(), GroupError> {
        // For honest members the second condition follows from the first. Colluding members could
        // number their segments with gaps.
        if !self.has_credit(part.sequence) || !self.is_spent(&self.slots[index]) {
            let sequence = part.sequence.0;
            return Err(FrameError::OutsideWindow { sequence, osos: self.window }.into());
        }
        if let Some(gone) = children.iter().find(|child| child.has_left) {
            return Err(gone.abort(AbortReason::MemberLost).into());
        }
        self.slots[index].open(part);
        Ok(())
    }

    /// Whether a segment's result is here, or is not needed any more.
    pub(super) fn is_answered(&self, sequence: Sequence) -> bool {
        let slot = &self.slots[self.index_of(sequence)];
        slot.is_past(sequence) || (slot.holds(sequence) && slot.phase == Phase::Done)
    }

    /// The slot of the lowest number that lacks contributions; if none does, of the lowest that lacks its result.
    /// Results that came to all members by multicast may never come here.
    pub(super) fn oldest_open(&self) -> Option<&Slot> {
        self.oldest_in(Phase::Gathering).or_else(|| self.oldest_in(Phase::Forwarded))
    }

    /// All lie within two windows of each other.
    fn oldest_in(&self, phase: Phase) -> Option<&Slot> {
        let of_phase = self.iter().filter(|slot| slot.phase == phase).filter_map(|slot| slot.part);
        let earliest = Sequence::earliest(of_phase.map(|part| part.sequence))?;
        Some(&self[self.index_of(earliest)])
    }

    /// Whether the segment a window later may be sent while this slot is in its present phase.
    fn is_spent(&self, slot: &Slot) -> bool {
        slot.phase == Phase::Done || (self.may_members_be_ahead && slot.phase == Phase::Forwarded)
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
            payloads.park(self.parking_place(index, child), payload);
            return;
        }
        if child.0 == 0 {
            payloads.begin(accumulator, shape, Source::Frame(payload));
        } else {
            payloads.fold(accumulator, shape, Source::Frame(payload));
        }
        let mut next = child.0 + 1;
        while usize::from(next) < children && self.slots[index].arrived.has(ChildIndex(next)) {
            let parked = self.parking_place(index, ChildIndex(next));
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
pub(in crate::node) fn slots_for(window: u16) -> u16 {
    (2 * window).next_power_of_two()
}
