//! The aggregation manager: knows the living aggregators, admits jobs and places groups on aggregators.
//!
//! Owns admission and the accounting of outstanding operations (OSOs). Knows nothing about HTTP,
//! sockets or the frames of a group. Its messages are those of [`tributary_wire::control`].
//!
//! A group of k OSOs reserves k on every aggregation node (AN) of its subtree as soon as it is
//! requested. Its aggregators are told to install it level by level from the root, because an aggregator
//! connects to its parent when it installs. Once the lowest level has answered, the group is
//! granted. If an aggregator refuses, fails, dies or stays silent, the manager takes back the whole group,
//! and nothing else. Every group ends in `Manager::close`, which tells its aggregators and frees its
//! OSOs.
//!
//! After any input, drain [`Manager::poll_order`] and [`Manager::poll_decision`], then call
//! [`Manager::poll_timeout`]. One input adds at most one order per aggregator of the groups that it
//! affects. Orders to one aggregator must reach it in order, because a group's number may be used again
//! as soon as its removal is ordered.
//!
//! The machine does no I/O, reads no clock and draws no randomness: its driver passes time and a seed in. The crate is `no_std`, so the
//! compiler rejects I/O and clocks.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod adoption;
mod caller;
mod config;
mod error;
mod events;
mod groups;
mod holders;
mod jobs;
mod nodes;
mod places;
mod plan;
mod secrets;
mod status;
mod streams;
mod tenants;
#[cfg(test)]
mod tests;
mod wait;
mod waits;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::cell::OnceCell;

use tributary_topology::{AggregationTree, Fabric, GroupTree};
use tributary_wire::control::{
    DrainRequest, Drained, GroupGrant, GroupRequest, JobAdmission, JobPlace, JobRequest, NodeEvent,
    NodeOffer, NodeOrder, StreamInstall,
};
use tributary_wire::{GroupId, JobId, NodeId, StreamTerms};

use groups::{Group, GroupTable, Installing, MemberState, Stage};
use jobs::JobTable;
use nodes::NodeTable;
use places::PlaceKeys;
use plan::Plan;
use secrets::Secrets;
use streams::{Placement, StreamTrees};
use tributary_protocol::Time;

pub use caller::{Caller, TenantLimits};
use config::make_printable;
pub use config::{ManagerConfig, MulticastRange, TEXT_MAX_BYTES};
pub use error::{AdmitError, DrainError, EventError, GroupError, RegisterError, TenantResource};
pub use groups::RequestTicket;
pub use holders::Holders;
pub use waits::LateGroup;

/// Counters since the manager began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ManagerStats {
    /// Groups granted.
    pub groups_granted: u64,
    /// Groups refused, at once or while their aggregators were installing.
    pub groups_refused: u64,
    /// Groups taken over from another manager, by their aggregators' word.
    pub groups_adopted: u64,
    /// Granted groups that all their members left.
    pub groups_ended: u64,
    /// Granted groups cut short: by a failure, an aggregator's death or their job's end.
    pub groups_cut: u64,
    /// Events about groups that had ended when the event came; harmless.
    pub events_stale: u64,
}

/// The manager's state.
pub struct Manager {
    config: ManagerConfig,
    fabric: Fabric,
    /// The tree of the aggregators that live now. It is placed at the first request for a group, because
    /// many aggregators may register before that.
    tree: OnceCell<AggregationTree>,
    /// Numbers the shapes of the tree, for stream locks.
    placement: Placement,
    stream_trees: StreamTrees,
    secrets: Secrets,
    places: PlaceKeys,
    nodes: NodeTable,
    jobs: JobTable,
    groups: GroupTable,
    tickets: u64,
    orders: VecDeque<(NodeId, NodeOrder)>,
    decisions: VecDeque<(RequestTicket, Result<GroupGrant, GroupError>)>,
    stats: ManagerStats,
}

impl Manager {
    /// A manager of `fabric`, which is empty if there is no topology file. `seed` must be
    /// unguessable: capabilities are drawn from it.
    #[must_use]
    pub fn new(config: ManagerConfig, fabric: Fabric, seed: [u8; 32]) -> Self {
        let mut secrets = Secrets::new(seed);
        let places = PlaceKeys::new([secrets.draw_place_key()].into());
        Self {
            config,
            fabric,
            tree: OnceCell::new(),
            placement: Placement::default(),
            stream_trees: StreamTrees::default(),
            secrets,
            places,
            nodes: NodeTable::default(),
            jobs: JobTable::default(),
            groups: GroupTable::default(),
            tickets: 0,
            orders: VecDeque::new(),
            decisions: VecDeque::new(),
            stats: ManagerStats::default(),
        }
    }

