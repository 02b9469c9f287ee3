//! Packets on links: who waits for whom, and until when.

use super::{Vertex, Wiring};
use crate::engine::Picos;

/// What a kind of link costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkCost {
    /// Time for one byte.
    pub byte_ps: f64,
    /// From end to end.
    pub propagation: Picos,
}

/// What every link and switch of a network costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NetworkCost {
    /// Between a host and its switch.
    pub access: LinkCost,
    /// Between two switches.
    pub trunk: LinkCost,
    /// A switch, from the head of a packet coming in to the head going out.
    pub port_to_port: Picos,
    /// Least time between two packets on one switch port.
    pub port_gap: Picos,
    /// Bytes every packet has besides what it carries.
    pub packet_overhead_bytes: u32,
}

/// Where a packet is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The far end of the link.
    pub to: Vertex,
    /// When its last byte is on the wire.
    pub left_at: Picos,
    /// When its first byte gets there: a switch forwards from then on (cut-through).
    pub head_at: Picos,
    /// When its last byte gets there: a receiver has it whole.
    pub tail_at: Picos,
}

/// All links, with what they are busy with.
///
/// Output queues are first come, first served and unbounded: a lossless fabric whose buffers don't
/// fill up.
#[derive(Clone, Debug)]
pub struct Network {
    wiring: Wiring,
    cost: NetworkCost,
    /// When each link is free again.
    free_at: Vec<Picos>,
    packets: u64,
}

impl Network {
    /// Idle links.
    #[must_use]
    pub fn new(wiring: Wiring, cost: NetworkCost) -> Self {
        let free_at = vec![Picos::ZERO; wiring.links() as usize];
        Self { wiring, cost, free_at, packets: 0 }
    }

    /// What is connected to what.
    #[must_use]
    pub fn wiring(&self) -> &Wiring {
        &self.wiring
    }

    /// What links and switches cost.
    #[must_use]
    pub fn cost(&self) -> &NetworkCost {
        &self.cost
    }

    /// Packets that went over a link so far, each link counted.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Sends a packet of `bytes` over the next link towards `to`. At a switch, its head came in at
    /// `now`; at a host, the adapter has it ready at `now`.
    pub fn forward(&mut self, now: Picos, at: Vertex, to: Vertex, bytes: u32) -> Step {
        let hop = self.wiring.next(at, to);
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
