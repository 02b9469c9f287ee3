//! The limits of tenants, checked against what their jobs hold, those taken over from another manager included.

use alloc::collections::BTreeMap;

use tributary_wire::control::{Share, TenantStatus};
use tributary_wire::{JobId, NodeId};

use super::Manager;
use super::caller::{Caller, TenantLimits};
use super::error::{GroupError, TenantResource};
use super::groups::{Group, Member, MemberState};
use super::holders::Holders;

impl Manager {
    /// What a caller may hold.
    pub(super) fn limits(&self, caller: &Caller) -> TenantLimits {
        let known = caller.tenant().and_then(|name| self.config.tenants.get(name));
        known.copied().unwrap_or_default()
    }

    /// Checks the limits that do not depend on where the group is placed.
    pub(super) fn check_groups(&self, owner: &Caller) -> Result<(), GroupError> {
        let Some(max) = self.limits(owner).groups else { return Ok(()) };
        let amounts = || self.groups_of(owner).map(|group| (group.job, 1));
        if amounts().count() < max as usize {
            return Ok(());
        }
        let holders = self.holders(owner, amounts());
        Err(over_limit(owner, TenantResource::Groups, 1, 0, max, holders))
    }

    /// Checks that each of a group's aggregators has `osos` to spare, for its owner and at all.
    pub(super) fn check_osos(
        &self,
        owner: &Caller,
        members: &[Member],
        osos: u16,
    ) -> Result<(), GroupError> {
        let max = self.limits(owner).osos;
        for member in members {
            let has = self.nodes.osos_free(member.node);
            if u32::from(osos) > has {
                let holders = self.holders(owner, self.osos_on(member.node));
                let node = member.name.clone();
                return Err(GroupError::NodeExhausted { node, needs: osos, has, holders });
            }
            let Some(max) = max else { continue };
            let own = || self.osos_on(member.node).filter(|(job, _)| self.jobs.is_of(*job, owner));
            let has = max.saturating_sub(own().map(|(_, osos)| osos).sum());
            if u32::from(osos) > has {
                let resource = TenantResource::Osos { node: member.name.clone() };
                let holders = self.holders(owner, own());
                return Err(over_limit(owner, resource, u32::from(osos), has, max, holders));
            }
        }
        Ok(())
    }

    /// Whether one more group of the owner may stream.
    pub(super) fn may_stream(&self, owner: &Caller) -> bool {
        let streaming = self.groups_of(owner).filter(|group| group.terms().stream.is_some());
        self.limits(owner).streams.is_none_or(|max| streaming.count() < max as usize)
    }

    /// Names those who hold something, as far as `caller` may know them.
    pub(super) fn holders(
        &self,
        caller: &Caller,
        amounts: impl Iterator<Item = (JobId, u32)>,
    ) -> Holders {
        Holders::new(amounts, |job| self.jobs.visible_name(job, caller))
    }

    /// What the groups on an aggregator hold of its outstanding operations.
    pub(super) fn osos_on(&self, node: NodeId) -> impl Iterator<Item = (JobId, u32)> {
        let holds = move |group: &Group| {
            let is_on = |member: &Member| member.node == node && member.state != MemberState::Over;
            group.members.iter().any(is_on)
        };
        let groups = self.groups.iter().map(|(_, group)| group).filter(move |group| holds(group));
        groups.map(|group| (group.job, u32::from(group.osos())))
    }

    /// What the caller's tenants hold: all for the operator, its own for a tenant.
    pub(super) fn tenant_status(&self, caller: &Caller) -> impl Iterator<Item = TenantStatus> {
        let all = self.config.tenants.iter();
        let visible = all.filter(|(name, _)| caller.tenant().is_none_or(|own| own == *name));
        visible.map(|(name, limits)| {
            let owner = Caller::Tenant(name.clone());
            let jobs = self.jobs.iter().filter(|(_, job)| job.owner == owner).count();
            let groups = self.groups_of(&owner).count();
            let streams = self.groups_of(&owner).filter(|it| it.terms().stream.is_some()).count();
            let share = |used: usize, max| Share {
                used: u32::try_from(used).expect("all are bounded by 32-bit limits"),
                max,
            };
            TenantStatus {
                name: name.clone(),
                jobs: share(jobs, limits.jobs),
                groups: share(groups, limits.groups),
                osos: Share { used: self.most_osos(&owner), max: limits.osos },
                streams: share(streams, limits.streams),
            }
        })
    }

    fn groups_of(&self, owner: &Caller) -> impl Iterator<Item = &Group> {
        let groups = self.groups.iter().map(|(_, group)| group);
        groups.filter(|group| self.jobs.is_of(group.job, owner))
    }

    /// What the owner holds on the aggregator where it holds most.
    fn most_osos(&self, owner: &Caller) -> u32 {
        let mut by_node = BTreeMap::<NodeId, u32>::new();
        for group in self.groups_of(owner) {
            for member in group.members.iter().filter(|it| it.state != MemberState::Over) {
                *by_node.entry(member.node).or_default() += u32::from(group.osos());
            }
        }
        by_node.into_values().max().unwrap_or(0)
    }
}

fn over_limit(
    owner: &Caller,
    resource: TenantResource,
    needs: u32,
    has: u32,
    max: u32,
    holders: Holders,
) -> GroupError {
    let tenant = owner.tenant().expect("the operator has no limits").into();
    GroupError::TenantLimit { tenant, resource, needs, has, max, holders }
}
