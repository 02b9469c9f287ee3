//! Groups: their plan, and their set-up on aggregation nodes and processes.

use std::collections::BTreeMap;

use tributary_protocol::StreamTerms;
use tributary_protocol::endpoint::EndpointConfig;
use tributary_protocol::node::{
    ChildConfig, GroupConfig, InstallError, ParentConfig, PortId, StreamConfig,
};
use tributary_wire::frame::{EVERYONE, Edge, Versions};
use tributary_wire::{Capability, ChildIndex, EndpointId, Epoch, GroupId, TreeId};

use super::aggregator::Peer;
use super::ids::{AggregatorId, MemberId, ProcessId};
use super::multicast::Listener;
use super::{Data, RunError, World};
use crate::fabric::Vertex;

/// Operations that a member may have in progress: more than any scenario starts at once.
pub(super) const OPERATIONS_MAX: usize = 4;

/// The only tree of a system without a manager.
const TREE: TreeId = TreeId(0);

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
        /// Which node.
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
    /// The nodes, each before those below it.
    pub nodes: Vec<NodePlan>,
}

/// One node of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePlan {
    /// The aggregation node.
    pub aggregator: AggregatorId,
    /// Its parent's position in the plan and its place there.
    pub parent: Option<(usize, ChildIndex)>,
    /// Its children, in reduction order.
    pub children: Vec<ChildPlan>,
}

/// One child of a node of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildPlan {
    /// The node at that position in the plan.
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
enum Multicast {
    No,
    /// By the switches with nodes in them, beside reliable copies.
    BySwitches,
    /// To an address, with reliable copies on demand.
    ToAddress,
}

/// A group's multicast tree: the switches that forward its multicast results.
#[derive(Debug)]
pub(super) struct Group {
    multicast: Multicast,
    /// The members that listen to the group's address.
    listeners: Vec<(Listener, Vertex)>,
    /// Whether `copies` lead from the root to all that listen.
    is_planted: bool,
    /// Root first.
    copies: Vec<CopyNode>,
    positions: BTreeMap<AggregatorId, usize>,
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

/// The edge from a node to its parent in a group.
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

    /// Whether switches copy results for members, so that a member may be ahead of its node.
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
        // The nodes' own positions are those of switches with nodes in them.
        if !core::mem::replace(&mut self.is_planted, true) {
            self.copies = routes(&self.listeners);
        }
    }

    fn listen(&mut self, listener: Listener, host: Vertex) {
        self.listeners.push((listener, host));
    }

    pub(super) fn copies(&self, node: u32) -> &CopyNode {
        &self.copies[node as usize]
    }

    fn add(&mut self, aggregator: AggregatorId, vertex: Vertex) {
        self.positions.insert(aggregator, self.copies.len());
        self.copies.push(CopyNode::new(vertex));
    }

    fn at(&mut self, aggregator: AggregatorId) -> &mut CopyNode {
        &mut self.copies[self.positions[&aggregator]]
    }
}

impl<D: Data> World<D> {
    /// Sets a group up as planned, without a manager, and runs until all members have joined. Returns
    /// the members depth first.
    ///
    /// # Errors
    /// [`SetupError`].
    pub fn form(&mut self, plan: &GroupPlan, terms: Terms) -> Result<Vec<MemberId>, SetupError> {
        let id = GroupId(self.groups.len() as u32);
        self.groups.push(Group::new(terms.multicast, self.has_listeners()));
        let ranges = member_ranges(plan);
        let capability = |node: usize, child: usize| {
            Capability::from_bytes(((node as u128) << 64 | child as u128).to_le_bytes())
        };
        for (node, part) in plan.nodes.iter().enumerate() {
            let children = (0..part.children.len()).map(|child| ChildConfig {
                capability: capability(node, child),
                members: ranges[node][child].clone(),
                is_node: matches!(part.children[child], ChildPlan::Node(_)),
            });
            let config = GroupConfig {
                group: id,
                epoch: Epoch(1),
                frame_version: Versions::SPOKEN.newest,
                osos: terms.osos,
                payload_max_bytes: terms.payload_max_bytes,
                children: children.collect(),
                parent: None,
                stream: terms.stream.map(|terms| StreamConfig { tree: TREE, terms }),
            };
            let upward = part.parent.map(|(parent, child)| Upward {
                parent: plan.nodes[parent].aggregator,
                child,
                capability: capability(parent, usize::from(child.0)),
            });
            self.install(part.aggregator, config, upward)?;
        }
        let mut members = Vec::new();
        for (node, part) in plan.nodes.iter().enumerate() {
            for (child, &kind) in part.children.iter().enumerate() {
                let ChildPlan::Process(process) = kind else { continue };
                let endpoint = ranges[node][child].start;
                let config = EndpointConfig {
                    group: id,
                    epoch: Epoch(1),
                    frame_version: Versions::SPOKEN.newest,
                    child: ChildIndex(child as u16),
                    capability: capability(node, child),
                    endpoint,
                    osos: terms.osos,
                    payload_max_bytes: terms.payload_max_bytes,
                    operations_max: OPERATIONS_MAX,
                    stream: terms.stream,
                };
                members.push((endpoint, self.join(process, part.aggregator, config)));
            }
        }
        members.sort_unstable_by_key(|(endpoint, _)| *endpoint);
        let members: Vec<MemberId> = members.into_iter().map(|(_, member)| member).collect();
        self.settle()?;
        Ok(members)
    }

