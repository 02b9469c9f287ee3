//! Operations that take one step a round: fill the own slot, then take what others filled.
//!
//! Owns the order of claiming, filling, publishing and taking; what is filled and taken is the
//! [`Round`]'s. The rules of the rings are those of [`super`].

use std::ops::Range;

use super::ring::{Awaited, AwaitedEvent, Rings};
use super::segment::{EXCHANGE_RING, LINE_RING, LONG_RING, RINGS, SHORT_RING};

/// What one kind of operation does in each of its rounds. All ranks take equally many rounds, on
/// the same ring.
pub(super) trait Round {
    /// The ring that its steps are on.
    fn ring(&self) -> usize;

    /// Whether this rank fills a slot in every round; all do, where nothing else is said.
    fn fills(&self, _: &Rings) -> bool {
        true
    }

    /// The ranks whose slots this rank reads; its own may be among them. All, where nothing else is
    /// said.
    fn reads(&self, rings: &Rings) -> Range<u32> {
        0..rings.ranks
    }

    /// Fills this rank's slot; how far, in bytes from its beginning.
    ///
    /// # Safety
    /// The slot is claimed and not published.
    unsafe fn fill(&self, rings: &mut Rings) -> usize;

    /// Takes what this round brings.
    ///
    /// # Safety
    /// The flags of all ranks that this one reads from were seen.
    unsafe fn take(&self, rings: &Rings);

    /// Goes to the next round; false if there is none.
    fn next(&mut self) -> bool;
}

/// The ring for rounds in which every rank writes and reads, a vector of `len_bytes` in all.
pub(super) fn ring_for_all(len_bytes: usize, ranks: u32) -> usize {
    match len_bytes <= RINGS[SHORT_RING].capacity_bytes {
        false => LONG_RING,
        true if ranks == 2 => EXCHANGE_RING,
        true => SHORT_RING,
    }
}

/// The ring for rounds in which some ranks only write and others only read, slots of `len_bytes` in
/// all.
pub(super) fn one_way_ring(len_bytes: usize) -> usize {
    let fits = |ring: &usize| len_bytes <= RINGS[*ring].capacity_bytes;
    [LINE_RING, SHORT_RING].into_iter().find(fits).unwrap_or(LONG_RING)
}

/// A [`Round`] after the other, and how far the one in hand is.
pub(super) struct Rounds<R> {
    round: R,
    is_published: bool,
    /// Ranks below this one are known to have filled their slots, of those that are read from.
    seen: u32,
}

impl<R: Round> Rounds<R> {
    pub(super) fn new(round: R) -> Self {
        Self { round, is_published: false, seen: 0 }
    }

    /// Drives the operation until it is done or something must be awaited.
    pub(super) fn advance(&mut self, rings: &mut Rings) -> Result<(), Awaited> {
        let ring = self.round.ring();
        loop {
            let reads = self.round.reads(rings);
            if !self.is_published {
                if self.round.fills(rings) {
                    rings.claim(ring)?;
                    // SAFETY: claimed just now, not published.
                    let len_bytes = unsafe { self.round.fill(rings) };
                    rings.publish(ring, len_bytes);
                }
                self.is_published = true;
                self.seen = reads.start;
            }
            self.await_filled(rings, reads.end)?;
            // SAFETY: `await_filled` has seen the flags of all ranks in `reads`.
            unsafe { self.round.take(rings) };
            if reads.len() == rings.ranks as usize {
                rings.note_all_filled(ring);
            }
            rings.finish(ring, true);
            self.is_published = false;
            if !self.round.next() {
                return Ok(());
            }
        }
    }

    /// Polls the flags of the ranks below `end`, except this rank's own.
    fn await_filled(&mut self, rings: &Rings, end: u32) -> Result<(), Awaited> {
        let ring = self.round.ring();
        while self.seen < end {
            let peer = self.seen;
            if peer != rings.local_rank && !rings.is_filled(ring, peer) {
                let step = rings.step(ring);
                return Err(Awaited { peer, ring, step, event: AwaitedEvent::Filled });
            }
            self.seen += 1;
        }
        Ok(())
    }
}
