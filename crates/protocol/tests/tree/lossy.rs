//! Runs over datagrams that are lost, come twice and overtake each other.
//!
//! Everything that other runs check still holds: every bit of every result, each contribution
//! reduced once (the test memory checks it), everything freed in the end. These runs also check how
//! many datagrams are needed, and what happens if none arrives.

use std::collections::BTreeSet;

use tributary_protocol::endpoint::ShortVectors;
use tributary_protocol::node::{Event, FrameError};
use tributary_protocol::{Reachability, RecoveryStats};
use tributary_wire::frame::{Abort, AbortReason};
use tributary_wire::{Datatype, EndpointId, Operator};

use crate::honest::{check_results, run, segments, uneven};
use crate::link::{Datagrams, Timing};
use crate::member::Member;
use crate::plan::{OperationPlan, Scenario};
use crate::world::{SEGMENT_MAX_BYTES, World};

const SEEDS: u64 = 40;

/// A little longer than a lost probe takes.
const PROBE_NS: u64 = 5_000_000;

fn members(world: &World) -> impl Iterator<Item = RecoveryStats> {
    world.members.iter().map(|member| member.endpoint.recovery_stats())
}

fn datagrams(world: &World) -> u64 {
    world.links.iter().map(|link| link.datagrams[0] + link.datagrams[1]).sum()
}

#[test]
fn losses_change_no_bit() {
    let (mut timeouts, mut fast_retransmits, mut repeated) = (0, 0, 0);
    let (mut by_link, mut by_datagram) = (0, 0);
    for loss in [0.0, 0.01, 0.1, 0.3] {
        for seed in 0..SEEDS {
            let world = run(&Scenario::random(seed), Timing::lossy(seed, loss));
            for host in &world.nodes {
                // A late copy: the child has left, or its group has ended.
                let is_late = |why: &Option<FrameError>| {
                    why.is_none_or(|error| error == FrameError::WrongPort)
                };
                assert!(host.dropped.iter().all(is_late), "{:?}", host.dropped);
                repeated += host.node.stats().repeated;
            }
            timeouts += members(&world).map(|stats| stats.timeouts).sum::<u64>();
            fast_retransmits += members(&world).map(|stats| stats.fast_retransmits).sum::<u64>();
            by_link += world.links.iter().map(|link| link.link_parts).sum::<u64>();
            by_datagram += datagrams(&world);
            if loss < 0.1 {
                // A short run may end before a lost probe is repeated.
                let is_short = world.now < 2 * PROBE_NS;
                let is_open = |it: &Member| it.reachability == Some(Reachability::Reachable);
                assert!(is_short || world.members.iter().all(is_open), "seed {seed}");
            }
        }
    }
    assert!(by_datagram > 4 * by_link, "{by_datagram} datagrams, {by_link} over links");
    assert!(
        timeouts > 1000 && fast_retransmits > 1000 && repeated > 1000,
        "{timeouts} {fast_retransmits} {repeated}"
    );
}

#[test]
fn one_seed_is_one_lossy_run() {
    for seed in 0..SEEDS {
        let scenario = Scenario::random(seed);
        let timing = Timing::lossy(seed, 0.05);
        let [first, second] = [0, 1].map(|_| run(&scenario, timing).frames_hash);
        assert_eq!(first, second, "seed {seed}");
    }
}

#[test]
fn without_loss_nothing_is_sent_twice() {
    for seed in 0..SEEDS {
        let scenario = Scenario::random(seed);
        let datagrams = Datagrams { is_orderly: true, ..Datagrams::with_loss(0.0) };
        let timing = Timing { datagrams: Some(datagrams), ..Timing::orderly(seed) };
        let world = run(&scenario, timing);
        for stats in members(&world) {
            let repeats = (stats.timeouts, stats.fast_retransmits, stats.by_link);
            assert_eq!(repeats, (0, 0, 0), "seed {seed}: timers are longer than these runs");
        }
        for host in &world.nodes {
            let stats = host.node.stats();
            assert_eq!((stats.repeats, stats.repeated, stats.acks), (0, 0, 0), "seed {seed}");
        }
    }
}

/// Eight operations of one segment each.
fn short_sums() -> Scenario {
    let mut scenario = uneven(2);
    scenario.groups[0].script = vec![OperationPlan::allreduce(Operator::Sum, Datatype::F64, 1); 8];
    scenario
}

#[test]
fn a_late_sibling_causes_no_storm() {
    for late_ns in [1_000_000, 10_000_000, 1_000_000_000] {
        let scenario = short_sums();
        let datagrams = Datagrams { is_orderly: true, ..Datagrams::with_loss(0.0) };
        let timing = Timing { datagrams: Some(datagrams), ..Timing::orderly(1) };
        let mut world = World::new(&scenario, timing);
        // The first member starts its sixth operation late, and all others wait for it.
        world.members[0].pause = Some((5, late_ns));
        world.run();
        assert!(world.members.iter().all(|member| member.is_done()));
        // Repeats come at doubling intervals from 200 us up to 100 ms, and each gets an ack.
        let doublings = 64 - (late_ns / 200_000).leading_zeros() as u64 + 1;
        let repeats = doublings.min(10) + late_ns / 100_000_000;
        for link in &world.links {
            // A probe and eight operations, besides the repeats; two are under way at once.
            let bound = 1 + 8 + 2 * repeats;
            let sent = link.datagrams;
            assert!(sent[0].max(sent[1]) <= bound, "{sent:?} for {late_ns}, {bound}");
        }
        assert!(members(&world).any(|stats| stats.acks > 0), "the late one made others repeat");
    }
}

