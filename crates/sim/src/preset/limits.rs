//! What values a preset may hold: the one place that compares them with bounds.
//!
//! The bounds keep every later number within its type: virtual time within 64 bits, vertices and links
//! within 32, and a simulated operation within reason.

use core::ops::RangeInclusive;

use super::constant::{Constant, Unit};
use super::file::{
    Adapter, AggregationNodes, BesideRanks, Bypass, Cable, Datagrams, FabricShape, Loss, Machine,
    Memory, Noise, Packet, Preset, Program, RunsIn, Software, Switch, TreeSoftware,
};
use crate::fabric::Routing;
use crate::input::Refused;

/// Gigabits a second.
const RATE: RangeInclusive<f64> = 1e-3..=1e5;
/// Nanoseconds: up to 10 ms.
const DELAY: RangeInclusive<f64> = 0.0..=1e7;
/// Nanoseconds until a lost packet is sent again: up to 10 s.
const REPEAT: RangeInclusive<f64> = 0.0..=1e10;
/// Nanoseconds for each byte: from 1 MB/s.
const PER_BYTE: RangeInclusive<f64> = 0.0..=1e3;
/// Packets a microsecond: from one each millisecond.
const PACKET_RATE: RangeInclusive<f64> = 1e-3..=1e6;
/// Bytes of a message or a cache: up to 1 TB.
const LENGTH: RangeInclusive<f64> = 0.0..=1e12;
/// Bytes of a packet's headers.
const OVERHEAD: RangeInclusive<f64> = 0.0..=65_536.0;
/// Bytes of a packet or a segment: up to what a frame may carry.
const SEGMENT: RangeInclusive<f64> = 64.0..=tributary_wire::frame::PAYLOAD_BYTES_MAX as f64;
/// Detours of a core a second.
const DETOURS: RangeInclusive<f64> = 0.0..=1e4;

/// Most hosts of a fabric.
pub(crate) const HOSTS_MAX: u64 = 1 << 20;
/// Most hosts and switches of a fabric.
const VERTICES_MAX: u64 = 1 << 22;
/// Most links of a fabric, each direction counted.
const LINKS_MAX: u64 = 1 << 24;
/// Most levels of a fat tree, and most dimensions of a torus.
const LEVELS_MAX: usize = 8;

/// Compares every value with its bounds.
pub(super) fn check(preset: &Preset) -> Result<(), Refused> {
    fabric(&preset.fabric)?;
    routing(preset.routing, &preset.fabric)?;
    cable("access", &preset.access)?;
    cable("trunk", &preset.trunk)?;
    packet(&preset.packet)?;
    switch(&preset.switch)?;
    adapter(&preset.adapter)?;
    memory(&preset.memory)?;
    software(&preset.software)?;
    tree(&preset.tree)?;
    preset.datagrams.as_ref().map_or(Ok(()), datagrams)?;
    preset.loss.as_ref().map_or(Ok(()), loss)?;
    preset.traffic_control.as_ref().map_or(Ok(()), |own| program("traffic_control", own))?;
    preset.driver.as_ref().map_or(Ok(()), |own| program("driver", own))?;
    preset.af_xdp.as_ref().map_or(Ok(()), bypass)?;
    runs_in(preset)?;
    preset.aggregation.as_ref().map_or(Ok(()), aggregation)?;
    preset.machine.as_ref().map_or(Ok(()), |own| machine(own, preset.aggregation.as_ref()))?;
    noise(&preset.noise)
}

/// Whether the fabric has the ways that the routing takes.
fn routing(routing: Routing, shape: &FabricShape) -> Result<(), Refused> {
    let has_groups = matches!(shape, FabricShape::Dragonfly { .. });
    if routing == Routing::Valiant && !has_groups {
        return Err(Refused::new("routing", "`valiant`", "`target` or `flow-hash`: no dragonfly"));
    }
    Ok(())
}

fn cable(table: &str, Cable { rate, propagation }: &Cable) -> Result<(), Refused> {
    within(&format!("{table}.rate"), rate, RATE)?;
    within(&format!("{table}.propagation"), propagation, DELAY)
}

fn packet(Packet { overhead, mtu }: &Packet) -> Result<(), Refused> {
    whole("packet.overhead", overhead, OVERHEAD)?;
    whole("packet.mtu", mtu, SEGMENT)
}

