//! What stands in a preset file.

use serde::Deserialize;

use super::constant::{
    Bytes, Constant, Count, Gigabits, Nanoseconds, NsPerByte, PerMicrosecond, PerSecond, Share,
};
use crate::fabric::{LinkCost, NetworkCost};

/// Why a preset was refused. Whoever wrote it, or named it, is at fault.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PresetError {
    /// No such preset comes with the program.
    #[error("no preset is called `{name}`; there are {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The text is no preset.
    #[error("the preset can't be read: {0}")]
    Text(#[from] toml::de::Error),
}

/// A modelled system.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    /// What to call it.
    pub name: String,
    /// What it stands for.
    #[serde(default)]
    pub about: String,
    /// The preset whose values hold where this file gives none.
    #[serde(default)]
    pub base: Option<String>,
    /// What is connected to what.
    pub fabric: FabricShape,
    /// Cables between hosts and switches.
    pub access: Cable,
    /// Cables between switches.
    pub trunk: Cable,
    /// What a packet is.
    pub packet: Packet,
    /// Every switch.
    pub switch: Switch,
    /// Every host's adapter.
    pub adapter: Adapter,
    /// Every host's cores and memory.
    pub memory: Memory,
    /// Software of messages between processes.
    pub software: Software,
    /// Software of tree operations.
    pub tree: TreeSoftware,
    /// Aggregation nodes; none where the system has none.
    #[serde(default)]
    pub aggregation: Option<AggregationNodes>,
    /// What disturbs processes.
    pub noise: Noise,
}

/// What is connected to what.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum FabricShape {
    /// For each level, from below: children of a switch, and parents of what is one level below.
    FatTree {
        /// Children of a switch.
        down: Vec<u32>,
        /// Parents of what is below.
        up: Vec<u32>,
    },
    /// Groups of routers.
    Dragonfly {
        /// Groups.
        groups: u32,
        /// Routers in a group.
        routers: u32,
        /// Hosts at a router.
        hosts: u32,
    },
    /// A wrapping grid.
    Torus {
        /// Sizes.
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
    /// From end to end.
    pub propagation: Constant<Nanoseconds>,
}

/// What a packet is.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Packet {
    /// Headers and checks.
    pub overhead: Constant<Bytes>,
    /// Data at most.
    pub mtu: Constant<Bytes>,
}

/// A switch.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Switch {
    /// Head in to head out.
    pub port_to_port: Constant<Nanoseconds>,
    /// Packets a port can handle.
    pub port_rate: Constant<PerMicrosecond>,
}

/// A host's adapter and its bus.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adapter {
    /// From the core's doorbell to the wire.
    pub transmit: Constant<Nanoseconds>,
    /// From the wire to where a core can see it.
    pub receive: Constant<Nanoseconds>,
    /// Packets the adapter can handle, each way.
    pub packet_rate: Constant<PerMicrosecond>,
    /// Rate of the bus between adapter and memory.
    pub bus: Constant<Gigabits>,
    /// Longest message that the core writes into the adapter itself.
    pub inline_max: Constant<Bytes>,
    /// That writing.
    pub inline_byte: Constant<NsPerByte>,
    /// Fetching a longer one from memory, besides the bus's rate.
    pub fetch: Constant<Nanoseconds>,
    /// Longest message that is sent without asking.
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
    /// What a core that reads many others' lines needs for each: reads overlap.
    pub line_gap_near: Constant<Nanoseconds>,
    /// The same across the sockets.
    pub line_gap_far: Constant<Nanoseconds>,
    /// One core copying.
    pub copy: Constant<NsPerByte>,
    /// One core reducing, from cache.
    pub reduce: Constant<NsPerByte>,
    /// Handing one more piece of a vector to another process, or taking one: finding its place
    /// free, saying that it is there, and the calls for both. The multi-leader design's a'.
    pub piece: Constant<Nanoseconds>,
    /// Last-level cache of a socket: what fits is moved at the cores' own rate.
    pub cache: Constant<Bytes>,
    /// What all cores of a socket can move together, to and from memory.
    pub socket_rate: Constant<Gigabits>,
    /// What the link between sockets can move each way, of lines that the other side has written.
    pub intersocket_rate: Constant<Gigabits>,
}

