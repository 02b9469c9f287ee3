//! Runs with a failure: all others are told whose fault it was, and everything is freed.

use std::collections::BTreeSet;
use std::ops::Range;

use tributary_protocol::node::Event;
use tributary_wire::frame::{Abort, AbortReason, Target};
use tributary_wire::{Datatype, EndpointId, Epoch, GroupId, Operator};

use crate::link::{Holder, LOWER, Timing, UPPER};
use crate::plan::{OperationPlan, Scenario};
use crate::world::{JOIN_TIMEOUT_NS, World};

const SEEDS: u64 = 25;

/// Nine members below five aggregators: 0 is the root with 1 and 2 below it, 3 and 4 are below 2.
fn busy(osos: u16) -> Scenario {
    let fabric = vec![None, Some(0), Some(0), Some(2), Some(2)];
    let mut scenario = Scenario::one_group(fabric, &[1, 3, 0, 2, 3], osos);
    let sum = OperationPlan::allreduce(Operator::Sum, Datatype::F64, 60);
    scenario.groups[0].script = vec![sum; 6];
    scenario
}

/// Runs a scenario into the middle of its second operation.
fn under_way(scenario: &Scenario, seed: u64) -> World {
    let mut world = World::new(scenario, Timing::orderly(seed));
    world.run_until(|world| world.members.iter().any(|member| member.results[0].is_some()));
    assert!(world.members.iter().all(|member| member.results[5].is_none()));
    world
}

fn assert_all_failed_with(world: &World, abort: Abort, except: &[usize]) {
    for (index, member) in world.members.iter().enumerate() {
        if !except.contains(&index) {
            assert_eq!(member.failed, Some(abort), "member {index}");
        }
    }
}

#[test]
fn a_lost_member_is_named_to_every_other() {
    for seed in 0..SEEDS {
        for lost in 0..9 {
            let mut world = under_way(&busy(3), seed);
            let link = world.members[lost].link.unwrap();
            world.close(link, LOWER);
            world.run();
            let at_fault = EndpointId(lost as u32);
            let abort = Abort { reason: AbortReason::MemberLost, at_fault };
            assert_all_failed_with(&world, abort, &[lost]);
            for host in &world.nodes {
                assert_eq!(host.failures(), 1, "each node reports it once");
                assert_eq!(host.node.stats().groups_failed, 1);
            }
            world.assert_all_is_free(&BTreeSet::new());
        }
    }
}

#[test]
fn a_lost_node_fails_its_group_and_no_other() {
    for seed in 0..SEEDS {
        for lost in [2, 3, 4] {
            let mut scenario = busy(2);
            let fabric = scenario.fabric.clone();
            let mut beside = Scenario::one_group(fabric, &[2, 2, 0, 0, 0], 2).groups.remove(0);
            beside.script = scenario.groups[0].script.clone();
            scenario.groups.push(beside);
            let mut world = under_way(&scenario, seed);
            world.kill_node(lost);
            world.run();
            let below = members_below(&scenario, lost);
            for member in &world.members {
                if member.group == 1 {
                    assert_eq!(member.failed, None, "lost {lost}");
                    assert!(member.is_done());
                    continue;
                }
                let abort = member.failed.expect("the whole group fails");
                assert_eq!(abort.reason, AbortReason::NodeLost, "lost {lost}");
                assert!(below.contains(&abort.at_fault), "{abort:?}, but {below:?} was lost");
            }
            assert_eq!(world.nodes[1].node.stats().groups_ended, 1);
            world.assert_all_is_free(&BTreeSet::from([lost]));
        }
    }
}

fn members_below(scenario: &Scenario, node: usize) -> Range<EndpointId> {
    let tree = &scenario.groups[0].tree;
    let at = tree.iter().find(|it| it.node == node).expect("a node of the group");
    let (first, last) = (&at.children[0], &at.children[at.children.len() - 1]);
    first.members.start..last.members.end
}

