//! Groups, the aggregators they are on, and the progress of their installation.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use tributary_topology::{GroupChild, GroupTree};
use tributary_wire::{Epoch, GroupId, JobId, NodeId};

use super::config::make_printable;
use super::error::EventError;
use super::nodes::NodeTable;
use super::plan::{Plan, Terms};
use super::wait::Wait;
use tributary_protocol::Time;

/// Names one pending [`super::Manager::request_group`] until its decision; never repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestTicket(pub u64);

/// How much of a group one aggregator has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemberState {
    /// It will be told to install it; its OSOs are reserved.
    Planned,
    /// It was told to install it.
    Ordered,
    /// It said that it did.
    Installed,
    /// It has nothing of it any more, and no OSO is reserved for it.
    Over,
}

/// One aggregator of one group.
pub(super) struct Member {
    pub(super) node: NodeId,
    pub(super) name: String,
    /// The name of the aggregator above; none at the root.
    pub(super) parent: Option<String>,
    /// Names of aggregators and hosts, in reduction order.
    pub(super) children: Vec<String>,
    pub(super) level: u32,
    pub(super) state: MemberState,
    /// What it says that it waits for.
    pub(super) wait: Option<Wait>,
}

pub(super) struct Installing {
    pub(super) ticket: RequestTicket,
    /// Deadline of the lowest level that was ordered to install.
    pub(super) deadline: Time,
    pub(super) plan: Plan,
}

pub(super) enum Stage {
    Installing(Installing),
    Live(Terms),
}

pub(super) struct Group {
    pub(super) job: JobId,
    pub(super) label: String,
    /// Root first, level by level.
    pub(super) members: Vec<Member>,
    pub(super) stage: Stage,
    /// The operation that was told late last; 0 while members had yet to join.
    pub(super) told_late: Option<u32>,
}

#[derive(Default)]
pub(super) struct GroupTable {
    groups: BTreeMap<GroupId, Group>,
    /// Epochs used so far, from the configured one on.
    epochs: u32,
}

impl Member {
    pub(super) fn expect_state(
        &self,
        node: NodeId,
        group: GroupId,
        event: &'static str,
        allowed: &[MemberState],
    ) -> Result<(), EventError> {
        if allowed.contains(&self.state) {
            return Ok(());
        }
        Err(EventError::Unexpected { node, group, event })
    }
}

impl Group {
    pub(super) fn terms(&self) -> Terms {
        match &self.stage {
            Stage::Installing(installing) => installing.plan.terms(),
            Stage::Live(terms) => *terms,
        }
    }

    pub(super) fn osos(&self) -> u16 {
        self.terms().osos
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.terms().epoch
    }

    /// Whether nothing can be left of the group, now that the part at this position has ended.
    pub(super) fn is_over_behind(&self, at: usize) -> bool {
        let is_over = |member: &Member| member.state == MemberState::Over;
        self.members[at].parent.is_none() || self.members.iter().all(is_over)
    }

    /// Ends the installation and returns the stage that it had reached.
    pub(super) fn go_live(&mut self) -> Stage {
        let terms = self.terms();
        core::mem::replace(&mut self.stage, Stage::Live(terms))
    }
}

impl GroupTable {
    pub(super) fn len(&self) -> usize {
        self.groups.len()
    }

    /// The lowest free number, and an epoch that was never used; none after 2^32 - 1 groups.
    pub(super) fn next_incarnation(&mut self, first_epoch: Epoch) -> Option<(GroupId, Epoch)> {
        let epoch = Epoch(first_epoch.0.wrapping_add(self.epochs));
        self.epochs = self.epochs.checked_add(1)?;
        let taken = self.groups.keys().zip(0..).take_while(|(id, index)| id.0 == *index).count();
        let id = GroupId(u32::try_from(taken).expect("groups are bounded by a 32-bit limit"));
        Some((id, epoch))
    }

    /// Whether a group of this manager has, or had, the epoch.
    pub(super) fn was_issued(&self, first_epoch: Epoch, epoch: Epoch) -> bool {
        epoch.0.wrapping_sub(first_epoch.0) < self.epochs
    }

    pub(super) fn insert(&mut self, id: GroupId, group: Group) {
        let before = self.groups.insert(id, group);
        assert!(before.is_none(), "group {id} was free");
    }

    pub(super) fn remove(&mut self, id: GroupId) -> Group {
        self.groups.remove(&id).expect("the caller found the group")
    }

    pub(super) fn at_mut(&mut self, id: GroupId) -> Option<&mut Group> {
        self.groups.get_mut(&id)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (GroupId, &mut Group)> {
        self.groups.iter_mut().map(|(id, group)| (*id, group))
    }

    /// A group that the caller has found.
    pub(super) fn live(&mut self, id: GroupId) -> &mut Group {
        self.groups.get_mut(&id).expect("the caller found the group")
    }

    pub(super) fn find(&self, id: GroupId, epoch: Epoch) -> Option<&Group> {
        self.groups.get(&id).filter(|group| group.epoch() == epoch)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (GroupId, &Group)> {
        self.groups.iter().map(|(id, group)| (*id, group))
    }

    /// Groups that still need `node`.
    pub(super) fn ids_on(&self, node: NodeId) -> Vec<GroupId> {
        let needs = |group: &Group| {
            group
                .members
                .iter()
                .any(|member| member.node == node && member.state != MemberState::Over)
        };
        self.iter().filter(|(_, group)| needs(group)).map(|(id, _)| id).collect()
    }

    pub(super) fn ids_of(&self, job: JobId) -> Vec<GroupId> {
        self.iter().filter(|(_, group)| group.job == job).map(|(id, _)| id).collect()
    }

    /// What all groups of a job add up to.
    pub(super) fn osos_of(&self, job: JobId) -> u32 {
        let own = self.groups.values().filter(|group| group.job == job);
        own.fold(0, |sum: u32, group| sum.saturating_add(u32::from(group.osos())))
    }

    pub(super) fn earliest_deadline(&self) -> Option<Time> {
        self.groups.values().filter_map(Group::deadline).min()
    }

    /// Groups whose installation deadline has passed, each with the first aggregator that has not
    /// answered.
    pub(super) fn overdue(&self, now: Time) -> Vec<(GroupId, String)> {
        self.iter()
            .filter(|(_, group)| group.deadline().is_some_and(|deadline| deadline <= now))
            .map(|(id, group)| {
                let silent =
                    group.members.iter().find(|member| member.state == MemberState::Ordered);
                (id, silent.expect("a level that all answered is not waited for").name.clone())
            })
            .collect()
    }
}

impl Group {
    fn deadline(&self) -> Option<Time> {
        match &self.stage {
            Stage::Installing(installing) => Some(installing.deadline),
            Stage::Live(_) => None,
        }
    }
}

/// The members of a group on `tree`, nothing ordered yet.
pub(super) fn members(tree: &GroupTree, nodes: &NodeTable, hosts: &[String]) -> Vec<Member> {
    let child_name = |child: &GroupChild| match *child {
        GroupChild::Node(below) => tree.nodes()[below].name.clone(),
        GroupChild::Endpoint { request, .. } => make_printable(&hosts[request]),
    };
    tree.nodes()
        .iter()
        .map(|part| Member {
            node: nodes.node_named(&part.name).0,
            name: part.name.clone(),
            parent: part.parent.map(|place| tree.nodes()[place.node].name.clone()),
            children: part.children.iter().map(child_name).collect(),
            level: part.level,
            state: MemberState::Planned,
            wait: None,
        })
        .collect()
}
