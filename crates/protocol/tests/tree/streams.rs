//! Runs in which vectors go as streams, and groups compete for the trees' stream locks.

use std::collections::BTreeSet;

use tributary_protocol::endpoint::{
    Endpoint, EndpointConfig, OperationSpec, SpecError, StartError,
};
use tributary_protocol::node::{Event, FrameError};
use tributary_protocol::{Carrier, StreamTerms};
use tributary_protocol_testing::NodeEdges;
use tributary_wire::frame::{
    Abort, AbortReason, Edge, Header, Message, Part, RetransmitState, Shape, StreamRequest,
    StreamShape, Target, Versions,
};
use tributary_wire::{
    Datatype, EndpointId, GroupId, OperationNumber, Operator, SegmentIndex, Sequence,
};

use crate::honest::{check_results, run};
use crate::link::{LOWER, Timing, UPPER};
use crate::plan::{OperationPlan, STREAMS, Scenario};
use crate::world::World;

const SEEDS: u64 = 60;

const TERMS: StreamTerms = StreamTerms { chunk_bytes: 16, window: 3 };

#[test]
fn overlapping_groups_all_finish_with_the_right_bits() {
    let (mut streams, mut chunks, mut most_waiting) = (0, 0, 0);
    for seed in 0..SEEDS {
        let scenario = Scenario::random_streams(seed);
        for timing in [Timing::orderly(seed), Timing::disorderly(seed)] {
            let mut world = World::new(&scenario, timing);
            while world.step() {
                let waiting = world.nodes.iter().map(|host| host.node.streams_waiting()).max();
                most_waiting = most_waiting.max(waiting.unwrap());
            }
            check_results(&scenario, &world);
            world.assert_all_is_free(&BTreeSet::new());
            for host in &world.nodes {
                assert_eq!((host.failures(), &host.refused), (0, &Vec::new()), "seed {seed}");
                streams += host.node.stats().streams;
                chunks += host.node.stats().chunk_results;
            }
        }
    }
    assert!(streams > 3000 && chunks > 5 * streams, "{streams} streams of {chunks} chunks");
    assert!(most_waiting >= 3, "locks are competed for: at most {most_waiting} waited");
}

#[test]
fn streams_do_not_depend_on_timing() {
    for seed in 0..SEEDS / 2 {
        let scenario = Scenario::random_streams(seed);
        let first = run(&scenario, Timing::orderly(seed));
        let again = run(&scenario, Timing::orderly(seed));
        let second = run(&scenario, Timing::orderly(seed + 1000));
        assert_eq!(first.frames_hash, again.frames_hash, "seed {seed}");
        for (ours, theirs) in first.members.iter().zip(&second.members) {
            assert_eq!(ours.results, theirs.results, "seed {seed}");
        }
    }
}

/// Groups with two members at every leaf of a tree of three levels; each streams `streams` vectors.
fn rivals(groups: usize, streams: usize) -> Scenario {
    let fabric = vec![None, Some(0), Some(0), Some(2), Some(2)];
    let mut scenario = Scenario::one_group(fabric, &[0, 2, 0, 2, 2], 2);
    let sum = OperationPlan::allreduce(Operator::Sum, Datatype::F64, 60);
    let plan = &mut scenario.groups[0];
    plan.script = vec![OperationPlan { is_stream: true, ..sum }; streams];
    plan.stream = Some(TERMS);
    plan.overlap = 1;
    for _ in 1..groups {
        let rival = scenario.groups[0].clone();
        scenario.groups.push(rival);
    }
    scenario
}

#[test]
fn a_long_vector_fills_the_window_and_crosses_the_sequence_wrap() {
    for window in 1..=STREAMS.window_max {
        let mut scenario = rivals(1, 2);
        scenario.groups[0].stream = Some(StreamTerms { window, ..TERMS });
        for operation in &mut scenario.groups[0].script {
            operation.elements = 200;
        }
        let timing = Timing { link_frames: 16, ..Timing::orderly(window.into()) };
        let world = run(&scenario, timing);
        for link in &world.links {
            assert_eq!(link.peak_chunks, usize::from(window), "the whole window is used");
            assert!(link.has_wrapped, "100 chunks cross the wrap");
        }
    }
}

#[test]
fn only_the_target_of_a_streamed_reduce_gets_data() {
    let mut scenario = rivals(1, 1);
    scenario.groups[0].script[0].target = Target::Member(EndpointId(3));
    let world = run(&scenario, Timing::orderly(5));
    for member in &world.members {
        let bytes = member.results[0].as_ref().expect("complete at every member").len();
        assert_eq!(bytes, if member.index == 3 { 480 } else { 0 });
    }
}

