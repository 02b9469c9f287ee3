//! Mixed-radix exchanges: the members of a plan's groups exchange what they hold, level by level.

use alloc::sync::Arc;

use arrayvec::ArrayVec;

use super::flat::fold_slot;
use super::slot::{Place, Slot, receive, send};
use crate::plan::{LEVELS_MAX, Plan, Seat};
use crate::split::{Span, Split};
use crate::step::Landing;

/// What the phase does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LevelsKind {
    /// Every host ends with the whole vector, reduced.
    Whole,
    /// The members of a group divide the part that they hold: the owners end with their parts, reduced.
    ReduceScatter,
    /// From the owners' parts to the whole vector at every host.
    Allgather,
}

/// One phase among all hosts of a plan.
#[derive(Clone, Debug)]
pub(crate) struct Levels {
    pub(crate) plan: Arc<Plan>,
    pub(crate) kind: LevelsKind,
}

impl Levels {
    /// Whether this host folds more than one operand that precedes its own.
    pub(crate) fn needs_aside(&self, place: &Place) -> bool {
        self.kind != LevelsKind::Allgather
            && (0..self.plan.levels()).any(|level| self.plan.seat(level, place.rank).own >= 2)
    }

    pub(crate) fn slot(&self, place: &Place, round: u32, index: u32) -> Slot {
        let levels = self.plan.levels();
        let round = round as usize;
        if round >= levels {
            return Slot::End;
        }
        match self.kind {
            LevelsKind::Whole => self.whole_slot(place, round, index),
            LevelsKind::ReduceScatter => self
                .share(place, round)
                .map_or(Slot::End, |share| self.reduce_slot(place, &share, index)),
            LevelsKind::Allgather => self
                .share(place, levels - 1 - round)
                .map_or(Slot::EndOfRound, |share| self.gather_slot(&share, index)),
        }
    }

    fn whole_slot(&self, place: &Place, level: usize, index: u32) -> Slot {
        let seat = self.plan.seat(level, place.rank);
        // A host of a small member stands in for those that it lacks: it sends to several of a larger one.
        let copies = seat.longest.div_ceil(seat.hosts);
        let sends = (seat.members - 1) * copies;
        if index < sends {
            let (first, hosts) = self.member(level, &seat, after_own(&seat, index / copies));
            let position = seat.position + index % copies * seat.hosts;
            return if position < hosts {
                send(self.plan.host(first + position), place.whole())
            } else {
                Slot::Nothing
            };
        }
        let member = index - sends;
        if member == seat.members {
            return Slot::EndOfRound;
        }
        let (first, hosts) = self.member(level, &seat, member);
        let peer = self.plan.host(first + seat.position % hosts);
        fold_slot(peer, member, seat.own, place.whole())
    }

    fn reduce_slot(&self, place: &Place, share: &Share, index: u32) -> Slot {
        let Share { seat, owners, .. } = share;
        let sends = seat.members - 1;
        if index < sends {
            let member = after_own(seat, index);
            return if member < *owners {
                send(self.peer(share, member), share.part(member))
            } else {
                Slot::Nothing
            };
        }
        let member = index - sends;
        if member == seat.members || seat.own >= *owners {
            return Slot::EndOfRound;
        }
        debug_assert!(place.rank == self.peer(share, seat.own));
        fold_slot(self.peer(share, member), member, seat.own, share.part(seat.own))
    }

    fn gather_slot(&self, share: &Share, index: u32) -> Slot {
        let Share { seat, owners, .. } = share;
        let sends = seat.members - 1;
        if index < sends {
            let member = after_own(seat, index);
            return if seat.own < *owners {
                send(self.peer(share, member), share.part(seat.own))
            } else {
                Slot::Nothing
            };
        }
        match index - sends {
            member if member >= *owners => Slot::EndOfRound,
            member if member == seat.own => Slot::Nothing,
            member => receive(self.peer(share, member), share.part(member), Landing::Store),
        }
    }

    fn member(&self, level: usize, seat: &Seat, member: u32) -> (u32, u32) {
        self.plan.member(level, seat.first_member + member)
    }

    /// The host of another member that holds the same part.
    fn peer(&self, share: &Share, member: u32) -> u32 {
        let Share { seat, places, .. } = share;
        self.plan.host_at(places.len(), seat.first_member + member, places)
    }

    /// What this host divides with its group at a level; none if it owns nothing there.
    fn share(&self, place: &Place, level: usize) -> Option<Share> {
        let mut places = ArrayVec::new();
        let mut span = place.whole();
        for below in 0..level {
            let (own, owners) =
                (self.plan.seat(below, place.rank).own, self.plan.members_min(below));
            if own >= owners {
                return None;
            }
            span = part(span, owners, own);
            places.push(own);
        }
        let seat = self.plan.seat(level, place.rank);
        Some(Share { seat, owners: self.plan.members_min(level), places, span })
    }
}

/// What a host divides with its group at a level.
struct Share {
    seat: Seat,
    /// The first so many members of each group own a part: as many as the smallest group has.
    owners: u32,
    /// The host's places at the levels below, which are those of all that hold the same part.
    places: ArrayVec<u32, LEVELS_MAX>,
    span: Span,
}

impl Share {
    fn part(&self, member: u32) -> Span {
        part(self.span, self.owners, member)
    }
}

fn part(span: Span, parts: u32, index: u32) -> Span {
    let part = Split::new(span.elements, u64::from(parts)).part(u64::from(index));
    Span { first: span.first + part.first, ..part }
}

/// The members behind a host's own, cyclically: each is sent to first by another, so that none receives from all at
/// once.
fn after_own(seat: &Seat, index: u32) -> u32 {
    (seat.own + 1 + index) % seat.members
}
