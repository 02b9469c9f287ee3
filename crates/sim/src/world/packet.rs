//! Packets in the network.

use tributary_protocol::Carrier;
use tributary_protocol::node::PortId;

use super::frames::FrameId;
use super::ids::{AggregatorId, MemberId, NoticeId, TransferId};
use super::transfer::PacketKind;
use crate::fabric::Vertex;

/// A packet. It travels inside its event, so what is handled next lies next in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    /// Where it began.
    pub(super) from: Vertex,
    /// Its vertex, or the end of the link that it is on.
    pub(super) at: Vertex,
    /// Its destination.
    pub(super) to: Vertex,
    /// Its payload, without headers of the network.
    pub(super) bytes: u32,
    pub(super) cargo: Cargo,
}

/// The content of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cargo {
    /// A frame to an aggregation node. Only its last packet hands it over.
    ToNode {
        aggregator: AggregatorId,
        port: PortId,
        frame: FrameId,
        carrier: Carrier,
        is_last: bool,
    },
    /// A frame to a member.
    ToMember { member: MemberId, frame: FrameId, carrier: Carrier, is_last: bool },
    /// A result in the fabric's multicast tree, at the tree's aggregator `node`.
    Copy { group: u32, node: u32, frame: FrameId, is_last: bool },
    /// A packet of a message between ranks.
    Message { transfer: TransferId, kind: PacketKind },
    /// What a member of a replicated group says to those of these numbers, a bit for each. Switches copy it.
    Multicast { notice: NoticeId, receivers: u64 },
    /// What a member of a replicated group says to another.
    Notice { notice: NoticeId, is_datagram: bool },
}

impl Packet {
    /// Whether switches copy it, and its copies arrive.
    pub(super) fn is_multicast(&self) -> bool {
        matches!(self.cargo, Cargo::Copy { .. } | Cargo::Multicast { .. })
    }

    /// Whether it never leaves its host: it goes through memory there.
    pub(super) fn is_local(&self) -> bool {
        self.from == self.to
    }

    /// The frame that the packet carries all of, or a part.
    pub(super) fn frame(&self) -> Option<FrameId> {
        match self.cargo {
            Cargo::ToNode { frame, .. }
            | Cargo::ToMember { frame, .. }
            | Cargo::Copy { frame, .. } => Some(frame),
            Cargo::Message { .. } | Cargo::Notice { .. } | Cargo::Multicast { .. } => None,
        }
    }

    /// Whether its loss is the receiver's to notice. A stream repeats what it has lost.
    pub(super) fn is_datagram(&self) -> bool {
        match self.cargo {
            Cargo::ToNode { carrier, .. } | Cargo::ToMember { carrier, .. } => {
                carrier != Carrier::Link
            }
            Cargo::Notice { is_datagram, .. } => is_datagram,
            Cargo::Copy { .. } | Cargo::Message { .. } | Cargo::Multicast { .. } => false,
        }
    }

    fn with_frame_complete(mut self, is_complete: bool) -> Self {
        match &mut self.cargo {
            Cargo::ToNode { is_last, .. }
            | Cargo::ToMember { is_last, .. }
            | Cargo::Copy { is_last, .. } => *is_last = is_complete,
            Cargo::Message { .. } | Cargo::Notice { .. } | Cargo::Multicast { .. } => {}
        }
        self
    }
}

/// The packets of what is handed to the network at once: of a frame as many as its length needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packets {
    whole: Packet,
    mtu_bytes: u32,
    sent_bytes: u32,
    is_over: bool,
}

impl Packets {
    pub(super) fn new(whole: Packet, mtu_bytes: u32) -> Self {
        Self { whole, mtu_bytes, sent_bytes: 0, is_over: false }
    }

    /// How many there are.
    pub(super) fn count(bytes: u32, mtu_bytes: u32) -> u32 {
        bytes.div_ceil(mtu_bytes).max(1)
    }
}

/// Each with the bytes up to its end.
impl Iterator for Packets {
    type Item = (Packet, u32);

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let bytes = self.mtu_bytes.min(self.whole.bytes - self.sent_bytes);
        self.sent_bytes += bytes;
        self.is_over = self.sent_bytes == self.whole.bytes;
        let packet = Packet { bytes, ..self.whole }.with_frame_complete(self.is_over);
        Some((packet, self.sent_bytes))
    }
}
