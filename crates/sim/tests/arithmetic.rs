//! Times of the product's tree that anybody can work out: on networks where only a few things take time.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::Arc;

use tributary_algorithms::Radices;
use tributary_algorithms::plan::Plan;
use tributary_sim::fabric::Vertex;
use tributary_sim::measure::{FullHosts, HostRun, InterHost, Samples, TreeBenchmark};
use tributary_sim::preset::{self, Preset};

/// A link of 1 ns a byte and packets with 100 B of headers. Nothing else takes time, but for what `values` says. `further`
/// is in the file as well.
fn bare(values: &[(&str, f64)], further: &str) -> Preset {
    const BARE: &[(&str, f64, &str)] = &[
        ("access.rate", 8.0, "Gb/s"),
        ("access.propagation", 0.0, "ns"),
        ("trunk.rate", 8.0, "Gb/s"),
        ("trunk.propagation", 0.0, "ns"),
        ("packet.overhead", 100.0, "B"),
        ("packet.mtu", 9000.0, "B"),
        ("switch.port_to_port", 0.0, "ns"),
        ("switch.port_rate", 1e6, "1/us"),
        ("adapter.transmit", 0.0, "ns"),
        ("adapter.receive", 0.0, "ns"),
        ("adapter.packet_rate", 1e6, "1/us"),
        ("adapter.bus", 1e5, "Gb/s"),
        ("adapter.fetch", 0.0, "ns"),
        ("tree.call", 0.0, "ns"),
        ("tree.request", 0.0, "ns"),
        ("tree.result", 0.0, "ns"),
        ("tree.segment_byte", 0.0, "ns/B"),
        ("aggregation.latency", 0.0, "ns"),
        ("aggregation.packet", 0.0, "ns"),
        ("aggregation.byte", 0.0, "ns/B"),
        ("aggregation.reply", 0.0, "ns"),
        ("aggregation.reply_byte", 0.0, "ns/B"),
        ("memory.sockets", 1.0, "1"),
        ("memory.cores", 2.0, "1"),
        ("memory.line_near", 0.0, "ns"),
        ("memory.line_gap_near", 0.0, "ns"),
        ("memory.copy", 0.0, "ns/B"),
    ];
    let unit = |key: &str| BARE.iter().find(|(known, ..)| *known == key).unwrap().2;
    let mut text = "name = \"bare\"\nbase = \"ethernet-25\"\n".to_owned();
    for (key, value, _) in BARE {
        let value = values.iter().find(|(own, _)| own == key).map_or(*value, |(_, value)| *value);
        let unit = unit(key);
        text +=
            &format!("{key} = {{ value = {value:?}, unit = \"{unit}\", source = \"a test\" }}\n");
    }
    preset::read(&format!("{text}{further}")).unwrap()
}

/// The times of all members of an allreduce, ascending, in nanoseconds.
fn times_ns(benchmark: &TreeBenchmark, preset: &Preset, bytes: usize) -> Vec<f64> {
    sorted_ns(&benchmark.set_up(preset).unwrap().allreduce(bytes, 1).unwrap())
}

fn sorted_ns(samples: &Samples) -> Vec<f64> {
    let mut times: Vec<f64> = samples.times_us().iter().map(|us| us * 1e3).collect();
    times.sort_by(f64::total_cmp);
    times
}

/// Within 3 ns: the bus takes 0.08 ps a byte.
fn assert_times(found: &[f64], expected: &[f64]) {
    let is_near = |(found, expected): (&f64, &f64)| (found - expected).abs() < 3.0;
    let all_are = found.len() == expected.len() && found.iter().zip(expected).all(is_near);
    assert!(all_are, "{found:?} ns, expected {expected:?}");
}

