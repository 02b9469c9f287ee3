//! One rank's view of the rings: claiming, publishing and awaiting slots, sleeping and waking.
//!
//! The argument why slots are safe to reuse is in the documentation of [`super`].

use std::hint::spin_loop;
use std::slice;
use std::time::Duration;

use super::call::{Call, History};
use super::copy::copy_short;
use super::peer_memory::PeerMemory;
use super::segment::{EXCHANGE_RING, LINE_RING, RINGS, SHORT_RING, Segment};
use super::sync::{self, Ordering, fence};
use super::waiting::Policy;

/// Lines that are fetched for writing ahead of time: as many as a core fetches at once.
const PREFETCHED_LINES_MAX: usize = 16;

/// What a rank cannot go on without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Awaited {
    pub(super) peer: u32,
    pub(super) ring: usize,
    pub(super) step: u64,
    pub(super) event: AwaitedEvent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AwaitedEvent {
    /// The peer has filled its slot of the step.
    Filled,
    /// The peer reads no slot of the step, or of an earlier one.
    Done,
}

/// One rank's place in one ring.
#[derive(Clone, Copy, Debug)]
struct RankProgress {
    /// The step to come; the first is 1.
    next: u64,
    /// Every other rank is known to have `done` at least this.
    cleared: u64,
}

/// The rings as one rank uses them.
pub(super) struct Rings {
    pub(super) segment: Segment,
    pub(super) local_rank: u32,
    pub(super) ranks: u32,
    pub(super) policy: Policy,
    places: [RankProgress; RINGS.len()],
    /// What this rank does, and did before.
    call: Call,
    history: History,
    /// What it did before that.
    history_before: History,
    pub(super) peer_memory: PeerMemory,
}

impl Rings {
    pub(super) fn new(
        segment: Segment,
        local_rank: u32,
        policy: Policy,
        peer_memory: PeerMemory,
    ) -> Self {
        let ranks = segment.ranks();
        let places = [RankProgress { next: 1, cleared: 0 }; RINGS.len()];
        let [history, history_before] = [History::default(); 2];
        Self {
            segment,
            local_rank,
            ranks,
            policy,
            places,
            call: Call::NONE,
            history,
            history_before,
            peer_memory,
        }
    }

    /// From now on this rank does this, and its flags say so.
    #[inline]
    pub(super) fn begin(&mut self, call: Call) {
        self.call = call.behind(self.history);
        self.history_before = self.history;
        self.history = self.history.and(call);
    }

    /// What this rank does from now on, it does with a number that others have to have, too.
    pub(super) fn note(&mut self, number: u32) {
        self.history = self.history.and_number(number);
    }

    /// This rank does this instead of what it began.
    pub(super) fn begin_instead(&mut self, call: Call) {
        self.history = self.history_before;
        self.begin(call);
    }

    /// The length of the broadcast from `root` that this rank takes part in, if it is a short one.
    pub(super) fn broadcast_bytes(&self, root: u32) -> usize {
        self.call.broadcast_bytes(root, self.history_before)
    }

    /// What this rank did before what it does.
    pub(super) fn history_before(&self) -> History {
        self.history_before
    }

    /// What this rank does, or did last.
    pub(super) fn call(&self) -> Call {
        self.call
    }

    /// This rank's place in the order of all steps, of whatever ring: where all ranks call the same operations, two at
    /// equal positions are in the same step.
    pub(super) fn position(&self) -> u64 {
        self.places.iter().map(|place| place.next).sum()
    }

    /// The number of the step to come.
    #[inline]
    pub(super) fn step(&self, ring: usize) -> u64 {
        self.places[ring].next
    }

    /// Makes sure that this rank's slot of the step to come may be overwritten.
    #[inline]
    pub(super) fn claim(&mut self, ring: usize) -> Result<(), Awaited> {
        if self.is_claimed(ring) { Ok(()) } else { self.claim_by_counters(ring) }
    }

    /// Whether this rank knows already that it may overwrite that slot.
    #[inline]
    pub(super) fn is_claimed(&self, ring: usize) -> bool {
        let place = &self.places[ring];
        // This rank's exchange slot is the one that it read itself in the step before.
        ring == EXCHANGE_RING || place.cleared + RINGS[ring].slots >= place.next
    }

    /// The same for an operation whose first step on the ring was `since`, and in which `reader`
    /// alone reads this rank's slots: nobody else has to come along.
    pub(super) fn claim_for(
        &mut self,
        ring: usize,
        reader: u32,
        since: u64,
    ) -> Result<(), Awaited> {
        let place = &self.places[ring];
        let filled_last = place.next.saturating_sub(RINGS[ring].slots);
        if filled_last < since {
            return self.claim(ring);
        }
        // Acquire: as in `claim_by_counters`.
        if self.segment.done_step(ring, reader).load(Ordering::Acquire) < filled_last {
            let event = AwaitedEvent::Done;
            return Err(Awaited { peer: reader, ring, step: filled_last, event });
        }
        Ok(())
    }

