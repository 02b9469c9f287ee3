//! A window of slots: those of a group, or those that a tree's streams use in turn.
//!
//! Owns which slot a sequence number has, who may open it, and the order of reduction in it. Knows
//! neither links nor where results go.

use alloc::boxed::Box;
use core::ops::Index;

use tributary_wire::frame::{Abort, AbortReason, Part};
use tributary_wire::{ChildIndex, Operator, Sequence};

use super::FrameError;
use super::group::Child;
use super::slot::{Heard, Phase, Slot};
use crate::payloads::{Arena, ArenaId, Lane, Payloads, Place, Source};
use crate::{Carrier, Time};

/// See the module's page.
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
    /// Others are still missing.
    Gathering,
    /// It was counted before.
    Repeat(Repeated),
    /// It was the last.
    Complete,
    /// It cannot belong to what the others started, or one of them has left.
    Failed(Abort),
}

/// Which repeat of a contribution that was counted before.
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

    /// Lets members go on with results that have not come to this node, because they are multicast.
    ///
    /// The next request of such a member shows that the root had the segment complete, hence that
    /// every child here had contributed to it, and that nobody will ask this node for what lies a
    /// window before it.
    pub(super) fn let_be_overtaken(&mut self) {
        self.may_be_overtaken = true;
    }

    /// The memory that goes with them.
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

    /// Takes one contribution in, and reduces what has become due.
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
        self.slots[index].mark_arrived(child, Heard { carrier, attempt: part.trail.attempt });
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

    /// Opens a slot for a segment it doesn't hold yet, if the sender has the credit.
    fn open(
        &mut self,
        children: &[Child],
        index: usize,
        part: &Part,
    ) -> Result<Option<Abort>, FrameError> {
        // The second condition follows from the first for every honest group; members in league
        // could still number their segments with gaps.
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

    /// Whether a segment's result is here, or no longer wanted.
    pub(super) fn is_answered(&self, sequence: Sequence) -> bool {
        let slot = &self.slots[self.index_of(sequence)];
        slot.is_past(sequence) || (slot.holds(sequence) && slot.phase == Phase::Done)
    }

    /// Whether a slot's segment may be followed by the one that needs it to be complete.
    fn is_spent(&self, slot: &Slot) -> bool {
        slot.phase == Phase::Done || (self.may_be_overtaken && slot.phase == Phase::Forwarded)
    }

    /// Whether a member may have this segment in flight: all it sent a window ago must be complete
    /// here, because it must be complete at the member.
    fn has_credit(&self, sequence: Sequence) -> bool {
        let earlier = Sequence(sequence.0.wrapping_sub(u32::from(self.window)));
        let slot = &self.slots[self.index_of(earlier)];
        match slot.part {
            Some(_) => slot.holds(earlier) && self.is_spent(slot),
            // Never used: the window is still in its first segments.
            None => sequence.distance_from(Sequence::FIRST) < u32::from(self.window),
        }
    }

    /// One of the bugs that the simulator's swarm has to find.
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

    /// Reduces a contribution if it is its child's turn, and then every parked one whose turn it
    /// has become; parks it otherwise. So the order of reduction is the order of children, whatever
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

/// Slots that `window` segments in flight need: as many again for results still wanted by members
/// that lag, rounded up so that a wrapping sequence number keeps choosing the same slot.
pub(super) fn slots_for(window: u16) -> u16 {
    (2 * window).next_power_of_two()
}
