//! What a preset file holds: every key, with the type and the unit of its value.

use serde::Deserialize;

use super::constant::{
    Bytes, Constant, Count, Gigabits, Nanoseconds, NsPerByte, PerMicrosecond, PerSecond, Share,
};
use crate::fabric::{LinkCost, NetworkCost, Routing};

/// A modelled system.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    /// Its name.
    pub name: String,
    /// The system that it describes.
    #[serde(default)]
    pub about: String,
    /// Hosts, switches and links.
    pub fabric: FabricShape,
    /// Which of several ways packets take.
    #[serde(default)]
    pub routing: Routing,
    /// Cables between hosts and switches.
    pub access: Cable,
    /// Cables between switches.
    pub trunk: Cable,
    /// Sizes of packets.
    pub packet: Packet,
    /// The cost of every switch.
    pub switch: Switch,
    /// The cost of every host's adapter.
    pub adapter: Adapter,
    /// The cost of every host's cores and memory.
    pub memory: Memory,
    /// The cost of the software for point-to-point messages.
    pub software: Software,
    /// The cost of the software for tree operations.
    pub tree: TreeSoftware,
    /// Datagrams between members and aggregators, where they are simulated.
    #[serde(default)]
    pub datagrams: Option<Datagrams>,
    /// A program of an aggregation node at traffic control, which takes short segments before the process wakes.
    #[serde(default)]
    pub traffic_control: Option<Program>,
    /// The same in the driver of the adapter, by XDP.
    #[serde(default)]
    pub driver: Option<Program>,
    /// Leaders whose datagrams bypass the host's network stack by AF_XDP.
    #[serde(default)]
    pub af_xdp: Option<Bypass>,
    /// Packets that are lost on their way; none by default.
    #[serde(default)]
    pub loss: Option<Loss>,
    /// Aggregation nodes, if the system has any.
    #[serde(default)]
    pub aggregation: Option<AggregationNodes>,
    /// The machine that all hosts share, if they are those of a lab.
    #[serde(default)]
    pub machine: Option<Machine>,
    /// Noise of processes.
    pub noise: Noise,
}

/// The shape of a fabric.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum FabricShape {
    /// A fat tree, with two numbers for each level from below.
    FatTree {
        /// Children of a switch.
        down: Vec<u32>,
        /// Parents of a vertex one level below.
        up: Vec<u32>,
    },
    /// A dragonfly.
    Dragonfly {
        /// Groups.
        groups: u32,
        /// Routers in a group.
        routers: u32,
        /// Hosts at a router.
        hosts: u32,
    },
    /// A torus.
    Torus {
        /// Its size in each dimension.
        sizes: Vec<u32>,
    },
    /// A topology file, as in `docs/topology.md`.
    Topology {
        /// Its path.
        file: std::path::PathBuf,
    },
}

/// A kind of cable.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cable {
    /// Rate of data in each direction.
    pub rate: Constant<Gigabits>,
    /// Delay from end to end.
    pub propagation: Constant<Nanoseconds>,
}

/// Sizes of packets.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Packet {
    /// Headers and checksums.
    pub overhead: Constant<Bytes>,
    /// Most bytes of data.
    pub mtu: Constant<Bytes>,
}

/// A switch.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Switch {
    /// Delay of a packet's head from port to port.
    pub port_to_port: Constant<Nanoseconds>,
    /// Packet rate of a port.
    pub port_rate: Constant<PerMicrosecond>,
}

/// A host's adapter and its bus.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adapter {
    /// Delay from the core's doorbell to the wire.
    pub transmit: Constant<Nanoseconds>,
    /// Delay from the wire until a core can see the packet.
    pub receive: Constant<Nanoseconds>,
    /// Packet rate of the adapter, in each direction.
    pub packet_rate: Constant<PerMicrosecond>,
    /// Rate of the bus between adapter and memory.
    pub bus: Constant<Gigabits>,
    /// Longest message that the core writes into the adapter itself.
    pub inline_max: Constant<Bytes>,
    /// Writing such a message.
    pub inline_byte: Constant<NsPerByte>,
    /// Fetching a longer one from memory, besides the bus's rate.
    pub fetch: Constant<Nanoseconds>,
    /// Longest message that is sent eagerly.
    pub eager_max: Constant<Bytes>,
}

