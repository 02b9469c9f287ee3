//! One machine: processes and aggregation nodes that share its cores.
//!
//! In [`crate::world`] every process has a core of its own, as on a cluster. On a laptop, a test
//! machine, or under `tributary run`, ranks and nodes share a few cores and speak over the machine's
//! own network stack. What an operation takes is then system calls that one core makes one after the
//! other, and switches between those who make them. This module owns that other model of time: tasks
//! that make system calls on shared cores (`kernel`), and which calls a rank in the tree, a rank in
//! the mesh and a node make (`tree`, `mesh`, `node`), as `client` and `daemon` do. The machines of the
//! protocol, the manager's grant and the schedules are the same as everywhere.
//!
//! No cost here depends on the number of endpoints, the length or the way: each is one kind of system
//! call, measured alone (`tributary tune --measure`). Start at [`Setting::allreduce`].

mod costs;
mod kernel;
mod mesh;
mod node;
mod routine;
#[cfg(test)]
mod tests;
mod tree;

use tributary_algorithms::{Algorithm, Collective, Unsupported};
use tributary_protocol::{endpoint, node as aggregation};
use tributary_topology::{FabricError, two_level};

use crate::fabric::Vertex;
use crate::measure::Samples;
use crate::preset::Preset;
use crate::system::{System, SystemError};
use crate::world::{FarEnd, Nothing, Parts, Terms};
use costs::SystemCosts;
use kernel::{Kernel, Outcome, SocketId};
use mesh::MeshRank;
use node::{NodePort, NodeTask};
use routine::Routine;
use tree::{Patience, TreeRank};

/// Outstanding operations that a communicator asks for, as the client does by default.
const OSOS: u16 = 8;

/// What joins the endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joint {
    /// Aggregation nodes: a root and so many leaves below it.
    Tree {
        /// How many; with none, endpoints hang from the root.
        leaves: u16,
    },
    /// A host algorithm over direct links. Barriers take its form, or dissemination where it has none.
    Mesh {
        /// Which.
        algorithm: Algorithm,
    },
}

/// A benchmark on one machine: a barrier before each operation, and every process times its own part.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Processes, each a host to the others.
    pub endpoints: u32,
    /// What joins them.
    pub joint: Joint,
    /// Seed of the jitter.
    pub seed: u64,
}

/// Why a machine could not be simulated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MachineError {
    /// The preset says nothing of cores that are shared.
    #[error("preset `{0}` has no table `machine`: it describes hosts with a core for each process")]
    NoMachine(String),
    /// The preset's machine has no core.
    #[error("preset `{0}` has a machine without a core")]
    NoCore(String),
    /// The tree could not be set up.
    #[error(transparent)]
    System(#[from] SystemError),
    /// Two nodes or hosts have one name: a defect of this program.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The algorithm has no such form.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// An aggregation node refused a frame: a defect of this program.
    #[error("an aggregation node refused a frame: {0}")]
    Node(aggregation::FrameError),
    /// A member refused a frame: a defect of this program.
    #[error("a member refused a frame: {0}")]
    Member(endpoint::FrameError),
    /// A member could not start its operation: a defect of this program.
    #[error("a member can't start: {0}")]
    Start(endpoint::StartError),
    /// Everything came to rest and somebody still waits: a defect of this program.
    #[error("{waiting} processes never finished")]
    Stuck {
        /// How many wait.
        waiting: usize,
    },
}

impl Setting {
    /// Runs `operations` allreduces of `bytes` bytes of 32-bit elements.
    ///
    /// # Errors
    /// [`MachineError`].
    pub fn allreduce(
        &self,
        preset: &Preset,
        bytes: usize,
        operations: u32,
    ) -> Result<Samples, MachineError> {
        let elements = bytes.div_ceil(4) as u64;
        self.run(preset, &Routine::new(operations, elements), operations)
    }

    /// Runs `operations` barriers, one right behind the other.
    ///
    /// # Errors
    /// [`MachineError`].
    pub fn barrier(&self, preset: &Preset, operations: u32) -> Result<Samples, MachineError> {
        self.run(preset, &Routine::barriers(operations), operations)
    }

