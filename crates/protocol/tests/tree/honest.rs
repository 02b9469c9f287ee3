//! Runs without a failure.

use std::collections::BTreeSet;

use tributary_protocol::node::Event;
use tributary_protocol_testing::values::Contribution;
use tributary_wire::frame::Target;
use tributary_wire::{Datatype, EndpointId, Operator};

use crate::link::Timing;
use crate::plan::{OperationPlan, Scenario};
use crate::world::{JOIN_TIMEOUT_NS, World};

const SEEDS: u64 = 60;

pub(crate) fn run(scenario: &Scenario, timing: Timing) -> World {
    let mut world = World::new(scenario, timing);
    world.run();
    for (index, host) in world.nodes.iter().enumerate() {
        assert_eq!(host.refused, [], "node {index} refused a frame");
        assert_eq!(host.failures(), 0, "a group failed at node {index}");
        let groups = host.events.iter().filter(|it| matches!(it, Event::Formed { .. })).count();
        assert_eq!(host.node.stats().groups_ended, groups as u64);
    }
    check_results(scenario, &world);
    world.assert_all_is_free(&BTreeSet::new());
    world
}

pub(crate) fn check_results(scenario: &Scenario, world: &World) {
    for (group, plan) in scenario.groups.iter().enumerate() {
        for operation in 0..plan.script.len() {
            let expected = plan.expected(scenario.seed, operation);
            for member in world.members.iter().filter(|member| member.group == group) {
                let got = member.results[operation].as_ref();
                let receives = plan.script[operation].spec(EndpointId(member.index)).receives;
                let expected = expected.as_ref().filter(|_| receives).cloned().unwrap_or_default();
                assert_eq!(
                    got,
                    Some(&expected),
                    "group {group} operation {operation} {:?} at member {}",
                    plan.script[operation],
                    member.index,
                );
            }
        }
    }
}

#[test]
fn results_do_not_depend_on_timing() {
    for seed in 0..SEEDS {
        let scenario = Scenario::random(seed);
        let first = run(&scenario, Timing::orderly(seed));
        let second = run(&scenario, Timing::orderly(seed + 1000));
        assert_ne!(first.frames_hash, second.frames_hash, "timings differ, seed {seed}");
        for (ours, theirs) in first.members.iter().zip(&second.members) {
            assert_eq!(ours.results, theirs.results, "seed {seed}");
        }
    }
}

#[test]
fn one_seed_is_one_run() {
    for seed in 0..SEEDS {
        let scenario = Scenario::random(seed);
        for timing in [Timing::orderly(seed), Timing::disorderly(seed)] {
            let [first, second] = [0, 1].map(|_| run(&scenario, timing).frames_hash);
            assert_eq!(first, second, "seed {seed}");
        }
    }
}

#[test]
fn frames_that_come_twice_or_overtake_change_nothing() {
    let mut repeats = 0;
    for seed in 0..SEEDS {
        let scenario = Scenario::random(seed);
        let world = run(&scenario, Timing::disorderly(seed));
        repeats += world.nodes.iter().map(|host| host.node.stats().repeats).sum::<u64>();
        repeats += world.members.iter().map(|member| member.endpoint.repeats()).sum::<u64>();
    }
    assert!(repeats > 10_000, "only {repeats} repeats: this test tests nothing");
}

#[test]
fn every_contribution_is_counted_once_at_every_node() {
    for seed in 0..SEEDS {
        let scenario = Scenario::random(seed);
        let world = run(&scenario, Timing::orderly(seed));
        for (index, host) in world.nodes.iter().enumerate() {
            let (mut requests, mut results) = (0, 0);
            for plan in &scenario.groups {
                let segments: u64 = plan.script.iter().map(|it| segments(it, plan)).sum();
                for tree_node in plan.tree.iter().filter(|it| it.node == index) {
                    requests += segments * tree_node.children.len() as u64;
                    results += segments;
                }
            }
            assert_eq!(host.node.stats().requests, requests, "seed {seed} node {index}");
            assert_eq!(host.node.stats().results, results, "seed {seed} node {index}");
            assert_eq!(host.node.stats().repeats, 0, "seed {seed} node {index}");
        }
    }
}

pub(crate) fn segments(operation: &OperationPlan, plan: &crate::plan::GroupPlan) -> u64 {
    let per_segment = u64::from(plan.payload_max_bytes) / operation.datatype.size_bytes() as u64;
    operation.elements.div_ceil(per_segment).max(1)
}

#[test]
fn scenarios_cover_what_they_claim() {
    let all: Vec<Scenario> = (0..SEEDS).map(Scenario::random).collect();
    let groups = || all.iter().flat_map(|scenario| &scenario.groups);
    let depth = |plan: &crate::plan::GroupPlan| {
        let mut depths = vec![1];
        for node in &plan.tree[1..] {
            depths.push(depths[node.parent.unwrap().0] + 1);
        }
        depths.into_iter().max().unwrap()
    };
    assert_eq!(groups().map(depth).max(), Some(5));
    assert!(groups().any(|plan| plan.members == 1), "a group of one member");
    assert!(groups().any(|plan| plan.tree.len() == 1), "a tree of one node");
    assert!(groups().flat_map(|plan| &plan.tree).any(|node| node.children.len() >= 8));
    assert!(groups().flat_map(|plan| &plan.tree).any(|node| node.children.len() == 1));
    for osos in [1, 2, 3, 4, 8] {
        assert!(groups().any(|plan| plan.osos == osos));
    }
    let operations = || groups().flat_map(|plan| &plan.script);
    assert!(operations().any(|it| it.operator == Operator::Barrier));
    assert!(operations().any(|it| it.operator == Operator::Broadcast));
    assert!(operations().any(|it| matches!(it.target, Target::Member(_))));
}

