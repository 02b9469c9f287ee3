//! A member's state: its machine, what it wants, and how far it has come.

use tributary_protocol::endpoint::{Endpoint, EndpointConfig};
use tributary_protocol_testing::{Operations, Running};
use tributary_wire::EndpointId;
use tributary_wire::control::{EndpointGrant, GroupGrant};
use tributary_wire::frame::Abort;

use super::agenda::LeaderId;
use super::node_host::node_at;
use super::scenario::{GroupPlan, OperationPlan};

/// A member of a granted group.
pub(super) struct Member {
    pub(super) endpoint: Endpoint,
    pub(super) run: u32,
    /// Its number in the group.
    pub(super) number: u32,
    pub(super) host: u32,
    pub(super) node: u32,
    pub(super) grant: EndpointGrant,
    /// Its link, once it has connected.
    pub(super) link: Option<u32>,
    pub(super) started: usize,
    pub(super) completed: usize,
    pub(super) running: Operations,
    pub(super) is_start_put: bool,
    pub(super) is_leave_put: bool,
    /// When it began to take its place.
    pub(super) asked_at: u64,
    pub(super) timer_at: Option<u64>,
    /// Its aggregator has accepted its join.
    pub(super) has_joined: bool,
    /// Whether multicast to its group's address reaches it.
    pub(super) is_subscribed: bool,
    /// It has said that it leaves. A leader that is done stays until all have.
    pub(super) has_said_leave: bool,
    pub(super) has_left: bool,
    pub(super) failed: Option<Abort>,
    /// Its process is gone, or will never do anything.
    pub(super) is_dead: bool,
    /// It cut itself off from its tree, to go on without.
    pub(super) is_cut_off: bool,
    /// The leader that goes on without the tree when it is lost; none where its loss ends the group.
    pub(super) leader: Option<LeaderId>,
    pub(super) operations: usize,
    /// An operation that it mistakes for another one.
    pub(super) mistake: Option<(usize, OperationPlan)>,
}

impl Member {
    pub(super) fn new(
        run: u32,
        host: u32,
        grant: &GroupGrant,
        endpoint: &EndpointGrant,
        plan: &GroupPlan,
        tag: u64,
    ) -> Self {
        let config = EndpointConfig::of_grant(grant, endpoint, plan.overlap);
        Self {
            endpoint: Endpoint::new(config),
            run,
            number: endpoint.endpoint.0,
            host,
            node: node_at(&endpoint.address),
            grant: endpoint.clone(),
            link: None,
            started: 0,
            completed: 0,
            running: Operations::new(endpoint.endpoint, tag),
            is_start_put: false,
            is_leave_put: false,
            asked_at: 0,
            timer_at: None,
            has_joined: false,
            is_subscribed: false,
            has_said_leave: false,
            has_left: false,
            failed: None,
            is_dead: false,
            is_cut_off: false,
            leader: None,
            operations: plan.script.len(),
            mistake: None,
        }
    }

    /// Whether nothing more will happen to it.
    pub(super) fn is_over(&self) -> bool {
        self.has_left || self.failed.is_some() || self.is_dead || self.is_cut_off
    }

    /// Whether it completed all it wanted.
    pub(super) fn is_done(&self) -> bool {
        self.has_left && self.completed == self.operations
    }

    /// Whether it has started an operation that is not complete.
    pub(super) fn awaits_result(&self) -> bool {
        !self.is_over() && self.completed < self.started
    }

    /// Makes it a leader's place in a tree, whose data are told apart by `tag`.
    pub(super) fn take_leader(&mut self, leader: LeaderId, tag: u64) {
        self.leader = Some(leader);
        self.running = Operations::new(EndpointId(self.number), tag);
    }

    pub(super) fn leader(&self) -> Option<LeaderId> {
        self.leader
    }

    /// Whether its aggregator has accepted its join.
    pub(super) fn has_joined(&self) -> bool {
        self.has_joined
    }

    /// Operations that its tree carries, oldest first.
    pub(super) fn running(&self) -> impl Iterator<Item = &Running> {
        self.running.iter()
    }

    /// The next operation that it will start.
    pub(super) fn next_operation(&self) -> usize {
        self.started
    }
}
