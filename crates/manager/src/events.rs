//! Events that aggregators send about groups.

use alloc::string::String;

use tributary_wire::{Epoch, GroupId, NodeId};

use super::groups::{MemberState, Stage};
use super::{EventError, GroupError, Manager};
use tributary_protocol::Time;

impl Manager {
    pub(super) fn on_installed(
        &mut self,
        now: Time,
        node: NodeId,
        id: GroupId,
        epoch: Epoch,
    ) -> Result<(), EventError> {
        let Some(at) = self.locate(node, id, epoch)? else { return Ok(()) };
        let group = self.groups.live(id);
        group.members[at].expect_state(node, id, "installed", &[MemberState::Ordered])?;
        group.members[at].state = MemberState::Installed;
        let level = group.members[at].level;
        if group.members.iter().any(|member| member.state == MemberState::Ordered) {
            return Ok(());
        }
        if group.members.iter().any(|member| member.state == MemberState::Planned) {
            self.order_level(now, id, level + 1);
            return Ok(());
        }
        if let Stage::Installing(installing) = group.go_live() {
            self.stats.groups_granted += 1;
            self.decisions.push_back((installing.ticket, Ok(installing.plan.grant)));
        }
        Ok(())
    }

    pub(super) fn on_refused(
        &mut self,
        node: NodeId,
        id: GroupId,
        epoch: Epoch,
        reason: String,
    ) -> Result<(), EventError> {
        let Some(at) = self.locate(node, id, epoch)? else { return Ok(()) };
        let member = &self.groups.live(id).members[at];
        member.expect_state(node, id, "refused", &[MemberState::Ordered])?;
        let name = member.name.clone();
        self.retire(id, at);
        self.close(id, Some(GroupError::NodeRefused { node: name, reason }));
        Ok(())
    }

    pub(super) fn on_failed(
        &mut self,
        node: NodeId,
        id: GroupId,
        epoch: Epoch,
        reason: String,
    ) -> Result<(), EventError> {
        let Some(at) = self.locate(node, id, epoch)? else { return Ok(()) };
        let member = &self.groups.live(id).members[at];
        member.expect_state(node, id, "failed", &[MemberState::Ordered, MemberState::Installed])?;
        let name = member.name.clone();
        self.close(id, Some(GroupError::NodeFailed { node: name, reason }));
        Ok(())
    }

    /// An aggregator's part has ended. Once the root's part has ended, everyone below has left too, so
    /// parts that aggregators have not reported yet are removed. A group that was taken over may have a root
    /// that nobody has told of.
    pub(super) fn on_ended(
        &mut self,
        node: NodeId,
        id: GroupId,
        epoch: Epoch,
    ) -> Result<(), EventError> {
        let Some(at) = self.locate(node, id, epoch)? else { return Ok(()) };
        let group = self.groups.live(id);
        group.members[at].expect_state(node, id, "ended", &[MemberState::Installed])?;
        if matches!(group.stage, Stage::Installing(_)) {
            return Err(EventError::Unexpected { node, group: id, event: "ended" });
        }
        self.retire(id, at);
        if self.groups.live(id).is_over_behind(at) {
            self.close(id, None);
        }
        Ok(())
    }

    /// The aggregator's position in the group; `None` if that incarnation has ended.
    fn locate(
        &mut self,
        node: NodeId,
        id: GroupId,
        epoch: Epoch,
    ) -> Result<Option<usize>, EventError> {
        let Some(group) = self.groups.find(id, epoch) else {
            self.stats.events_stale += 1;
            return Ok(None);
        };
        let at = group.members.iter().position(|member| member.node == node);
        if at.is_none() && !self.groups.was_issued(self.config.first_epoch, epoch) {
            // Its part was not taken over.
            self.stats.events_stale += 1;
            return Ok(None);
        }
        at.map(Some).ok_or(EventError::NotAMember { node, group: id })
    }
}
