//! What the members of a group do when its tree is lost in the middle of an operation.
//!
//! Owns the decision, not its execution: from how far each member has come ([`Standing`]) follows who
//! supplies which results and what has to be computed again ([`settle`]). Members exchange their
//! standings by other means than the tree, so all decide alike. [`settler`] is the order in which one member
//! goes through it, [`boundaries`] the order in which it goes back into a tree.
//!
//! # Why no result is lost, doubled, or different
//!
//! Members run one operation at a time in a group, and a result needs a contribution of every member. So:
//!
//! 1. A member that has completed operation `n` proves that all have contributed to all of `n`, and
//!    therefore completed `n - 1`. Standings differ by one operation at most.
//! 2. A member has contributed to a segment only once it lacked fewer than a window of the segments
//!    before it. So who has completed `n` has, among its last window of segments, all that anybody
//!    lacks: it keeps those ([`Cut::tail`]), whatever the program does with its vector afterwards.
//! 3. A standing is taken after the member has cut itself off from the tree. No result comes after it, so
//!    what standings say stays true.
//! 4. A segment that somebody completed is never computed again: it is copied from there, bit for bit. A
//!    segment that nobody completed was overwritten nowhere, in place or not, so every contribution is
//!    where it was, and is combined once.
//!
//! A reduction to one member differs in 2 and 4: only that member has results, so what it lacks is computed
//! again, from contributions. Members that completed the operation keep those of their tail.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::vec::Vec;
use core::ops::Range;

use tributary_wire::OperationNumber;
use tributary_wire::frame::AbortReason;

pub mod boundaries;
#[cfg(feature = "planted-bugs")]
pub mod planted;
pub mod settler;

/// Whether a group that fails so has only lost its tree, so that its members can go on without it. An aggregator calls
/// a member lost whose link to it has ended; whether that member is, the direct link to it shows.
#[must_use]
pub fn is_tree_lost(reason: AbortReason) -> bool {
    #[cfg(feature = "planted-bugs")]
    if crate::planted::is_planted(crate::planted::Bug::WithdrawnIsTheEnd) {
        return matches!(reason, AbortReason::NodeLost | AbortReason::MemberLost);
    }
    matches!(reason, AbortReason::NodeLost | AbortReason::Withdrawn | AbortReason::MemberLost)
}

/// How far one member had come when its tree was lost.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Standing {
    /// The operation that it has not completed: the one under way, or the next it will start.
    pub operation: OperationNumber,
    /// Whether that one is under way.
    pub is_started: bool,
    /// What of that one is complete.
    pub complete: Segments,
}

/// Segments of an operation that are complete at a member: a prefix, and some within a window behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Segments {
    /// All before this one are complete, and it is not.
    pub prefix: u32,
    /// Whether segment `prefix + index` is complete; what lies beyond is not.
    pub window: Vec<bool>,
}

impl Segments {
    /// Whether a segment is among them.
    #[must_use]
    pub fn contains(&self, segment: u32) -> bool {
        segment.checked_sub(self.prefix).is_none_or(|beyond| {
            self.window.get(beyond as usize).is_some_and(|is_complete| *is_complete)
        })
    }

    /// Behind the last one of them.
    fn end(&self) -> u32 {
        let beyond = self.window.iter().rposition(|is_complete| *is_complete);
        self.prefix.saturating_add(beyond.map_or(0, |last| last as u32 + 1))
    }
}

/// How an operation's vector is cut into segments, all of one length but the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Length of a segment.
    pub segment_bytes: usize,
    /// How many there are; one if the vector is empty.
    pub segments: u32,
    /// Length of the vector.
    pub len_bytes: usize,
    /// Segments that may be in flight at a time.
    pub window: u16,
}

impl Cut {
    /// Bytes of these segments in the vector.
    #[must_use]
    pub fn bytes(&self, segments: &Range<u32>) -> Range<usize> {
        let at = |segment: u32| (segment as usize * self.segment_bytes).min(self.len_bytes);
        at(segments.start)..at(segments.end)
    }

    /// The last segments, which other members may lack after one has completed the operation.
    #[must_use]
    pub fn tail(&self) -> Range<u32> {
        self.segments.saturating_sub(u32::from(self.window))..self.segments
    }
}