#[test]
fn a_withdrawn_group_tells_everyone() {
    for node in 0..5 {
        let scenario = busy(4);
        let mut world = under_way(&scenario, node as u64);
        let (group, epoch) = (World::group_id(0), World::epoch(0));
        let host = &mut world.nodes[node].node;
        assert!(!host.withdraw(group, Epoch(epoch.0 + 1)), "another incarnation");
        assert!(!host.withdraw(GroupId(77), epoch), "no such group");
        assert!(host.withdraw(group, epoch));
        assert!(!host.withdraw(group, epoch), "it is gone");
        world.pump_node(node);
        world.run();
        let at_fault = members_below(&scenario, node).start;
        assert_all_failed_with(&world, Abort { reason: AbortReason::Withdrawn, at_fault }, &[]);
        world.assert_all_is_free(&BTreeSet::new());
    }
}

#[test]
fn a_member_that_aborts_is_named() {
    let mut world = under_way(&busy(2), 11);
    world.members[5].endpoint.abort(AbortReason::MemberAborted);
    world.pump_member(5);
    world.run();
    let at_fault = EndpointId(5);
    assert_all_failed_with(&world, Abort { reason: AbortReason::MemberAborted, at_fault }, &[]);
    world.assert_all_is_free(&BTreeSet::new());
}

#[test]
fn a_member_that_does_not_join_in_time_is_named() {
    for missing in 0..9 {
        let mut world = World::new(&busy(2), Timing::orderly(missing as u64));
        world.connect_at(missing, 3 * JOIN_TIMEOUT_NS);
        world.run_until(|world| world.now > 2 * JOIN_TIMEOUT_NS);
        let at_fault = EndpointId(missing as u32);
        let abort = Abort { reason: AbortReason::JoinTimeout, at_fault };
        assert_all_failed_with(&world, abort, &[missing]);
        // It joins at last, and is told as well.
        world.run();
        assert_eq!(world.members[missing].failed, Some(abort));
        world.assert_all_is_free(&BTreeSet::new());
    }
}

/// Runs with one member's third operation changed. The group must fail and name a member.
fn disagree(scenario: &Scenario, member: usize, change: impl Fn(&mut OperationPlan)) {
    for seed in 0..SEEDS {
        let mut world = World::new(scenario, Timing::orderly(seed));
        change(&mut world.members[member].script[2]);
        world.run();
        let abort = world.members[0].failed.expect("the group fails");
        assert_eq!(abort.reason, AbortReason::Disagreement);
        assert_all_failed_with(&world, abort, &[]);
        for member in &world.members {
            assert!(member.results[2].is_none(), "nobody gets a result of two minds");
        }
        world.assert_all_is_free(&BTreeSet::new());
    }
}

#[test]
fn members_that_disagree_fail_together() {
    let scenario = busy(2);
    for member in [0, 4, 8] {
        disagree(&scenario, member, |plan| plan.datatype = Datatype::I64);
        disagree(&scenario, member, |plan| plan.elements = 1);
        // Whole segments more or less: the common segments are equal.
        disagree(&scenario, member, |plan| plan.elements += 2);
        disagree(&scenario, member, |plan| plan.elements -= 2);
        disagree(&scenario, member, |plan| plan.target = Target::Member(EndpointId(1)));
        disagree(&scenario, member, |plan| {
            *plan = OperationPlan::allreduce(Operator::Barrier, Datatype::U8, 0);
        });
    }
}

#[test]
fn a_broadcast_has_one_source() {
    let mut scenario = busy(2);
    for plan in &mut scenario.groups[0].script {
        (plan.operator, plan.source) = (Operator::Broadcast, EndpointId(3));
    }
    for member in [0, 4, 8] {
        disagree(&scenario, member, |plan| plan.source = EndpointId(member as u32));
        // It awaits another's data, and takes the source's for those.
        disagree(&scenario, member, |plan| plan.source = EndpointId(5));
    }
    // There is no member 77, so no member is the source.
    disagree(&scenario, 3, |plan| plan.source = EndpointId(77));
}

#[test]
fn a_result_for_nobody_fails_the_group() {
    let mut scenario = busy(2);
    scenario.groups[0].script[2].target = Target::Member(EndpointId(9));
    disagree(&scenario, 0, |_| {});
}

#[test]
fn a_member_that_breaks_the_protocol_is_named() {
    for seed in 0..SEEDS {
        let mut world = under_way(&busy(3), seed);
        let link = world.members[4].link.unwrap();
        world.refuse(link, UPPER);
        world.run();
        let abort = Abort { reason: AbortReason::Misbehaved, at_fault: EndpointId(4) };
        assert_all_failed_with(&world, abort, &[4]);
        world.assert_all_is_free(&BTreeSet::new());
    }
}

