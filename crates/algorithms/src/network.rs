//! Kinds of networks between hosts, and what messages and aggregators cost there.
//!
//! The constants are those of the simulator's presets of the same names; a test of the program compares what they
//! predict with what the simulator finds.

use crate::carrier::DatagramPrices;
use crate::prediction::{AggregatorPrices, Prices};

/// A kind of network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Network {
    /// Ethernet of up to 10 Gb/s.
    #[cfg_attr(feature = "serde", serde(rename = "ethernet-10"))]
    Ethernet10,
    /// Ethernet of 25 to 50 Gb/s.
    #[cfg_attr(feature = "serde", serde(rename = "ethernet-25"))]
    Ethernet25,
    /// Ethernet of 100 Gb/s and more.
    #[cfg_attr(feature = "serde", serde(rename = "ethernet-100"))]
    Ethernet100,
    /// The network of a cloud's virtual machines, which has a latency of tens of microseconds.
    Cloud,
    /// Virtual adapters and a bridge, between hosts of one kernel that have cores enough: containers of one machine. The
    /// sender's core carries a message to its receiver.
    Bridge,
}

/// What an operation's parts cost on a network, whichever way it goes.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct NetworkPrices {
    /// Messages over links.
    pub links: Prices,
    /// Datagrams among the members of replicated groups.
    pub datagrams: DatagramPrices,
    /// Aggregators that are processes.
    pub aggregators: AggregatorPrices,
}

impl NetworkPrices {
    /// All of them that are times.
    #[must_use]
    pub fn times(&self) -> [f64; 13] {
        let Self { links, datagrams, aggregators } = self;
        [
            links.send_ns,
            links.receive_ns,
            links.copy_ns_per_byte,
            links.reduce_ns_per_byte,
            links.wire_ns,
            links.link_ns_per_byte,
            datagrams.further_send_ns,
            datagrams.each_receive_ns,
            aggregators.take_ns,
            aggregators.take_ns_per_byte,
            aggregators.reply_ns,
            aggregators.reply_ns_per_byte,
            aggregators.latency_ns,
        ]
    }

    /// Whether packets and segments have bytes, and some segments are under way.
    #[must_use]
    pub fn has_packets(&self) -> bool {
        let aggregators = &self.aggregators;
        self.links.packet_max_bytes > 0
            && self.links.frame_max_bytes > 0
            && aggregators.segment_max_bytes > 0
            && aggregators.segments_in_flight > 0
    }
}

impl From<Network> for NetworkPrices {
    fn from(network: Network) -> Self {
        let (datagrams, aggregators) = match network {
            Network::Bridge => (BRIDGE_DATAGRAMS, BRIDGE_AGGREGATOR),
            _ => (DATAGRAMS, AGGREGATOR_PROCESS),
        };
        Self { links: network.prices(), datagrams, aggregators }
    }
}

impl Network {
    /// Every kind, with its name.
    pub const NAMED: &'static [(&'static str, Self)] = &[
        ("ethernet-10", Self::Ethernet10),
        ("ethernet-25", Self::Ethernet25),
        ("ethernet-100", Self::Ethernet100),
        ("cloud", Self::Cloud),
        ("bridge", Self::Bridge),
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ethernet10 => "ethernet-10",
            Self::Ethernet25 => "ethernet-25",
            Self::Ethernet100 => "ethernet-100",
            Self::Cloud => "cloud",
            Self::Bridge => "bridge",
        }
    }

    /// What messages between the leaders of hosts cost, over sockets.
    #[must_use]
    pub const fn prices(self) -> Prices {
        let (host_ns, wire_ns, link_ns_per_byte) = match self {
            Self::Ethernet10 => (2_000.0, 2_450.0, 0.8),
            Self::Ethernet25 => (2_000.0, 2_450.0, 0.32),
            Self::Ethernet100 => (2_000.0, 2_450.0, 0.08),
            Self::Cloud => (2_000.0, 30_000.0, 0.32),
            // By `tributary tune` among 8 and 12 hosts of a lab on a machine with 16 cores (docs/evidence/tuning.md).
            Self::Bridge => (3_400.0, 1_700.0, 0.18),
        };
        Prices {
            send_ns: host_ns,
            receive_ns: host_ns,
            copy_ns_per_byte: 0.1,
            reduce_ns_per_byte: 0.12,
            wire_ns,
            link_ns_per_byte,
            packet_max_bytes: 8_936,
            frame_max_bytes: 65_536,
        }
    }
}

/// An aggregator that is a process: what a socket takes, and an iteration of its loop.
pub const AGGREGATOR_PROCESS: AggregatorPrices = AggregatorPrices {
    take_ns: 2_000.0,
    take_ns_per_byte: 0.15,
    reply_ns: 2_000.0,
    reply_ns_per_byte: 0.08,
    latency_ns: 300.0,
    segment_max_bytes: 65_536,
    segments_in_flight: 8,
};

/// An aggregator inside the kernel, by the kernel's accounting: 0.80 to 0.89 us a packet of 8 B, its result's copy
/// in it, and 1.9 to 2.0 us of 256 B. Longer segments go to the process.
pub const AGGREGATOR_IN_KERNEL: AggregatorPrices = AggregatorPrices {
    take_ns: 550.0,
    take_ns_per_byte: 4.4,
    reply_ns: 300.0,
    reply_ns_per_byte: 0.0,
    latency_ns: 0.0,
    segment_max_bytes: 256,
    segments_in_flight: 8,
};

/// Datagrams between processes: `recvmmsg` took 1.8 us for one, and 0.66 to 0.9 us each of 7 to 31. A further copy of
/// `sendmmsg` is assumed to take as long. A contribution is one packet of plain Ethernet, headers and a contribution of
/// 64 B before it left out.
pub const DATAGRAMS: DatagramPrices =
    DatagramPrices { further_send_ns: 800.0, each_receive_ns: 800.0, payload_max_bytes: 1_280 };

/// Datagrams across a bridge: a further copy takes its sender all that brings it to its receiver.
const BRIDGE_DATAGRAMS: DatagramPrices =
    DatagramPrices { further_send_ns: 4_800.0, each_receive_ns: 100.0, ..DATAGRAMS };

/// An aggregator across a bridge: the senders' cores have carried contributions to its socket.
const BRIDGE_AGGREGATOR: AggregatorPrices =
    AggregatorPrices { take_ns: 1_270.0, reply_ns: 1_270.0, ..AGGREGATOR_PROCESS };
