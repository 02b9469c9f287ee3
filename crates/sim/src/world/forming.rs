//! How groups are formed: aggregators are installed, and members join.

use super::aggregator::Peer;
use super::event::time_at;
use super::group::{
    ChildPlan, Group, GroupPlan, OPERATIONS_MAX, SetupError, Terms, Upward, member_ranges,
};
use super::ids::{AggregatorId, MemberId, ProcessId};
use super::multicast::Listener;
use super::outcome::RunError;
use super::payload::Data;
use super::state::World;
use tributary_protocol::endpoint::EndpointConfig;
use tributary_protocol::node::{ChildConfig, GroupConfig, ParentConfig, PortId, StreamConfig};
use tributary_wire::frame::{EVERYONE, Edge, Versions};
use tributary_wire::{Capability, ChildIndex, Epoch, GroupId, TreeId};

/// The only tree of a system without a manager.
const TREE: TreeId = TreeId(0);

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

    /// Installs one aggregator's part of a group.
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
        let now = time_at(self.events.now());
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
        let edge = config.edge();
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
