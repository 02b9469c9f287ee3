//! The record of faults: for each group that was ever ordered, where it is, what was done to it,
//! and hence how it may end.

use std::ops::Range;

use tributary_wire::control::GroupInstall;
use tributary_wire::frame::{Abort, AbortReason};
use tributary_wire::{EndpointId, Epoch};

/// One incarnation of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    pub(super) life: u32,
    pub(super) epoch: Epoch,
}

impl Key {
    /// Of a group of this epoch. No two lives of the manager use the same ones.
    pub(super) fn of(epoch: Epoch) -> Self {
        Self { life: epoch.0 / NUMBERS_PER_LIFE, epoch }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "group {}.{}", self.life, self.epoch)
    }
}

/// Epochs, and numbers of jobs, that each life of the manager has for itself.
pub(super) const NUMBERS_PER_LIFE: u32 = 1 << 20;

/// What was done to members, and what it may be called.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cause {
    reasons: &'static [AbortReason],
    /// Whether links of these members may end, so that a member at its end can only conclude that
    /// its aggregator is gone.
    ends_links: bool,
}

/// Members that may be named as the cause of a group's failure, and for which reasons.
#[derive(Clone, Debug)]
pub(super) struct Blame {
    cause: Cause,
    members: Range<u32>,
}

/// The record of one group.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: Key,
    /// Each aggregator's part, root first and level by level.
    pub(super) installs: Vec<(u32, GroupInstall)>,
    pub(super) blames: Vec<Blame>,
    /// When its members last had a new cause to notice that it failed.
    pub(super) noticed_by: u64,
    /// Whether the manager's withdrawal may reach members before their own tree's abort.
    pub(super) may_withdraw: bool,
}

/// All groups that were ever ordered.
#[derive(Default)]
pub(super) struct FaultRecord {
    entries: Vec<Entry>,
}

/// A member or its link is gone, or what came over that link broke the protocol.
pub(super) const MEMBER_LOST: Cause = Cause {
    reasons: &[AbortReason::MemberLost, AbortReason::Misbehaved, AbortReason::JoinTimeout],
    ends_links: true,
};
/// An aggregator, or its link to its parent, is gone; or what came over that link broke the protocol.
pub(super) const NODE_LOST: Cause = Cause {
    reasons: &[AbortReason::NodeLost, AbortReason::Misbehaved, AbortReason::JoinTimeout],
    ends_links: true,
};
/// A member broke the protocol: the others are told that, and its link is closed.
pub(super) const MISBEHAVED: Cause =
    Cause { reasons: &[AbortReason::Misbehaved], ends_links: true };
/// A member gave up, and may or may not have said so.
pub(super) const GAVE_UP: Cause =
    Cause { reasons: &[AbortReason::MemberLost, AbortReason::MemberAborted], ends_links: false };
/// A member that lost the tree cut itself off from it, so the others lose it, too.
pub(super) const CUT_OFF: Cause = Cause {
    reasons: &[AbortReason::NodeLost, AbortReason::MemberLost, AbortReason::JoinTimeout],
    ends_links: true,
};
/// A member mistook an operation for another one.
pub(super) const DISAGREED: Cause =
    Cause { reasons: &[AbortReason::Disagreement, AbortReason::MemberLost], ends_links: false };
/// An aggregator's clock jumped past the time at which it gives up members that have not joined.
pub(super) const GIVEN_UP_EARLY: Cause =
    Cause { reasons: &[AbortReason::JoinTimeout], ends_links: false };
/// The manager took the group back.
const WITHDRAWN: Cause = Cause { reasons: &[AbortReason::Withdrawn], ends_links: true };

impl FaultRecord {
    pub(super) fn entry(&mut self, key: Key) -> &mut Entry {
        let at = self.entries.iter().rposition(|entry| entry.key == key);
        let at = at.unwrap_or_else(|| {
            self.entries.push(Entry {
                key,
                installs: Vec::new(),
                blames: Vec::new(),
                noticed_by: 0,
                may_withdraw: false,
            });
            self.entries.len() - 1
        });
        &mut self.entries[at]
    }

    pub(super) fn find(&self, key: Key) -> Option<&Entry> {
        self.entries.iter().rfind(|entry| entry.key == key)
    }

    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.entries.iter_mut()
    }
}

impl Entry {
    /// Something was done at `at` for which the group may fail.
    pub(super) fn blame(&mut self, at: u64, cause: Cause, members: Range<u32>) {
        self.noticed_by = self.noticed_by.max(at);
        self.blames.push(Blame { cause, members });
    }

    /// The manager has cause, from `at` on, to withdraw the group.
    pub(super) fn blame_manager(&mut self, at: u64) {
        self.may_withdraw = true;
        self.blame(at, WITHDRAWN, 0..u32::MAX);
    }

    /// Whether the group has cause to fail with this abort at the member `told`.
    pub(super) fn explains(&self, abort: Abort, told: u32) -> bool {
        // If members were lost, a member that the manager tells first learns only that the group
        // was withdrawn.
        if abort.reason == AbortReason::Withdrawn {
            return self.may_withdraw;
        }
        let is_own_link = abort.reason == AbortReason::NodeLost && abort.at_fault.0 == told;
        self.blames.iter().any(|Blame { cause, members }| {
            let is_fit = cause.reasons.contains(&abort.reason) || (cause.ends_links && is_own_link);
            is_fit && members.contains(&abort.at_fault.0)
        })
    }

    /// Whether an honest frame may be refused. A join may be once its group has failed. A member
    /// that has joined and is only mistaken, or gives up, is told so: its frames are still frames.
    pub(super) fn explains_refusal(&self, has_joined: bool) -> bool {
        self.blames.iter().any(|blame| blame.cause.ends_links || !has_joined)
    }

    /// The members at or below an aggregator.
    pub(super) fn members_at(&self, node: u32) -> Option<Range<u32>> {
        let (_, install) = self.installs.iter().find(|(at, _)| *at == node)?;
        let (first, last) = (install.children.first()?, install.children.last()?);
        Some(first.members_first.0..last.members_end.0)
    }

    /// The members at or below the child that shows `capability` to `node`.
    pub(super) fn members_below(&self, node: u32, child: u16) -> Option<Range<EndpointId>> {
        let (_, install) = self.installs.iter().find(|(at, _)| *at == node)?;
        let child = install.children.get(usize::from(child))?;
        Some(child.members_first..child.members_end)
    }
}
