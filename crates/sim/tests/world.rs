//! Simulated systems as a whole: their results are right, repeatable, and within physical bounds.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use tributary_algorithms::CollectiveKind;
use tributary_protocol::StreamTerms;
use tributary_protocol::endpoint::OperationSpec;
use tributary_sim::engine::Picos;
use tributary_sim::fabric::Vertex;
use tributary_sim::measure::{HostRun, TreeBenchmark, choose_algorithm, is_refusal, spread_hosts};
use tributary_sim::preset::{self, Preset};
use tributary_sim::system::System;
use tributary_sim::world::{RealPayload, Terms};
use tributary_wire::frame::Target;
use tributary_wire::{Datatype, Operator};

fn edr() -> Preset {
    preset::read_shipped("edr-sharp").unwrap()
}

fn benchmark(hosts: u32) -> TreeBenchmark {
    TreeBenchmark {
        hosts: spread_hosts(hosts, 128),
        communicators: 1,
        osos: 4,
        osos_per_job: None,
        multicast: true,
        seed: Some(3),
    }
}

/// FNV-1a over every bit of every time.
fn hash(times: impl Iterator<Item = f64>) -> u64 {
    let bytes = times.flat_map(|time| time.to_bits().to_le_bytes());
    bytes.fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    })
}

fn run_hash(seed: u64) -> u64 {
    let benchmark = TreeBenchmark { seed: Some(seed), communicators: 2, ..benchmark(17) };
    let mut run = benchmark.set_up(&edr()).unwrap();
    let tree = [8, 700].map(|bytes| run.allreduce(bytes, 20).unwrap().summary());
    let hosts: Vec<Vertex> = spread_hosts(17, 128);
    let algorithm = choose_algorithm(&edr(), CollectiveKind::Allreduce, 8, 128);
    let mut run = HostRun::set_up(&edr(), &hosts, algorithm, Some(seed)).unwrap();
    let host = [8, 4096].map(|bytes| run.allreduce(bytes, 20).unwrap().summary());
    hash(tree.into_iter().chain(host).flat_map(|summary| {
        let quartiles = [summary.operations, summary.processes].map(|all| all.to_array());
        [summary.avg].into_iter().chain(quartiles.into_iter().flatten()).collect::<Vec<_>>()
    }))
}

#[test]
fn a_seed_determines_every_bit() {
    assert_eq!(run_hash(5), run_hash(5));
    assert_ne!(run_hash(5), run_hash(6));
}

/// Asserts that every member has the wrapping sum of 32-bit integers.
fn assert_sums(hosts: u32, elements: usize, multicast: bool) {
    let system = System::<RealPayload>::new(&edr(), 11, None).unwrap();
    let terms = Terms { osos: 3, payload_max_bytes: 256, multicast, stream: None };
    assert_sums_in(system, terms, hosts, elements);
}

/// The same in a system with a group of these terms; as a stream if they have streams.
fn assert_sums_in(mut system: System<RealPayload>, terms: Terms, hosts: u32, elements: usize) {
    let processes: Vec<_> = spread_hosts(hosts, 128)
        .into_iter()
        .map(|host| (system.world.add_process(host), host))
        .collect();
    let members = system.form(&processes, terms).unwrap();
    let value = |member: usize, element: usize| {
        (member as u32 + 1).wrapping_mul(2_654_435_761).wrapping_add(element as u32 * 97)
    };
    for (index, &member) in members.iter().enumerate() {
        let vector = (0..elements).flat_map(|element| value(index, element).to_le_bytes());
        *system.world.vector_mut(member) = vector.collect();
    }
    let spec = OperationSpec {
        operator: Operator::Sum,
        datatype: Datatype::U32,
        elements: elements as u64,
        target: Target::All,
        contributes: true,
        receives: true,
        digest: 0,
    };
    let begin = system.world.now();
    for &member in &members {
        let at = system.world.add_skew(begin);
        match terms.stream {
            Some(_) => system.world.start_stream(member, at, spec),
            None => system.world.start(member, at, spec),
        }
    }
    system.world.run().unwrap();
    assert_eq!(system.world.take_finished().len(), members.len());
    let expected: Vec<u8> = (0..elements)
        .map(|element| {
            (0..members.len()).fold(0, |sum: u32, i| sum.wrapping_add(value(i, element)))
        })
        .flat_map(u32::to_le_bytes)
        .collect();
    for &member in &members {
        assert_eq!(
            *system.world.vector_mut(member),
            expected,
            "{hosts} hosts, {elements} elements"
        );
    }
    // Every result arrives twice, once by each path, even with a single member at the root.
    if terms.multicast {
        let segments = (elements * 4).div_ceil(256) as u64;
        assert_eq!(system.world.repeats(), segments * members.len() as u64);
    }
}

#[test]
fn results_are_those_of_a_local_computation_on_odd_shapes() {
    for hosts in 1..=17 {
        assert_sums(hosts, 3, hosts % 2 == 0);
    }
    assert_sums(127, 700, true);
    assert_sums(40, 257, false);
}

#[test]
fn streamed_results_are_those_of_a_local_computation() {
    for (hosts, elements) in [(1, 1000), (2, 63), (40, 4097), (127, 700)] {
        let stream = StreamTerms { chunk_bytes: 256, window: 5 };
        let system = System::with_streams(&edr(), 11, None, stream).unwrap();
        let terms =
            Terms { osos: 1, payload_max_bytes: 64, multicast: false, stream: Some(stream) };
        assert_sums_in(system, terms, hosts, elements);
    }
}

