//! The manager's status report.

use alloc::string::String;

use tributary_topology::AggregationTree;
use tributary_wire::control::{GroupNodeStatus, GroupStatus, JobStatus, NodeStatus, Status};
use tributary_wire::{GroupId, JobId, NodeId};

use super::Manager;
use super::caller::Caller;
use super::groups::{Group, Stage};
use super::nodes::LivingNode;
use tributary_protocol::Time;

impl Manager {
    /// Everything: [`Manager::visible_status`] for the operator.
    #[must_use]
    pub fn status(&self, now: Time) -> Status {
        self.visible_status(now, &Caller::Operator)
    }

    /// The living aggregators, and those admitted jobs and granted groups that `caller` may know. Groups that are
    /// being installed count in the aggregators' OSOs, of all callers, and in their job's number of groups.
    #[must_use]
    pub fn visible_status(&self, now: Time, caller: &Caller) -> Status {
        let tree = self.tree();
        let is_visible = |job: JobId| self.jobs.visible_name(job, caller).is_some();
        Status {
            nodes: self.nodes.iter().map(|(id, node)| node_status(tree, id, node)).collect(),
            jobs: self
                .jobs
                .iter()
                .filter(|(job, _)| is_visible(*job))
                .map(|(job, admitted)| JobStatus {
                    job,
                    name: admitted.name.clone(),
                    processes: admitted.processes,
                    groups: u32::try_from(self.groups.ids_of(job).len())
                        .expect("groups are bounded by a 32-bit limit"),
                    tenant: admitted.owner.tenant().map(String::from),
                })
                .collect(),
            groups: self
                .groups
                .iter()
                .filter(|(_, group)| matches!(group.stage, Stage::Live(_)) && is_visible(group.job))
                .map(|(id, group)| group_status(now, id, group))
                .collect(),
            tenants: self.tenant_status(caller).collect(),
        }
    }
}

fn node_status(tree: &AggregationTree, node: NodeId, living: &LivingNode) -> NodeStatus {
    let placed = tree.find(&living.registration.name).map(|index| tree.node(index));
    let parent = placed.and_then(|placed| placed.parent);
    NodeStatus {
        node,
        registration: living.registration.clone(),
        osos_used: living.osos_used,
        is_draining: living.is_draining,
        parent: parent.map(|index| tree.node(index).node.name.clone()),
        counts: None,
    }
}

fn group_status(now: Time, id: GroupId, group: &Group) -> GroupStatus {
    GroupStatus {
        group: id,
        epoch: group.epoch(),
        job: group.job,
        label: group.label.clone(),
        osos: group.osos(),
        nodes: group
            .members
            .iter()
            .map(|member| GroupNodeStatus {
                name: member.name.clone(),
                parent: member.parent.clone(),
                children: member.children.clone(),
            })
            .collect(),
        waiting: group.waiting(now),
    }
}