    fn run(
        &self,
        preset: &Preset,
        routine: &Routine,
        operations: u32,
    ) -> Result<Samples, MachineError> {
        let Outcome { times, .. } = self.simulate(preset, routine)?;
        let mut samples = Samples::default();
        for operation in 0..operations as usize {
            let of_all: Vec<f64> = times.iter().map(|rank| rank[operation].as_us()).collect();
            samples.add(&of_all);
        }
        Ok(samples)
    }

    fn simulate(&self, preset: &Preset, routine: &Routine) -> Result<Outcome, MachineError> {
        let kernel = Kernel::new(SystemCosts::new(preset)?, self.seed);
        match self.joint {
            Joint::Tree { leaves } => in_tree(kernel, self.granted(preset, leaves)?, routine),
            Joint::Mesh { algorithm } => self.in_mesh(kernel, algorithm, routine),
        }
    }

    /// The machines of a group that the manager has granted on the tree that an embedded fabric has.
    fn granted(&self, preset: &Preset, leaves: u16) -> Result<Parts<Nothing>, MachineError> {
        let Some(nodes) = &preset.aggregation else {
            return Err(SystemError::NoAggregation(preset.name.clone()).into());
        };
        let names: Vec<String> = (0..self.endpoints).map(|host| format!("host{host}")).collect();
        let fabric = two_level(leaves, &names)?;
        let mut system = System::<Nothing>::described(preset, &fabric, self.seed)?;
        system.world.silence();
        let processes: Vec<_> = (0..self.endpoints)
            .map(Vertex)
            .map(|host| (system.world.add_process(host), host))
            .collect();
        let payload_max_bytes = nodes.payload_max.bytes() as u32;
        system.form(&processes, Terms { osos: OSOS, payload_max_bytes, multicast: false })?;
        Ok(system.world.into_parts())
    }

    fn in_mesh(
        &self,
        mut kernel: Kernel,
        algorithm: Algorithm,
        routine: &Routine,
    ) -> Result<Outcome, MachineError> {
        let ranks = self.endpoints as usize;
        // inputs[rank][peer]: where `rank` reads what `peer` sends.
        let inputs: Vec<Vec<SocketId>> =
            (0..ranks).map(|rank| (0..ranks).map(|_| kernel.add_socket(rank)).collect()).collect();
        for (rank, own) in inputs.iter().enumerate() {
            let outputs = inputs.iter().map(|of_peer| of_peer[rank]).collect();
            let task = MeshRank::new(
                rank as u32,
                algorithm,
                routine.clone(),
                own.clone(),
                outputs,
                Patience::new(ranks, kernel.cores()),
            );
            task.supports(Collective::Allreduce)?;
            kernel.add_task(task, false);
        }
        kernel.run(ranks)
    }
}

fn in_tree(
    mut kernel: Kernel,
    parts: Parts<Nothing>,
    routine: &Routine,
) -> Result<Outcome, MachineError> {
    kernel.begin_at(parts.at);
    // Ranks are the first tasks, nodes follow; each reads from sockets of its own.
    let ranks = parts.members.len();
    let at_rank: Vec<SocketId> = (0..ranks).map(|rank| kernel.add_socket(rank)).collect();
    let patience = Patience::new(ranks, kernel.cores());
    let at_node: Vec<Vec<SocketId>> = (ranks..)
        .zip(&parts.nodes)
        .map(|(task, node)| node.ports.iter().map(|_| kernel.add_socket(task)).collect())
        .collect();
    for (member, &input) in parts.members.into_iter().zip(&at_rank) {
        let output = at_node[member.node.0 as usize][member.port.0 as usize];
        kernel.add_task(
            TreeRank::new(member.machine, routine.clone(), input, output, patience),
            false,
        );
    }
    for (node, inputs) in parts.nodes.into_iter().zip(&at_node) {
        let port = |(&input, far): (&SocketId, &FarEnd)| NodePort {
            input,
            output: match *far {
                FarEnd::Member(member) => at_rank[member.0 as usize],
                FarEnd::Node(above, port) => at_node[above.0 as usize][port.0 as usize],
            },
        };
        let ports = inputs.iter().zip(&node.ports).map(port).collect();
        kernel.add_task(NodeTask::new(node.machine, node.arenas, ports), true);
    }
    kernel.run(ranks)
}