fn switch(Switch { port_to_port, port_rate }: &Switch) -> Result<(), Refused> {
    within("switch.port_to_port", port_to_port, DELAY)?;
    within("switch.port_rate", port_rate, PACKET_RATE)
}

fn adapter(adapter: &Adapter) -> Result<(), Refused> {
    within("adapter.transmit", &adapter.transmit, DELAY)?;
    within("adapter.receive", &adapter.receive, DELAY)?;
    within("adapter.packet_rate", &adapter.packet_rate, PACKET_RATE)?;
    within("adapter.bus", &adapter.bus, RATE)?;
    whole("adapter.inline_max", &adapter.inline_max, 0.0..=*SEGMENT.end())?;
    within("adapter.inline_byte", &adapter.inline_byte, PER_BYTE)?;
    within("adapter.fetch", &adapter.fetch, DELAY)?;
    whole("adapter.eager_max", &adapter.eager_max, 0.0..=f64::from(1 << 30))
}

fn memory(memory: &Memory) -> Result<(), Refused> {
    whole("memory.sockets", &memory.sockets, 1.0..=64.0)?;
    whole("memory.cores", &memory.cores, 1.0..=1024.0)?;
    within("memory.line_near", &memory.line_near, DELAY)?;
    within("memory.line_far", &memory.line_far, DELAY)?;
    within("memory.line_gap_near", &memory.line_gap_near, DELAY)?;
    within("memory.line_gap_far", &memory.line_gap_far, DELAY)?;
    within("memory.copy", &memory.copy, PER_BYTE)?;
    within("memory.reduce", &memory.reduce, PER_BYTE)?;
    within("memory.piece", &memory.piece, DELAY)?;
    whole("memory.cache", &memory.cache, LENGTH)?;
    within("memory.socket_rate", &memory.socket_rate, RATE)?;
    within("memory.intersocket_rate", &memory.intersocket_rate, RATE)
}

fn software(software: &Software) -> Result<(), Refused> {
    within("software.call", &software.call, DELAY)?;
    within("software.send", &software.send, DELAY)?;
    within("software.receive", &software.receive, DELAY)?;
    within("software.eager_byte", &software.eager_byte, PER_BYTE)?;
    within("software.reduce_byte", &software.reduce_byte, PER_BYTE)?;
    within("software.register", &software.register, DELAY)?;
    within("software.cold_byte", &software.cold_byte, PER_BYTE)?;
    if let Some(frame_max) = &software.frame_max {
        whole("software.frame_max", frame_max, 1.0..=f64::from(1 << 30))?;
    }
    whole("software.radix", &software.radix, 2.0..=1024.0)?;
    whole("software.long_min", &software.long_min, LENGTH)
}

fn tree(tree: &TreeSoftware) -> Result<(), Refused> {
    within("tree.call", &tree.call, DELAY)?;
    within("tree.request", &tree.request, DELAY)?;
    within("tree.result", &tree.result, DELAY)?;
    within("tree.repeat", &tree.repeat, DELAY)?;
    within("tree.segment_byte", &tree.segment_byte, PER_BYTE)?;
    whole("tree.notice_max", &tree.notice_max, 1.0..=*SEGMENT.end())?;
    within("tree.line_read", &tree.line_read, DELAY)?;
    whole("tree.osos", &tree.osos, 1.0..=f64::from(u16::MAX))
}

fn datagrams(Datagrams { segment_max, vector_max, .. }: &Datagrams) -> Result<(), Refused> {
    whole("datagrams.segment_max", segment_max, SEGMENT)?;
    whole("datagrams.vector_max", vector_max, LENGTH)
}

fn loss(Loss { share, stream_repeat }: &Loss) -> Result<(), Refused> {
    within("loss.share", share, 0.0..=0.5)?;
    within("loss.stream_repeat", stream_repeat, REPEAT)
}

fn program(table: &str, program: &Program) -> Result<(), Refused> {
    within(&format!("{table}.before"), &program.before, DELAY)?;
    within(&format!("{table}.packet"), &program.packet, DELAY)?;
    within(&format!("{table}.byte"), &program.byte, PER_BYTE)?;
    within(&format!("{table}.reply"), &program.reply, DELAY)?;
    whole(&format!("{table}.payload_max"), &program.payload_max, SEGMENT)
}