/// A host's cores and memory.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// Sockets.
    pub sockets: Constant<Count>,
    /// Cores of one socket.
    pub cores: Constant<Count>,
    /// A cache line from one core to another of the same socket.
    pub line_near: Constant<Nanoseconds>,
    /// The same across the sockets.
    pub line_far: Constant<Nanoseconds>,
    /// Time per line for a core that reads the lines of many others, with overlapping reads.
    pub line_gap_near: Constant<Nanoseconds>,
    /// The same across the sockets.
    pub line_gap_far: Constant<Nanoseconds>,
    /// One core copying.
    pub copy: Constant<NsPerByte>,
    /// One core reducing, from cache.
    pub reduce: Constant<NsPerByte>,
    /// Passing one more piece of a vector to another process, or taking one: waiting for a free slot,
    /// setting its flag, and the calls for both. The a' of the multi-leader design.
    pub piece: Constant<Nanoseconds>,
    /// Last-level cache of a socket. Data that fits moves at the rate of the cores.
    pub cache: Constant<Bytes>,
    /// Memory bandwidth of a socket.
    pub socket_rate: Constant<Gigabits>,
    /// Bandwidth of the link between sockets in each direction, for lines that the other side has written.
    pub intersocket_rate: Constant<Gigabits>,
}

/// The time that the software of messages takes on a core.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Software {
    /// Entering and leaving a collective.
    pub call: Constant<Nanoseconds>,
    /// Sending one message.
    pub send: Constant<Nanoseconds>,
    /// Receiving one message.
    pub receive: Constant<Nanoseconds>,
    /// Each byte of an eager message, at each end: out of the buffer, into the buffer.
    pub eager_byte: Constant<NsPerByte>,
    /// Each byte of any message folded into the vector.
    pub reduce_byte: Constant<NsPerByte>,
    /// Registering memory for a rendezvous message, at each end.
    pub register: Constant<Nanoseconds>,
    /// Each byte of a rendezvous message at its receiver, which is not in the caches.
    pub cold_byte: Constant<NsPerByte>,
    /// Longest frame of messages over stream sockets, which are longer than that in several, never by rendezvous.
    pub frame_max: Option<Constant<Bytes>>,
    /// Ranks that exchange at once, in recursive k-ing.
    pub radix: Constant<Count>,
    /// Shortest vector for Rabenseifner's algorithm.
    pub long_min: Constant<Bytes>,
    /// The library whose switch points between algorithms are taken.
    #[serde(default)]
    pub library: Library,
}

/// The MPI library whose switch points hosts follow among themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Library {
    /// None: `radix` and `long_min` decide, as in a library that was tuned for this machine.
    #[default]
    Tuned,
    /// MPICH.
    Mpich,
    /// Open MPI up to 4.0, with its `tuned` component.
    OpenMpi,
}

/// The time that the software of tree operations takes on a core.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TreeSoftware {
    /// Entering and leaving a collective.
    pub call: Constant<Nanoseconds>,
    /// Sending one segment.
    pub request: Constant<Nanoseconds>,
    /// Receiving one segment.
    pub result: Constant<Nanoseconds>,
    /// Dropping a second copy of a result.
    pub repeat: Constant<Nanoseconds>,
    /// Each byte of a segment, at each end: out of the vector, into the vector.
    pub segment_byte: Constant<NsPerByte>,
    /// Bytes that arrive with the completion of a result and need no further memory read: one line.
    pub notice_max: Constant<Bytes>,
    /// Reading one further cache line of a result.
    pub line_read: Constant<Nanoseconds>,
    /// Outstanding operations that a communicator asks for.
    pub osos: Constant<Count>,
}

/// Datagrams. In a tree they are simulated where they make a difference: where packets are lost, and where results go by
/// multicast from an aggregator on a host. The members of replicated groups send their contributions as datagrams.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Datagrams {
    /// Longest segment that goes by datagram.
    pub segment_max: Constant<Bytes>,
    /// Longest vector that is cut into such segments where results go by multicast. Where packets are lost every vector is.
    pub vector_max: Constant<Bytes>,
    /// Each further copy of a datagram that one call sends.
    pub further_send: Constant<Nanoseconds>,
    /// Each datagram of those that one call receives; the call itself takes the rest of `software.receive`.
    pub each_receive: Constant<Nanoseconds>,
    /// Whether the network carries results to a multicast address.
    #[serde(default = "yes")]
    pub multicast: bool,
}

fn yes() -> bool {
    true
}

/// A program inside the kernel of an aggregation node's host.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// What the kernel does for a packet before the program sees it.
    pub before: Constant<Nanoseconds>,
    /// The program itself, for each packet that it takes.
    pub packet: Constant<Nanoseconds>,
    /// Each byte of a contribution that it takes.
    pub byte: Constant<NsPerByte>,
    /// Each copy of a result that it sends.
    pub reply: Constant<Nanoseconds>,
    /// Longest segment that it takes. Longer ones are the process's.
    pub payload_max: Constant<Bytes>,
}

/// The time that a datagram takes on a core past the host's network stack, in the place of `request` and `result`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bypass {
    /// Sending one segment.
    pub request: Constant<Nanoseconds>,
    /// Receiving one segment.
    pub result: Constant<Nanoseconds>,
}