/// Two hosts send 4,000 B each. In one packet that is 4,100 ns on a link. The aggregator's link takes one after the
/// other in, until 8,200, and one result after the other out: one host has it after 12,300, the other after 16,400. In
/// packets of 1,000 B it is 4 times 1,100 ns: 8,800, 13,200 and 17,600. In packets of 500 B 8 times 600 ns: 9,600, 14,400
/// and 19,200.
#[test]
fn a_segment_goes_in_packets_of_the_mtu() {
    for (mtu, expected) in [
        (8936.0, [12_300.0, 16_400.0]),
        (4000.0, [12_300.0, 16_400.0]),
        (1000.0, [13_200.0, 17_600.0]),
        (500.0, [14_400.0, 19_200.0]),
    ] {
        let preset = bare(&[("packet.mtu", mtu)], "");
        assert_times(&times_ns(&TreeBenchmark::of_first(2), &preset, 4000), &expected);
    }
}

/// An aggregator takes 1,000 ns for a contribution and 500 for a copy. A packet of headers alone is 0.1 ns on these
/// links. 2 hosts: both contributions are taken at 2,000, the copies leave at 2,000 and 2,500. A second group's
/// contributions are there as early and wait until the second copy is done, at 3,000: they are taken at 5,000, and their
/// copies leave at 5,000 and 5,500.
#[test]
fn two_groups_share_an_aggregator() {
    let preset = bare(
        &[("access.rate", 8e3), ("aggregation.packet", 1000.0), ("aggregation.reply", 500.0)],
        "",
    );
    let one = TreeBenchmark::of_first(2);
    assert_times(&times_ns(&one, &preset, 8), &[2_000.0, 2_500.0]);
    let both = TreeBenchmark { communicators: 2, ..one };
    let expected = [2_000.0, 2_500.0, 5_000.0, 5_500.0];
    assert_times(&times_ns(&both, &preset, 8), &expected);
    let inter_host = InterHost::Tree { multicast: false };
    let both = FullHosts { groups: 2, hosts: 2, processes: 1, leaders: 1, inter_host, seed: None };
    let samples = both.set_up(&preset).unwrap().allreduce(8, 1).unwrap();
    assert_times(&sorted_ns(&samples), &expected);
}

const ONE_BESIDE_RANKS: &str =
    "fabric = { kind = \"fat-tree\", down = [2], up = [1] }\naggregation.beside_ranks = 1\n";

/// Two hosts, of which the first also runs the aggregator, on a core of its own. The rank there puts its contribution
/// into memory (20 ns), where the aggregator sees it 50 later and reads it in 20: at 90. The other sends its own in 100, and the
/// aggregator takes it in 1,000, until 1,100. It puts the first result into memory (20): the rank there sees it at 1,150
/// and has it at 1,170. Then it sends the other, which leaves at 1,120 and is received in 200.
#[test]
fn an_aggregator_beside_a_rank_speaks_with_it_through_memory() {
    let preset = bare(BUSY, ONE_BESIDE_RANKS);
    assert_times(&times_ns(&TreeBenchmark::of_first(2), &preset, 8), &[1_170.0, 1_320.0]);
}

const BUSY: &[(&str, f64)] = &[
    ("access.rate", 8e3),
    ("memory.line_near", 50.0),
    ("memory.line_gap_near", 20.0),
    ("tree.request", 100.0),
    ("tree.result", 200.0),
    ("aggregation.packet", 1000.0),
    ("aggregation.reply", 500.0),
];

/// The same hosts with a single core each. The first host's rank sees its result at 1,150 and gets its core back when
/// the aggregator has sent the other one, at 1,620: it has it at 1,640.
#[test]
fn an_aggregator_on_a_full_host_takes_turns_with_its_rank() {
    let one_core: Vec<_> = BUSY.iter().copied().chain([("memory.cores", 1.0)]).collect();
    let setting = FullHosts {
        groups: 1,
        hosts: 2,
        processes: 1,
        leaders: 1,
        inter_host: InterHost::Tree { multicast: false },
        seed: None,
    };
    for (preset, expected) in [
        (bare(BUSY, ONE_BESIDE_RANKS), [1_170.0, 1_320.0]),
        (bare(&one_core, ONE_BESIDE_RANKS), [1_320.0, 1_640.0]),
    ] {
        let samples = setting.set_up(&preset).unwrap().allreduce(8, 1).unwrap();
        assert_times(&sorted_ns(&samples), &expected);
    }
}