/// The members that get an operation's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receivers {
    /// Every member.
    All,
    /// One, by its index among the standings.
    Member(usize),
}

/// What the members agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// Nobody has any result of this operation, and not all have started it. Those that have start it again.
    Restart(OperationNumber),
    /// Everybody who has this operation under way completes it by [`steps`]. A member that has
    /// completed it already helps; one that has started the next starts that again.
    Finish(OperationNumber),
}

/// One step in finishing an operation. All members take part, in the same order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// What it is about.
    pub segments: Range<u32>,
    /// What happens.
    pub action: Action,
}

/// What happens in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// This member, by its index among the standings, gives its results to all that lack them.
    Supply {
        /// The member that has them.
        from: usize,
    },
    /// The members' contributions are combined anew.
    Redo,
}

/// Standings that no group can come to: a member at fault, or of another group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("members stand too far apart: {first} and {other}")]
pub struct Torn {
    /// Where one stands.
    pub first: OperationNumber,
    /// Where another does.
    pub other: OperationNumber,
}

/// What the members agree on, from where all of them stand.
///
/// # Errors
/// If the standings cannot be those of one group.
///
/// # Panics
/// If there is no member.
pub fn settle(standings: &[Standing]) -> Result<Settlement, Torn> {
    let first = standings[0].operation;
    let mut oldest = first;
    for standing in standings {
        let other = standing.operation;
        if other != first && other != first.next() && other.next() != first {
            return Err(Torn { first, other });
        }
        if other.next() == first {
            oldest = other;
        }
    }
    let may_be = |other: OperationNumber| other == oldest || other == oldest.next();
    if let Some(torn) = standings.iter().find(|standing| !may_be(standing.operation)) {
        return Err(Torn { first: oldest, other: torn.operation });
    }
    let has_some_completed = standings.iter().any(|standing| standing.operation != oldest);
    #[cfg(feature = "planted-bugs")]
    let has_some_completed =
        has_some_completed && !crate::planted::is_planted(crate::planted::Bug::CompletedForgotten);
    let have_all_started = standings.iter().all(|standing| standing.is_started);
    if has_some_completed || have_all_started {
        Ok(Settlement::Finish(oldest))
    } else {
        Ok(Settlement::Restart(oldest))
    }
}

/// The steps that finish `operation`, whose vector is cut into so many segments.
#[must_use]
pub fn steps(
    standings: &[Standing],
    operation: OperationNumber,
    segments: u32,
    receivers: Receivers,
) -> Vec<Step> {
    let has = |standing: &Standing, segment: u32| {
        standing.operation != operation || standing.complete.contains(segment)
    };
    let action_of = |segment: u32| match receivers {
        Receivers::Member(root) => (!has(&standings[root], segment)).then_some(Action::Redo),
        #[cfg(feature = "planted-bugs")]
        Receivers::All if crate::planted::is_planted(crate::planted::Bug::ComputedAnew) => {
            Some(Action::Redo)
        }
        Receivers::All => match standings.iter().position(|it| has(it, segment)) {
            None => Some(Action::Redo),
            Some(_) if standings.iter().all(|it| has(it, segment)) => None,
            Some(from) => Some(Action::Supply { from }),
        },
    };
    let laggards = || standings.iter().filter(|standing| standing.operation == operation);
    let complete = |standing: &Standing| standing.complete.prefix;
    // Before the one everybody has all, behind the other nobody who has not completed the operation has
    // any: neither needs to be gone through one by one.
    let first = laggards().map(complete).min().unwrap_or(segments).min(segments);
    let end = laggards().map(|it| it.complete.end()).max().unwrap_or(0).clamp(first, segments);
    let mut steps: Vec<Step> = Vec::new();
    let mut add = |segments: Range<u32>| {
        let Some(action) = action_of(segments.start) else { return };
        match steps.last_mut() {
            Some(last) if last.action == action && last.segments.end == segments.start => {
                last.segments.end = segments.end;
            }
            _ => steps.push(Step { segments, action }),
        }
    };
    (first..end).for_each(|segment| add(segment..segment + 1));
    if end < segments {
        add(end..segments);
    }
    steps
}

#[cfg(test)]
mod tests;
