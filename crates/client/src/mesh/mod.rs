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
//!
//! Who was told ends its links, so an ended link alone blames nobody: what is unread is searched for
//! the reason first, on that link and then on the others. And a host goes only when what it said has
//! arrived, or half a second later. Who is blamed without a word is the host whose link ended: it
//! died, or its word was lost with it, or it was called after it had gone.

mod address;
mod choice;
mod contribution;
mod door;
mod failure;
mod peers;
mod schedules;
#[cfg(test)]
mod tests;
mod walk;

use std::time::{Duration, Instant};

use tributary_algorithms::Collective;
use tributary_transport::Sent;
use tributary_wire::frame::{Abort, AbortReason};
use tributary_wire::{Capability, Datatype, EndpointId, GroupId, Operator};

pub(crate) use address::own_address;
pub(crate) use choice::Choice;
pub(crate) use door::Door;

use crate::settings::AlgorithmChoice;
use failure::Failure;
use peers::Peers;
use schedules::Found;
use tributary_shm_collectives::Combine;
use walk::{Walk, Workspace};

/// Longest payload of one frame. Short enough for the second-level cache, long enough that system
/// calls don't count.
const FRAME_BYTES_MAX: u32 = 64 << 10;
/// How long a farewell may take: to leave this process, and after a failure to arrive.
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

    /// The identity of the mesh of each host's leader number `leader`.
    pub(crate) fn of_leader(self, leader: u32) -> Self {
        Self { group: GroupId(self.group.0.wrapping_add(leader)), ..self }
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
    /// The algorithm that was measured best, if any was.
    pub(crate) measured: AlgorithmChoice,
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
        let me = self.peers.me();
        let Found { index, is_new } =
            self.workspace.schedules.look_up(operation, me, self.hosts, || {
                let len_bytes = operation.elements * operation.datatype.size_bytes() as u64;
                let MeshOperation { collective, measured, .. } = *operation;
                self.choice.algorithm(collective, self.hosts, len_bytes, measured)
            });
        // SAFETY: the caller's promise.
        self.running =
            Some(unsafe { Walk::new(operation, me, index, self.started, &mut self.workspace) });
        self.started = self.started.wrapping_add(1);
        if !is_new {
            return Ok(());
        }
        // Links stay, so the hosts of a schedule are called once.
        let mut peers = self.workspace.schedules.peers(index);
        let called = peers.try_for_each(|host| self.peers.call(host));
        drop(peers);
        called.map_err(|failure| self.fail(failure))
    }

    /// Goes as far as it can without waiting. `true` once the operation is complete.
    pub(crate) fn poll(&mut self) -> Result<bool, Abort> {
        if let Some(abort) = self.failed {
            self.running = None;
            return Err(abort);
        }
        let Some(walk) = &mut self.running else { return Ok(true) };
        // A message counts as sent once its link has taken it, of which the kernel may have left a
        // rest; the walk may have gone on to wait for another host since. What is still left goes out
        // in a later round.
        let _ = self.peers.flush();
        match walk.advance(&mut self.peers, &mut self.workspace) {
            Ok(false) => Ok(false),
            Ok(true) => {
                self.workspace.unsent = self.running.take().map_or_else(Vec::new, Walk::into_room);
                Ok(true)
            }
            Err(failure) => Err(self.fail(failure)),
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
            && let Err(failure) = self.peers.check()
        {
            self.fail(failure);
        }
    }

    /// Tells the others that this host can't go on.
    pub(crate) fn abort(&mut self, reason: AbortReason) {
        if self.failed.is_none() {
            self.fail(Abort { reason, at_fault: EndpointId(self.peers.me()) }.into());
        }
    }

    /// Says that nothing is left to do here.
    pub(crate) fn leave(&mut self) {
        if self.failed.is_none() {
            self.peers.bid_farewell();
            wait_for_farewell(|| self.peers.flush() == Sent::Taken);
        }
    }

    fn fail(&mut self, failure: Failure) -> Abort {
        let abort = self.peers.explain(failure);
        self.running = None;
        self.failed = Some(abort);
        wait_for_farewell(|| self.peers.spread(abort));
        self.peers.end_untold();
        abort
    }
}

/// Tries until it succeeds, for as long as a farewell may take.
fn wait_for_farewell(mut is_said: impl FnMut() -> bool) {
    let deadline = Instant::now() + FAREWELL_TIMEOUT;
    while !is_said() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
}
