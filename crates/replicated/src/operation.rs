//! What a member knows of one operation.

use alloc::vec;
use alloc::vec::Vec;

use crate::Call;

/// A set of members.
pub(crate) type Members = u64;

pub(crate) fn one(member: u8) -> Members {
    1 << member
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Open,
    Completed,
    Failed,
}

/// One operation, and the place of its payload.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) number: u64,
    pub(crate) is_begun: bool,
    pub(crate) outcome: Outcome,
    calls: Vec<Option<Call>>,
    /// The members whose contributions are here.
    pub(crate) present: Members,
    /// Members from which nothing is taken any more: others were told that their contributions are lacking.
    pub(crate) cut: Members,
    /// The members that were asked for a contribution.
    pub(crate) asked: Members,
    /// The members that are to be sent this member's contribution, and those that are to be sent the sum, as soon as it is there.
    pub(crate) owed: Members,
    pub(crate) owed_sum: Members,
    /// Dead members whose contributions the others were asked for.
    pub(crate) asked_for: Members,
    /// For each member: who lacks its contribution too.
    pub(crate) lacking: Vec<Members>,
    /// Members that have said that they had not begun it.
    pub(crate) late: Members,
    /// When to ask without evidence, and how long to wait after that.
    pub(crate) ask_at_ns: u64,
    pub(crate) patience_ns: u64,
    /// Whether that time has come.
    pub(crate) has_doubted: bool,
}

impl Operation {
    pub(crate) fn new(number: u64, members: u8) -> Self {
        Self {
            number,
            is_begun: false,
            outcome: Outcome::Open,
            calls: vec![None; usize::from(members)],
            present: 0,
            cut: 0,
            asked: 0,
            owed: 0,
            owed_sum: 0,
            asked_for: 0,
            lacking: vec![0; usize::from(members)],
            late: 0,
            ask_at_ns: u64::MAX,
            patience_ns: 0,
            has_doubted: false,
        }
    }

    /// It is over: there is nothing to ask for.
    pub(crate) fn end(&mut self, outcome: Outcome) {
        self.outcome = outcome;
        self.ask_at_ns = u64::MAX;
    }

    pub(crate) fn call(&self, member: u8) -> Option<Call> {
        self.calls[usize::from(member)]
    }

    /// Takes a contribution, unless it is here or comes too late.
    pub(crate) fn take(&mut self, member: u8, call: Call) -> bool {
        if (self.present | self.cut) & one(member) != 0 || self.outcome != Outcome::Open {
            return false;
        }
        self.present |= one(member);
        self.calls[usize::from(member)] = Some(call);
        true
    }

    /// The two that differ, once all have called: the first member, and the first that called otherwise. So all
    /// members name the same two.
    pub(crate) fn disagreement(&self) -> Option<(u8, u8)> {
        let differs = self.calls.iter().position(|call| *call != self.calls[0])?;
        Some((0, differs as u8))
    }
}
