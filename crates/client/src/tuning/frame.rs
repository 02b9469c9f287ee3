//! What a frame costs the protocol's machines, without any link.

use std::hint::black_box;
use std::time::Instant;

use tributary_protocol::endpoint::{Endpoint, EndpointConfig, OperationSpec};
use tributary_protocol::node::{ChildConfig, GroupConfig, Node, NodeConfig, PortId, StreamLimits};
use tributary_protocol::payloads::{Payloads, Place, Source};
use tributary_protocol::{Carrier, Time};
use tributary_wire::frame::Shape;
use tributary_wire::{Capability, ChildIndex, EndpointId, Epoch, GroupId};

const OPERATIONS: u32 = 200;
const SAMPLES: usize = 50;
const OSOS: u16 = 8;
const PAYLOAD_MAX_BYTES: u32 = 16 << 10;
const PORT: PortId = PortId(0);

/// Payload that is not there: barriers have none.
struct NoPayload;

impl Payloads for NoPayload {
    fn park(&mut self, _: Place, _: &[u8]) {}
    fn begin(&mut self, _: Place, _: Shape, _: Source<'_>) {}
    fn fold(&mut self, _: Place, _: Shape, _: Source<'_>) {}
    fn finish(&mut self, _: Place, _: Shape) {}
    fn store(&mut self, _: Place, _: &[u8]) {}
}

/// A member and its node, frames handed from one to the other.
struct Pair {
    node: Node,
    member: Endpoint,
}

/// Half a barrier between one member and its node: each takes one frame and makes one.
pub(super) fn frame_ns() -> f64 {
    let mut pair = Pair::joined();
    let samples = (0..SAMPLES).map(|_| {
        let begun = Instant::now();
        for _ in 0..OPERATIONS {
            pair.member.start(OperationSpec::BARRIER).expect("the one before is over");
            pair.exchange();
        }
        begun.elapsed().as_nanos() as f64 / f64::from(2 * OPERATIONS)
    });
    super::system::median(samples.collect())
}

impl Pair {
    fn joined() -> Self {
        let (group, epoch) = (GroupId(0), Epoch(1));
        let capability = Capability::default();
        let mut node = Node::new(NodeConfig {
            radix_max: 1,
            osos_max: OSOS.into(),
            groups_max: 1,
            payload_max_bytes: PAYLOAD_MAX_BYTES,
            join_timeout_ns: u64::MAX,
            streams: StreamLimits::NONE,
        });
        let members = EndpointId(0)..EndpointId(1);
        let config = GroupConfig {
            group,
            epoch,
            osos: OSOS,
            payload_max_bytes: PAYLOAD_MAX_BYTES,
            children: vec![ChildConfig { capability, members }],
            parent: None,
            stream: None,
        };
        node.install(Time(0), config).expect("the node is made for this group");
        let member = Endpoint::new(EndpointConfig {
            group,
            epoch,
            child: ChildIndex(0),
            capability,
            endpoint: EndpointId(0),
            osos: OSOS,
            payload_max_bytes: PAYLOAD_MAX_BYTES,
            operations_max: 1,
            stream: None,
        });
        let mut pair = Self { node, member };
        pair.exchange();
        pair
    }

    /// Hands frames over until neither has any.
    fn exchange(&mut self) {
        while let Some(transmit) = self.member.peek_transmit() {
            self.member.pop_transmit(Time(0));
            self.node
                .handle_frame(Time(0), PORT, Carrier::Link, &transmit.header, &[], &mut NoPayload)
                .expect("a member of the group says so");
            while let Some(port) = self.node.poll_ready() {
                while let Some(transmit) = self.node.peek_transmit(port) {
                    self.node.pop_transmit(port);
                    let body = self.member.handle_frame(Time(0), Carrier::Link, &transmit.header);
                    black_box(body.expect("the node of the group says so"));
                }
            }
            while black_box(self.node.poll_event()).is_some() {}
            while black_box(self.member.poll_event()).is_some() {}
        }
    }
}
