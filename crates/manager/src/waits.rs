//! Which groups are late: what aggregators say that their groups wait for, put together.

use alloc::string::String;
use alloc::vec::Vec;

use tributary_wire::control::{GroupWait, WaitingStatus};
use tributary_wire::{Epoch, GroupId, JobId, NodeId};

use super::Manager;
use super::groups::{Group, Member};
use super::wait::Wait;
use tributary_protocol::Time;

/// A group that has waited for long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateGroup {
    /// The group.
    pub group: GroupId,
    /// The job that holds it.
    pub job: JobId,
    /// What the job calls it.
    pub label: String,
    /// What it waits for.
    pub waiting: WaitingStatus,
}

impl Manager {
    /// An aggregator says what its groups wait for. What it said before does not hold any more. What concerns groups
    /// that it does not have is old, and ignored.
    pub fn note_waits(&mut self, now: Time, node: NodeId, waits: Vec<GroupWait>) {
        for id in self.groups.ids_on(node) {
            for member in self.groups.live(id).members.iter_mut().filter(|it| it.node == node) {
                member.wait = None;
            }
        }
        for GroupWait { group, epoch, operation, waited_ms, missing } in waits {
            if let Some(member) = self.member_mut(node, group, epoch) {
                member.wait = Some(Wait { told: now, waited_ms, operation, missing });
            }
        }
    }

    /// The groups that have waited for `patience_ms` or longer, each once for each operation.
    pub fn take_late(&mut self, now: Time, patience_ms: u64) -> Vec<LateGroup> {
        let mut late = Vec::new();
        for (id, group) in self.groups.iter_mut() {
            let Some(waiting) = group.waiting(now) else {
                group.told_late = None;
                continue;
            };
            let operation = waiting.operation.unwrap_or(0);
            if waiting.waited_ms >= patience_ms && group.told_late != Some(operation) {
                group.told_late = Some(operation);
                let (job, label) = (group.job, group.label.clone());
                late.push(LateGroup { group: id, job, label, waiting });
            }
        }
        late
    }

    fn member_mut(&mut self, node: NodeId, id: GroupId, epoch: Epoch) -> Option<&mut Member> {
        let group = self.groups.at_mut(id).filter(|group| group.epoch() == epoch)?;
        group.members.iter_mut().find(|member| member.node == node)
    }
}

impl Group {
    /// What it waits for: from its root downward, whose part is missing.
    pub(super) fn waiting(&self, now: Time) -> Option<WaitingStatus> {
        let root = self.members.iter().find(|member| member.parent.is_none())?;
        let mut waiting =
            WaitingStatus { operation: None, waited_ms: 0, hosts: Vec::new(), nodes: Vec::new() };
        // A root that waits for nothing has not heard of what others wait for.
        let above: Vec<&Member> = match &root.wait {
            Some(_) => Vec::from([root]),
            None => self.members.iter().filter(|it| it.is_held_up()).collect(),
        };
        above.iter().for_each(|member| self.add_late(member, &mut waiting));
        let waits = || self.members.iter().filter_map(|member| member.wait.as_ref());
        waiting.operation = waits().find_map(|wait| wait.operation);
        waiting.waited_ms = waits().map(|wait| wait.waited_ms_at(now)).max()?;
        let is_known = !waiting.hosts.is_empty() || !waiting.nodes.is_empty();
        is_known.then_some(waiting)
    }

    /// Adds the members that are late at or below an aggregation node.
    fn add_late(&self, member: &Member, waiting: &mut WaitingStatus) {
        let is_missing = |at: usize| match &member.wait {
            Some(wait) => wait.missing.iter().any(|child| usize::from(child.0) == at),
            // Nothing has come from below: otherwise it would wait for the rest.
            None => true,
        };
        for (_, child) in member.children.iter().enumerate().filter(|(at, _)| is_missing(*at)) {
            let is_child =
                |it: &&Member| it.name == *child && it.parent.as_ref() == Some(&member.name);
            match self.members.iter().find(is_child) {
                None => waiting.hosts.push(child.clone()),
                Some(node) if node.wait.as_ref().is_some_and(|it| it.missing.is_empty()) => {
                    waiting.nodes.push(child.clone());
                }
                Some(node) => self.add_late(node, waiting),
            }
        }
    }
}

impl Member {
    /// Whether somebody below has yet to send its part.
    fn is_held_up(&self) -> bool {
        self.wait.as_ref().is_some_and(|wait| !wait.missing.is_empty())
    }
}