/// What the software of messages costs a core.
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
    /// Making memory ready for a message that is sent after asking, at each end.
    pub register: Constant<Nanoseconds>,
    /// Each byte of such a message at its receiver, whose caches don't have it.
    pub cold_byte: Constant<NsPerByte>,
    /// Ranks that exchange at once, in recursive k-ing.
    pub radix: Constant<Count>,
    /// From this length on, reduce-scatter and allgather instead.
    pub long_min: Constant<Bytes>,
}

/// What the software of tree operations costs a core.
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
    /// What comes with the notice of a result, and needs no further look into memory: a line.
    pub notice_max: Constant<Bytes>,
    /// Each further look: one for each further line.
    pub look: Constant<Nanoseconds>,
}

/// Aggregation nodes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AggregationNodes {
    /// Whether they run on hosts of their own instead of in switches.
    #[serde(default)]
    pub on_hosts: bool,
    /// From the end of a packet to the beginning of what it leads to.
    pub latency: Constant<Nanoseconds>,
    /// Least time between two packets taken in.
    pub packet: Constant<Nanoseconds>,
    /// Each byte of a contribution.
    pub byte: Constant<NsPerByte>,
    /// Making one reliable copy.
    pub reply: Constant<Nanoseconds>,
    /// Each byte of such a copy, on its way out of the node's one port.
    pub reply_byte: Constant<NsPerByte>,
    /// Engines that make copies, each for its share of the groups.
    pub reply_engines: Constant<Count>,
    /// Outstanding operations of one node.
    pub osos: Constant<Count>,
    /// Children of one node.
    pub radix: Constant<Count>,
    /// Longest segment.
    pub payload_max: Constant<Bytes>,
}

/// What disturbs processes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Noise {
    /// Deviation of what an action of a core takes, as a share of it.
    pub jitter: Constant<Share>,
    /// How late processes start a collective, on average: evenly spread up to twice that.
    pub skew: Constant<Nanoseconds>,
    /// How often a core is taken away by the operating system.
    pub detour_rate: Constant<PerSecond>,
    /// For how long, on average.
    pub detour: Constant<Nanoseconds>,
}

impl Preset {
    /// What links and switches cost.
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

pub(super) fn read<'a>(
    text: &str,
    find: &dyn Fn(&str) -> Result<&'a str, PresetError>,
) -> Result<Preset, PresetError> {
    let mut table: toml::Table = toml::from_str(text)?;
    while let Some(toml::Value::String(base)) = table.get("base").cloned() {
        let mut below: toml::Table = toml::from_str(find(&base)?)?;
        table.remove("base");
        for name in without(&mut table) {
            below.remove(&name);
        }
        overlay(&mut below, table);
        table = below;
    }
    Ok(Preset::deserialize(toml::Value::Table(table))?)
}

/// Takes out which of its base's tables a preset does without.
fn without(table: &mut toml::Table) -> Vec<String> {
    match table.remove("without") {
        Some(toml::Value::Array(names)) => {
            names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect()
        }
        _ => Vec::new(),
    }
}

/// Replaces values of `below` by those of `above`; tables merge, except those that are one thing.
fn overlay(below: &mut toml::Table, above: toml::Table) {
    for (key, value) in above {
        match (below.get_mut(&key), value) {
            (Some(toml::Value::Table(under)), toml::Value::Table(over))
                if !over.contains_key("value") && !over.contains_key("kind") =>
            {
                overlay(under, over);
            }
            (_, value) => {
                below.insert(key, value);
            }
        }
    }
}
