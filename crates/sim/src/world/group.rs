//! Groups: their plan, and their set-up on aggregation nodes and processes.

use std::collections::BTreeMap;

use tributary_protocol::StreamTerms;
use tributary_protocol::node::InstallError;
use tributary_wire::{Capability, ChildIndex, EndpointId};

use super::ids::{AggregatorId, ProcessId};
use super::multicast::Listener;
use super::outcome::RunError;
use crate::fabric::Vertex;

/// Operations that a member may have in progress: more than any scenario starts at once.
pub(super) const OPERATIONS_MAX: usize = 4;

/// Why a group could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The manager refused the grant.
    #[error(transparent)]
    Refused(#[from] tributary_manager::GroupError),
    /// An aggregation node refused its part of the group.
    #[error("aggregation node {node} refused: {fault}")]
    Node {
        /// Which aggregator.
        node: u32,
        /// Why.
        fault: InstallError,
    },
    /// The system failed while the members joined.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Parameters of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Segments in flight.
    pub osos: u16,
    /// Longest segment.
    pub payload_max_bytes: u32,
    /// Whether results also go out by the fabric's multicast.
    pub multicast: bool,
    /// What the group may stream; none if nothing.
    pub stream: Option<StreamTerms>,
}

/// The plan of a group, made without a manager.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupPlan {
    /// The aggregators, each before those below it.
    pub nodes: Vec<NodePlan>,
}

/// One aggregator of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePlan {
    /// The aggregation node.
    pub aggregator: AggregatorId,
    /// Its parent's position in the plan and its place there.
    pub parent: Option<(usize, ChildIndex)>,
    /// Its children, in reduction order.
    pub children: Vec<ChildPlan>,
}

/// One child of an aggregator of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildPlan {
    /// The aggregator at that position in the plan.
    Node(usize),
    /// A process.
    Process(ProcessId),
}

impl GroupPlan {
    /// The processes, depth first: in the order of their endpoint numbers.
    pub fn processes_in_order(&self) -> impl Iterator<Item = ProcessId> + '_ {
        let mut found: Vec<(EndpointId, ProcessId)> = Vec::new();
        for (part, ranges) in self.nodes.iter().zip(member_ranges(self)) {
            for (child, range) in part.children.iter().zip(ranges) {
                if let ChildPlan::Process(process) = *child {
                    found.push((range.start, process));
                }
            }
        }
        found.sort_unstable_by_key(|(endpoint, _)| *endpoint);
        found.into_iter().map(|(_, process)| process)
    }
}

/// How a group's results go by multicast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Multicast {
    No,
    /// By the switches with aggregators in them, beside reliable copies.
    BySwitches,
    /// To an address, with reliable copies on demand.
    ToAddress,
}

/// A group's multicast tree: the switches that forward its multicast results.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) multicast: Multicast,
    /// The members that listen to the group's address.
    pub(super) listeners: Vec<(Listener, Vertex)>,
    /// Whether `copies` lead from the root to all that listen.
    pub(super) is_planted: bool,
    /// Root first.
    pub(super) copies: Vec<CopyNode>,
    pub(super) positions: BTreeMap<AggregatorId, usize>,
}

/// A switch of a multicast tree.
#[derive(Debug)]
pub(super) struct CopyNode {
    pub(super) vertex: Vertex,
    /// With their hosts.
    pub(super) listeners: Vec<(Listener, Vertex)>,
    pub(super) below: Vec<u32>,
}

impl CopyNode {
    pub(super) fn new(vertex: Vertex) -> Self {
        Self { vertex, listeners: Vec::new(), below: Vec::new() }
    }
}

/// The edge from an aggregator to its parent in a group.
pub(super) struct Upward {
    pub(super) parent: AggregatorId,
    pub(super) child: ChildIndex,
    pub(super) capability: Capability,
}

impl Group {
    pub(super) fn new(multicast: bool, to_address: bool) -> Self {
        let multicast = match (multicast, to_address) {
            (false, _) => Multicast::No,
            (true, false) => Multicast::BySwitches,
            (true, true) => Multicast::ToAddress,
        };
        let (listeners, copies) = (Vec::new(), Vec::new());
        Self { multicast, listeners, is_planted: false, copies, positions: BTreeMap::new() }
    }

    /// Whether switches copy results for members, so that a member may be ahead of its aggregator.
    pub(super) fn has_multicast(&self) -> bool {
        self.multicast == Multicast::BySwitches
    }

    /// Whether results go to an address.
    pub(super) fn has_listeners(&self) -> bool {
        self.multicast == Multicast::ToAddress
    }

    pub(super) fn multicasts_from(&self, aggregator: AggregatorId) -> bool {
        self.has_multicast() && self.positions.get(&aggregator) == Some(&0)
    }

    /// Makes the tree of an address, before the first result goes there.
    pub(super) fn plant(&mut self, routes: impl FnOnce(&[(Listener, Vertex)]) -> Vec<CopyNode>) {
        // The aggregators' own positions are those of switches with aggregators in them.
        if !core::mem::replace(&mut self.is_planted, true) {
            self.copies = routes(&self.listeners);
        }
    }

    pub(super) fn listen(&mut self, listener: Listener, host: Vertex) {
        self.listeners.push((listener, host));
    }

    pub(super) fn copies(&self, node: u32) -> &CopyNode {
        &self.copies[node as usize]
    }

    pub(super) fn add(&mut self, aggregator: AggregatorId, vertex: Vertex) {
        self.positions.insert(aggregator, self.copies.len());
        self.copies.push(CopyNode::new(vertex));
    }

    pub(super) fn at(&mut self, aggregator: AggregatorId) -> &mut CopyNode {
        &mut self.copies[self.positions[&aggregator]]
    }
}

/// The members at or below each child of each aggregator, numbered depth first.
pub(super) fn member_ranges(plan: &GroupPlan) -> Vec<Vec<core::ops::Range<EndpointId>>> {
    let mut counts = vec![0_u32; plan.nodes.len()];
    for (node, part) in plan.nodes.iter().enumerate().rev() {
        let count = |child: &ChildPlan| match *child {
            ChildPlan::Node(below) => counts[below],
            ChildPlan::Process(_) => 1,
        };
        counts[node] = part.children.iter().map(count).sum();
    }
    let mut first = vec![0_u32; plan.nodes.len()];
    let mut ranges = Vec::with_capacity(plan.nodes.len());
    for (node, part) in plan.nodes.iter().enumerate() {
        let mut next = first[node];
        let own = part.children.iter().map(|child| {
            let start = next;
            match *child {
                ChildPlan::Node(below) => {
                    first[below] = start;
                    next += counts[below];
                }
                ChildPlan::Process(_) => next += 1,
            }
            EndpointId(start)..EndpointId(next)
        });
        let own = own.collect();
        ranges.push(own);
    }
    ranges
}