fn bypass(Bypass { request, result }: &Bypass) -> Result<(), Refused> {
    within("af_xdp.request", request, DELAY)?;
    within("af_xdp.result", result, DELAY)
}

/// A program needs its prices, a host to run on, and datagrams, which are all that it sees.
fn runs_in(preset: &Preset) -> Result<(), Refused> {
    let Some(nodes) = &preset.aggregation else { return Ok(()) };
    if nodes.runs_in == RunsIn::Process {
        return Ok(());
    }
    if preset.program().is_some() && nodes.on_hosts && preset.datagrams.is_some() {
        return Ok(());
    }
    let allowed = "`process`, or a program with a table of its own, with `on_hosts = true` and a table `datagrams`";
    Err(Refused::new("aggregation.runs_in", format!("`{:?}`", nodes.runs_in), allowed))
}

fn aggregation(nodes: &AggregationNodes) -> Result<(), Refused> {
    nodes.beside_ranks.as_ref().map_or(Ok(()), |beside| beside_ranks(beside, nodes.on_hosts))?;
    within("aggregation.latency", &nodes.latency, DELAY)?;
    within("aggregation.packet", &nodes.packet, DELAY)?;
    within("aggregation.byte", &nodes.byte, PER_BYTE)?;
    within("aggregation.reply", &nodes.reply, DELAY)?;
    within("aggregation.reply_byte", &nodes.reply_byte, PER_BYTE)?;
    whole("aggregation.osos", &nodes.osos, 1.0..=f64::from(u16::MAX))?;
    whole("aggregation.radix", &nodes.radix, 2.0..=f64::from(u16::MAX))?;
    whole("aggregation.payload_max", &nodes.payload_max, SEGMENT)
}

/// Aggregators in switches, or on no host, are beside no ranks.
fn beside_ranks(beside: &BesideRanks, on_hosts: bool) -> Result<(), Refused> {
    let (value, is_none) = match beside {
        BesideRanks::Count(count) => (count.to_string(), *count == 0),
        BesideRanks::Hosts(names) => (format!("{names:?}"), names.is_empty()),
    };
    let allowed = if is_none {
        "1 or more, or a list of names of hosts"
    } else if !on_hosts {
        "with `on_hosts = true` only, because nodes in switches are beside no ranks"
    } else {
        return Ok(());
    };
    Err(Refused::new("aggregation.beside_ranks", value, allowed))
}

/// An aggregator in a switch is on no machine.
fn machine(machine: &Machine, nodes: Option<&AggregationNodes>) -> Result<(), Refused> {
    whole("machine.cores", &machine.cores, 1.0..=1024.0)?;
    within("machine.switch", &machine.switch, DELAY)?;
    if nodes.is_some_and(|nodes| !nodes.on_hosts) {
        let allowed = "true, because all nodes run on the machine of table `machine`";
        return Err(Refused::new("aggregation.on_hosts", "false", allowed));
    }
    Ok(())
}

fn noise(noise: &Noise) -> Result<(), Refused> {
    within("noise.jitter", &noise.jitter, 0.0..=1.0)?;
    within("noise.skew", &noise.skew, DELAY)?;
    within("noise.detour_rate", &noise.detour_rate, DETOURS)?;
    within("noise.detour", &noise.detour, DELAY)
}

fn within<U: Unit>(
    key: &str,
    constant: &Constant<U>,
    range: RangeInclusive<f64>,
) -> Result<(), Refused> {
    if range.contains(&constant.value()) {
        return Ok(());
    }
    Err(out_of_range(key, constant, &range, ""))
}

/// A whole number in `range`.
fn whole<U: Unit>(
    key: &str,
    constant: &Constant<U>,
    range: RangeInclusive<f64>,
) -> Result<(), Refused> {
    if range.contains(&constant.value()) && constant.value().fract() == 0.0 {
        return Ok(());
    }
    Err(out_of_range(key, constant, &range, "a whole number, "))
}

