//! The path inside the kernel in front of aggregators: datagrams meet the product's program, compiled for user space,
//! before the aggregator's machine, and what they have in common is the product's, too.
//!
//! A packet here is a datagram with addresses that tell link and aggregator. What the program sends goes the way of all
//! datagrams: it is lost, doubled, damaged and late as they are.

use std::net::{Ipv4Addr, SocketAddrV4};

use tributary_kernel_path::user_space::packets::{Checksum, packet, parse};
use tributary_kernel_path::user_space::{SentPacket, Verdict};
use tributary_kernel_path::{Arrival, Counters, DatagramPath};
use tributary_protocol::node::{FrameError, PortId};
use tributary_protocol_testing::frames;
use tributary_protocol_testing::values::mix;
use tributary_wire::GroupId;
use tributary_wire::frame::Message;

use super::agenda::End;
use super::node_host::{KernelPath, NodeHost};
use super::nodes::brief;
use super::verdict::Violation;
use super::world::{Incoming, World};

/// The UDP port of every process: the address tells which is meant.
const UDP_PORT: u16 = 9;

/// Where all groups' results go by multicast: their number tells whose they are.
const MULTICAST_ADDRESS: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 0, 0, 0), UDP_PORT);

/// The one interface of every aggregator.
const INTERFACE: u32 = 1;

/// Separates the choice of aggregators from all other numbers of a seed.
const NODES_SEED: u64 = 0x6b65_726e_656c_2121;

/// The two ends of a link's datagrams.
fn path(node: u32, link: u32) -> DatagramPath {
    let address = |net: u8, number: u32| {
        let [_, high, middle, low] = number.to_be_bytes();
        SocketAddrV4::new(Ipv4Addr::new(net, high, middle, low), UDP_PORT)
    };
    DatagramPath { peer: address(10, link), own: address(11, node) }
}

/// The link that an address tells.
fn link_of(peer: SocketAddrV4) -> u32 {
    peer.ip().to_bits() & 0xff_ffff
}

impl NodeHost {
    /// Hands the machine a frame, with what the kernel path has for the same segment.
    pub(super) fn hand(&mut self, arrival: Arrival<'_>) -> Result<(), FrameError> {
        let Self { kernel_path, machine, memory, .. } = self;
        match kernel_path {
            Some(kernel_path) => kernel_path.handover.handle_frame(machine, arrival, memory),
            None => {
                let Arrival { now, port, carrier, header, payload } = arrival;
                machine.handle_frame(now, port, carrier, header, payload, memory)
            }
        }
    }

    /// Groups that the kernel path serves.
    pub(super) fn groups_in_kernel(&self) -> u64 {
        self.kernel_path.as_ref().map_or(0, |it| it.handover.counter_reader().groups())
    }
}

impl World<'_> {
    /// Gives an aggregator that takes datagrams a kernel path, if the scenario says so.
    pub(super) fn equip_with_kernel_path(&mut self, node: u32) {
        let is_chosen = !mix(self.scenario.seed ^ NODES_SEED ^ u64::from(node)).is_multiple_of(4);
        if self.scenario.network.has_kernel_paths && is_chosen {
            self.node(node).kernel_path = Some(Box::new(KernelPath::new()));
        }
    }

    /// Lets the kernel path serve a group as soon as it can.
    pub(super) fn offer_to_kernel(&mut self, node: u32, group: GroupId) {
        let now = self.time_at(self.node_machine(node));
        let Self { nodes, links, .. } = self;
        let host = &mut nodes[node as usize];
        let Some(mut kernel_path) = host.kernel_path.take() else { return };
        let path = |port: PortId| {
            let (link, end) = host.link_at(port)?;
            links[link as usize].takes_datagrams[end as usize].then(|| path(node, link))
        };
        let admitted =
            kernel_path.handover.admit(now, &host.machine, group, Some(MULTICAST_ADDRESS), path);
        host.kernel_path = Some(kernel_path);
        if let Ok(true) = admitted {
            self.trace.note(self.now, None, || format!("node {node}: {group} in the kernel"));
        }
    }

    /// Lets the kernel path serve the group that a link belongs to, as soon as it can.
    pub(super) fn offer_group_of(&mut self, node: u32, port: PortId) {
        if let Some(group) = self.node(node).machine.kernel_path().group_of_link(port) {
            self.offer_to_kernel(node, group);
        }
    }

    /// Ends the kernel path's service to the group below a parent that datagrams do not reach.
    pub(super) fn end_in_kernel(&mut self, node: u32, port: PortId) {
        let now = self.time_at(self.node_machine(node));
        let NodeHost { kernel_path, machine, memory, .. } = self.node(node);
        if let Some(kernel_path) = kernel_path {
            kernel_path.handover.end_below(machine, port, now, memory);
        }
    }

    pub(super) fn forget_in_kernel(&mut self, node: u32, group: GroupId) {
        let now = self.time_at(self.node_machine(node));
        if let Some(kernel_path) = &mut self.node(node).kernel_path {
            kernel_path.handover.forget(now, group);
        }
    }

    /// A datagram meets the program in front of an aggregator. False if it goes no further.
    pub(super) fn passes_kernel_path(&mut self, node: u32, frame: Incoming<'_>) -> bool {
        let Incoming { link, bytes, is_forged, .. } = frame;
        let Some(kernel_path) = &self.nodes[node as usize].kernel_path else { return true };
        let DatagramPath { peer, own } = path(node, link);
        // Over what arrives, damaged or not: so it is the program's other checks that refuse it.
        let packet = packet(peer, own, [0; 12], Checksum::Full, bytes);
        let before = kernel_path.handover.counters();
        let (verdict, sent) = kernel_path.program.run(INTERFACE, &packet, false);
        let after = kernel_path.handover.counters();
        self.segments_in_kernel +=
            after.completed + after.gathered - before.completed - before.gathered;
        let accepted = |it: &Counters| it.taken + it.repeats + it.completed;
        if accepted(&after) > accepted(&before) && is_forged {
            let what = frames::decode(bytes).map_or_else(|error| error, |(it, _)| brief(&it));
            self.report(self.edge_key(link), Violation::ForgeryAccepted { what });
        }
        // A result from the parent; windows note nothing of requests.
        if after.completed > before.completed
            && let Ok((header, _)) = frames::decode(bytes)
        {
            self.link(link).windows.on_taken(&header.message);
        }
        for SentPacket { bytes, .. } in sent {
            let parsed = parse(&bytes);
            let (header, _) = frames::decode(parsed.frame).expect("the program sends frames");
            if parsed.to == MULTICAST_ADDRESS {
                self.multicast_frame(node, header.edge.group, parsed.frame.to_vec());
                continue;
            }
            let link = link_of(parsed.to);
            let end = match header.message {
                Message::Request(_) => End::Lower,
                _ => End::Upper,
            };
            self.note_sent(node, link, end, &header);
            self.send_datagram(link, end.other(), parsed.frame.to_vec());
        }
        verdict == Verdict::Pass
    }
}
