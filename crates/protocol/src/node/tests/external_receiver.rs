//! Results for the external receiver.

use tributary_wire::frame::EXTERNAL_RECEIVER;

use super::*;

/// The port over which the external receiver joins.
const OUTSIDE: PortId = PortId(3);

fn external_receiver_edge() -> Edge {
    let capability = Capability::from_bytes([0xEE; 16]);
    Edge { child: EXTERNAL_RECEIVER, capability, ..edge(0) }
}

/// An aggregator with a group of two, and an external receiver that has joined.
fn with_external_receiver() -> Node {
    let mut node = node_with_children(2);
    node.admit_external_receiver(GROUP, external_receiver_edge().capability);
    put(&mut node, OUTSIDE.0, external_receiver_edge(), Message::Join).unwrap();
    let (sent, _) = drain(&mut node);
    assert_eq!(
        sent,
        [(OUTSIDE, Header { edge: external_receiver_edge(), message: Message::Joined })]
    );
    node
}

/// Both members run one operation, whose result goes to `target`.
fn run(node: &mut Node, number: u32, target: Target) {
    let message = Message::Request(Part { target, ..part(number, 8) });
    for child in 0..2 {
        put(node, u32::from(child), edge(child), message).unwrap();
    }
}

/// Takes what waits for the members, and nothing else.
fn drain_members(node: &mut Node) {
    for port in [PortId(0), PortId(1)] {
        while node.peek_transmit(port).is_some() {
            node.pop_transmit(port);
        }
    }
}

#[test]
fn a_result_goes_to_its_targets_up_to_two_at_once() {
    let mut node = with_external_receiver();
    let member = EndpointId(1);
    let targets = [
        (Target::All, vec![0, 1]),
        (Target::Member(member), vec![1]),
        (Target::ExternalReceiver, vec![OUTSIDE.0]),
        (Target::AllAndExternalReceiver, vec![0, 1, OUTSIDE.0]),
        (Target::MemberAndExternalReceiver(member), vec![1, OUTSIDE.0]),
    ];
    for (number, (target, expected)) in (0..).zip(targets) {
        run(&mut node, number, target);
        let (sent, _) = drain(&mut node);
        let has_data =
            |header: &Header| matches!(header.message, Message::Result(it) if it.has_data);
        let mut got: Vec<u32> =
            sent.iter().filter(|(_, header)| has_data(header)).map(|(port, _)| port.0).collect();
        got.sort_unstable();
        assert_eq!(got, expected, "{target:?}");
        let completions = sent.iter().filter(|(port, _)| *port != OUTSIDE).count();
        assert_eq!(completions, 2, "every member learns that {target:?} is complete");
    }
    assert_eq!(node.stats().external_results, 3);
}

#[test]
fn an_absent_external_receiver_misses_results_and_may_come_back() {
    let mut node = with_external_receiver();
    put(&mut node, OUTSIDE.0, external_receiver_edge(), Message::Leave).unwrap();
    run(&mut node, 0, Target::AllAndExternalReceiver);
    let (_, events) = drain(&mut node);
    assert_eq!(events, [Event::Close(OUTSIDE)]);
    node.handle_port_closed(OUTSIDE);
    assert_eq!((node.stats().external_missed, node.stats().external_results), (1, 0));

    put(&mut node, OUTSIDE.0, external_receiver_edge(), Message::Join).unwrap();
    node.handle_port_closed(OUTSIDE);
    put(&mut node, OUTSIDE.0, external_receiver_edge(), Message::Join).unwrap();
    run(&mut node, 1, Target::AllAndExternalReceiver);
    assert_eq!((node.stats().external_missed, node.stats().external_results), (1, 1));
}

#[test]
fn an_external_receiver_reads_and_nothing_else() {
    let mut node = with_external_receiver();
    let other = PortId(4);
    let forged = Edge { capability: capability(0), ..external_receiver_edge() };
    let refused = put(&mut node, other.0, forged, Message::Join);
    assert_eq!(refused, Err(FrameError::Forged { group: GROUP }));
    let refused = put(&mut node, other.0, external_receiver_edge(), Message::Join);
    assert_eq!(
        refused,
        Err(FrameError::AlreadyJoined { group: GROUP, child: EXTERNAL_RECEIVER.0 })
    );
    let childs = Edge { child: ChildIndex(0), ..external_receiver_edge() };
    for (edge, message) in [(external_receiver_edge(), request(0, 8)), (childs, request(0, 8))] {
        let refused = put(&mut node, OUTSIDE.0, edge, message);
        assert_eq!(refused, Err(FrameError::WrongDirection));
    }
    node.handle_port_refused(OUTSIDE);
    run(&mut node, 0, Target::All);
    assert_eq!((node.stats().results, node.stats().groups_failed), (1, 0));
    assert_eq!(node_with_children(2).stats().groups_failed, 0);
}

#[test]
fn without_a_grant_the_join_of_an_external_receiver_is_forged_and_its_target_a_disagreement() {
    let mut node = node_with_children(2);
    let refused = put(&mut node, OUTSIDE.0, external_receiver_edge(), Message::Join);
    assert_eq!(refused, Err(FrameError::Forged { group: GROUP }));
    run(&mut node, 0, Target::ExternalReceiver);
    let (_, events) = drain(&mut node);
    assert!(events.iter().any(|event| matches!(
        event,
        Event::Failed { abort: Abort { reason: AbortReason::Disagreement, .. }, .. }
    )));
}

#[test]
fn a_receiver_that_reads_too_slowly_is_dropped_and_costs_the_group_nothing() {
    let mut node = with_external_receiver();
    // Results stay in their slots for as many operations as there are slots.
    let slots = 2 * u32::from(OSOS);
    for number in 0..slots {
        run(&mut node, number, Target::AllAndExternalReceiver);
        drain_members(&mut node);
    }
    assert_eq!((node.queued_frames(OUTSIDE), node.stats().external_dropped), (slots as usize, 0));
    run(&mut node, slots, Target::AllAndExternalReceiver);
    drain_members(&mut node);
    assert_eq!(node.stats().external_dropped, 1);
    let message = node.peek_transmit(OUTSIDE).expect("it is told why").header.message;
    assert!(
        matches!(message, Message::Abort(Abort { reason: AbortReason::FellBehind, .. })),
        "{message:?}"
    );
    assert_eq!(node.queued_frames(OUTSIDE), 1, "nothing that lies in the group's memory");
    run(&mut node, slots + 1, Target::All);
    assert_eq!((node.stats().results, node.stats().groups_failed), (u64::from(slots) + 2, 0));
}

#[test]
fn the_groups_end_is_told() {
    let mut node = with_external_receiver();
    for child in 0..2 {
        put(&mut node, u32::from(child), edge(child), Message::Leave).unwrap();
    }
    let message = |node: &mut Node| node.peek_transmit(OUTSIDE).map(|it| it.header.message);
    assert_eq!(message(&mut node), Some(Message::Leave));

    let mut node = with_external_receiver();
    run(&mut node, 0, Target::ExternalReceiver);
    drain_members(&mut node);
    for child in 0..2 {
        put(&mut node, u32::from(child), edge(child), Message::Leave).unwrap();
    }
    let fell_behind = Abort { reason: AbortReason::FellBehind, at_fault: EndpointId(0) };
    assert_eq!(message(&mut node), Some(Message::Abort(fell_behind)), "a result was not taken yet");

    let mut node = with_external_receiver();
    node.handle_port_closed(PortId(1));
    let lost = Abort { reason: AbortReason::MemberLost, at_fault: EndpointId(1) };
    assert_eq!(message(&mut node), Some(Message::Abort(lost)));
}
