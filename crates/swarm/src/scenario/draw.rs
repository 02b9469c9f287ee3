//! Scenarios drawn from a seed.

use super::faults::Weather;
use super::{
    DatagramPlan, Fault, GroupPlan, JobPlan, MulticastPlan, NetworkPlan, NodePlan, OperationPlan,
    Scenario,
};
use crate::clocks::ClockPlan;
use std::net::Ipv4Addr;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use tributary_manager::{ManagerConfig, MulticastRange};
use tributary_protocol::StreamTerms;
use tributary_protocol::node::StreamLimits;
use tributary_protocol_testing::values::KERNELS;
use tributary_protocol_testing::workload::Mixture;
use tributary_topology::{Fabric, VertexId};
use tributary_wire::frame::Target;
use tributary_wire::{Datatype, Operator};

/// Bits of a partition's set of machines: hosts, aggregators and the manager.
const MACHINES_MAX: u32 = 40;

/// Separates the random numbers for what came later, so that older seeds keep most of their
/// scenarios.
const FURTHER_SEED: u64 = 0x6675_7274_6865_7221;

/// Separates the random numbers for groups that outlive their trees from all others of a seed.
const FAILOVER_SEED: u64 = 0x6661_696c_6f76_6572;

/// Separates the random numbers for exact sums from all others of a seed.
const EXACT_SEED: u64 = 0x6578_6163_7420_7375;

/// Separates the random numbers for kernel paths from all others of a seed.
const KERNEL_SEED: u64 = 0x6b65_726e_656c_7061;

/// Separates the random numbers for external results from all others of a seed.
const OUTSIDE_SEED: u64 = 0x6f75_7473_6964_6521;

impl Scenario {
    /// The scenario of a seed.
    pub(crate) fn draw(seed: u64) -> Self {
        let mut random = Pcg64::seed_from_u64(seed);
        let random = &mut random;
        let further = &mut Pcg64::seed_from_u64(seed ^ FURTHER_SEED);
        let has_further = further.random_bool(0.33);
        let is_large = has_further && further.random_bool(0.25);
        let hosts = random.random_range(2..=10);
        let switches = random.random_range(1..=6);
        let switches = if is_large { further.random_range(7..=20) } else { switches };
        let nodes: Vec<NodePlan> =
            (0..switches).map(|index| NodePlan::draw(random, index)).collect();
        let fabric = draw_fabric(random, switches, hosts);
        let network = NetworkPlan {
            delay_ns_max: [2_000, 20_000, 200_000][random.random_range(0..3)],
            link_frames: [1, 2, 4, 16][random.random_range(0..4)],
            think_ns_max: [1_000, 50_000, 500_000][random.random_range(0..3)],
            datagrams: random.random_bool(0.5).then(|| DatagramPlan::draw(random)),
            has_kernel_paths: false,
        };
        let has_multicast = network.datagrams.is_some_and(|plan| plan.multicast.is_some());
        let manager = ManagerConfig {
            multicast: has_multicast.then(|| draw_addresses(random)),
            osos_per_job_max: random.random_bool(0.2).then_some(8),
            install_timeout_ns: 5_000_000_000,
            ..ManagerConfig::default()
        };
        let mut jobs: Vec<JobPlan> =
            (0..random.random_range(1..=3)).map(|_| JobPlan::draw(random, hosts)).collect();
        let probe = JobPlan::probe(random, hosts);
        let machines = hosts + switches + 1;
        assert!(machines <= MACHINES_MAX, "a set of machines has a bit for each");
        let span_ns =
            [2_000_000, 3_000_000, 4_000_000, 6_000_000, 20_000_000][random.random_range(0..5)];
        let faults_max = [1, 4, 12][random.random_range(0..3)];
        let weather = Weather { faults_max, span_ns, machines };
        let mut faults = Fault::draw_all(random, weather);
        let mut clocks = vec![ClockPlan::default(); machines as usize];
        if has_further {
            faults = Fault::draw_further(further, weather, faults);
            clocks.fill_with(|| draw_clock(further));
        }
        let is_authenticated = has_further && further.random_bool(0.3);
        if is_authenticated {
            faults = Fault::draw_damage(further, weather, faults);
        }
        let kernel = &mut Pcg64::seed_from_u64(seed ^ KERNEL_SEED);
        let has_kernel_paths =
            network.datagrams.is_some() && !is_authenticated && kernel.random_bool(0.25);
        let is_plain = has_kernel_paths && kernel.random_bool(0.75);
        for job in jobs.iter_mut().filter(|_| !is_plain) {
            job.send_outside(&mut Pcg64::seed_from_u64(seed ^ OUTSIDE_SEED));
        }
        let exact = &mut Pcg64::seed_from_u64(seed ^ EXACT_SEED);
        if exact.random_bool(0.5) {
            jobs.iter_mut().for_each(|job| job.sum_exactly(exact));
        }
        let failover = &mut Pcg64::seed_from_u64(seed ^ FAILOVER_SEED);
        let mut nodes = nodes;
        if failover.random_bool(0.25) {
            faults = Fault::draw_losses(failover, weather, faults);
            jobs.iter_mut().for_each(JobPlan::survive);
            // A group goes back only into a tree that streams as the first one did.
            let streams = nodes[0].streams;
            nodes.iter_mut().for_each(|node| node.streams = streams);
        }
        let mut scenario = Self {
            seed,
            fabric,
            nodes,
            hosts,
            network,
            manager,
            is_authenticated,
            clocks,
            jobs,
            probe,
            faults,
        };
        if has_kernel_paths {
            scenario.put_kernel_paths(is_plain);
        }
        scenario
    }

