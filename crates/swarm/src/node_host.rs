//! An aggregation node's process: the machine, its memory, and what its daemon keeps beside them.

use std::collections::VecDeque;

use tributary_kernel_path::Handover;
use tributary_kernel_path::user_space::UserSpace;
use tributary_protocol::node::{Node, NodeConfig, PortId};
use tributary_protocol_testing::{NodeMemory, Ports};
use tributary_wire::control::{GroupInstall, HeldGroup, NodeAddress, NodeOrder, NodeRegistration};
use tributary_wire::frame::Versions;
use tributary_wire::{Epoch, GroupId};

use super::agenda::End;
use super::fault_record::Key;
use super::locks::Locks;
use super::scenario::NodePlan;
use super::timeouts::JOIN_TIMEOUT_NS;

/// An aggregator and its driver's state.
pub(super) struct NodeHost {
    pub(super) config: NodeConfig,
    pub(super) machine: Node,
    pub(super) memory: NodeMemory,
    pub(super) is_alive: bool,
    /// How often it was restarted.
    pub(super) life: u32,
    /// The link, and the end of it, at each port number.
    pub(super) ports: Ports<(u32, End)>,
    pub(super) timer_at: Option<u64>,
    pub(super) removals: VecDeque<(u64, GroupId, Epoch)>,
    /// Its conversation with the manager.
    pub(super) session: Option<u32>,
    pub(super) inbox: VecDeque<NodeOrder>,
    /// The group for which it is connecting to its parent.
    pub(super) connecting: Option<GroupInstall>,
    /// Its stream locks as seen from outside.
    pub(super) locks: Locks,
    pub(super) takes_datagrams: bool,
    pub(super) kernel_path: Option<Box<KernelPath>>,
    /// Its groups.
    pub(super) installed: Vec<Installed>,
}

/// A group on an aggregator, as the next manager is told of it.
pub(super) struct Installed {
    pub(super) key: Key,
    pub(super) held: HeldGroup,
}

/// The program in front of an aggregator, and what it has in common with the machine.
pub(super) struct KernelPath {
    pub(super) program: UserSpace,
    pub(super) handover: Handover,
}

impl NodeHost {
    pub(super) fn new(plan: &NodePlan, frame_versions: Versions) -> Self {
        let config = NodeConfig {
            frame_versions,
            radix_max: plan.radix,
            osos_max: plan.osos,
            groups_max: 64,
            payload_max_bytes: plan.payload_max_bytes,
            join_timeout_ns: JOIN_TIMEOUT_NS,
            streams: plan.streams,
        };
        Self {
            config,
            machine: Node::new(config),
            memory: NodeMemory::default(),
            is_alive: true,
            life: 0,
            ports: Ports::default(),
            timer_at: None,
            removals: VecDeque::new(),
            session: None,
            inbox: VecDeque::new(),
            connecting: None,
            locks: Locks::default(),
            takes_datagrams: false,
            kernel_path: None,
            installed: Vec::new(),
        }
    }

    /// A process of the same name in its place, without any of its state.
    pub(super) fn start_anew(&mut self, plan: &NodePlan, frame_versions: Versions) {
        let life = self.life;
        *self = Self::new(plan, frame_versions);
        self.life = life;
    }

    /// Gives a link's end the lowest free port.
    pub(super) fn plug(&mut self, link: u32, end: End) -> PortId {
        let port = self.ports.free();
        self.ports.plug(port, (link, end));
        port
    }

    pub(super) fn links(&self) -> impl Iterator<Item = (u32, End)> {
        self.ports.iter()
    }

    pub(super) fn link_at(&self, port: PortId) -> Option<(u32, End)> {
        self.ports.at(port)
    }
}

impl KernelPath {
    pub(super) fn new() -> Self {
        let (program, tables) = UserSpace::new();
        Self { program, handover: Handover::new(tables) }
    }
}

pub(super) fn registration(
    plan: &NodePlan,
    node: u32,
    frame_versions: Versions,
) -> NodeRegistration {
    // The address contains the aggregator's number, so that a process that connects finds the aggregator.
    let address = NodeAddress { tcp: node.to_string(), machine: plan.name.clone(), shm: None };
    NodeRegistration {
        name: plan.name.clone(),
        address,
        radix: plan.radix,
        osos: plan.osos,
        payload_max_bytes: plan.payload_max_bytes,
        frame_versions,
        stream: plan.streams.capacity(),
        kernel: None,
    }
}

/// The aggregator at an address.
pub(super) fn node_at(address: &NodeAddress) -> u32 {
    address.tcp.parse().expect("addresses are numbers of nodes")
}
