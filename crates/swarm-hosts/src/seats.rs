//! A rank's part in a communicator, and what the ranks of a host share.

use tributary_waits::exchange::Exchange;
use tributary_waits::pipeline::Pipeline;

use crate::connections::EndId;
use crate::links::Leader;
use crate::plan::Carry;

/// A rank's part in a communicator.
pub(super) struct Seat {
    pub(super) rank: u32,
    pub(super) host: u32,
    /// Its number among the host's ranks; 0 leads.
    pub(super) local: usize,
    pub(super) phase: Phase,
    pub(super) operation: Option<Operation>,
    /// Operations begun.
    pub(super) begun: usize,
    /// Since when it waits for others.
    pub(super) waits_since: Option<u64>,
    /// When it was over.
    pub(super) ended_at: Option<u64>,
    /// At a hub: by number of the others, its connections. At others: the one to the hub.
    pub(super) hub: Vec<EndId>,
    pub(super) exchange: Option<Exchange>,
    /// Steps inside the host that it has come to, and that are over.
    pub(super) came: usize,
    pub(super) over: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Out,
    SettingUp { exchange: u32 },
    Ready,
    Over(End),
}

/// How a rank's part ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Left,
    Failed,
    Dead,
}

pub(super) struct Operation {
    pub(super) carry: Carry,
    pub(super) pipeline: Pipeline,
    pub(super) has_come: bool,
}

/// What the ranks of a host share.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) leader: Option<Leader>,
    pub(super) has_failed: bool,
    /// By local number.
    pub(super) departed: Vec<bool>,
}

/// The party that is named when a rank's part fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    Rank(u32),
    Host(u32),
    /// Another rank of the host was told who it is.
    Nobody,
}

impl Seat {
    pub(super) fn new(rank: u32, host: u32, local: usize) -> Self {
        Self {
            rank,
            host,
            local,
            phase: Phase::Out,
            operation: None,
            begun: 0,
            waits_since: None,
            ended_at: None,
            hub: Vec::new(),
            exchange: None,
            came: 0,
            over: 0,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over(_))
    }

    pub(super) fn has_failed(&self) -> bool {
        self.phase == Phase::Over(End::Failed)
    }

    /// Operations completed.
    pub(super) fn completed_operations(&self) -> usize {
        self.begun - usize::from(self.operation.is_some())
    }

    pub(super) fn is_streaming(&self) -> bool {
        let carry = self.operation.as_ref().map(|operation| operation.carry);
        matches!(carry, Some(Carry::Stream { .. }))
    }
}

impl Shared {
    pub(super) fn new(ranks: usize) -> Self {
        Self { departed: vec![false; ranks], ..Self::default() }
    }
}

/// A seat: its communicator, and its number there.
pub(super) type SeatId = (u32, usize);