    /// Lets jobs prove their places to every manager that has one of `keys`: the first makes their secrets, and each
    /// recognises them. Without this call a job's place ends with the manager. The keys must be unguessable.
    ///
    /// # Panics
    /// If there is no key.
    #[must_use]
    pub fn with_place_keys(mut self, keys: Vec<[u8; 32]>) -> Self {
        self.places = PlaceKeys::new(keys);
        self
    }

    /// Registers an aggregation node, and takes over the groups that it holds. Its first order is
    /// [`NodeOrder::Registered`]; then those to remove what is not taken over. Existing groups stay where they
    /// are, whatever the new tree looks like.
    ///
    /// # Errors
    /// [`RegisterError`]; nothing changes.
    pub fn register_node(&mut self, offer: impl Into<NodeOffer>) -> Result<NodeId, RegisterError> {
        let offer = offer.into();
        let node = self.nodes.add(&self.config, offer.registration)?;
        self.place_anew();
        self.orders.push_back((node, NodeOrder::Registered { node }));
        offer.holds.into_iter().for_each(|held| self.take_over(node, held));
        Ok(node)
    }

    /// An aggregator's connection closed: the aggregator is dead, and every group on it ends.
    pub fn handle_node_gone(&mut self, node: NodeId) {
        let Some(name) = self.nodes.remove(node) else { return };
        self.orders.retain(|(to, _)| *to != node);
        for id in self.groups.ids_on(node) {
            self.close(id, Some(GroupError::NodeGone { node: name.clone() }));
        }
        self.place_anew();
    }

    /// An aggregator is about to be stopped: its groups end, so that their members go elsewhere, and it gets no more.
    /// Registering anew ends that.
    ///
    /// # Errors
    /// [`DrainError`]; nothing changes.
    pub fn drain_node(&mut self, request: &DrainRequest) -> Result<Drained, DrainError> {
        let name = &request.node;
        let unknown = || DrainError::UnknownNode { name: name.clone() };
        let node = self.nodes.drain(name).ok_or_else(unknown)?;
        self.place_anew();
        let groups = self.groups.ids_on(node);
        for id in &groups {
            self.close(*id, Some(GroupError::NodeDrained { node: name.clone() }));
        }
        let groups = u32::try_from(groups.len()).expect("groups are bounded by a 32-bit limit");
        Ok(Drained { groups })
    }

    /// An aggregator sent an event.
    ///
    /// An event about a group that has ended is counted and otherwise ignored: it was sent before
    /// the aggregator got the removal.
    ///
    /// # Errors
    /// [`EventError`]: the event does not follow from the aggregator's orders. Nothing changes.
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

    /// Admits a job of `owner`, or gives one that was admitted another lease of its place.
    ///
    /// # Errors
    /// [`AdmitError`]; nothing changes.
    pub fn admit_job(
        &mut self,
        owner: &Caller,
        request: JobRequest,
    ) -> Result<JobAdmission, AdmitError> {
        self.jobs.admit(&self.config, owner, request, &self.places, &mut self.secrets)
    }

    /// One of a job's leases has ended. With the last, the job has: its groups and pending requests are removed.
    /// Does nothing for an unknown job.
    pub fn handle_lease_closed(&mut self, job: JobId) {
        if self.jobs.give_back_lease(job) {
            for id in self.groups.ids_of(job) {
                self.close(id, Some(GroupError::JobEnded { job }));
            }
        }
    }

    /// Begins to set up a group of `caller`'s job. [`Manager::poll_decision`] returns the decision.
    ///
    /// The group gets the OSOs that were requested, up to the configured limit, and segments of the
    /// requested length, up to what every aggregator of its tree can hold.
    ///
    /// # Errors
    /// [`GroupError`]; nothing changes.
    pub fn request_group(
        &mut self,
        now: Time,
        caller: &Caller,
        job: JobId,
        request: &GroupRequest,
    ) -> Result<RequestTicket, GroupError> {
        let planned = self.plan_group(caller, job, request);
        let (plan, members) = planned.inspect_err(|_| self.stats.groups_refused += 1)?;
        for member in &members {
            self.nodes.reserve(member.node, plan.grant.osos);
        }
        if let Some(stream) = plan.terms().stream {
            self.stream_trees.take(self.placement, caller, stream.tree);
        }
        self.tickets += 1;
        let ticket = RequestTicket(self.tickets);
        let id = plan.grant.group;
        let stage = Stage::Installing(Installing { ticket, deadline: now, plan });
        let label = make_printable(&request.label);
        self.groups.insert(id, Group { job, label, members, stage, told_late: None });
        self.order_level(now, id, 0);
        Ok(ticket)
    }