/// Losses.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Loss {
    /// How many packets are lost, for each receiver by itself.
    pub share: Constant<Share>,
    /// After what time a stream's lost packet is there, sent once more; doubles with each further loss. What is lost of
    /// datagrams the operation repeats by its own timers.
    pub stream_repeat: Constant<Nanoseconds>,
}

/// Aggregation nodes. An aggregator in a switch has two engines, one that reduces and one that replicates; an
/// aggregator on a host does both with its one thread.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AggregationNodes {
    /// Whether they run on hosts of their own instead of in switches.
    #[serde(default)]
    pub on_hosts: bool,
    /// The hosts that run one beside their ranks. Without it hosts with an aggregator run no ranks.
    #[serde(default)]
    pub beside_ranks: Option<BesideRanks>,
    /// What takes short segments of datagrams: their process by default, or a program inside the kernel.
    #[serde(default)]
    pub runs_in: RunsIn,
    /// Delay from the end of a packet to the start of the packets that it causes.
    pub latency: Constant<Nanoseconds>,
    /// The reducing engine, which all groups and ports of the aggregator share: each packet that it takes.
    pub packet: Constant<Nanoseconds>,
    /// Each byte of a contribution that it takes.
    pub byte: Constant<NsPerByte>,
    /// The replicating engine, which all groups and ports share as well: each reliable copy.
    pub reply: Constant<Nanoseconds>,
    /// Each byte of such a copy.
    pub reply_byte: Constant<NsPerByte>,
    /// Memory slots: outstanding operations of one aggregator, which all its groups divide.
    pub osos: Constant<Count>,
    /// Children of one aggregator.
    pub radix: Constant<Count>,
    /// Longest segment.
    pub payload_max: Constant<Bytes>,
}

/// What takes the short segments of an aggregation node on a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunsIn {
    /// Its process.
    #[default]
    Process,
    /// The program of table `traffic_control`.
    TrafficControl,
    /// The program of table `driver`.
    Driver,
}

/// Hosts that run an aggregation node beside their ranks.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "expected how many hosts, or a list of their names")]
pub enum BesideRanks {
    /// So many, as far apart as they can be.
    Count(u32),
    /// These.
    Hosts(Vec<String>),
}

/// A machine that runs the processes of all hosts and all aggregation nodes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Its cores.
    pub cores: Constant<Count>,
    /// What a core needs to go from one process to another, and what processes that wait do meanwhile.
    pub switch: Constant<Nanoseconds>,
}

/// Noise of processes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Noise {
    /// Standard deviation of an action of a core, as a fraction of its time.
    pub jitter: Constant<Share>,
    /// Mean delay of a process that starts a collective; uniform up to twice that.
    pub skew: Constant<Nanoseconds>,
    /// How often the operating system interrupts a core.
    pub detour_rate: Constant<PerSecond>,
    /// For how long, on average.
    pub detour: Constant<Nanoseconds>,
}

impl Preset {
    /// The program that takes short segments; none if the process does.
    #[must_use]
    pub fn program(&self) -> Option<&Program> {
        match self.aggregation.as_ref()?.runs_in {
            RunsIn::Process => None,
            RunsIn::TrafficControl => self.traffic_control.as_ref(),
            RunsIn::Driver => self.driver.as_ref(),
        }
    }

    /// The same with the segments taken there; none if it has no prices for that.
    #[must_use]
    pub fn with_segments_taken_in(&self, runs_in: RunsIn) -> Option<Self> {
        let mut preset = self.clone();
        preset.aggregation.as_mut()?.runs_in = runs_in;
        let has_prices = runs_in == RunsIn::Process || preset.program().is_some();
        has_prices.then_some(preset)
    }

    /// The same with leaders that bypass their hosts' network stacks; none if it has no prices for that.
    #[must_use]
    pub fn with_bypass(&self) -> Option<Self> {
        let Bypass { request, result } = self.af_xdp.clone()?;
        let mut preset = self.clone();
        (preset.tree.request, preset.tree.result) = (request, result);
        Some(preset)
    }

    /// The cost of links and switches.
    #[must_use]
    pub fn network_cost(&self) -> NetworkCost {
        let link = |cable: &Cable| LinkCost {
            byte_ps: cable.rate.byte_ps(),
            propagation: cable.propagation.span(),
        };
        NetworkCost {
            access: link(&self.access),
            trunk: link(&self.trunk),
            port_to_port: self.switch.port_to_port.span(),
            port_gap: self.switch.port_rate.gap(),
            packet_overhead_bytes: self.packet.overhead.bytes() as u32,
        }
    }
}
