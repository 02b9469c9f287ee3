//! The record of faults: for each group that was ever ordered, where it is, what was done to it,
//! and hence how it may end.

use std::ops::Range;

use tributary_wire::control::GroupInstall;
use tributary_wire::frame::{Abort, AbortReason};
use tributary_wire::{EndpointId, Epoch};

/// One incarnation of a group. Within one life of the manager, epochs differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    pub(super) life: u32,
    pub(super) epoch: Epoch,
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "group {}.{}", self.life, self.epoch)
    }
}

/// Members that may be named as the cause of a group's failure, and for which reasons.
#[derive(Clone, Debug)]
pub(super) struct Blame {
    reasons: &'static [AbortReason],
    members: Range<u32>,
}

/// The record of one group.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: Key,
    /// Each node's part, root first and level by level.
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
pub(super) const MEMBER_LOST: &[AbortReason] =
    &[AbortReason::MemberLost, AbortReason::Misbehaved, AbortReason::JoinTimeout];
/// A node, or its link to its parent, is gone; or what came over that link broke the protocol.
pub(super) const NODE_LOST: &[AbortReason] =
    &[AbortReason::NodeLost, AbortReason::Misbehaved, AbortReason::JoinTimeout];
/// A member gave up, and may or may not have said so.
pub(super) const GAVE_UP: &[AbortReason] = &[AbortReason::MemberLost, AbortReason::MemberAborted];
/// A member broke the protocol.
pub(super) const MISBEHAVED: &[AbortReason] = &[AbortReason::Misbehaved];
/// A member mistook an operation for another one.
pub(super) const DISAGREED: &[AbortReason] = &[AbortReason::Disagreement, AbortReason::MemberLost];
/// The manager took the group back.
pub(super) const WITHDRAWN: &[AbortReason] = &[AbortReason::Withdrawn];

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
    pub(super) fn blame(&mut self, at: u64, reasons: &'static [AbortReason], members: Range<u32>) {
        self.noticed_by = self.noticed_by.max(at);
        self.blames.push(Blame { reasons, members });
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
        // A member whose own link ends can only conclude that its node is gone.
        let is_own_link = abort.reason == AbortReason::NodeLost && abort.at_fault.0 == told;
        self.blames.iter().any(|blame| {
            let is_fit = blame.reasons.contains(&abort.reason) || is_own_link;
            is_fit && blame.members.contains(&abort.at_fault.0)
        })
    }

    /// The members at or below a node.
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