#[test]
fn leaving_in_the_middle_of_an_operation_fails_the_others() {
    for seed in 0..SEEDS {
        for gone in 0..9 {
            let mut world = under_way(&busy(3), seed);
            world.leave(gone);
            world.run();
            let at_fault = EndpointId(gone as u32);
            let abort = Abort { reason: AbortReason::MemberLost, at_fault };
            assert_all_failed_with(&world, abort, &[gone]);
            assert_eq!(world.members[gone].failed, None, "it left of its own will");
            world.assert_all_is_free(&BTreeSet::new());
        }
    }
}

#[test]
fn a_member_that_does_not_read_stops_its_group_but_costs_no_memory() {
    let scenario = busy(4);
    let mut world = under_way(&scenario, 2);
    let link = world.members[6].link.unwrap();
    world.hold(link, LOWER);
    world.run();
    let (node, _, _) = world.place(0, 6);
    assert!(world.members.iter().all(|member| !member.is_done() && member.failed.is_none()));
    let Holder::Node { port, .. } = world.links[link].holders[UPPER] else { panic!("a node") };
    assert!(world.nodes[node].node.queued_frames(port) <= 4, "no more than its credits");
    assert_eq!(world.nodes[node].failures(), 0, "credits stop it, not a full queue");
    // It dies at last.
    world.close(link, LOWER);
    world.run();
    let abort = Abort { reason: AbortReason::MemberLost, at_fault: EndpointId(6) };
    assert_all_failed_with(&world, abort, &[6]);
    world.assert_all_is_free(&BTreeSet::new());
}

#[test]
fn two_that_fail_at_once_fail_the_group_once() {
    for seed in 0..SEEDS {
        let mut world = under_way(&busy(2), seed);
        for lost in [1, 7] {
            let link = world.members[lost].link.unwrap();
            world.close(link, LOWER);
        }
        world.run();
        for member in world.members.iter().filter(|it| ![1, 7].contains(&it.index)) {
            let abort = member.failed.expect("everyone is told");
            assert!([1, 7].map(EndpointId).contains(&abort.at_fault));
        }
        assert!(world.nodes.iter().all(|host| host.failures() == 1));
        world.assert_all_is_free(&BTreeSet::new());
    }
}

#[test]
fn a_failed_group_can_be_installed_again() {
    let scenario = busy(2);
    let mut world = under_way(&scenario, 4);
    let link = world.members[0].link.unwrap();
    world.close(link, LOWER);
    world.run();
    let released = |host: &crate::world::NodeHost| {
        host.events.iter().filter(|it| matches!(it, Event::Released(_))).count()
    };
    assert!(world.nodes.iter().all(|host| released(host) == 1));
    world.renew(&scenario);
    world.run();
    for member in &world.members {
        assert!(member.is_done());
        assert_eq!(member.results[5], scenario.groups[0].expected(scenario.seed, 5));
    }
    world.assert_all_is_free(&BTreeSet::new());
}

#[test]
fn members_that_have_left_are_told_of_a_lost_node_while_others_have_not() {
    for seed in 0..SEEDS {
        for lost in [0, 2, 3, 4] {
            let scenario = busy(3);
            let mut world = World::new(&scenario, Timing::orderly(seed));
            world.members.iter_mut().for_each(|member| member.stays = true);
            let last = members_below(&scenario, 4).start.0 as usize;
            world.members[last].leaves = false;
            world.run();
            assert!(world.members.iter().all(|member| !member.knows_end));
            assert_eq!(world.members.iter().filter(|member| member.has_left).count(), 8);
            world.kill_node(lost);
            world.run();
            // An aggregator all of whose members have left is missed by these alone.
            let below = members_below(&scenario, 3);
            for (member, index) in world.members.iter().zip(0..) {
                let is_told = lost != 3 || below.contains(&EndpointId(index));
                let reason = member.failed.map(|abort| abort.reason);
                let expected = is_told.then_some(AbortReason::NodeLost);
                assert_eq!(reason, expected, "member {index}, lost {lost}");
            }
        }
    }
}
