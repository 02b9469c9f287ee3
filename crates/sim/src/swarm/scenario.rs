//! What a seed stands for: a fabric, nodes on it, jobs with their groups and operations, and what
//! goes wrong when. All of it is data, so that a failing scenario can be made smaller.

mod draw;
mod faults;

use tributary_protocol::endpoint::OperationSpec;
use tributary_protocol::manager::ManagerConfig;
use tributary_topology::Fabric;
use tributary_wire::frame::Target;
use tributary_wire::{Datatype, EndpointId, Operator};

pub use faults::FAULT_NAMES;
pub(super) use faults::{Disagreement, Fault, FaultKind, Intrusion, Offence};

/// Everything a run depends on.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) seed: u64,
    pub(super) fabric: Fabric,
    pub(super) nodes: Vec<NodePlan>,
    /// Machines that run processes; aggregation nodes have machines of their own.
    pub(super) hosts: u32,
    pub(super) network: NetworkPlan,
    pub(super) manager: ManagerConfig,
    pub(super) jobs: Vec<JobPlan>,
    /// Started when all else is over: the system has to serve it.
    pub(super) probe: JobPlan,
    pub(super) faults: Vec<Fault>,
}

/// An aggregation node.
#[derive(Clone, Debug)]
pub(super) struct NodePlan {
    pub(super) name: String,
    pub(super) radix: u16,
    pub(super) osos: u32,
    pub(super) payload_max_bytes: u32,
}

/// How links behave.
#[derive(Clone, Copy, Debug)]
pub(super) struct NetworkPlan {
    pub(super) delay_ns_max: u64,
    /// Frames a link takes before it is full, in each direction.
    pub(super) link_frames: usize,
    /// Longest time between two steps of a member.
    pub(super) think_ns_max: u64,
    /// None where everything travels over links.
    pub(super) datagrams: Option<DatagramPlan>,
}

/// What becomes of datagrams, in parts of a thousand.
#[derive(Clone, Copy, Debug)]
pub(super) struct DatagramPlan {
    /// How many of the nodes and members take datagrams.
    pub(super) takers: u32,
    pub(super) lost: u32,
    pub(super) doubled: u32,
    pub(super) corrupted: u32,
    /// How much longer than a link's frame a datagram may take.
    pub(super) straggle_ns_max: u64,
}

/// A job.
#[derive(Clone, Debug)]
pub(super) struct JobPlan {
    pub(super) starts_at: u64,
    /// Where its processes run; the first holds the lease.
    pub(super) hosts: Vec<u32>,
    pub(super) groups: Vec<GroupPlan>,
}

/// One of a job's groups.
#[derive(Clone, Debug)]
pub(super) struct GroupPlan {
    /// How long after the job's admission it is asked for.
    pub(super) after_ns: u64,
    /// The host of each member; all of them are among the job's.
    pub(super) hosts: Vec<u32>,
    pub(super) osos: u16,
    pub(super) payload_max_bytes: u32,
    /// Operations a member has under way at once.
    pub(super) overlap: usize,
    /// How often it is set up, used and left.
    pub(super) rounds: u32,
    pub(super) script: Vec<OperationPlan>,
}

/// One collective operation, as all members mean it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct OperationPlan {
    pub(super) operator: Operator,
    pub(super) datatype: Datatype,
    pub(super) elements: u64,
    pub(super) target: Target,
    /// The member that brings a broadcast's data.
    pub(super) source: u32,
}

impl OperationPlan {
    /// What `member` tells its endpoint.
    pub(super) fn spec(&self, member: u32) -> OperationSpec {
        let (contributes, receives) = match self.operator {
            Operator::Barrier => return OperationSpec::BARRIER,
            Operator::Broadcast => (member == self.source, member != self.source),
            _ => (true, self.target == Target::All || self.is_for(member)),
        };
        OperationSpec {
            operator: self.operator,
            datatype: self.datatype,
            elements: self.elements,
            target: self.target,
            contributes,
            receives,
        }
    }

    pub(super) fn len_bytes(&self) -> usize {
        self.elements as usize * self.datatype.size_bytes()
    }

    fn is_for(&self, member: u32) -> bool {
        self.target == Target::Member(EndpointId(member))
    }
}

impl Scenario {
    /// A job of the scenario, the probe last.
    pub(super) fn job(&self, job: usize) -> &JobPlan {
        self.jobs.get(job).unwrap_or(&self.probe)
    }

    /// Whether something in it only makes things slow, so that no bound on time holds.
    pub(super) fn is_slow(&self) -> bool {
        self.faults
            .iter()
            .any(|fault| matches!(fault.kind, FaultKind::Slow { .. } | FaultKind::Partition { .. }))
    }

    /// Whether frames have to be kept so that a replay can be made of one.
    pub(super) fn replays(&self) -> bool {
        self.faults.iter().any(|fault| {
            matches!(fault.kind, FaultKind::Offence { offence: Offence::Replay { .. }, .. })
        })
    }
}

impl GroupPlan {
    /// Whether its operations name none but its members.
    pub(super) fn names_only_members(&self) -> bool {
        let members = self.hosts.len() as u32;
        self.script.iter().all(|operation| {
            let target = operation.target.member().map_or(0, |member| member.0);
            operation.source < members && target < members
        })
    }
}