    /// The next order, and the aggregator it goes to.
    pub fn poll_order(&mut self) -> Option<(NodeId, NodeOrder)> {
        self.orders.pop_front()
    }

    /// The next decision about a requested group.
    pub fn poll_decision(&mut self) -> Option<(RequestTicket, Result<GroupGrant, GroupError>)> {
        self.decisions.pop_front()
    }

    /// When [`Manager::handle_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        self.groups.earliest_deadline()
    }

    /// Gives up every install that was due at or before `now`.
    pub fn handle_timeout(&mut self, now: Time) {
        for (id, silent) in self.groups.overdue(now) {
            self.close(id, Some(GroupError::NodeSilent { node: silent }));
        }
    }

    /// The tree on which new groups are placed, with notes for the operator.
    #[must_use]
    pub fn tree(&self) -> &AggregationTree {
        self.tree.get_or_init(|| {
            AggregationTree::place(&self.fabric, &self.nodes.for_placement())
                .expect("registration keeps names apart and every radix above 0")
        })
    }

    /// Counters so far.
    #[must_use]
    pub fn stats(&self) -> &ManagerStats {
        &self.stats
    }

    /// The living aggregators have changed, so the tree may have changed.
    fn place_anew(&mut self) {
        self.placement.0 += 1;
        self.tree = OnceCell::new();
    }

    /// Checks whether the group can be granted. Only the next capability changes.
    fn plan_group(
        &mut self,
        owner: &Caller,
        job: JobId,
        request: &GroupRequest,
    ) -> Result<(Plan, Vec<groups::Member>), GroupError> {
        self.jobs.check_place(owner, JobPlace { job, secret: request.secret })?;
        plan::check_request(&self.config, request)?;
        if self.groups.len() >= self.config.groups_max as usize {
            let holders = self.holders(owner, self.groups.iter().map(|(_, group)| (group.job, 1)));
            return Err(GroupError::TooManyGroups { max: self.config.groups_max, holders });
        }
        self.check_groups(owner)?;
        let osos = request.osos.min(self.config.osos_per_group_max);
        if let Some(max) = self.config.osos_per_job_max {
            let has = max.saturating_sub(self.groups.osos_of(job));
            if u32::from(osos) > has {
                return Err(GroupError::JobQuota { job, needs: osos, has });
            }
        }
        let tree = GroupTree::build(self.tree(), &request.hosts)?;
        let members = groups::members(&tree, &self.nodes, &request.hosts);
        self.check_osos(owner, &members, osos)?;
        let frame_version = self.nodes.frame_version(&tree, request.frame_versions)?;
        let payload_max_bytes = self.nodes.payload_max_bytes(&tree, request.payload_max_bytes);
        let (group, epoch) = self
            .groups
            .next_incarnation(self.config.first_epoch)
            .ok_or(GroupError::EpochsUsedUp)?;
        let stream = request.stream.and_then(|wanted| self.plan_stream(owner, &tree, wanted));
        let terms = plan::Terms { group, epoch, frame_version, osos, payload_max_bytes, stream };
        let records = members
            .iter()
            .map(|it| self.jobs.record(job, &make_printable(&request.label), it))
            .collect();
        let plan = Plan::draw(
            terms,
            &tree,
            &self.nodes,
            &self.config,
            request.external_receiver,
            records,
            &mut self.secrets,
        );
        Ok((plan, members))
    }

    /// Stream terms that every aggregator of the tree can serve, no wider than requested. A group without
    /// streams sends long vectors in segments.
    fn plan_stream(
        &self,
        owner: &Caller,
        tree: &GroupTree,
        wanted: StreamTerms,
    ) -> Option<StreamInstall> {
        let capacity = self.nodes.stream_capacity(tree, wanted)?;
        if !self.may_stream(owner) {
            return None;
        }
        let number = self.stream_trees.number(self.placement, owner, capacity.trees)?;
        Some(StreamInstall { tree: number, terms: capacity.terms_max })
    }

    /// Tells the aggregators of one level to install the group.
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

    /// An aggregator has nothing of the group any more.
    fn retire(&mut self, id: GroupId, at: usize) {
        let group = self.groups.live(id);
        let osos = group.osos();
        let member = &mut group.members[at];
        if member.state != MemberState::Over {
            member.state = MemberState::Over;
            self.nodes.release(member.node, osos);
        }
    }

    /// Ends a group: tells its aggregators, frees its OSOs and reports the reason to the requester.
    /// Without a `reason` the group ended in good order.
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
        if self.groups.ids_of(group.job).is_empty() {
            self.jobs.on_groupless(group.job);
        }
    }
}