/// A tree of three levels, nine members, deep and shallow branches.
pub(crate) fn uneven(osos: u16) -> Scenario {
    let fabric = vec![None, Some(0), Some(0), Some(2), Some(2)];
    Scenario::one_group(fabric, &[1, 3, 0, 2, 3], osos)
}

#[test]
fn the_order_of_addition_shows_so_the_oracle_can_catch_it() {
    let mut scenario = uneven(2);
    let sum = OperationPlan::allreduce(Operator::Sum, Datatype::F32, 64);
    scenario.groups[0].script = vec![sum];
    let in_order = scenario.groups[0].expected(scenario.seed, 0);
    scenario.groups[0].tree[0].children.reverse();
    assert_ne!(in_order, scenario.groups[0].expected(scenario.seed, 0));
}

#[test]
fn integer_sums_equal_a_sum_that_knows_no_tree() {
    let mut scenario = uneven(4);
    let sum = OperationPlan::allreduce(Operator::Sum, Datatype::I64, 33);
    scenario.groups[0].script = vec![sum];
    let world = run(&scenario, Timing::orderly(3));
    let mut flat = vec![0_i64; 33];
    for member in 0..scenario.groups[0].members {
        let contribution = Contribution { tag: scenario.seed, operation: 0, member };
        let bytes = contribution.bytes(sum.datatype, sum.elements);
        for (total, element) in flat.iter_mut().zip(bytes.as_chunks().0) {
            *total = total.wrapping_add(i64::from_le_bytes(*element));
        }
    }
    let flat: Vec<u8> = flat.into_iter().flat_map(i64::to_le_bytes).collect();
    assert!(world.members.iter().all(|member| member.results[0].as_ref() == Some(&flat)));
}

#[test]
fn long_vectors_fill_the_window_and_cross_the_sequence_wrap() {
    for osos in [1, 2, 3, 4, 8] {
        let mut scenario = uneven(osos);
        let sum = OperationPlan::allreduce(Operator::Sum, Datatype::F64, 300);
        scenario.groups[0].script = vec![sum; 2];
        let timing = Timing { link_frames: 16, ..Timing::orderly(u64::from(osos)) };
        let world = run(&scenario, timing);
        for link in &world.links {
            assert_eq!(link.peak_outstanding, usize::from(osos), "all credits are used");
            assert!(link.has_wrapped, "300 segments cross the wrap");
        }
    }
}

#[test]
fn only_the_target_of_a_reduce_gets_data() {
    let mut scenario = uneven(2);
    let sum = OperationPlan::allreduce(Operator::Sum, Datatype::F64, 9);
    scenario.groups[0].script =
        vec![OperationPlan { target: Target::Member(EndpointId(4)), ..sum }];
    let world = run(&scenario, Timing::orderly(5));
    for member in &world.members {
        let bytes = member.results[0].as_ref().expect("complete at every member").len();
        assert_eq!(bytes, if member.index == 4 { 72 } else { 0 });
    }
}

#[test]
fn a_member_that_is_done_may_leave_while_others_have_not_come() {
    // Member 0 has nothing to do and leaves at once. Member 1 joins long after that.
    let scenario = Scenario::one_group(vec![None], &[2], 1);
    let mut world = World::new(&scenario, Timing::orderly(1));
    world.connect_at(1, JOIN_TIMEOUT_NS / 2);
    world.members[1].leaves = false;
    world.run();
    assert!(world.members[1].is_joined);
    assert_eq!(
        world.nodes[0].events.iter().filter(|it| matches!(it, Event::Formed { .. })).count(),
        1
    );
    assert_eq!(world.members[1].failed, None, "nobody is missing, though somebody has gone");
    world.leave(1);
    world.run();
    assert_eq!(world.nodes[0].failures(), 0);
    assert_eq!(world.nodes[0].node.stats().groups_ended, 1);
    world.assert_all_is_free(&BTreeSet::new());
}

#[test]
fn members_that_have_left_are_told_once_all_have() {
    for seed in 0..SEEDS {
        let fabric = vec![None, Some(0), Some(0), Some(2), Some(2)];
        let mut scenario = Scenario::one_group(fabric, &[1, 2, 0, 2, 1], 3);
        let sum = OperationPlan::allreduce(Operator::Sum, Datatype::F64, 60);
        scenario.groups[0].script = vec![sum; 3];
        let mut world = World::new(&scenario, Timing::orderly(seed));
        world.members.iter_mut().for_each(|member| member.stays = true);
        world.run_until(|world| {
            let has_all_left = world.members.iter().all(|member| member.has_left);
            let knows_some = world.members.iter().any(|member| member.knows_end);
            assert!(has_all_left || !knows_some, "one that has not left may need any that has");
            has_all_left && world.members.iter().all(|member| member.knows_end)
        });
        world.run();
        assert!(world.members.iter().all(|member| member.is_done() && member.failed.is_none()));
        world.assert_all_is_free(&BTreeSet::new());
    }
}
