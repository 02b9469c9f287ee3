//! Scenarios: a fabric, its aggregators, jobs with groups and operations, and faults. All of it is data,
//! so that a failing scenario can be made smaller.

mod draw;
mod faults;

use super::clocks::ClockPlan;
use tributary_manager::ManagerConfig;
use tributary_protocol::StreamTerms;
use tributary_protocol::node::StreamLimits;
pub(super) use tributary_protocol_testing::workload::OperationPlan;
use tributary_topology::Fabric;
use tributary_wire::frame::Target;

pub use faults::FAULT_NAMES;
pub(super) use faults::{Disagreement, Fault, FaultKind, Intrusion, Offence, StreamTrouble};

/// Everything that a run depends on.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) seed: u64,
    pub(super) fabric: Fabric,
    pub(super) nodes: Vec<NodePlan>,
    /// Machines that run processes; aggregation nodes have their own machines.
    pub(super) hosts: u32,
    pub(super) network: NetworkPlan,
    pub(super) manager: ManagerConfig,
    /// Whether frames carry a code.
    pub(super) is_authenticated: bool,
    /// By machine: hosts, then aggregators, then the manager.
    pub(super) clocks: Vec<ClockPlan>,
    pub(super) jobs: Vec<JobPlan>,
    /// The probe job, started when all else has ended: the system must serve it.
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
    pub(super) streams: StreamLimits,
}

/// How links behave.
#[derive(Clone, Copy, Debug)]
pub(super) struct NetworkPlan {
    pub(super) delay_ns_max: u64,
    /// Frames that a link takes in each direction before it is full.
    pub(super) link_frames: usize,
    /// Longest time between two steps of a member.
    pub(super) think_ns_max: u64,
    /// None if everything travels over links.
    pub(super) datagrams: Option<DatagramPlan>,
    /// Whether datagrams meet the kernel path in front of some aggregators.
    pub(super) has_kernel_paths: bool,
}

/// Faults of datagrams, in parts of a thousand.
#[derive(Clone, Copy, Debug)]
pub(super) struct DatagramPlan {
    /// How many of the aggregators and members take datagrams.
    pub(super) takers: u32,
    pub(super) lost: u32,
    pub(super) doubled: u32,
    pub(super) corrupted: u32,
    /// How much longer than a link's frame a datagram may take.
    pub(super) straggle_ns_max: u64,
    /// None if no results are multicast.
    pub(super) multicast: Option<MulticastPlan>,
}

/// Faults of multicast results, besides those of all datagrams.
#[derive(Clone, Copy, Debug)]
pub(super) struct MulticastPlan {
    /// Members that receive no multicast, in parts of a thousand.
    pub(super) without_multicast: u32,
    /// Whether aggregators below the root receive multicast too.
    pub(super) nodes_subscribe: bool,
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
    /// How long after the job's admission it is requested.
    pub(super) after_ns: u64,
    /// The host of each member; all of them are among the job's.
    pub(super) hosts: Vec<u32>,
    pub(super) osos: u16,
    pub(super) payload_max_bytes: u32,
    /// The streams that it requests; none for none.
    pub(super) stream: Option<StreamTerms>,
    /// Operations a member has under way at once.
    pub(super) overlap: usize,
    /// Whether its members go on over direct links when its tree is lost.
    pub(super) survives: bool,
    /// How often it is set up, used and left.
    pub(super) rounds: u32,
    pub(super) script: Vec<OperationPlan>,
}

impl Scenario {
    /// A job of the scenario; the last number is the probe.
    pub(super) fn job(&self, job: usize) -> &JobPlan {
        self.jobs.get(job).unwrap_or(&self.probe)
    }

    /// Whether it has faults that make things slow, so that no bound on time holds.
    pub(super) fn is_slow(&self) -> bool {
        self.faults.iter().any(|fault| {
            matches!(
                fault.kind,
                FaultKind::Slow { .. }
                    | FaultKind::Partition { .. }
                    | FaultKind::OneWay { .. }
                    | FaultKind::ClockJump { .. }
            )
        })
    }

    /// Whether frames must be kept, because one may be replayed.
    pub(super) fn replays(&self) -> bool {
        self.faults.iter().any(|fault| {
            matches!(fault.kind, FaultKind::Offence { offence: Offence::Replay { .. }, .. })
        })
    }
}

impl GroupPlan {
    /// Whether any of its results goes to the external receiver.
    pub(super) fn has_external_receiver(&self) -> bool {
        self.script.iter().any(|operation| operation.target.has_external_receiver())
    }

    /// Whether none of its results goes to the external receiver alone.
    fn gives_members_all_results(&self) -> bool {
        self.script.iter().all(|operation| operation.target != Target::ExternalReceiver)
    }

    /// Whether its operations name only its members.
    pub(super) fn names_only_members(&self) -> bool {
        let members = self.hosts.len() as u32;
        self.script.iter().all(|operation| {
            let target = operation.target.member().map_or(0, |member| member.0);
            operation.source.0 < members && target < members
        })
    }
}