    #[cold]
    fn claim_by_counters(&mut self, ring: usize) -> Result<(), Awaited> {
        // Half of the slots must be free, so that a fast sender does not read counters at every
        // step.
        let step = self.places[ring].next - RINGS[ring].slots / 2;
        let mut least = u64::MAX;
        for peer in self.peers() {
            // Acquire: pairs with the Release in `finish` of the peer: its reads of the slot come
            // before this rank's writes.
            let done = self.segment.done_step(ring, peer).load(Ordering::Acquire);
            if done < step {
                return Err(Awaited { peer, ring, step, event: AwaitedEvent::Done });
            }
            least = least.min(done);
        }
        self.places[ring].cleared = least;
        Ok(())
    }

    /// All local ranks but this one.
    #[inline]
    pub(super) fn peers(&self) -> impl Iterator<Item = u32> + use<> {
        let own = self.local_rank;
        (0..self.ranks).filter(move |&rank| rank != own)
    }

    /// This rank's slot of the step to come.
    ///
    /// # Safety
    /// The slot is claimed and not yet published, and this is the only slice of it.
    #[inline]
    pub(super) unsafe fn own_slot(&mut self, ring: usize, len_bytes: usize) -> &mut [u8] {
        assert!(len_bytes <= RINGS[ring].capacity_bytes);
        let payload = self.segment.payload_to_fill(ring, self.local_rank, self.step(ring));
        // SAFETY: `len_bytes` of the slot lie in the mapping, asserted above; no other rank reads
        // it between claim and publication, and the caller has no other slice of it.
        unsafe { slice::from_raw_parts_mut(payload, len_bytes) }
    }

    /// What `rank` put into its slot in `step`.
    ///
    /// # Safety
    /// The slot's flag has been seen to be that of `step` (or it is this rank's own and filled), and this
    /// rank's counter has not passed `step`.
    #[inline]
    pub(super) unsafe fn slot(&self, ring: usize, rank: u32, step: u64, len_bytes: usize) -> &[u8] {
        assert!(len_bytes <= RINGS[ring].capacity_bytes && rank < self.ranks);
        let payload = self.segment.payload(ring, rank, step);
        // SAFETY: in the mapping, asserted above; the owner does not write it before this rank's
        // counter passes `step`.
        unsafe { slice::from_raw_parts(payload, len_bytes) }
    }

    /// Fetches this rank's slot of the step after the one to come, for writing as much as now.
    #[inline]
    fn prefetch_next_slot(&self, ring: usize, len_bytes: usize) {
        let slot = self.segment.flag(ring, self.local_rank, self.step(ring) + 1);
        for line in 0..(len_bytes + 8).div_ceil(64).min(PREFETCHED_LINES_MAX) {
            prefetch_for_writing((&raw const *slot).cast::<u8>().wrapping_add(line * 64));
        }
    }

    /// Fills this rank's slot of the step to come with `len_bytes`, and tells the others. Not of the short ring: see
    /// [`publish`](Self::publish).
    ///
    /// # Safety
    /// The slot is claimed and not yet published, and there is no slice of it. `source` is valid for reading
    /// `len_bytes`, and not in the segment.
    #[inline]
    pub(super) unsafe fn fill(&mut self, ring: usize, source: *const u8, len_bytes: usize) {
        debug_assert!(ring != SHORT_RING);
        assert!(len_bytes <= RINGS[ring].capacity_bytes);
        // All that is read comes before what is written, which may be anything to the compiler.
        let step = self.step(ring);
        let flag = self.segment.flag(ring, self.local_rank, step);
        let payload = self.segment.payload_to_fill(ring, self.local_rank, step);
        let filled = self.call.flag(step);
        // SAFETY: `len_bytes` of the slot lie in the mapping, asserted above, and no other rank reads it before
        // it is published; the rest is this function's contract.
        unsafe { copy_short(source, slice::from_raw_parts_mut(payload, len_bytes)) };
        // Release: as in `publish`.
        flag.store(filled, Ordering::Release);
        self.wake_sleepers();
        // A rank that sends line after line stores faster than a core fetches. An exchange slot is the other rank's now.
        if ring == LINE_RING {
            self.prefetch_next_slot(ring, 0);
        }
    }

    /// Tells the others that this rank's slot of the step to come is filled, with `len_bytes`.
    #[inline]
    pub(super) fn publish(&self, ring: usize, len_bytes: usize) {
        let step = self.step(ring);
        // Release: pairs with the Acquire in `is_filled`: what is in the slot comes first.
        let flag = self.call.flag(step);
        self.segment.flag(ring, self.local_rank, step).store(flag, Ordering::Release);
        self.wake_sleepers();
        if ring == SHORT_RING {
            self.prefetch_next_slot(ring, len_bytes);
        }
    }

