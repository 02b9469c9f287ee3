//! The aggregation manager: which nodes live, which jobs are admitted, which groups stand on which
//! nodes.
//!
//! Owns admission and the accounting of outstanding operations (OSOs). Knows nothing of HTTP, of
//! sockets or of what travels in a group. The messages are those of [`tributary_wire::control`].
//!
//! A group of k OSOs costs k on every aggregation node (AN) of its subtree, from the moment it is
//! asked for. Its nodes are told to install it level by level from the root, because a node links
//! to its parent when it installs; once the lowest level has answered, the grant is decided. A
//! node that refuses, fails, dies or stays silent undoes the whole group and nothing else. Every
//! group ends in one place, `Manager::close`, which tells its nodes and gives its OSOs back.
//!
//! After any input, drain [`Manager::poll_order`] and [`Manager::poll_decision`], then ask
//! [`Manager::poll_timeout`]. One input adds at most one order per node of the groups it touches.
//! Orders to one node must reach it in order: a group's number may be given away again as soon as
//! its removal is ordered.

mod config;
mod error;
mod events;
mod groups;
mod jobs;
mod nodes;
mod plan;
mod secrets;
mod status;
mod streams;
#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::cell::OnceCell;

use tributary_topology::{AggregationTree, Fabric, GroupTree};
use tributary_wire::control::{
    GroupGrant, GroupRequest, JobAdmission, JobRequest, NodeEvent, NodeOrder, NodeRegistration,
    StreamInstall,
};
use tributary_wire::{GroupId, JobId, NodeId, StreamTerms};

use crate::Time;
use groups::{Group, GroupTable, Installing, MemberState, Stage};
use jobs::JobTable;
use nodes::NodeTable;
use plan::Plan;
use secrets::Secrets;
use streams::{Placement, StreamTrees};

pub use config::{ManagerConfig, MulticastRange};
pub use error::{AdmitError, EventError, GroupError, RegisterError};

/// Names one pending [`Manager::request_group`] until its decision; never repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestTicket(pub u64);

/// What happened since the manager began, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ManagerStats {
    /// Groups granted.
    pub groups_granted: u64,
    /// Groups refused, at once or while their nodes were installing.
    pub groups_refused: u64,
    /// Granted groups that all their members left.
    pub groups_ended: u64,
    /// Granted groups cut short: by a failure, a node's death or their job's end.
    pub groups_cut: u64,
    /// Events about groups that were over when the event came; harmless.
    pub events_stale: u64,
}

/// The manager's state.
pub struct Manager {
    config: ManagerConfig,
    fabric: Fabric,
    /// The tree of the nodes that live now. It is placed when it is first asked for: many nodes may
    /// come before any group does.
    tree: OnceCell<AggregationTree>,
    /// Numbers the shapes of the tree, for stream locks.
    placement: Placement,
    stream_trees: StreamTrees,
    secrets: Secrets,
    nodes: NodeTable,
    jobs: JobTable,
    groups: GroupTable,
    tickets: u64,
    orders: VecDeque<(NodeId, NodeOrder)>,
    decisions: VecDeque<(RequestTicket, Result<GroupGrant, GroupError>)>,
    stats: ManagerStats,
}

impl Manager {
    /// A manager of `fabric` (an empty one where there is no topology file). Capabilities are drawn
    /// from `seed`, which must be unguessable.
    #[must_use]
    pub fn new(config: ManagerConfig, fabric: Fabric, seed: [u8; 32]) -> Self {
        Self {
            config,
            fabric,
            tree: OnceCell::new(),
            placement: Placement::default(),
            stream_trees: StreamTrees::default(),
            secrets: Secrets::new(seed),
            nodes: NodeTable::default(),
            jobs: JobTable::default(),
            groups: GroupTable::default(),
            tickets: 0,
            orders: VecDeque::new(),
            decisions: VecDeque::new(),
            stats: ManagerStats::default(),
        }
    }

    /// Takes an aggregation node in. Its first order is [`NodeOrder::Registered`]. Groups that stand
    /// stay where they are, whatever the new tree looks like.
    ///
    /// # Errors
    /// [`RegisterError`]; nothing changes.
    pub fn register_node(
        &mut self,
        registration: NodeRegistration,
    ) -> Result<NodeId, RegisterError> {
        let node = self.nodes.add(&self.config, registration)?;
        self.place_anew();
        self.orders.push_back((node, NodeOrder::Registered { node }));
        Ok(node)
    }