/// 4 contributions are taken in 1,000 ns each, until 4,000. 4 copies of the result leave 500 ns apart. To an address it
/// leaves once, and the switch copies it.
#[test]
fn a_result_to_an_address_leaves_once() {
    let preset = bare(
        &[("access.rate", 8e3), ("aggregation.packet", 1e3), ("aggregation.reply", 500.0)],
        "",
    );
    let copies = TreeBenchmark::of_first(4);
    assert_times(&times_ns(&copies, &preset, 8), &[4_000.0, 4_500.0, 5_000.0, 5_500.0]);
    let multicast = TreeBenchmark { multicast: true, ..copies };
    assert_times(&times_ns(&multicast, &preset, 8), &[4_000.0; 4]);
}

/// The operations of one host and an aggregator between which `share` of all packets is lost, and which take no time
/// otherwise, in nanoseconds.
fn with_losses(share: f64, further: &str) -> Vec<f64> {
    let loss = format!(
        "{further}\nloss.share = {{ value = {share}, unit = \"share\", source = \"a test\" }}\n"
    );
    let preset = bare(&[("access.rate", 8e3)], &loss);
    let mut run = TreeBenchmark::of_first(1).set_up(&preset).unwrap();
    sorted_ns(&run.allreduce(8, 20_000).unwrap())
}

/// An operation is a request and a result. With a loss of 1 %, 0.99 * 0.99 = 98.01 % of all operations lose neither and
/// take no time. After each loss the member waits for its timer: 200 us, the least there is, then twice as long each time. So
/// every operation takes 0, 200, 600 or 1,400 us, and the mean is 200 * q / (1 - 2 q) = 4.14 us with q = 1.99 %. The mean of
/// 20,000 operations deviates by 0.21 us.
#[test]
fn lost_datagrams_are_repeated_by_the_products_own_timers() {
    let times = with_losses(0.01, "");
    let is_near = |time: f64, us: f64| (time - us * 1e3).abs() < 10.0;
    for &time in &times {
        let is_known = [0.0, 200.0, 600.0, 1400.0, 3000.0].iter().any(|&us| is_near(time, us));
        assert!(is_known, "{time} ns");
    }
    let lossless = times.iter().filter(|&&time| is_near(time, 0.0)).count();
    assert!((19_522..=19_682).contains(&lossless), "19,602, and 4 deviations of 20: {lossless}");
    let mean_us = times.iter().sum::<f64>() / times.len() as f64 / 1e3;
    assert!((mean_us - 4.14).abs() < 4.0 * 0.21, "{mean_us} us");
}

/// The same over streams: a lost packet is there after 200 ms.
#[test]
fn a_streams_lost_packets_are_late() {
    let times = with_losses(0.01, "without = [\"datagrams\"]");
    let late = times.iter().filter(|&&time| time > 199e6).count();
    assert!((318..=478).contains(&late), "398, and 4 deviations of 20: {late}");
    assert!(!times.iter().any(|time| (10.0..199e6).contains(time)));
}

/// A process takes a contribution in 1,000 ns and sends a copy in 500. A program takes one in 100 and 300, and sends a copy
/// in 50, but of segments up to 256 B only.
#[test]
fn a_program_takes_the_segments_that_are_short_enough() {
    let program = "[traffic_control]\n\
                   before = { value = 100, unit = \"ns\", source = \"a test\" }\n\
                   packet = { value = 300, unit = \"ns\", source = \"a test\" }\n\
                   byte = { value = 0, unit = \"ns/B\", source = \"a test\" }\n\
                   reply = { value = 50, unit = \"ns\", source = \"a test\" }\n";
    let values = [("access.rate", 8e3), ("aggregation.packet", 1e3), ("aggregation.reply", 500.0)];
    let preset = bare(&values, &format!("aggregation.runs_in = \"traffic-control\"\n{program}"));
    let benchmark = TreeBenchmark::of_first(2);
    assert_times(&times_ns(&benchmark, &preset, 8), &[800.0, 850.0]);
    assert_times(&times_ns(&benchmark, &preset, 256), &[800.0, 850.0]);
    assert_times(&times_ns(&benchmark, &preset, 260), &[2_000.0, 2_500.0]);
}

