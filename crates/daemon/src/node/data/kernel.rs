//! Frames for the machine, where a program inside the kernel takes some of them before.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::time::Instant;

use tributary_kernel_path::{Arrival, DatagramPath};
use tributary_protocol::node::{FrameError, Node, PortId, Wait};
use tributary_wire::GroupId;

use super::{DataLoop, multicast_address};
use crate::node::arenas::Arenas;
use crate::node::kernel::KernelPath;
use crate::node::links::{AnyLink, Links};

/// Hands the machine a frame, with what the kernel path has for the same segment.
pub(super) fn hand(
    kernel: &mut Option<KernelPath>,
    machine: &mut Node,
    arrival: Arrival<'_>,
    arenas: &mut Arenas,
) -> Result<(), FrameError> {
    match kernel {
        Some(kernel) => kernel.handover.handle_frame(machine, arrival, arenas),
        None => {
            let Arrival { now, port, carrier, header, payload } = arrival;
            machine.handle_frame(now, port, carrier, header, payload, arenas)
        }
    }
}

impl DataLoop {
    /// Lets the kernel path serve a group as soon as it can: all children have joined and have told where
    /// they take datagrams, and datagrams reach the parent.
    pub(super) fn offer_to_kernel(&mut self, group: GroupId) {
        let now = self.time(Instant::now());
        let Self { kernel, machine, links, installed, datagrams, multicast, .. } = self;
        let (Some(kernel), Some(socket)) = (kernel, datagrams) else { return };
        // The codes of authenticated frames are left to the process.
        if installed.is_authenticated(group) {
            return;
        }
        let Ok(SocketAddr::V4(own)) = socket.address() else { return };
        let path = |port| datagram_path(links, port, own.port());
        let address = match multicast_address(multicast, group) {
            Some(SocketAddr::V4(address)) => Some(address),
            _ => None,
        };
        match kernel.handover.admit(now, machine, group, address, path) {
            Ok(true) => tracing::debug!("group {group}: the kernel path takes short segments"),
            Ok(false) => {}
            Err(error) => tracing::info!("group {group}: the process takes all: {error}"),
        }
    }

    /// A child has told where it takes datagrams, or datagrams reach the parent.
    pub(super) fn offer_group_of(&mut self, port: PortId) {
        if let Some(group) = self.machine.kernel_path().group_of_link(port) {
            self.offer_to_kernel(group);
        }
    }

    /// Datagrams do not reach a parent, so the process sends everything over the link.
    pub(super) fn end_below(&mut self, parent: PortId) {
        let now = self.time(Instant::now());
        let Self { kernel, machine, arenas, .. } = self;
        if let Some(kernel) = kernel {
            kernel.handover.end_below(machine, parent, now, arenas);
        }
    }

    /// What groups wait for, in the machine and in the kernel; one wait a group.
    pub(super) fn waits(&self) -> impl Iterator<Item = Wait> {
        let mut waits: HashMap<GroupId, Wait> =
            self.machine.waits().map(|wait| (wait.group, wait)).collect();
        for wait in self.kernel.iter().flat_map(|kernel| kernel.handover.waits(&self.machine)) {
            match waits.get(&wait.group) {
                Some(known) if !wait.is_before(known) => {}
                _ => drop(waits.insert(wait.group, wait)),
            }
        }
        waits.into_values()
    }

    /// A group is gone.
    pub(super) fn forget_in_kernel(&mut self, group: GroupId) {
        let now = self.time(Instant::now());
        if let Some(kernel) = &mut self.kernel {
            kernel.handover.forget(now, group);
        }
    }
}

/// The two ends of the datagrams of a child or the parent, if they are known and of IPv4.
fn datagram_path(links: &Links, port: PortId, own_port: u16) -> Option<DatagramPath> {
    let entry = links.peek(port)?;
    let Some(SocketAddr::V4(peer)) = entry.datagram_peer else { return None };
    let AnyLink::Tcp(link) = &entry.link else { return None };
    match link.local_address().ok()?.ip() {
        IpAddr::V4(own) => Some(DatagramPath { peer, own: SocketAddrV4::new(own, own_port) }),
        IpAddr::V6(_) => None,
    }
}