    /// A node's connection closed: it is dead, and so is every group on it.
    pub fn handle_node_gone(&mut self, node: NodeId) {
        let Some(name) = self.nodes.remove(node) else { return };
        self.orders.retain(|(to, _)| *to != node);
        for id in self.groups.ids_on(node) {
            self.close(id, Some(GroupError::NodeGone { node: name.clone() }));
        }
        self.place_anew();
    }

    /// A node said something.
    ///
    /// An event about a group that is over already is counted and otherwise ignored: it crossed
    /// the removal on its way.
    ///
    /// # Errors
    /// [`EventError`]: the node speaks out of turn. Nothing changes.
    pub fn handle_node_event(
        &mut self,
        now: Time,
        node: NodeId,
        event: NodeEvent,
    ) -> Result<(), EventError> {
        if !self.nodes.contains(node) {
            return Err(EventError::UnknownNode { node });
        }
        match event {
            NodeEvent::Tick => Ok(()),
            NodeEvent::Installed { group, epoch } => self.on_installed(now, node, group, epoch),
            NodeEvent::Refused { group, epoch, reason } => {
                self.on_refused(node, group, epoch, reason)
            }
            NodeEvent::Failed { group, epoch, reason } => {
                self.on_failed(node, group, epoch, reason)
            }
            NodeEvent::Ended { group, epoch } => self.on_ended(node, group, epoch),
        }
    }

    /// Admits a job.
    ///
    /// # Errors
    /// [`AdmitError`]; nothing changes.
    pub fn admit_job(&mut self, request: JobRequest) -> Result<JobAdmission, AdmitError> {
        self.jobs.admit(&self.config, request, &mut self.secrets)
    }

    /// A job is over: whatever it holds or waits for is undone. An unknown job is over already.
    pub fn end_job(&mut self, job: JobId) {
        if self.jobs.remove(job) {
            for id in self.groups.ids_of(job) {
                self.close(id, Some(GroupError::JobEnded { job }));
            }
        }
    }

    /// Begins to set up a group; the decision comes from [`Manager::poll_decision`].
    ///
    /// The group gets the OSOs that were asked for, or the configured most if that is less, and
    /// segments as long as was asked for and every node of its tree can hold.
    ///
    /// # Errors
    /// [`GroupError`]; nothing changes.
    pub fn request_group(
        &mut self,
        now: Time,
        job: JobId,
        request: &GroupRequest,
    ) -> Result<RequestTicket, GroupError> {
        let planned = self.plan_group(job, request);
        let (plan, members) = planned.inspect_err(|_| self.stats.groups_refused += 1)?;
        for member in &members {
            self.nodes.reserve(member.node, plan.grant.osos);
        }
        if let Some(stream) = plan.terms().stream {
            self.stream_trees.take(self.placement, stream.tree);
        }
        self.tickets += 1;
        let ticket = RequestTicket(self.tickets);
        let id = plan.grant.group;
        let stage = Stage::Installing(Installing { ticket, deadline: now, plan });
        let label = request.label.clone();
        self.groups.insert(id, Group { job, label, members, stage });
        self.order_level(now, id, 0);
        Ok(ticket)
    }

    /// The next order, and the node it goes to.
    pub fn poll_order(&mut self) -> Option<(NodeId, NodeOrder)> {
        self.orders.pop_front()
    }

    /// The next decision about a group that was asked for.
    pub fn poll_decision(&mut self) -> Option<(RequestTicket, Result<GroupGrant, GroupError>)> {
        self.decisions.pop_front()
    }