/// Software that takes time for messages and datagrams alone.
fn with_software(send_ns: f64, receive_ns: f64, further: &str) -> Preset {
    let constant = |key: &str, value: f64, unit: &str| {
        format!("{key} = {{ value = {value:?}, unit = \"{unit}\", source = \"a test\" }}\n")
    };
    let mut text = constant("software.send", send_ns, "ns");
    text += &constant("software.receive", receive_ns, "ns");
    text += &constant("software.call", 0.0, "ns");
    text += &constant("software.eager_byte", 0.0, "ns/B");
    text += &constant("software.reduce_byte", 0.0, "ns/B");
    text += &constant("datagrams.further_send", 800.0, "ns");
    text += &constant("datagrams.each_receive", 800.0, "ns");
    bare(&[], &(text + further))
}

fn groups(preset: &Preset, radices: &[u32], seed: Option<u64>) -> HostRun {
    groups_by(false, preset, radices, seed)
}

fn groups_by(multicast: bool, preset: &Preset, radices: &[u32], seed: Option<u64>) -> HostRun {
    let hosts: u32 = radices.iter().product();
    let plan = Plan::even(hosts, Radices::new(radices).unwrap()).unwrap();
    let places: Vec<Vertex> = (0..hosts).map(Vertex).collect();
    HostRun::set_up_groups(preset, &places, &Arc::new(plan), multicast, seed).unwrap()
}

/// Three hosts send two copies of 8 B each, at 2,000 and 2,800 ns, and 108 ns are on the link. Each host has one when it has sent,
/// and takes it with a call of 1,200 ns and 800 ns for the datagram. Then the other is there, and takes a second call.
#[test]
fn members_of_a_group_take_what_has_come_with_one_call() {
    let preset = with_software(2000.0, 2000.0, "");
    let samples = groups(&preset, &[3], None).allreduce(8, 1).unwrap();
    assert_times(&sorted_ns(&samples), &[6_800.0; 3]);
}

/// Three hosts send one datagram of 8 B each, at 2,000 ns, which is on the link for 108 ns. A host takes the first of the two that
/// come with a call of 1,200 ns and 800 ns for the datagram, and then the second.
#[test]
fn a_multicast_is_sent_once() {
    let preset = with_software(2000.0, 2000.0, "");
    let samples = groups_by(true, &preset, &[3], None).allreduce(8, 1).unwrap();
    assert_times(&sorted_ns(&samples), &[6_108.0; 3]);
}

/// Two levels of two: each is a copy, its 108 ns on the link, and a call that takes one.
#[test]
fn levels_come_one_after_the_other() {
    let preset = with_software(2000.0, 2000.0, "");
    let samples = groups(&preset, &[2, 2], None).allreduce(8, 1).unwrap();
    assert_times(&sorted_ns(&samples), &[8_216.0; 4]);
}

/// A datagram that is lost heals: by the next one, which repeats it, or by a question.
#[test]
fn lost_contributions_cost_time_alone() {
    let lossy = "loss.share = { value = 0.05, unit = \"share\", source = \"a test\" }\n";
    let preset = with_software(2000.0, 2000.0, lossy);
    let mut run = groups(&preset, &[4, 2], Some(1));
    let samples = run.allreduce(8, 500).unwrap();
    assert_eq!(samples.times_us().len(), 500 * 8);
    assert!(run.system().world.lost_packets() > 100);
    let slow = samples.times_us().iter().filter(|us| **us > 1_000.0).count();
    assert!(slow > 0 && slow < 2_000, "{slow} of 4,000 members waited for a question");
}
