//! Chains of neighbours, with segments that follow one another.
//!
//! While a rank receives one segment it sends the previous one, so all ranks are busy once the first
//! segment has reached the far end.

use super::slot::{Place, Slot, receive, send};
use crate::split::Span;
use crate::step::Landing;

/// What the phase does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChainKind {
    /// From both ends to the root, folded.
    Reduce { root: u32 },
    /// From the root to both ends.
    Broadcast { root: u32 },
    /// Folded from the last rank to rank 0, and back from there while later segments still arrive.
    Allreduce,
}

/// One phase among all ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain {
    pub(crate) kind: ChainKind,
    pub(crate) segment_elements: u64,
}

impl Chain {
    /// The round counter has 32 bits, and an allreduce takes up to two rounds per segment.
    pub(crate) const SEGMENTS_MAX: u64 = 1 << 30;

    pub(crate) fn slot(&self, place: &Place, round: u32, index: u32) -> Slot {
        let segments = self.segments(place);
        match self.kind {
            ChainKind::Reduce { root } => self.reduce_slot(place, root, round, index, segments),
            ChainKind::Broadcast { root } => {
                self.broadcast_slot(place, root, round, index, segments)
            }
            ChainKind::Allreduce => self.allreduce_slot(place, round, index, segments),
        }
    }

    fn reduce_slot(&self, place: &Place, root: u32, round: u32, index: u32, segments: u32) -> Slot {
        let rank = place.rank;
        let (earlier, now) =
            (self.segment(place, round.checked_sub(1)), self.segment(place, Some(round)));
        if round > segments {
            return Slot::End;
        }
        match index {
            0 if rank < root => earlier.map_or(Slot::Nothing, |span| send(rank + 1, span)),
            0 if rank > root => earlier.map_or(Slot::Nothing, |span| send(rank - 1, span)),
            1 if rank <= root && rank > 0 => {
                now.map_or(Slot::Nothing, |span| receive(rank - 1, span, Landing::FoldAsLeft))
            }
            2 if rank >= root && rank + 1 < place.ranks => {
                now.map_or(Slot::Nothing, |span| receive(rank + 1, span, Landing::FoldAsRight))
            }
            0..=2 => Slot::Nothing,
            _ => Slot::EndOfRound,
        }
    }

    fn broadcast_slot(
        &self,
        place: &Place,
        root: u32,
        round: u32,
        index: u32,
        segments: u32,
    ) -> Slot {
        let rank = place.rank;
        let (earlier, now) =
            (self.segment(place, round.checked_sub(1)), self.segment(place, Some(round)));
        if round > segments {
            return Slot::End;
        }
        match index {
            0 if rank >= root && rank + 1 < place.ranks => {
                earlier.map_or(Slot::Nothing, |span| send(rank + 1, span))
            }
            1 if rank <= root && rank > 0 => {
                earlier.map_or(Slot::Nothing, |span| send(rank - 1, span))
            }
            2 if rank != root => {
                let from = if rank > root { rank - 1 } else { rank + 1 };
                now.map_or(Slot::Nothing, |span| receive(from, span, Landing::Store))
            }
            0..=2 => Slot::Nothing,
            _ => Slot::EndOfRound,
        }
    }

    /// A segment returns to rank r 2r + 1 rounds after r has received its operand: one round to send
    /// it, r hops to rank 0, r hops back. With fewer segments than that, r has sent all of them before.
    fn allreduce_slot(&self, place: &Place, round: u32, index: u32, segments: u32) -> Slot {
        let rank = place.rank;
        let lag = u64::from(rank) * 2 + 1;
        let lag = if rank == 0 { 0 } else { lag.min(u64::from(segments)) as u32 };
        if round > segments + lag {
            return Slot::End;
        }
        let (is_first, is_last) = (rank == 0, rank + 1 == place.ranks);
        let span = |later: u32| self.segment(place, round.checked_sub(later));
        let slot = match index {
            0 if !is_first => span(1).map(|span| send(rank - 1, span)),
            1 if !is_last => span(lag + 1).map(|span| send(rank + 1, span)),
            2 if !is_last => span(0).map(|span| receive(rank + 1, span, Landing::FoldAsRight)),
            3 if !is_first => span(lag).map(|span| receive(rank - 1, span, Landing::Store)),
            0..=3 => None,
            _ => return Slot::EndOfRound,
        };
        slot.unwrap_or(Slot::Nothing)
    }

    /// At least one, so that a barrier has a segment to pass on.
    fn segments(&self, place: &Place) -> u32 {
        (place.elements.div_ceil(self.segment_elements) as u32).max(1)
    }

    fn segment(&self, place: &Place, index: Option<u32>) -> Option<Span> {
        let index = index.filter(|index| *index < self.segments(place))?;
        let first = u64::from(index) * self.segment_elements;
        Some(Span::between(first, place.elements.min(first.saturating_add(self.segment_elements))))
    }
}
