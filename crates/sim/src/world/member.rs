//! Members of groups: the protocol's endpoint machine, and its time on the core of its process.

use tributary_protocol::endpoint::{Endpoint, OperationSpec};
use tributary_protocol::node::PortId;
use tributary_wire::EndpointId;
use tributary_wire::frame::Edge;

use super::ids::{AggregatorId, ProcessId};
use super::payload::Data;
use crate::engine::Picos;
use crate::fabric::Vertex;

/// A member of a group.
pub(super) struct Member<D: Data> {
    pub(super) endpoint: Endpoint,
    pub(super) edge: Edge,
    pub(super) number: EndpointId,
    pub(super) host: Vertex,
    pub(super) process: ProcessId,
    pub(super) aggregator: AggregatorId,
    pub(super) vertex: Vertex,
    pub(super) port: PortId,
    pub(super) spec: OperationSpec,
    /// Whether the operation's vector goes as a stream.
    pub(super) is_stream: bool,
    pub(super) began_at: Picos,
    /// When its timer goes off.
    pub(super) timer_at: Option<Picos>,
    pub(super) vector: D::Vector,
}