#[test]
fn losses_within_a_window_are_found_without_a_timer() {
    let mut scenario = uneven(32);
    let sum = OperationPlan::allreduce(Operator::Sum, Datatype::F64, 2000);
    scenario.groups[0].script = vec![sum];
    let (mut passed_ns, mut lost, mut sent, mut least) = (0, 0, 0, 0);
    for seed in 0..8 {
        let datagrams_travel = Datagrams { is_orderly: true, ..Datagrams::with_loss(0.01) };
        let timing = Timing { datagrams: Some(datagrams_travel), ..Timing::orderly(seed) };
        let world = run(&scenario, timing);
        passed_ns += world.now;
        lost += world.links.iter().map(|link| link.lost).sum::<u64>();
        sent += datagrams(&world);
        let edges = world.links.len() as u64;
        least += 2 * edges * segments(&sum, &scenario.groups[0]);
    }
    // If each loss had waited for a timer, the run would have taken at least this long.
    let by_timer_ns = lost * 200_000;
    assert!(passed_ns < by_timer_ns / 10, "{passed_ns} ns for {lost} losses");
    assert!(sent < least + least * 3 / 20, "{sent} datagrams for {least} at 1% loss");
}

#[test]
fn where_no_datagram_ever_arrives_the_link_carries_all() {
    for seed in 0..SEEDS {
        let scenario = Scenario::random(seed);
        let world = run(&scenario, Timing::lossy(seed, 1.0));
        for member in &world.members {
            // A short run may end before the last probe is given up.
            let is_decided = member.reachability == Some(Reachability::Unreachable);
            assert!(is_decided || world.now < 40 * PROBE_NS, "seed {seed}");
            assert_ne!(member.reachability, Some(Reachability::Reachable));
        }
        assert!(world.links.iter().any(|link| link.link_parts > 0));
    }
}

#[test]
fn datagrams_that_cease_to_arrive_cost_time_and_nothing_else() {
    let mut silent = 0;
    for seed in 0..SEEDS {
        let mut scenario = uneven(4);
        let sum = OperationPlan::allreduce(Operator::Sum, Datatype::F64, 40);
        scenario.groups[0].script = vec![sum; 12];
        let blocked_at = 5_000 + 997 * seed;
        let travel = Datagrams { blocked_at, ..Datagrams::with_loss(0.0) };
        let world = run(&scenario, Timing { datagrams: Some(travel), ..Timing::orderly(seed) });
        silent += world
            .members
            .iter()
            .filter(|it| it.reachability == Some(Reachability::Unreachable))
            .count();
        silent += world.nodes.iter().map(|it| it.node.stats().silent_edges as usize).sum::<usize>();
    }
    assert!(silent > SEEDS as usize, "{silent} edges went over to their links");
}

#[test]
fn a_lost_member_is_named_though_datagrams_are_lost_too() {
    for seed in 0..SEEDS {
        let mut scenario = uneven(3);
        let sum = OperationPlan::allreduce(Operator::Sum, Datatype::F64, 60);
        scenario.groups[0].script = vec![sum; 6];
        let mut world = World::new(&scenario, Timing::lossy(seed, 0.1));
        world.run_until(|world| world.members.iter().any(|it| it.results[0].is_some()));
        let lost = seed as usize % world.members.len();
        let link = world.members[lost].link.unwrap();
        world.close(link, crate::link::LOWER);
        world.run();
        let at_fault = EndpointId(lost as u32);
        let abort = Abort { reason: AbortReason::MemberLost, at_fault };
        for member in world.members.iter().filter(|it| it.index != at_fault.0) {
            assert_eq!(member.failed, Some(abort), "seed {seed}");
        }
        world.assert_all_is_free(&BTreeSet::new());
    }
}

fn multicast(seed: u64, loss: f64, without_multicast: usize) -> Timing {
    let travel = Datagrams { has_multicast: true, without_multicast, ..Datagrams::with_loss(loss) };
    Timing { datagrams: Some(travel), ..Timing::orderly(seed) }
}

#[test]
fn multicast_changes_no_bit() {
    let (mut multicasts, mut spared, mut doubled) = (0, 0, 0);
    for loss in [0.0, 0.01, 0.1, 0.3] {
        for seed in 0..SEEDS / 2 {
            let world = run(&Scenario::random(seed), multicast(seed, loss, 0));
            for host in &world.nodes {
                multicasts += host.node.stats().multicasts;
                spared += host.node.stats().spared;
            }
            doubled += world.members.iter().map(|it| it.endpoint.repeats()).sum::<u64>();
        }
    }
    assert!(multicasts > 1000 && doubled > 1000, "{multicasts} {doubled}");
    assert!(spared > 1000, "{spared} copies spared");
}

