//! The edges below an aggregator, each with its own capability.

use tributary_protocol::endpoint::EndpointConfig;
use tributary_protocol::node::ChildConfig;
use tributary_wire::frame::{Edge, Versions};
use tributary_wire::{Capability, ChildIndex, EndpointId, Epoch, GroupId};

/// The edges below one aggregator of a group's tree, in a test that grants them itself.
#[derive(Clone, Copy, Debug)]
pub struct NodeEdges {
    /// The group.
    pub group: GroupId,
    /// The aggregator's number in the test.
    pub node: u32,
}

impl NodeEdges {
    /// The capability of a child.
    #[must_use]
    pub fn capability(self, child: u16) -> Capability {
        let mut bits = [0x5A; 16];
        bits[..4].copy_from_slice(&self.group.0.to_le_bytes());
        bits[4..6].copy_from_slice(&child.to_le_bytes());
        bits[6..10].copy_from_slice(&self.node.to_le_bytes());
        Capability::from_bytes(bits)
    }

    /// The edge to a child, in epoch 0.
    #[must_use]
    pub fn edge(self, child: u16) -> Edge {
        let capability = self.capability(child);
        let version = Versions::SPOKEN.newest;
        Edge { group: self.group, epoch: Epoch(0), child: ChildIndex(child), capability, version }
    }

    /// `count` children, each with `span` members at or below it, in order from member `first`.
    /// Those with more than one are aggregators.
    #[must_use]
    pub fn children(self, count: u16, first: u32, span: u32) -> Vec<ChildConfig> {
        let member = |child: u16| EndpointId(first + u32::from(child) * span);
        (0..count)
            .map(|child| ChildConfig {
                capability: self.capability(child),
                members: member(child)..member(child + 1),
                is_node: span > 1,
            })
            .collect()
    }

    /// A member at one of the edges with a minimal group: one segment of 64 bytes, one operation
    /// under way, no streams.
    #[must_use]
    pub fn member(self, child: u16, endpoint: EndpointId) -> EndpointConfig {
        let Edge { group, epoch, child, capability, version } = self.edge(child);
        EndpointConfig {
            group,
            epoch,
            frame_version: version,
            child,
            capability,
            endpoint,
            osos: 1,
            payload_max_bytes: 64,
            operations_max: 1,
            stream: None,
        }
    }
}