    /// Puts kernel paths in front of aggregators. In a plain fabric, of which nothing is known, every group has one
    /// aggregator.
    fn put_kernel_paths(&mut self, is_plain: bool) {
        self.network.has_kernel_paths = true;
        if is_plain {
            self.fabric = Fabric::new();
        }
    }
}

impl DatagramPlan {
    fn draw(random: &mut Pcg64) -> Self {
        Self {
            takers: [1000, 1000, 700][random.random_range(0..3)],
            lost: [0, 10, 50, 250][random.random_range(0..4)],
            doubled: [0, 50, 300][random.random_range(0..3)],
            corrupted: [0, 0, 20][random.random_range(0..3)],
            straggle_ns_max: [1, 30_000, 3_000_000][random.random_range(0..3)],
            multicast: random.random_bool(0.6).then(|| MulticastPlan {
                without_multicast: [0, 0, 300, 1000][random.random_range(0..4)],
                nodes_subscribe: random.random_bool(0.5),
            }),
        }
    }
}

fn draw_addresses(random: &mut Pcg64) -> MulticastRange {
    MulticastRange {
        first: Ipv4Addr::new(239, 0, 0, 0),
        addresses: [1, 2, 64][random.random_range(0..3)],
        port: 9,
    }
}

/// Clocks of a site without time service: days apart, and up to 500 parts of a million fast.
fn draw_clock(random: &mut Pcg64) -> ClockPlan {
    const DAY_NS: u64 = 86_400_000_000_000;
    ClockPlan {
        starts_at: random.random_range(0..3 * DAY_NS),
        fast_ppm: random.random_range(0..=500),
    }
}

impl NodePlan {
    fn draw(random: &mut Pcg64, index: u32) -> Self {
        Self {
            name: format!("an{index}"),
            radix: [3, 4, 8, 16][random.random_range(0..4)],
            osos: [4, 8, 16, 64][random.random_range(0..4)],
            payload_max_bytes: [32, 64, 256][random.random_range(0..3)],
            streams: StreamLimits {
                trees: [0, 1, 2, 2][random.random_range(0..4)],
                window_max: [1, 2, 5][random.random_range(0..3)],
                chunk_bytes_max: [24, 64, 100][random.random_range(0..3)],
            },
        }
    }
}

/// A tree of switches with an aggregation node each, and hosts below any of them. Some hosts are
/// left out of the description; sometimes the whole description is empty.
fn draw_fabric(random: &mut Pcg64, switches: u32, hosts: u32) -> Fabric {
    let mut fabric = Fabric::new();
    if random.random_bool(0.1) {
        return fabric;
    }
    let mut made: Vec<VertexId> = Vec::new();
    for index in 0..switches {
        let switch = fabric.add_switch(&format!("s{index}")).expect("names differ");
        if !made.is_empty() {
            let above = made[random.random_range(0..made.len())];
            fabric.add_link(switch, above).expect("two switches");
        }
        fabric.add_aggregation_node(&format!("an{index}"), switch).expect("names differ");
        made.push(switch);
    }
    if random.random_bool(0.5) {
        fabric.prefer_root(&format!("an{}", random.random_range(0..switches)));
    }
    for index in 0..hosts {
        if random.random_bool(0.95) {
            let host = fabric.add_host(&format!("h{index}")).expect("names differ");
            let switch = made[random.random_range(0..made.len())];
            fabric.add_link(switch, host).expect("a host and a switch");
        }
    }
    fabric
}