/// The lock of a tree is exclusive: two groups stream one after the other, where two groups that send
/// segments share the links.
#[test]
fn groups_of_one_tree_stream_one_after_the_other() {
    let bytes = 1 << 18;
    let us = |communicators| {
        let quiet = TreeBenchmark { communicators, seed: None, osos: 1, ..benchmark(8) };
        let mut run = quiet.set_up_streams(&edr(), 64).unwrap();
        run.allreduce(bytes, 1).unwrap().summary().processes
    };
    let (alone, both) = (us(1), us(2));
    assert!(both.min < 1.05 * alone.max, "the first has the tree to itself: {both:?}");
    assert!(both.max > 1.9 * alone.min, "the second waits for it: {both:?}, alone {alone:?}");
}

fn quiet_us(preset: &Preset, bytes: usize) -> f64 {
    let run = TreeBenchmark { seed: None, osos: 16, ..benchmark(64) }.set_up(preset);
    run.unwrap().allreduce(bytes, 1).unwrap().avg()
}

fn host_us(preset: &Preset, bytes: usize) -> f64 {
    let hosts = spread_hosts(64, 128);
    let mut run = HostRun::set_up(
        preset,
        &hosts,
        choose_algorithm(preset, CollectiveKind::Allreduce, 8, hosts.len() as u32),
        None,
    )
    .unwrap();
    run.allreduce(bytes, 1).unwrap().avg()
}

#[test]
fn latency_grows_with_every_cable_and_every_byte() {
    let mut longer = edr();
    longer.trunk.propagation = longer.trunk.propagation.scale(20.0);
    longer.access.propagation = longer.access.propagation.scale(20.0);
    for bytes in [8, 2048] {
        assert!(quiet_us(&longer, bytes) > quiet_us(&edr(), bytes));
        assert!(host_us(&longer, bytes) > host_us(&edr(), bytes));
    }
    let sizes = [4, 64, 256, 260, 1024, 4096, 65_536];
    assert!(sizes.map(|bytes| quiet_us(&edr(), bytes)).is_sorted());
    // From 257 B on, the adapter fetches the message instead of the core writing it, which frees the
    // core. Apart from that step, more bytes take longer.
    let sizes = [4, 64, 256, 512, 1024, 4096, 65_536];
    assert!(sizes.map(|bytes| host_us(&edr(), bytes)).is_sorted());
}

#[test]
fn nothing_is_faster_than_its_link() {
    let bytes = 4 << 20;
    for preset in [edr(), preset::read_shipped("hdr-streaming").unwrap()] {
        let least_us = bytes as f64 * preset.access.rate.byte_ps() / 1e6;
        assert!(quiet_us(&preset, bytes) > least_us);
        assert!(host_us(&preset, bytes) > least_us);
    }
}

#[test]
fn a_port_takes_no_more_packets_than_its_rate() {
    let mut slow = edr();
    slow.switch.port_rate = slow.switch.port_rate.scale(1e-3);
    let gap_us = 1.0 / slow.switch.port_rate.value();
    // 4 KiB are 16 segments, each of which crosses the host's port downwards once.
    assert!(quiet_us(&slow, 4096) > 15.0 * gap_us);
    assert!(quiet_us(&slow, 4096) > 5.0 * quiet_us(&edr(), 4096));
}

#[test]
fn more_outstanding_operations_are_never_slower_and_a_refused_grant_is_said_so() {
    let us = |osos| {
        let benchmark = TreeBenchmark { osos, seed: None, ..benchmark(8) };
        benchmark.set_up(&edr()).unwrap().allreduce(4096, 1).unwrap().avg()
    };
    assert!([1, 2, 4, 8, 16].map(us).is_sorted_by(|more, fewer| more >= fewer));
    let crowded =
        TreeBenchmark { communicators: 8, osos: 1, osos_per_job: Some(8), ..benchmark(8) };
    assert!(crowded.set_up(&edr()).is_ok());
    let error = crowded.set_up_beside_world(&edr()).err().unwrap();
    assert!(is_refusal(&error), "{error}");
    let error = TreeBenchmark { osos: 129, ..benchmark(8) }.set_up(&edr()).err().unwrap();
    assert!(is_refusal(&error), "{error}");
}

#[test]
fn the_managers_tree_is_the_computed_one() {
    let small = "name = \"x\"\nbase = \"edr-sharp\"\n[fabric]\nkind = \"fat-tree\"\n";
    let managed = preset::read(&format!("{small}down = [8, 8, 8]\nup = [1, 4, 4]\n")).unwrap();
    // More hosts than the manager places; the first 512 are the same.
    let computed = preset::read(&format!("{small}down = [8, 8, 9]\nup = [1, 4, 4]\n")).unwrap();
    let us = |preset: &Preset| {
        let hosts = (0..512).step_by(3).map(Vertex).collect();
        let benchmark = TreeBenchmark { hosts, seed: None, ..benchmark(1) };
        benchmark.set_up(preset).unwrap().allreduce(8, 1).unwrap().avg()
    };
    assert!((us(&managed) - us(&computed)).abs() < 1e-9);
}

#[test]
fn time_is_virtual() {
    assert_eq!(Picos::from_ns(1.5), Picos(1500));
    let mut run = benchmark(4).set_up(&edr()).unwrap();
    let before = run.system().world.now();
    run.allreduce(8, 1).unwrap();
    assert!(run.system().world.now() > before);
}