    /// When [`Manager::handle_timeout`] wants to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        self.groups.earliest_deadline()
    }

    /// Gives up on every install that was due at or before `now`.
    pub fn handle_timeout(&mut self, now: Time) {
        for (id, silent) in self.groups.overdue(now) {
            self.close(id, Some(GroupError::NodeSilent { node: silent }));
        }
    }

    /// The tree that new groups are placed on, with what an operator may want to know of it.
    #[must_use]
    pub fn tree(&self) -> &AggregationTree {
        self.tree.get_or_init(|| {
            AggregationTree::place(&self.fabric, &self.nodes.for_placement())
                .expect("registration keeps names apart and every radix above 0")
        })
    }

    /// What happened so far.
    #[must_use]
    pub fn stats(&self) -> &ManagerStats {
        &self.stats
    }

    /// The living nodes have changed, so the tree may have.
    fn place_anew(&mut self) {
        self.placement.0 += 1;
        self.tree = OnceCell::new();
    }

    /// Finds out whether the group can be had, without changing anything but the next capability.
    fn plan_group(
        &mut self,
        job: JobId,
        request: &GroupRequest,
    ) -> Result<(Plan, Vec<groups::Member>), GroupError> {
        self.jobs.check_secret(job, request.secret)?;
        plan::check_request(&self.config, request)?;
        if self.groups.len() >= self.config.groups_max as usize {
            return Err(GroupError::TooManyGroups { max: self.config.groups_max });
        }
        let osos = request.osos.min(self.config.osos_per_group_max);
        if let Some(max) = self.config.osos_per_job_max {
            let has = max.saturating_sub(self.groups.osos_of(job));
            if u32::from(osos) > has {
                return Err(GroupError::JobQuota { job, needs: osos, has });
            }
        }
        let tree = GroupTree::build(self.tree(), &request.hosts)?;
        let payload_max_bytes = self.nodes.check(&tree, osos, request.payload_max_bytes)?;
        let (group, epoch) = self.groups.next_incarnation().ok_or(GroupError::EpochsUsedUp)?;
        let stream = request.stream.and_then(|wanted| self.plan_stream(&tree, wanted));
        let terms = plan::Terms { group, epoch, osos, payload_max_bytes, stream };
        let plan = Plan::draw(
            terms,
            &tree,
            &self.nodes,
            &self.config,
            request.outsider,
            &mut self.secrets,
        );
        Ok((plan, groups::members(&tree, &self.nodes, &request.hosts)))
    }

    /// The streams that every node of the tree can serve, no wider than wanted. A group that can
    /// have none goes without: its long vectors travel in segments.
    fn plan_stream(&self, tree: &GroupTree, wanted: StreamTerms) -> Option<StreamInstall> {
        let capacity = self.nodes.stream_capacity(tree, wanted)?;
        let number = self.stream_trees.number(self.placement, capacity.trees)?;
        Some(StreamInstall { tree: number, terms: capacity.terms_max })
    }

    /// Tells the nodes of one level to install the group.
    fn order_level(&mut self, now: Time, id: GroupId, level: u32) {
        let group = self.groups.live(id);
        let Stage::Installing(installing) = &mut group.stage else {
            panic!("only a group that is being installed has levels to order")
        };
        installing.deadline = now.after_ns(self.config.install_timeout_ns);
        for (member, install) in group.members.iter_mut().zip(&installing.plan.installs) {
            if member.level == level {
                member.state = MemberState::Ordered;
                self.orders.push_back((member.node, NodeOrder::Install(install.clone())));
            }
        }
    }

    /// One node holds nothing of the group any more.
    fn retire(&mut self, id: GroupId, at: usize) {
        let group = self.groups.live(id);
        let osos = group.osos();
        let member = &mut group.members[at];
        if member.state != MemberState::Over {
            member.state = MemberState::Over;
            self.nodes.release(member.node, osos);
        }
    }

    /// The one end of every group: its nodes are told, its OSOs are free, and whoever waits for it
    /// learns why. Without a `reason` it ended by itself.
    fn close(&mut self, id: GroupId, reason: Option<GroupError>) {
        let group = self.groups.remove(id);
        let (osos, epoch) = (group.osos(), group.epoch());
        if let Some(stream) = group.terms().stream {
            self.stream_trees.give_back(stream.tree);
        }
        for member in &group.members {
            if matches!(member.state, MemberState::Ordered | MemberState::Installed)
                && self.nodes.contains(member.node)
            {
                self.orders.push_back((member.node, NodeOrder::Remove { group: id, epoch }));
            }
            if member.state != MemberState::Over {
                self.nodes.release(member.node, osos);
            }
        }
        match (group.stage, reason) {
            (Stage::Installing(installing), reason) => {
                let reason = reason.expect("a group ends by itself only once it is granted");
                self.stats.groups_refused += 1;
                self.decisions.push_back((installing.ticket, Err(reason)));
            }
            (Stage::Live(_), Some(_)) => self.stats.groups_cut += 1,
            (Stage::Live(_), None) => self.stats.groups_ended += 1,
        }
    }
}