#[test]
fn segments_pass_a_stream_that_waits() {
    // Group 0 has the lock and does not finish, because one of its members does not read.
    let mut scenario = rivals(2, 1);
    let short = OperationPlan::allreduce(Operator::Sum, Datatype::F64, 3);
    scenario.groups[1].script = vec![scenario.groups[1].script[0], short, short];
    scenario.groups[1].overlap = 3;
    let mut world = World::new(&scenario, Timing::orderly(3));
    let first_of = |group| {
        move |world: &World| world.members.iter().position(|member| member.group == group).unwrap()
    };
    (0..6).for_each(|member| world.connect_at(6 + member, 100_000));
    world.run_until(|world| world.nodes[0].node.stats().chunks > 0);
    let slow = first_of(0)(&world);
    world.hold(world.members[slow].link.unwrap(), LOWER);
    world.run();
    for member in world.members.iter().filter(|member| member.group == 1) {
        assert_eq!(member.results[0], None, "the lock is another's");
        assert!(member.results[1].is_some() && member.results[2].is_some(), "segments are not");
    }
    assert_eq!(world.nodes[0].node.streams_waiting(), 1);
    // The slow member dies, and the other group gets the lock at once.
    let link = world.members[slow].link.unwrap();
    world.close(link, LOWER);
    world.run();
    for member in world.members.iter().filter(|member| member.group == 1) {
        assert!(member.is_done());
    }
    world.assert_all_is_free(&BTreeSet::new());
}

#[test]
fn the_lock_goes_round() {
    // Five groups request eight streams each, from the same moment on. None falls behind by two.
    let scenario = rivals(5, 8);
    for seed in 0..SEEDS / 6 {
        let mut world = World::new(&scenario, Timing::orderly(seed));
        while world.step() {
            let finished: Vec<usize> = (0..5).map(|group| finished(&world, group)).collect();
            let waiting = world.nodes[0].node.streams_waiting();
            let (least, most) = (finished.iter().min().unwrap(), finished.iter().max().unwrap());
            // A group that had not requested its stream when the others got the lock may lie
            // behind.
            assert!(most - least <= 2 || waiting < 4, "seed {seed}: {finished:?}");
        }
        check_results(&scenario, &world);
        world.assert_all_is_free(&BTreeSet::new());
    }
}

/// Streams of which every member of a group has the result.
fn finished(world: &World, group: usize) -> usize {
    let of_group = world.members.iter().filter(|member| member.group == group);
    of_group
        .map(|member| member.results.iter().flatten().count())
        .min()
        .expect("a group has members")
}

#[test]
fn a_holder_that_is_killed_frees_the_lock_for_the_next() {
    for seed in 0..SEEDS / 3 {
        for victim in 0..6 {
            let scenario = rivals(3, 2);
            let mut world = World::new(&scenario, Timing::orderly(seed));
            world.run_until(|world| {
                let stats = |node: usize| world.nodes[node].node.stats();
                stats(0).chunks > 0 && world.nodes[0].node.streams_waiting() == 2
            });
            // The group with the lock at the root is the one that does not wait.
            let holder = holder_at_root(&world);
            kill(&mut world, holder, victim);
            world.run();
            let abort =
                Abort { reason: AbortReason::MemberLost, at_fault: EndpointId(victim as u32) };
            for member in &world.members {
                if member.group != holder {
                    assert!(member.is_done(), "seed {seed}: {:?}", member.failed);
                } else if member.index != victim as u32 {
                    assert_eq!(member.failed, Some(abort));
                }
            }
            world.assert_all_is_free(&BTreeSet::new());
        }
    }
}

/// The group that has sent chunks and has no whole result.
fn holder_at_root(world: &World) -> usize {
    let holds = |group: &usize| {
        world.members.iter().any(|member| {
            let has_streamed = member.link.is_some_and(|link| world.links[link].peak_chunks > 0);
            member.group == *group && has_streamed && member.results[0].is_none()
        })
    };
    (0..3).find(holds).expect("one of them streams")
}

fn kill(world: &mut World, group: usize, index: usize) {
    let is_it =
        |member: &crate::member::Member| member.group == group && member.index == index as u32;
    let link = world.members.iter().find(|it| is_it(it)).and_then(|member| member.link);
    world.close(link.expect("it has connected"), LOWER);
}

