//! Groups that aggregators hold from the time of another manager.
//!
//! A manager that starts knows nothing. Each aggregator that registers says what it holds, so the view is complete,
//! aggregator by aggregator, before anything is granted there; no outstanding operation is granted twice. A job of
//! which only groups are known keeps them as long as they live, and proves its place when it next asks for something.

use alloc::string::String;
use alloc::vec::Vec;

use tributary_wire::NodeId;
use tributary_wire::control::{GroupRecord, HeldGroup, NodeOrder};

use super::Manager;
use super::config::{TEXT_MAX_BYTES, make_printable};
use super::groups::{Group, Member, MemberState, Stage};
use super::plan::Terms;

impl Manager {
    /// Takes an aggregator's part of a group over, or has it removed.
    pub(super) fn take_over(&mut self, node: NodeId, held: HeldGroup) {
        let (group, epoch) = (held.group, held.epoch);
        if !self.adopt(node, held) {
            self.orders.push_back((node, NodeOrder::Remove { group, epoch }));
        }
    }

    /// `false` if the part can't be taken over.
    fn adopt(&mut self, node: NodeId, held: HeldGroup) -> bool {
        // Groups of this manager ended when it lost the aggregator.
        let is_own = self.groups.was_issued(self.config.first_epoch, held.epoch);
        if is_own || !is_sound(&held) || self.nodes.osos_free(node) < u32::from(held.osos) {
            return false;
        }
        if self.groups.at_mut(held.group).is_none() && !self.begin_adoption(&held) {
            return false;
        }
        let group = self.groups.live(held.group);
        let is_same = group.epoch() == held.epoch && group.osos() == held.osos;
        if !is_same || group.members.iter().any(|member| member.node == node) {
            return false;
        }
        let GroupRecord { level, parent, children, .. } = held.record;
        let children = children.iter().map(|child| make_printable(child)).collect();
        let name = String::from(self.nodes.name(node));
        let state = MemberState::Installed;
        // Root first, level by level.
        let at = group.members.partition_point(|member| member.level <= level);
        group.members.insert(at, Member { node, name, parent, children, level, state, wait: None });
        #[cfg(feature = "planted-bugs")]
        if self.forgets_to_count(held.group) {
            return true;
        }
        self.nodes.reserve(node, held.osos);
        true
    }

    /// One of the bugs that the swarm has to find: what is not counted is not given back either.
    #[cfg(feature = "planted-bugs")]
    fn forgets_to_count(&mut self, group: tributary_wire::GroupId) -> bool {
        use tributary_protocol::planted::{Bug, is_planted};
        let forgets = is_planted(Bug::UncountedAdoption);
        if forgets && let Stage::Live(terms) = &mut self.groups.live(group).stage {
            terms.osos = 0;
        }
        forgets
    }

    /// The group as the first of its aggregators tells it, without members yet. `false` if there is no room for it.
    fn begin_adoption(&mut self, held: &HeldGroup) -> bool {
        let has_room = self.groups.len() < self.config.groups_max as usize;
        if !has_room || !self.jobs.take_over(&self.config, &held.record) {
            return false;
        }
        if let Some(stream) = held.stream {
            self.stream_trees.take_over(stream.tree);
        }
        let &HeldGroup { group, epoch, frame_version, osos, payload_max_bytes, stream, .. } = held;
        let stage =
            Stage::Live(Terms { group, epoch, frame_version, osos, payload_max_bytes, stream });
        let (job, label) = (held.record.job, make_printable(&held.record.label));
        self.groups
            .insert(group, Group { job, label, members: Vec::new(), stage, told_late: None });
        self.stats.groups_adopted += 1;
        true
    }
}

/// Whether a manager can have written this.
fn is_sound(held: &HeldGroup) -> bool {
    let GroupRecord { job_name, label, parent, children, tenant, .. } = &held.record;
    let mut texts = [job_name, label].into_iter().chain(parent).chain(children).chain(tenant);
    held.osos > 0 && !children.is_empty() && texts.all(|text| text.len() <= TEXT_MAX_BYTES)
}