    /// Installs one node's part of a group.
    pub(super) fn install(
        &mut self,
        aggregator: AggregatorId,
        mut config: GroupConfig,
        upward: Option<Upward>,
    ) -> Result<(), SetupError> {
        let id = config.group;
        let group = id.0 as usize;
        let mut parent_vertex = None;
        if let Some(Upward { parent, child, capability }) = upward {
            let version = config.frame_version;
            let edge =
                Edge { group: config.group, epoch: config.epoch, child, capability, version };
            let node = &self.aggregators[aggregator.index()];
            let port = PortId(node.ports.len() as u32);
            let peer = Peer::Node { aggregator, port, vertex: node.vertex };
            let above = self.aggregators[parent.index()].plug(peer, edge);
            let vertex = self.aggregators[parent.index()].vertex;
            let peer = Peer::Node { aggregator: parent, port: above, vertex };
            let port = self.aggregators[aggregator.index()].plug(peer, edge);
            let name = parent.index().to_string().into();
            config.parent = Some(ParentConfig { name, port, child, capability });
            let position = self.groups[group].copies.len() as u32;
            self.groups[group].at(parent).below.push(position);
            let here = self.aggregators[aggregator.index()].vertex;
            self.groups[group].listen(Listener::Node(aggregator, port), here);
            parent_vertex = Some(vertex);
        }
        let edge = Edge {
            group: id,
            epoch: config.epoch,
            child: EVERYONE,
            capability: Capability::default(),
            version: config.frame_version,
        };
        let now = super::time_at(self.events.now());
        let machine = &mut self.aggregators[aggregator.index()];
        let arena = machine
            .node
            .install(now, config)
            .map_err(|fault| SetupError::Node { node: aggregator.0, fault })?;
        D::allocate(&mut machine.arenas, arena);
        if let Some(arena) = machine.node.stream_arena(id) {
            D::allocate(&mut machine.arenas, arena);
        }
        let vertex = machine.vertex;
        self.groups[group].add(aggregator, vertex);
        self.use_datagrams(aggregator, edge, parent_vertex);
        self.drain_node(self.events.now(), aggregator);
        Ok(())
    }

    /// Makes a process a member, and sends its join to its aggregation node.
    pub(super) fn join(
        &mut self,
        process: ProcessId,
        aggregator: AggregatorId,
        config: EndpointConfig,
    ) -> MemberId {
        let group = config.group.0 as usize;
        let id = self.next_member();
        let edge = Edge {
            group: config.group,
            epoch: config.epoch,
            child: config.child,
            capability: config.capability,
            version: config.frame_version,
        };
        let host = self.host_of(process);
        let port =
            self.aggregators[aggregator.index()].plug(Peer::Member { member: id, host }, edge);
        self.groups[group].at(aggregator).listeners.push((Listener::Member(id), host));
        self.groups[group].listen(Listener::Member(id), host);
        self.add_member(process, aggregator, port, config)
    }

    /// Runs until all members have joined.
    pub(super) fn settle(&mut self) -> Result<(), SetupError> {
        self.run()?;
        let (waiting, of) = (self.members.len() - self.joined, self.members.len());
        if waiting > 0 {
            return Err(SetupError::Run(RunError::Stuck { waiting, of }));
        }
        Ok(())
    }
}

/// The members at or below each child of each node, numbered depth first.
fn member_ranges(plan: &GroupPlan) -> Vec<Vec<core::ops::Range<EndpointId>>> {
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