#[test]
fn a_member_that_is_killed_while_its_group_waits_leaves_the_queue_in_order() {
    for seed in 0..SEEDS / 3 {
        let scenario = rivals(4, 1);
        let mut world = World::new(&scenario, Timing::orderly(seed));
        world.run_until(|world| world.nodes[0].node.streams_waiting() == 3);
        let holder = (0..4).find(|group| {
            world.members.iter().any(|member| {
                let link = member.link.expect("all have connected");
                member.group == *group && world.links[link].peak_chunks > 0
            })
        });
        let waiting = (0..4).find(|group| Some(*group) != holder).unwrap();
        kill(&mut world, waiting, 1);
        world.run();
        for member in &world.members {
            assert_eq!(member.is_done(), member.group != waiting, "seed {seed}");
        }
        world.assert_all_is_free(&BTreeSet::new());
    }
}

#[test]
fn a_node_that_is_lost_frees_the_locks_of_the_others() {
    for seed in 0..SEEDS / 3 {
        // Group 1 lives below aggregator 1 and needs nothing of aggregator 2.
        let mut scenario = rivals(1, 4);
        let fabric = scenario.fabric.clone();
        let mut beside = Scenario::one_group(fabric, &[1, 2, 0, 0, 0], 2).groups.remove(0);
        beside.script = scenario.groups[0].script.clone();
        beside.stream = Some(TERMS);
        scenario.groups.push(beside);
        let mut world = World::new(&scenario, Timing::orderly(seed));
        world.run_until(|world| world.nodes[2].node.stats().chunks > 0);
        world.kill_node(2);
        world.run();
        for member in world.members.iter() {
            assert_eq!(member.is_done(), member.group == 1, "seed {seed}");
        }
        world.assert_all_is_free(&BTreeSet::from([2]));
    }
}

#[test]
fn members_that_disagree_on_a_stream_fail_together() {
    let changes: [fn(&mut OperationPlan); 4] = [
        |plan| plan.elements = 61,
        |plan| plan.datatype = Datatype::I64,
        |plan| plan.target = Target::Member(EndpointId(1)),
        |plan| plan.operator = Operator::Broadcast,
    ];
    for member in [0, 3, 5] {
        for change in changes {
            let mut world = World::new(&rivals(2, 3), Timing::orderly(member as u64));
            change(&mut world.members[member].script[1]);
            world.run();
            for member in &world.members {
                let reason = member.failed.map(|abort| abort.reason);
                assert_eq!(reason, (member.group == 0).then_some(AbortReason::Disagreement));
                assert_eq!(member.is_done(), member.group == 1);
            }
            world.assert_all_is_free(&BTreeSet::new());
        }
    }
}

#[test]
fn leaving_a_stream_that_was_asked_for_fails_the_others() {
    for seed in 0..SEEDS / 6 {
        for gone in 0..6 {
            let mut world = World::new(&rivals(1, 4), Timing::orderly(seed));
            world.run_until(|world| world.nodes[0].node.stats().chunk_results > 7);
            world.leave(gone);
            world.run();
            let abort =
                Abort { reason: AbortReason::MemberLost, at_fault: EndpointId(gone as u32) };
            for (index, member) in world.members.iter().enumerate() {
                assert_eq!(member.failed, (index != gone).then_some(abort));
            }
            world.assert_all_is_free(&BTreeSet::new());
        }
    }
}

/// Sends a frame in a member's name on its link. Returns the aggregator's errors.
fn misbehave(world: &mut World, member: usize, message: Message) -> Vec<FrameError> {
    let index = world.members[member].index;
    let group = world.members[member].group;
    let (node, child, capability) = world.place(group, index);
    let edge = Edge {
        group: World::group_id(group),
        epoch: World::epoch(group),
        child,
        capability,
        version: Versions::SPOKEN.newest,
    };
    let header = Header { edge, message };
    let payload = vec![0; header.payload_bytes()];
    let link = world.members[member].link.expect("it has connected");
    world.links[link].window = usize::MAX;
    world.carry(link, UPPER, Carrier::Link, &header, &payload);
    world.run();
    world.nodes[node].refused.clone()
}

/// Chunks of the vectors of [`rivals`].
const CHUNKS: u32 = 30;

