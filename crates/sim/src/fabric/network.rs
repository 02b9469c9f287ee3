//! Packets on links: when each packet departs and arrives.

use super::{Flow, Routing, Vertex, Wiring};
use crate::engine::Picos;

/// The cost of a kind of link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkCost {
    /// Time for one byte.
    pub byte_ps: f64,
    /// From end to end.
    pub propagation: Picos,
}

/// The cost of every link and switch of a network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NetworkCost {
    /// Links between a host and its switch.
    pub access: LinkCost,
    /// Links between two switches.
    pub trunk: LinkCost,
    /// A switch, from the head of a packet coming in to the head going out.
    pub port_to_port: Picos,
    /// Least time between two packets on one switch port.
    pub port_gap: Picos,
    /// Bytes of a packet besides its payload.
    pub packet_overhead_bytes: u32,
}

/// A packet's transfer over one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The far end of the link.
    pub to: Vertex,
    /// When its last byte is on the wire.
    pub left_at: Picos,
    /// When its first byte arrives: a switch forwards from then on (cut-through).
    pub head_at: Picos,
    /// When its last byte arrives.
    pub tail_at: Picos,
}

/// All links, and until when each is busy.
///
/// Output queues are first come, first served and unbounded: a lossless fabric whose buffers never fill
/// up.
#[derive(Clone, Debug)]
pub struct Network {
    wiring: Wiring,
    routing: Routing,
    cost: NetworkCost,
    /// When each link is free again.
    free_at: Vec<Picos>,
    packets: u64,
}

impl Network {
    /// Idle links.
    #[must_use]
    pub fn new(wiring: Wiring, routing: Routing, cost: NetworkCost) -> Self {
        let free_at = vec![Picos::ZERO; wiring.links() as usize];
        Self { wiring, routing, cost, free_at, packets: 0 }
    }

    /// The vertices, links and routes.
    #[must_use]
    pub fn wiring(&self) -> &Wiring {
        &self.wiring
    }

    /// The cost of links and switches.
    #[must_use]
    pub fn cost(&self) -> &NetworkCost {
        &self.cost
    }

    /// Packets so far, counted once for each link.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Where a packet of a flow goes next.
    pub(crate) fn next(&self, at: Vertex, flow: Flow) -> Vertex {
        self.wiring.next_of(self.routing, flow, at).to
    }

    /// Sends a packet of `bytes` of a flow over its next link. At a switch, its head came in at `now`; at a
    /// host, the adapter has it ready at `now`.
    pub fn forward(&mut self, now: Picos, at: Vertex, flow: Flow, bytes: u32) -> Step {
        let hop = self.wiring.next_of(self.routing, flow, at);
        let hosts = self.wiring.hosts();
        let (is_switch, is_access) = (at.0 >= hosts, at.0 < hosts || hop.to.0 < hosts);
        let link = if is_access { self.cost.access } else { self.cost.trunk };
        let ready = if is_switch { now + self.cost.port_to_port } else { now };
        let wire_bytes = bytes + self.cost.packet_overhead_bytes;
        let serial = Picos((f64::from(wire_bytes) * link.byte_ps) as u64);
        let free_at = &mut self.free_at[hop.link.0 as usize];
        let depart = ready.max(*free_at);
        *free_at = depart + serial.max(self.cost.port_gap);
        self.packets += 1;
        let head_at = depart + link.propagation;
        Step { to: hop.to, left_at: depart + serial, head_at, tail_at: head_at + serial }
    }
}
