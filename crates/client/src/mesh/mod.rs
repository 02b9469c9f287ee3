//! The hosts of one communicator connected to each other directly: host algorithms over links.
//!
//! Owns the links between leaders, and the walk of a [`Schedule`](tributary_algorithms::Schedule)
//! over them. Must not know the tree, the other ranks of a host, or how the leaders' addresses were
//! exchanged (`communicator::setup` does that). Hosts are numbered as in the communicator's placement,
//! and a reduction's operands come in that order or a cyclic one: a function of the algorithm, the
//! number of hosts and the length, never of timing. So equal inputs give equal bits, on all hosts and
//! all runs.
//!
//! # Links
//!
//! Two hosts connect when the first operation needs it; the one with the lower number calls the
//! other, before it does anything else for that operation. So a host that waits to be called waits for
//! a host to come to the operation, which it must do anyhow. A caller's first frame is a `Join` with
//! its number and the communicator's secret; every frame of either side carries the secret.
//!
//! # Failure
//!
//! Who finds a link ended by a host that didn't say `Leave` tells all it is connected to, and they
//! pass it on, naming the host at fault; who waits long looks at all its links. A host that waits for
//! nothing learns it at its next operation.

mod address;
mod choice;
mod door;
mod peers;
#[cfg(test)]
mod tests;
mod walk;

use std::time::{Duration, Instant};

use tributary_algorithms::{Algorithm, Collective};
use tributary_transport::Sent;
use tributary_wire::frame::{Abort, AbortReason};
use tributary_wire::{Capability, Datatype, EndpointId, GroupId, Operator};

pub(crate) use address::own_address;
pub(crate) use choice::Choice;
pub(crate) use door::Door;

use crate::host::Combine;
use peers::Peers;
use walk::{Walk, Workspace};

/// Longest payload of one frame. Short enough for the second-level cache, long enough that system
/// calls don't count.
const FRAME_BYTES_MAX: u32 = 64 << 10;
/// How long a farewell may take to leave this process.
const FAREWELL_TIMEOUT: Duration = Duration::from_millis(500);

/// What tells one communicator's mesh from every other, and its members from strangers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    group: GroupId,
    secret: Capability,
}

impl Identity {
    /// Random bytes that an identity is made from.
    pub(crate) const BYTES: usize = 20;

    pub(crate) fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let (group, secret) = bytes.split_at(4);
        let group = u32::from_le_bytes(group.try_into().expect("split at four"));
        let secret = secret.try_into().expect("sixteen are left");
        Self { group: GroupId(group), secret: Capability::from_bytes(secret) }
    }
}

/// One operation between the hosts.
#[derive(Clone, Copy)]
pub(crate) struct MeshOperation {
    /// Its root, if it has one, is a host.
    pub(crate) collective: Collective,
    pub(crate) operator: Operator,
    pub(crate) datatype: Datatype,
    pub(crate) elements: u64,
    /// For reductions.
    pub(crate) kernel: Option<&'static dyn Combine>,
    /// This host's contribution, unless it is in the vector already.
    pub(crate) source: *const u8,
    /// Room for the whole vector at every host: working space where there is no result.
    pub(crate) vector: *mut u8,
}

/// This host's place among the others.
pub(crate) struct Mesh {
    hosts: u32,
    peers: Peers,
    choice: Choice,
    running: Option<Walk>,
    workspace: Workspace,
    /// Operations started, which numbers them alike at all hosts.
    started: u32,
    failed: Option<Abort>,
}

// SAFETY: the pointers are followed only while an operation runs, whose buffers its caller has
// promised to every thread (`Communicator::run` and `start`).
unsafe impl Send for Mesh {}

impl Mesh {
    /// The host `me` among those at `addresses`, with an open door at its own.
    pub(crate) fn new(
        me: u32,
        identity: Identity,
        door: Door,
        addresses: Vec<std::net::SocketAddr>,
        choice: Choice,
    ) -> Self {
        Self {
            hosts: addresses.len() as u32,
            peers: Peers::new(me, identity, door, addresses),
            choice,
            running: None,
            workspace: Workspace::default(),
            started: 0,
            failed: None,
        }
    }

    /// The algorithm that such an operation takes here.
    pub(crate) fn algorithm(&self, collective: Collective, len_bytes: u64) -> Algorithm {
        self.choice.algorithm(collective, self.hosts, len_bytes)
    }

    /// Starts an operation.
    ///
    /// # Safety
    /// The buffers stay valid, and nobody else uses them, until [`Mesh::poll`] has said that the
    /// operation is over, or has failed.
    pub(crate) unsafe fn start(&mut self, operation: &MeshOperation) -> Result<(), Abort> {
        debug_assert!(self.running.is_none(), "operations of a communicator run one by one");
        if let Some(abort) = self.failed {
            return Err(abort);
        }
        let len_bytes = operation.elements * operation.datatype.size_bytes() as u64;
        let algorithm = self.algorithm(operation.collective, len_bytes);
        // SAFETY: the caller's promise.
        let walk =
            unsafe { Walk::new(algorithm, operation, self.peers.me(), self.hosts, self.started) };
        let walk = walk.with_room(std::mem::take(&mut self.workspace.unsent));
        self.started = self.started.wrapping_add(1);
        let called = walk.peers().try_for_each(|host| self.peers.call(host));
        self.running = Some(walk);
        called.map_err(|abort| self.fail(abort))
    }

    /// Goes as far as it can without waiting. `true` once the operation is complete.
    pub(crate) fn poll(&mut self) -> Result<bool, Abort> {
        if let Some(abort) = self.failed {
            self.running = None;
            return Err(abort);
        }
        let Some(walk) = &mut self.running else { return Ok(true) };
        match walk.advance(&mut self.peers, &mut self.workspace) {
            Ok(false) => Ok(false),
            Ok(true) => {
                self.workspace.unsent = self.running.take().map_or_else(Vec::new, Walk::into_room);
                Ok(true)
            }
            Err(abort) => Err(self.fail(abort)),
        }
    }

    /// Sleeps until what the operation waits for may have come, or for `time`.
    pub(crate) fn sleep(&mut self, time: Duration) {
        let Some(walk) = &self.running else { return };
        self.peers.sleep(walk.awaited(), walk.unsent(), time);
    }

    /// Looks whether a host failed that nothing is awaited from just now. The next poll tells.
    pub(crate) fn check_peers(&mut self) {
        if self.failed.is_none()
            && let Err(abort) = self.peers.check()
        {
            self.fail(abort);
        }
    }

    /// Tells the others that this host can't go on.
    pub(crate) fn abort(&mut self, reason: AbortReason) {
        if self.failed.is_none() {
            self.fail(Abort { reason, at_fault: EndpointId(self.peers.me()) });
        }
    }

    /// Says that nothing is left to do here.
    pub(crate) fn leave(&mut self) {
        if self.failed.is_none() {
            self.peers.bid_farewell(None);
            self.flush();
        }
    }

    fn fail(&mut self, abort: Abort) -> Abort {
        self.running = None;
        self.failed = Some(abort);
        self.peers.bid_farewell(Some(abort));
        self.flush();
        abort
    }

    fn flush(&mut self) {
        let deadline = Instant::now() + FAREWELL_TIMEOUT;
        while self.peers.flush() == Sent::Full && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