fn chunk(number: u32, chunk: u32, elements: u32) -> Part {
    Part {
        operation: OperationNumber(number),
        segment: SegmentIndex((CHUNKS - 1).wrapping_sub(chunk)),
        sequence: Sequence(Sequence::FIRST.0.wrapping_add(chunk)),
        shape: Shape::new(Operator::Sum, Datatype::F64, elements).expect("a sum"),
        target: Target::All,
        has_data: true,
        retransmit: RetransmitState::default(),
    }
}

#[test]
fn a_member_that_breaks_the_rules_of_streams_ends_only_its_group() {
    let first = OperationNumber::FIRST;
    let not_granted = |operation| FrameError::StreamNotGranted { operation };
    let next = first.next();
    let request = StreamRequest {
        operation: next.next(),
        shape: StreamShape::new(Operator::Sum, Datatype::F64, 5).unwrap(),
        target: Target::All,
    };
    let running = |number| chunk(first.0, number, 2);
    let cases: [(Message, FrameError); 7] = [
        // Without a stream request, and without being done.
        (Message::Chunk(chunk(next.0, 0, 2)), not_granted(next)),
        (Message::StreamDone(next), not_granted(next)),
        (Message::StreamDone(first), not_granted(first)),
        // Beyond the window, beyond the total, and of another length.
        (
            Message::Chunk(running(20)),
            FrameError::OutsideWindow { sequence: running(20).sequence.0, osos: TERMS.window },
        ),
        (Message::Chunk(running(30)), FrameError::NotOfStream { operation: first, chunk: 30 }),
        (
            Message::Chunk(chunk(first.0, 29, 1)),
            FrameError::NotOfStream { operation: first, chunk: 29 },
        ),
        (Message::StreamGrant(request.operation), FrameError::WrongDirection),
    ];
    for (message, error) in cases {
        let mut world = World::new(&rivals(2, 1), Timing::orderly(4));
        // Group 0 alone for now, in the middle of its stream.
        (0..6).for_each(|member| world.connect_at(6 + member, 900_000));
        world.run_until(|world| world.nodes[1].node.stats().chunk_results > 4);
        assert_eq!(misbehave(&mut world, 0, message), [error], "{message:?}");
        for member in &world.members {
            assert_eq!(member.is_done(), member.group == 1, "{message:?}");
        }
        assert!(world.members[1].failed.is_some());
        world.assert_all_is_free(&BTreeSet::new());
    }
}

#[test]
fn a_group_without_streams_is_refused_them() {
    let mut scenario = rivals(1, 1);
    scenario.groups[0].stream = None;
    scenario.groups[0].script.clear();
    let mut world = World::new(&scenario, Timing::orderly(1));
    world.members.iter_mut().for_each(|member| member.leaves = false);
    world.run_until(|world| world.members.iter().all(|member| member.is_joined));
    let operation = OperationNumber::FIRST;
    let shape = StreamShape::new(Operator::Sum, Datatype::F64, 5).unwrap();
    let request = StreamRequest { operation, shape, target: Target::All };
    let refused = misbehave(&mut world, 2, Message::StreamRequest(request));
    assert_eq!(refused, [FrameError::StreamNotGranted { operation }]);
    assert!(world.nodes[0].events.iter().any(|event| matches!(event, Event::Failed { .. })));
}

/// An aggregator that refuses a frame closes its link, so the group would fail for a mistake of the caller.
#[test]
fn a_member_starts_no_stream_that_its_node_would_refuse() {
    let member = EndpointId(1);
    let targets = [
        Target::All,
        Target::Member(member),
        Target::ExternalReceiver,
        Target::AllAndExternalReceiver,
        Target::MemberAndExternalReceiver(member),
    ];
    let edges = NodeEdges { group: GroupId(0), node: 0 };
    for target in targets {
        let config = EndpointConfig { stream: Some(TERMS), ..edges.member(0, member) };
        let sum = OperationPlan::allreduce(Operator::Sum, Datatype::F64, 5).spec(member);
        let spec = OperationSpec { target, ..sum };
        let shape = StreamShape::new(spec.operator, spec.datatype, spec.elements).unwrap();
        let operation = OperationNumber::FIRST;
        let message = Message::StreamRequest(StreamRequest { operation, shape, target });
        let is_taken = Header::decode(&Header { edge: edges.edge(0), message }.encode()).is_ok();
        let started = Endpoint::new(config).start_stream(spec, 0);
        let expected = if is_taken {
            Ok(operation)
        } else {
            Err(StartError::Spec(SpecError::StreamToExternalReceiver))
        };
        assert_eq!(started, expected, "{target:?}");
    }
}
