//! Ranks of host algorithms: they run schedules, with eager or rendezvous messages.
//!
//! A rank posts all receives of a round when it enters the round, as the schedules allow. Its core does
//! one action after the other: sends, landings, and answers to rendezvous requests.

use std::iter::Peekable;

use tributary_algorithms::{Algorithm, Collective, Schedule};

use super::graph::GraphRun;
use super::ids::{ProcessId, RankId, TransferId};
use super::notices::Groups;
use crate::engine::Picos;

/// Ranks that run collectives together.
#[derive(Clone, Copy, Debug)]
pub struct Team {
    pub(super) first: RankId,
    pub(super) ranks: u32,
}

/// A collective that a team runs.
#[derive(Clone, Copy, Debug)]
pub struct HostCollective {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The collective.
    pub collective: Collective,
    /// Elements of the vector.
    pub elements: u64,
    /// Bytes of an element.
    pub element_bytes: u32,
}

/// A finished collective of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankFinished {
    /// Which rank.
    pub rank: RankId,
    /// When it started.
    pub began_at: Picos,
    /// When it had its result and had completed its sends.
    pub ended_at: Picos,
}

/// A message at its receiver.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incoming {
    pub(super) from: RankId,
    pub(super) transfer: TransferId,
    /// When all of it was there; none for a rendezvous message of which only the request has arrived.
    pub(super) seen_at: Option<Picos>,
    /// The receive that takes it; of a schedule all are alike.
    pub(super) taken_by: Option<u32>,
    /// Of the message, or of a frame of it.
    pub(super) bytes: u32,
    /// Whether nothing more of the message comes.
    pub(super) is_last: bool,
}

/// A receive that is posted and not matched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Posted {
    /// From whom; anyone if none.
    pub(super) from: Option<RankId>,
    /// Which tag; any if none.
    pub(super) tag: Option<u32>,
    /// The receiver's number for the operation; nothing to a schedule.
    pub(super) node: u32,
}

/// One rank.
pub(super) struct Rank {
    pub(super) process: ProcessId,
    pub(super) first: RankId,
    pub(super) schedule: Option<Peekable<Schedule>>,
    /// Whether the start of the schedule has come. Messages may be there before.
    pub(super) has_entered: bool,
    pub(super) element_bytes: u32,
    pub(super) round: Option<u32>,
    /// Its place in replicated groups, if it has one.
    pub(super) groups: Option<Box<Groups>>,
    /// What it runs instead of a schedule.
    pub(super) graph: Option<Box<GraphRun>>,
    pub(super) posted: Vec<Posted>,
    pub(super) inbox: Vec<Incoming>,
    /// The message of which the step has received frames, and not the last.
    pub(super) half_received: Option<TransferId>,
    /// Rendezvous sends that wait for the receiver.
    pub(super) unanswered: u32,
    pub(super) began_at: Picos,
}

impl Team {
    /// The rank of that number.
    #[must_use]
    pub fn rank(&self, number: u32) -> RankId {
        RankId(self.first.0 + number)
    }

    /// How many there are.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.ranks
    }
}