impl JobPlan {
    /// Lets its groups outlive their trees. The host library sends no result to an external receiver alone.
    fn survive(&mut self) {
        for group in self.groups.iter_mut().filter(|group| group.gives_members_all_results()) {
            group.survives = true;
            // The host library runs the operations of a communicator one by one.
            group.overlap = 1;
        }
    }

    fn draw(random: &mut Pcg64, hosts: u32) -> Self {
        let size = random.random_range(1..=hosts.min(6));
        let mut own: Vec<u32> = (0..hosts).collect();
        shuffle(random, &mut own);
        own.truncate(size as usize);
        let groups =
            (0..random.random_range(1..=2)).map(|_| GroupPlan::draw(random, &own)).collect();
        Self { starts_at: random.random_range(0..2_000_000), hosts: own, groups }
    }

    /// Lets half of its sums of floats be exact ones.
    fn sum_exactly(&mut self, random: &mut Pcg64) {
        for operation in self.groups.iter_mut().flat_map(|group| &mut group.script) {
            if random.random_bool(0.5) {
                *operation = operation.with_exact_sums();
            }
        }
    }

    /// Sends some results to the external receiver too, or to it alone; never those of streams. No
    /// external receiver joins in the swarm, and no member may wait for one.
    fn send_outside(&mut self, random: &mut Pcg64) {
        for operation in self.groups.iter_mut().flat_map(|group| &mut group.script) {
            let may_go = operation.operator.is_reduction() && !operation.is_stream;
            if may_go && random.random_bool(0.15) {
                let target = operation.target.with_external_receiver();
                operation.target =
                    if random.random_bool(0.2) { Target::ExternalReceiver } else { target };
            }
        }
    }

    /// A job that every system must be able to serve: two members, small demands.
    fn probe(random: &mut Pcg64, hosts: u32) -> Self {
        let own = vec![random.random_range(0..hosts), random.random_range(0..hosts)];
        let mut group = GroupPlan::draw(random, &own);
        group.hosts.clone_from(&own);
        (group.osos, group.rounds, group.after_ns) = (2, 1, 0);
        group.script = (0..3).map(|_| group.draw_operation(random)).collect();
        // A stream lock that was never freed would block it.
        group.stream = Some(StreamTerms { chunk_bytes: 24, window: 2 });
        let sum = OperationPlan::allreduce(Operator::Sum, Datatype::F64, 20);
        group.script.push(OperationPlan { is_stream: true, ..sum });
        Self { starts_at: 0, hosts: own, groups: vec![group] }
    }
}

impl GroupPlan {
    fn draw(random: &mut Pcg64, hosts: &[u32]) -> Self {
        let mut own = hosts.to_vec();
        shuffle(random, &mut own);
        own.truncate(random.random_range(1..=own.len()));
        // Several members on one host, as with more than one channel.
        if random.random_bool(0.2) {
            own.extend_from_within(..);
        }
        let mut plan = Self {
            after_ns: random.random_range(0..1_000_000),
            hosts: own,
            osos: [1, 2, 3, 4, 8][random.random_range(0..5)],
            payload_max_bytes: [16, 32, 64, 256][random.random_range(0..4)],
            stream: random.random_bool(0.5).then(|| StreamTerms {
                chunk_bytes: random.random_range(8..=100),
                window: random.random_range(1..=5),
            }),
            overlap: random.random_range(1..=4),
            survives: false,
            rounds: if random.random_bool(0.2) { 2 } else { 1 },
            script: Vec::new(),
        };
        // Counters start 64 before their wrap, and a script of this length crosses it.
        let is_long = random.random_bool(0.04);
        let operations = if is_long { 72 } else { random.random_range(1..=8) };
        plan.script = (0..operations).map(|_| plan.draw_operation(random)).collect();
        if is_long {
            for operation in &mut plan.script {
                operation.elements = operation.elements.min(2);
            }
        }
        plan
    }

    fn draw_operation(&self, random: &mut Pcg64) -> OperationPlan {
        let mut below = |end| random.random_range(0..end);
        let mixture = Mixture {
            kernels: &KERNELS,
            members: self.hosts.len() as u32,
            segment_bytes: self.payload_max_bytes,
            short_of_eight: 4,
            segments_max: 10,
        };
        let plan = mixture.draw(&mut below);
        let is_stream = plan.elements > 0 && random.random_bool(0.5);
        // If the group is granted no streams, its vector goes in segments.
        let is_long = is_stream && random.random_bool(0.3);
        OperationPlan { elements: plan.elements << u32::from(is_long), is_stream, ..plan }
    }
}

fn shuffle(random: &mut Pcg64, numbers: &mut [u32]) {
    for index in (1..numbers.len()).rev() {
        numbers.swap(index, random.random_range(0..=index));
    }
}