fn out_of_range<U: Unit>(
    key: &str,
    constant: &Constant<U>,
    range: &RangeInclusive<f64>,
    kind: &str,
) -> Refused {
    let unit = match U::NAME {
        "1" | "share" => String::new(),
        name => format!(" {name}"),
    };
    let allowed = format!("{kind}{} to {}{unit}", range.start(), range.end());
    Refused::new(key, format!("{}{unit}", constant.value()), allowed)
}

/// Numbers of a regular fabric. A topology file is checked where it is read.
fn fabric(shape: &FabricShape) -> Result<(), Refused> {
    match shape {
        FabricShape::FatTree { down, up } => fat_tree(down, up),
        FabricShape::Dragonfly { groups, routers, hosts } => {
            let all = [("groups", *groups), ("routers", *routers), ("hosts", *hosts)];
            if let Some((key, value)) = all.iter().find(|(_, value)| *value == 0) {
                return Err(Refused::new(format!("fabric.{key}"), value, "1 or more"));
            }
            let [groups, routers, hosts] = all.map(|(_, value)| u64::from(value));
            let count = |factors: &[u64]| product(factors.iter().copied());
            let all_routers = count(&[groups, routers]);
            let all_hosts = count(&[groups, routers, hosts]);
            let local = count(&[groups, routers, routers]);
            let links = sum(&[all_hosts, all_hosts, local, count(&[groups, groups])]);
            let value = format!("{groups} groups of {routers} routers of {hosts} hosts");
            size("fabric", &value, all_hosts, sum(&[all_hosts, all_routers]), links)
        }
        FabricShape::Torus { sizes } => {
            numbers("fabric.sizes", sizes)?;
            let hosts = product(sizes.iter().map(|&size| size.into()));
            let ports = 2 + 2 * sizes.len() as u64;
            let links = hosts.saturating_mul(ports);
            size("fabric.sizes", &format!("{sizes:?}"), hosts, hosts.saturating_mul(2), links)
        }
        FabricShape::Topology { .. } => Ok(()),
    }
}

fn fat_tree(down: &[u32], up: &[u32]) -> Result<(), Refused> {
    numbers("fabric.down", down)?;
    numbers("fabric.up", up)?;
    if up.len() != down.len() {
        let allowed = format!("one number for each of the {} levels of `fabric.down`", down.len());
        return Err(Refused::new("fabric.up", format!("{up:?}"), allowed));
    }
    if up[0] != 1 {
        let allowed = "1 as the first number, because a host has one link";
        return Err(Refused::new("fabric.up", format!("{up:?}"), allowed));
    }
    let hosts = product(down.iter().map(|&number| number.into()));
    let (mut vertices, mut links, mut blocks, mut width, mut below) = (hosts, 0, hosts, 1, hosts);
    for (&down, &up) in down.iter().zip(up) {
        links = sum(&[links, product([2, below, up.into()])]);
        blocks /= u64::from(down);
        width = product([width, up.into()]);
        below = product([blocks, width]);
        vertices = sum(&[vertices, below]);
    }
    let value = format!("{down:?} with `fabric.up` {up:?}");
    size("fabric.down", &value, hosts, vertices, links)
}

/// A list of radices or sizes.
fn numbers(key: &str, list: &[u32]) -> Result<(), Refused> {
    if (1..=LEVELS_MAX).contains(&list.len()) && list.iter().all(|&number| number > 0) {
        return Ok(());
    }
    let allowed = format!("1 to {LEVELS_MAX} numbers, each 1 or more");
    Err(Refused::new(key, format!("{list:?}"), allowed))
}

fn size(key: &str, value: &str, hosts: u64, vertices: u64, links: u64) -> Result<(), Refused> {
    if hosts <= HOSTS_MAX && vertices <= VERTICES_MAX && links <= LINKS_MAX {
        return Ok(());
    }
    let allowed = format!(
        "up to {HOSTS_MAX} hosts, {VERTICES_MAX} hosts and switches, {} cables",
        LINKS_MAX / 2
    );
    Err(Refused::new(key, value, allowed))
}

/// The largest number if it does not fit.
fn product(factors: impl IntoIterator<Item = u64>) -> u64 {
    factors.into_iter().fold(1, u64::saturating_mul)
}

/// The largest number if it does not fit.
fn sum(numbers: &[u64]) -> u64 {
    numbers.iter().copied().fold(0, u64::saturating_add)
}