#[test]
fn short_vectors_go_by_datagram_once_they_are_cut_for_it() {
    let mut scenario = uneven(4);
    scenario.groups[0].payload_max_bytes = 256;
    // 240 bytes: longer than a datagram here, and no longer than a granted segment.
    let sum = OperationPlan::allreduce(Operator::Sum, Datatype::F64, 30);
    scenario.groups[0].script = vec![sum; 50];
    let run_cut = |segment_max_bytes| {
        let mut world = World::new(&scenario, multicast(5, 0.02, 0));
        for member in &mut world.members {
            let short =
                ShortVectors { vector_max_bytes: 240, segment_max_bytes, may_exceed_window: false };
            member.endpoint.cut_short_vectors(short);
        }
        world.run();
        check_results(&scenario, &world);
        world.assert_all_is_free(&BTreeSet::new());
        datagrams(&world)
    };
    // Cut into three there are datagrams and losses; six would be more than may be in flight.
    let in_three = run_cut(SEGMENT_MAX_BYTES);
    assert!(in_three > 50 * 3 * 9, "{in_three}: every segment of every member");
    assert!(run_cut(40) < 50, "{} probes", run_cut(40));
}

#[test]
fn copies_are_spared_and_a_lost_multicast_costs_a_timeout() {
    let mut scenario = uneven(2);
    let sum = OperationPlan::allreduce(Operator::Sum, Datatype::F64, 1);
    scenario.groups[0].script = vec![sum; 200];
    let reliable = run(&scenario, Timing::lossy(3, 0.02));
    let [lossless, lossy] = [0.0, 0.02].map(|loss| run(&scenario, multicast(3, loss, 0)));
    for world in [&lossless, &lossy] {
        assert!(world.members.iter().all(|member| member.is_subscribed));
    }
    let sent = [&lossy, &reliable].map(datagrams);
    assert!(sent[0] < sent[1] * 7 / 10, "{sent:?}: half of all datagrams are results");
    let timeouts = |world| members(world).map(|it| it.timeouts).sum::<u64>();
    assert_eq!(timeouts(&lossless), 0);
    assert!(timeouts(&lossy) > 0);
    assert!(lossless.now < lossy.now, "{} {}", lossless.now, lossy.now);
}

#[test]
fn members_that_multicast_does_not_reach_get_their_copies() {
    let mut scenario = uneven(2);
    let sum = OperationPlan::allreduce(Operator::Sum, Datatype::F64, 1);
    scenario.groups[0].script = vec![sum; 100];
    for without_multicast in [3, 9] {
        let world = run(&scenario, multicast(1, 0.0, without_multicast));
        for (index, member) in world.members.iter().enumerate() {
            assert_eq!(member.is_subscribed, index >= without_multicast);
            assert_eq!(member.endpoint.recovery_stats().timeouts, 0, "it never repeats a request");
        }
    }
}

#[test]
fn a_network_without_multicast_is_left_alone_after_a_while() {
    let mut scenario = uneven(2);
    let sum = OperationPlan::allreduce(Operator::Sum, Datatype::F64, 1);
    scenario.groups[0].script = vec![sum; 200];
    let mut timing = multicast(1, 0.0, 0);
    timing.datagrams.as_mut().unwrap().multicast_is_blocked = true;
    let world = run(&scenario, timing);
    let stats = world.nodes[0].node.stats();
    assert!(stats.multicasts <= 64, "{} multicasts into the void", stats.multicasts);
    let gave_up =
        Event::Multicast { group: World::group_id(0), reachability: Reachability::Unreachable };
    assert!(world.nodes[0].events.contains(&gave_up), "it says so");
    assert!(members(&world).all(|stats| stats.timeouts == 0), "nobody noticed");
}

#[test]
fn streams_keep_to_their_links_among_segments_that_are_lost() {
    for has_multicast in [false, true] {
        let (mut streams, mut repeated, mut by_datagram) = (0, 0, 0);
        for (loss, seeds) in [(0.01, 0..SEEDS / 2), (0.3, SEEDS / 2..SEEDS)] {
            for seed in seeds {
                let travel = Datagrams { has_multicast, ..Datagrams::with_loss(loss) };
                let timing = Timing { datagrams: Some(travel), ..Timing::orderly(seed) };
                // No chunk travels by datagram; the links check that.
                let world = run(&Scenario::random_streams(seed), timing);
                streams += world.nodes.iter().map(|it| it.node.stats().streams).sum::<u64>();
                repeated +=
                    members(&world).map(|it| it.timeouts + it.fast_retransmits).sum::<u64>();
                by_datagram += datagrams(&world);
            }
        }
        assert!(streams > 1000 && repeated > 1000, "{streams} streams, {repeated} repeats");
        assert!(by_datagram > 10_000, "{by_datagram} datagrams");
    }
}