    /// Whether `peer` has filled its slot of the step to come, in the same call.
    #[inline]
    pub(super) fn is_filled(&self, ring: usize, peer: u32) -> bool {
        let step = self.step(ring);
        // Acquire: pairs with the Release in `publish` of the peer.
        self.segment.flag(ring, peer, step).load(Ordering::Acquire) == self.call.flag(step)
    }

    /// Notes that all others' flags of the step to come were seen: they have done the one before.
    #[inline]
    pub(super) fn note_all_filled(&mut self, ring: usize) {
        let place = &mut self.places[ring];
        place.cleared = place.cleared.max(place.next - 1);
    }

    /// Ends the step to come. `done`: whether this rank reads nothing of it any more.
    #[inline]
    pub(super) fn finish(&mut self, ring: usize, done: bool) {
        let step = self.step(ring);
        self.places[ring].next = step + 1;
        if done && ring != EXCHANGE_RING {
            // Release: pairs with the Acquire in `claim_by_counters` of the peers.
            self.segment.done_step(ring, self.local_rank).store(step, Ordering::Release);
            self.wake_sleepers();
        }
    }

    /// Whether `awaited` has come about. Safe to ask at any later time too.
    #[inline]
    pub(super) fn is_met(&self, awaited: Awaited) -> bool {
        !self.is_pending(awaited)()
    }

    /// Polls `polls` times whether `awaited` has come about, and lets a moment pass before each. A
    /// poll before the line is written takes it away from the writer, who must then fetch it back:
    /// two transfers more, and so no poll should come too early.
    #[inline]
    pub(super) fn is_met_soon(&self, awaited: Awaited, polls: u32) -> bool {
        let is_pending = self.is_pending(awaited);
        (0..polls).any(|_| {
            spin_loop();
            !is_pending()
        })
    }

    /// Whether `awaited` has not come about, as something to ask many times, which then touches little memory.
    #[inline]
    pub(super) fn is_pending(&self, awaited: Awaited) -> impl Fn() -> bool + '_ {
        let Awaited { peer, ring, step, event } = awaited;
        let flag = self.call.flag(step);
        let (word, wanted) = match event {
            AwaitedEvent::Filled => (self.segment.flag(ring, peer, step), flag..=flag),
            AwaitedEvent::Done => (self.segment.done_step(ring, peer), step..=u64::MAX),
        };
        // Acquire: as in `is_filled` and `claim_by_counters`.
        move || !wanted.contains(&word.load(Ordering::Acquire))
    }

    /// Wakes the ranks that sleep until this rank publishes something. Costs nothing while every rank
    /// has a core, for then nobody sleeps.
    #[inline]
    fn wake_sleepers(&self) {
        if self.policy == Policy::Sleep {
            // SeqCst: pairs with the fence in `sleep`. Either this rank sees the sleeper counted,
            // or the sleeper sees what this rank has just published.
            fence(Ordering::SeqCst);
            if self.segment.control(self.local_rank).sleepers.load(Ordering::Relaxed) != 0 {
                self.ring_doorbell(self.local_rank);
            }
        }
    }

    #[cold]
    fn ring_doorbell(&self, rank: u32) {
        let doorbell = &self.segment.control(rank).doorbell;
        // Release: pairs with the Acquire in `sleep`; a sleeper that sees the new value sees what
        // was published before.
        doorbell.fetch_add(1, Ordering::Release);
        sync::wake_all(doorbell);
    }

    /// Wakes everyone who sleeps in this group, after the failure word was set.
    pub(super) fn wake_everyone(&self) {
        for rank in 0..self.ranks {
            self.ring_doorbell(rank);
        }
    }

    /// Sleeps until the awaited peer publishes something, or someone fails, or `time` has passed.
    /// May wake early.
    #[cold]
    pub(super) fn sleep(&self, awaited: Awaited, time: Duration) {
        let control = self.segment.control(awaited.peer);
        // Acquire: pairs with the Release in `ring_doorbell`.
        let doorbell = control.doorbell.load(Ordering::Acquire);
        control.sleepers.fetch_add(1, Ordering::SeqCst);
        // SeqCst: pairs with the fence in `wake_sleepers` of the peer.
        fence(Ordering::SeqCst);
        let failed = self.segment.head().failure.0.load(Ordering::Acquire) != 0;
        if !failed && !self.is_met(awaited) {
            sync::sleep_on(&control.doorbell, doorbell, time);
        }
        // Relaxed: a peer that still sees the old count only wakes nobody.
        control.sleepers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Asks for a line in a state in which it can be written at once.
#[inline]
fn prefetch_for_writing(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        // The intrinsic compiles to a prefetch for reading unless the whole program requires the
        // feature; processors without it execute the instruction as a no-op.
        // SAFETY: a prefetch reads and writes nothing, and faults at no address.
        unsafe {
            std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags));
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
