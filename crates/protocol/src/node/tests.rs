//! Goal: every refusal of an aggregator, and its limits. Method: one aggregator, and frames written by hand.

mod external_receiver;
mod questions;
mod waits;

use alloc::vec;
use alloc::vec::Vec;

use tributary_wire::frame::{
    Abort, AbortReason, Edge, Part, RetransmitState, Shape, StreamRequest, StreamShape, Target,
    Version, Versions,
};
use tributary_wire::{
    Capability, ChildIndex, Datatype, EndpointId, Epoch, OperationNumber, Operator, SegmentIndex,
    Sequence,
};

use super::*;
use crate::StreamTerms;
use crate::payloads::{Arena, ArenaId, Place, Source};

/// These tests do not check payload.
struct Nowhere;

impl Payloads for Nowhere {
    fn park(&mut self, _: Place, _: &[u8]) {}
    fn begin(&mut self, _: Place, _: Shape, _: Source<'_>) {}
    fn fold(&mut self, _: Place, _: Shape, _: Source<'_>) {}
    fn finish(&mut self, _: Place, _: Shape) {}
    fn store(&mut self, _: Place, _: &[u8]) {}
}

const OSOS: u16 = 2;
const STREAMS: StreamLimits = StreamLimits { trees: 2, window_max: 4, chunk_bytes_max: 32 };
const GROUP: GroupId = GroupId(3);
const EPOCH: Epoch = Epoch(9);

fn limits() -> NodeConfig {
    NodeConfig {
        frame_versions: Versions::SPOKEN,
        radix_max: 4,
        osos_max: 8,
        groups_max: 5,
        payload_max_bytes: 64,
        join_timeout_ns: 1000,
        streams: STREAMS,
    }
}

fn capability(child: u16) -> Capability {
    Capability::from_bytes([child as u8 + 1; 16])
}

fn group(children: u16) -> GroupConfig {
    let children = (0..children)
        .map(|child| ChildConfig {
            capability: capability(child),
            members: EndpointId(u32::from(child))..EndpointId(u32::from(child) + 1),
            is_node: false,
        })
        .collect();
    GroupConfig {
        group: GROUP,
        epoch: EPOCH,
        frame_version: Versions::SPOKEN.newest,
        osos: OSOS,
        payload_max_bytes: 16,
        children,
        parent: None,
        stream: None,
    }
}

fn edge(child: u16) -> Edge {
    let version = Versions::SPOKEN.newest;
    let capability = capability(child);
    Edge { group: GROUP, epoch: EPOCH, child: ChildIndex(child), capability, version }
}

fn request(number: u32, elements: u32) -> Message {
    Message::Request(part(number, elements))
}

/// The `number`th segment of a group in which every operation has one.
fn part(number: u32, elements: u32) -> Part {
    Part {
        operation: OperationNumber(number),
        segment: SegmentIndex(0),
        sequence: Sequence(Sequence::FIRST.0.wrapping_add(number)),
        shape: Shape::new(Operator::Sum, Datatype::U8, elements).unwrap(),
        target: Target::All,
        has_data: true,
        retransmit: RetransmitState::default(),
    }
}

fn put(node: &mut Node, port: u32, edge: Edge, message: Message) -> Result<(), FrameError> {
    let header = Header { edge, message };
    let payload = vec![0; header.payload_bytes()];
    node.handle_frame(Time(0), PortId(port), Carrier::Link, &header, &payload, &mut Nowhere)
}

/// An aggregator whose group's child `i` has joined over port `i`, with all output taken.
fn node_with_children(children: u16) -> Node {
    let mut node = Node::new(limits());
    node.install(Time(0), group(children)).unwrap();
    for child in 0..children {
        put(&mut node, u32::from(child), edge(child), Message::Join).unwrap();
    }
    drain(&mut node);
    node
}

fn drain(node: &mut Node) -> (Vec<(PortId, Header)>, Vec<Event>) {
    let mut sent = Vec::new();
    while let Some(port) = node.poll_ready() {
        while let Some(transmit) = node.peek_transmit(port) {
            sent.push((port, transmit.header));
            node.pop_transmit(port);
        }
    }
    let events = core::iter::from_fn(|| node.poll_event()).collect();
    (sent, events)
}

#[test]
fn install_says_what_is_lacking_and_keeps_nothing() {
    let refusal = |change: &dyn Fn(&mut GroupConfig)| {
        let mut node = Node::new(limits());
        let mut config = group(2);
        change(&mut config);
        let error = node.install(Time(0), config).unwrap_err();
        assert_eq!((node.osos_used(), node.poll_timeout(), node.poll_event()), (0, None, None));
        node.install(Time(0), group(4)).expect("the refusal left everything free");
        error
    };
    assert_eq!(
        refusal(&|it| it.osos = 9),
        InstallError::OsosExhausted { needed: 9, free: 8, max: 8 }
    );
    assert_eq!(
        refusal(&|it| it.children = group(5).children),
        InstallError::RadixExceeded { needed: 5, radix_max: 4 }
    );
    assert_eq!(
        refusal(&|it| it.payload_max_bytes = 65),
        InstallError::PayloadTooLong { needed_bytes: 65, max_bytes: 64 }
    );
    let (needed, spoken) = (Version(Versions::SPOKEN.newest.0 + 1), Versions::SPOKEN);
    assert_eq!(
        refusal(&|it| it.frame_version = needed),
        InstallError::OtherVersion { needed, spoken }
    );
    assert_eq!(
        refusal(&|it| it.group = GroupId(5)),
        InstallError::GroupIdTooLarge { group: GroupId(5), groups_max: 5 }
    );
    assert_eq!(
        refusal(&|it| it.osos = (1 << 14) + 1),
        InstallError::TooManyOsos { needed: (1 << 14) + 1, max: 1 << 14 }
    );
    let stream = |tree, chunk_bytes, window| {
        let terms = StreamTerms { chunk_bytes, window };
        Some(StreamConfig { tree: TreeId(tree), terms })
    };
    assert_eq!(
        refusal(&|it| it.stream = stream(2, 32, 4)),
        InstallError::TreeIdTooLarge { tree: TreeId(2), trees: 2 }
    );
    for (chunk_bytes, window) in [(33, 4), (32, 5), (0, 4), (32, 0)] {
        let (window_max, chunk_bytes_max) = (4, 32);
        assert_eq!(
            refusal(&|it| it.stream = stream(1, chunk_bytes, window)),
            InstallError::StreamTooWide { window, chunk_bytes, window_max, chunk_bytes_max }
        );
    }
    let empty: [&dyn Fn(&mut GroupConfig); 4] =
        [&|it| it.children.clear(), &|it| it.osos = 0, &|it| it.payload_max_bytes = 0, &|it| {
            it.children[1].members = EndpointId(4)..EndpointId(4)
        }];
    for change in empty {
        assert_eq!(refusal(change), InstallError::Empty);
    }
}

#[test]
fn install_refuses_what_is_in_use() {
    let mut node = node_with_children(2);
    let again = node.install(Time(0), group(1));
    assert_eq!(again, Err(InstallError::GroupInUse { group: GROUP, epoch: EPOCH }));
    let parent = |port| {
        Some(ParentConfig {
            name: "above".into(),
            port: PortId(port),
            child: ChildIndex(0),
            capability: Capability::default(),
        })
    };
    let taken = GroupConfig { group: GroupId(1), parent: parent(1), ..group(1) };
    assert_eq!(node.install(Time(0), taken), Err(InstallError::PortInUse { port: PortId(1) }));
    let free = GroupConfig { group: GroupId(1), parent: parent(2), ..group(1) };
    let arena =
        Arena { id: ArenaId::Group(GroupId(1)), slots: 4, children: 1, payload_max_bytes: 16 };
    assert_eq!(node.install(Time(0), free), Ok(arena));
    assert_eq!(node.osos_used(), 4);
    let last = GroupConfig { group: GroupId(0), osos: 5, ..group(1) };
    let exhausted = InstallError::OsosExhausted { needed: 5, free: 4, max: 8 };
    assert_eq!(node.install(Time(0), last), Err(exhausted));
}

#[test]
fn a_stranger_joins_nothing() {
    let mut node = Node::new(limits());
    node.install(Time(0), group(2)).unwrap();
    let unknown = |group, epoch| Err(FrameError::UnknownGroup { group, epoch });
    let forged = Err(FrameError::Forged { group: GROUP });
    let wrong = Edge { group: GroupId(0), ..edge(0) };
    assert_eq!(put(&mut node, 0, wrong, Message::Join), unknown(GroupId(0), EPOCH));
    let wrong = Edge { group: GroupId(u32::MAX), ..edge(0) };
    assert_eq!(put(&mut node, 0, wrong, Message::Join), unknown(GroupId(u32::MAX), EPOCH));
    let wrong = Edge { epoch: Epoch(8), ..edge(0) };
    assert_eq!(put(&mut node, 0, wrong, Message::Join), unknown(GROUP, Epoch(8)));
    let wrong = Edge { capability: capability(1), ..edge(0) };
    assert_eq!(put(&mut node, 0, wrong, Message::Join), forged);
    let wrong = Edge { child: ChildIndex(2), ..edge(0) };
    assert_eq!(put(&mut node, 0, wrong, Message::Join), forged);
    for message in [request(0, 4), Message::Leave, Message::Joined] {
        assert_eq!(put(&mut node, 0, edge(0), message), Err(FrameError::WrongPort));
    }
    assert_eq!(drain(&mut node), (vec![], vec![]), "strangers are told nothing");
    put(&mut node, 0, edge(0), Message::Join).expect("the place is still free");
}

#[test]
fn a_joined_port_speaks_for_one_child_only() {
    let mut node = node_with_children(2);
    let wrong = |node: &mut Node, edge| put(node, 0, edge, request(0, 4));
    assert_eq!(wrong(&mut node, edge(1)), Err(FrameError::WrongPort));
    let forged = Edge { capability: capability(1), ..edge(0) };
    assert_eq!(wrong(&mut node, forged), Err(FrameError::Forged { group: GROUP }));
    let (granted, got) = (edge(0).version, Version(edge(0).version.0 + 1));
    let newer = Edge { version: got, ..edge(0) };
    let other = FrameError::WrongVersion { group: GROUP, got, granted };
    assert_eq!(wrong(&mut node, newer), Err(other));
    let old = Edge { epoch: Epoch(8), ..edge(0) };
    let unknown = FrameError::UnknownGroup { group: GROUP, epoch: Epoch(8) };
    assert_eq!(wrong(&mut node, old), Err(unknown));
    let again = FrameError::AlreadyJoined { group: GROUP, child: 0 };
    assert_eq!(put(&mut node, 0, edge(0), Message::Join), Err(again));
    assert_eq!(put(&mut node, 7, edge(0), Message::Join), Err(again), "over another link");
    for message in [Message::Joined, Message::Result(part(0, 4))] {
        assert_eq!(put(&mut node, 0, edge(0), message), Err(FrameError::WrongDirection));
    }
    let long = FrameError::TooLong { bytes: 17, max_bytes: 16 };
    assert_eq!(put(&mut node, 0, edge(0), request(0, 17)), Err(long));
    assert_eq!(node.stats().requests, 0);
    assert_eq!(drain(&mut node), (vec![], vec![]));
}

#[test]
fn nobody_sends_more_than_its_credits() {
    let mut node = node_with_children(2);
    put(&mut node, 0, edge(0), request(0, 4)).unwrap();
    put(&mut node, 0, edge(0), request(1, 4)).unwrap();
    for number in [2, 3, 1 << 20, 1 << 31, u32::MAX] {
        let sequence = part(number, 4).sequence.0;
        let refused = FrameError::OutsideWindow { sequence, osos: OSOS };
        assert_eq!(put(&mut node, 0, edge(0), request(number, 4)), Err(refused), "{number}");
    }
    put(&mut node, 1, edge(1), request(0, 4)).unwrap();
    put(&mut node, 0, edge(0), request(2, 4)).expect("the first is complete");
}

#[test]
fn repeats_are_answered_until_the_slot_moves_on() {
    let mut node = node_with_children(2);
    for number in 0..40 {
        for child in [1, 0] {
            put(&mut node, u32::from(child), edge(child), request(number, 4)).unwrap();
        }
        let (sent, _) = drain(&mut node);
        let result = |child: u16| {
            let message = Message::Result(part(number, 4));
            (PortId(u32::from(child)), Header { edge: edge(child), message })
        };
        assert_eq!(sent, [result(0), result(1)]);
        put(&mut node, 1, edge(1), request(number, 4)).unwrap();
        assert_eq!(
            drain(&mut node).0,
            [result(1)],
            "only a child that repeats its request is answered"
        );
        if number >= 4 {
            put(&mut node, 1, edge(1), request(number - 4, 4)).unwrap();
            assert_eq!(drain(&mut node).0, [], "every member has had that");
        }
    }
    assert_eq!(node.stats().requests, 80);
    assert_eq!(node.stats().repeats, 40 + 36);
}

#[test]
fn a_member_that_repeats_and_does_not_read_is_cut_off_at_a_bound() {
    let mut node = node_with_children(1);
    put(&mut node, 0, edge(0), request(0, 4)).unwrap();
    let mut queued = 1;
    while put(&mut node, 0, edge(0), request(0, 4)).is_ok() {
        queued += 1;
        assert_eq!(node.queued_frames(PortId(0)), queued);
    }
    assert_eq!(put(&mut node, 0, edge(0), request(0, 4)), Err(FrameError::NotReading));
    assert_eq!(queued, 4 + 4, "one per slot and a few");
}

#[test]
fn a_child_that_has_left_stays_gone() {
    let mut node = node_with_children(2);
    put(&mut node, 0, edge(0), Message::Leave).unwrap();
    put(&mut node, 0, edge(0), Message::Leave).expect("twice is once");
    assert_eq!(put(&mut node, 0, edge(0), request(0, 4)), Err(FrameError::WrongPort));
    node.handle_port_closed(PortId(0));
    let again = FrameError::AlreadyJoined { group: GROUP, child: 0 };
    assert_eq!(put(&mut node, 0, edge(0), Message::Join), Err(again));
    assert_eq!(drain(&mut node), (vec![], vec![]), "its sibling is not disturbed");
    // Its sibling waits for a result that does not come, and is told.
    put(&mut node, 1, edge(1), request(0, 4)).unwrap();
    let abort = Abort { reason: AbortReason::MemberLost, at_fault: EndpointId(0) };
    let (sent, events) = drain(&mut node);
    let last_message = Header { edge: edge(1), message: Message::Abort(abort) };
    assert_eq!(sent, [(PortId(1), last_message)]);
    let failed = Event::Failed { group: GROUP, epoch: EPOCH, abort };
    assert_eq!(events, [failed, Event::Released(ArenaId::Group(GROUP)), Event::Close(PortId(1))]);
    assert_eq!(node.osos_used(), 0);
}

#[test]
fn a_failed_groups_late_frames_are_dropped() {
    let mut node = node_with_children(2);
    assert!(node.withdraw(GROUP, EPOCH));
    put(&mut node, 0, edge(0), request(0, 4)).unwrap();
    put(&mut node, 1, edge(1), Message::Leave).unwrap();
    assert_eq!(node.stats().late, 2);
    let (sent, events) = drain(&mut node);
    assert_eq!(sent.len(), 2);
    assert!(events.contains(&Event::Close(PortId(0))) && events.contains(&Event::Close(PortId(1))));
}

#[test]
fn results_without_a_request_are_refused() {
    let mut node = Node::new(limits());
    let parent = ParentConfig {
        name: "above".into(),
        port: PortId(9),
        child: ChildIndex(6),
        capability: capability(6),
    };
    node.install(Time(0), GroupConfig { parent: Some(parent), ..group(1) }).unwrap();
    put(&mut node, 0, edge(0), Message::Join).unwrap();
    let result = |node: &mut Node, number, elements| {
        put(node, 9, edge(6), Message::Result(part(number, elements)))
    };
    let unexpected = |number| Err(FrameError::Unexpected { sequence: part(number, 4).sequence.0 });
    assert_eq!(result(&mut node, 0, 4), unexpected(0), "nothing is open");
    put(&mut node, 0, edge(0), request(0, 4)).unwrap();
    assert_eq!(result(&mut node, 0, 5), unexpected(0), "another shape");
    assert_eq!(result(&mut node, 1, 4), unexpected(1), "not requested yet");
    for message in [Message::Join, Message::Leave, request(0, 4)] {
        assert_eq!(put(&mut node, 9, edge(6), message), Err(FrameError::WrongDirection));
    }
    assert_eq!(put(&mut node, 9, edge(5), Message::Joined), Err(FrameError::WrongPort));
    let forged = Edge { capability: capability(0), ..edge(6) };
    assert_eq!(
        put(&mut node, 9, forged, Message::Joined),
        Err(FrameError::Forged { group: GROUP })
    );
    result(&mut node, 0, 4).unwrap();
    result(&mut node, 0, 4).expect("a copy");
    assert_eq!((node.stats().results, node.stats().repeats), (1, 1));
}

#[test]
fn the_join_timer_names_the_first_missing_child() {
    let mut node = Node::new(limits());
    node.install(Time(500), group(3)).unwrap();
    put(&mut node, 0, edge(0), Message::Join).unwrap();
    put(&mut node, 2, edge(2), Message::Join).unwrap();
    assert_eq!(node.poll_timeout(), Some(Time(1500)));
    node.handle_timeout(Time(1499));
    assert_eq!(drain(&mut node).1, []);
    node.handle_timeout(Time(1500));
    let abort = Abort { reason: AbortReason::JoinTimeout, at_fault: EndpointId(1) };
    let (_, events) = drain(&mut node);
    assert_eq!(events[0], Event::Failed { group: GROUP, epoch: EPOCH, abort });
    assert_eq!(node.poll_timeout(), None);
}

/// Two groups of one child each, which may stream in the same tree.
fn two_streamers() -> Node {
    let mut node = Node::new(limits());
    let terms = StreamTerms { chunk_bytes: 16, window: 2 };
    let stream = Some(StreamConfig { tree: TreeId(0), terms });
    for id in 0..2 {
        let config = GroupConfig { group: GroupId(id), stream, ..group(1) };
        node.install(Time(0), config).unwrap();
        put(&mut node, id, streamer(id), Message::Join).unwrap();
    }
    drain(&mut node);
    node
}

fn streamer(group: u32) -> Edge {
    Edge { group: GroupId(group), ..edge(0) }
}

fn stream_request(number: u32) -> Message {
    let shape = StreamShape::new(Operator::Sum, Datatype::U8, 40).unwrap();
    Message::StreamRequest(StreamRequest {
        operation: OperationNumber(number),
        shape,
        target: Target::All,
    })
}

fn stream_chunk(number: u32, chunk: u32) -> Message {
    let elements = if chunk == 2 { 8 } else { 16 };
    Message::Chunk(Part {
        operation: OperationNumber(number),
        segment: SegmentIndex(2 - chunk),
        sequence: Sequence(Sequence::FIRST.0.wrapping_add(chunk)),
        ..part(0, elements)
    })
}

#[test]
fn the_lock_changes_hands_only_when_its_holder_is_done() {
    let mut node = two_streamers();
    put(&mut node, 0, streamer(0), stream_request(1)).unwrap();
    put(&mut node, 1, streamer(1), stream_request(1)).unwrap();
    let grant = |group| {
        let message = Message::StreamGrant(OperationNumber(1));
        (PortId(group), Header { edge: streamer(group), message })
    };
    assert_eq!(drain(&mut node).0, [grant(0)], "first come, first served");
    assert_eq!(node.streams_waiting(), 1);
    for chunk in 0..3 {
        put(&mut node, 0, streamer(0), stream_chunk(1, chunk)).unwrap();
    }
    let sent = drain(&mut node).0;
    assert!(sent.iter().all(|(port, _)| *port == PortId(0)), "results are not the end: {sent:?}");
    put(&mut node, 0, streamer(0), Message::StreamDone(OperationNumber(1))).unwrap();
    assert_eq!(drain(&mut node).0, [grant(1)]);
    assert_eq!((node.streams_waiting(), node.stats().streams), (0, 1));
    // A frame for a stream that has ended is a late copy.
    put(&mut node, 0, streamer(0), stream_chunk(1, 0)).unwrap();
    put(&mut node, 0, streamer(0), Message::StreamDone(OperationNumber(1))).unwrap();
    put(&mut node, 0, streamer(0), stream_request(1)).unwrap();
    assert_eq!((drain(&mut node).0, node.stats().repeats), (vec![], 3));
}

#[test]
fn answers_to_repeats_never_show_the_next_groups_chunks() {
    let mut node = two_streamers();
    put(&mut node, 0, streamer(0), stream_request(1)).unwrap();
    put(&mut node, 1, streamer(1), stream_request(1)).unwrap();
    for chunk in 0..3 {
        put(&mut node, 0, streamer(0), stream_chunk(1, chunk)).unwrap();
    }
    drain(&mut node);
    put(&mut node, 0, streamer(0), stream_chunk(1, 2)).expect("a repeat, which is answered");
    assert_eq!(node.queued_frames(PortId(0)), 1);
    put(&mut node, 0, streamer(0), Message::StreamDone(OperationNumber(1))).unwrap();
    assert_eq!(
        node.queued_frames(PortId(0)),
        0,
        "the answer's memory belongs to another group now"
    );
}

#[test]
fn a_child_that_comes_after_the_failure_is_told_of_it_once_it_has_shown_its_grant() {
    let mut node = Node::new(limits());
    node.install(Time(0), group(3)).unwrap();
    put(&mut node, 0, edge(0), Message::Join).unwrap();
    let abort = Abort { reason: AbortReason::MemberAborted, at_fault: EndpointId(0) };
    put(&mut node, 0, edge(0), Message::Abort(abort)).unwrap();
    drain(&mut node);
    let unknown = Err(FrameError::UnknownGroup { group: GROUP, epoch: EPOCH });
    let forged = Edge { capability: capability(7), ..edge(1) };
    assert_eq!(put(&mut node, 1, forged, Message::Join), unknown);
    // Child 0 had joined, so it was told then.
    assert_eq!(put(&mut node, 1, edge(0), Message::Join), unknown);
    put(&mut node, 1, edge(1), Message::Join).unwrap();
    let message = Header { edge: edge(1), message: Message::Abort(abort) };
    assert_eq!(drain(&mut node), (vec![(PortId(1), message)], vec![Event::Close(PortId(1))]));
    assert_eq!((node.osos_used(), node.poll_timeout()), (0, None));
    // Another group has its number by now.
    node.install(Time(0), GroupConfig { epoch: Epoch(10), ..group(3) }).unwrap();
    put(&mut node, 2, edge(2), Message::Join).unwrap();
    let message = Header { edge: edge(2), message: Message::Abort(abort) };
    assert_eq!(drain(&mut node), (vec![(PortId(2), message)], vec![Event::Close(PortId(2))]));
}

#[test]
fn of_many_failed_groups_the_newest_are_remembered() {
    let mut node = Node::new(limits());
    let epochs = 1024 + 1;
    for epoch in 0..epochs {
        let epoch = Epoch(epoch);
        node.install(Time(0), GroupConfig { epoch, ..group(1) }).unwrap();
        assert!(node.withdraw(GROUP, epoch));
    }
    drain(&mut node);
    let mut join = |epoch| put(&mut node, 0, Edge { epoch, ..edge(0) }, Message::Join);
    let oldest = Epoch(0);
    assert_eq!(join(oldest), Err(FrameError::UnknownGroup { group: GROUP, epoch: oldest }));
    assert_eq!(join(Epoch(1)), Ok(()));
}

#[test]
fn nothing_more_goes_to_a_child_that_has_left() {
    let mut node = node_with_children(2);
    for child in [0, 1] {
        put(&mut node, child, edge(child as u16), request(0, 1)).unwrap();
    }
    // Child 0 leaves before its result was sent.
    put(&mut node, 0, edge(0), Message::Leave).unwrap();
    let (sent, _) = drain(&mut node);
    assert!(sent.iter().all(|(port, _)| *port == PortId(1)), "{sent:?}");
    assert_eq!(sent.len(), 1);
}

#[test]
fn repeats_by_datagram_leave_the_link_its_room() {
    let mut node = node_with_children(2);
    let mut repeat = part(0, 1);
    for attempt in 0..100 {
        repeat.retransmit.attempt = attempt;
        let header = Header { edge: edge(0), message: Message::Request(repeat) };
        node.handle_frame(Time(0), PortId(0), Carrier::Datagram, &header, &[0], &mut Nowhere)
            .unwrap();
    }
    let answers = node.queued_frames(PortId(0));
    assert!(answers < 20 && node.stats().dropped > 70, "answers are bounded: {answers} wait");
    // The next segment travels over the link, which child 0 has not read for a while.
    for child in [0, 1] {
        put(&mut node, child, edge(child as u16), request(1, 1)).unwrap();
    }
    assert_eq!(node.queued_frames(PortId(0)), answers + 1);
    assert_eq!(drain(&mut node).1, [], "the group goes on");
}

#[test]
fn an_operation_is_a_stream_for_all_or_for_none() {
    let stream =
        Some(StreamConfig { tree: TreeId(0), terms: StreamTerms { chunk_bytes: 16, window: 2 } });
    let by_segments = Message::Request(Part { operation: OperationNumber(1), ..part(0, 16) });
    let orders = [[stream_request(1), by_segments], [by_segments, stream_request(1)]];
    for [first, second] in orders {
        let mut node = Node::new(limits());
        node.install(Time(0), GroupConfig { stream, ..group(2) }).unwrap();
        for child in 0..2 {
            put(&mut node, u32::from(child), edge(child), Message::Join).unwrap();
        }
        drain(&mut node);
        put(&mut node, 0, edge(0), first).unwrap();
        assert_eq!(drain(&mut node).1, []);
        put(&mut node, 1, edge(1), second).unwrap();
        let abort = Abort { reason: AbortReason::Disagreement, at_fault: EndpointId(1) };
        let failed = Event::Failed { group: GROUP, epoch: EPOCH, abort };
        assert!(drain(&mut node).1.contains(&failed), "nobody waits for ever");
    }
}

#[test]
fn a_node_without_multicast_lets_its_subscribed_members_go_on() {
    let parent = ParentConfig {
        name: "above".into(),
        port: PortId(9),
        child: ChildIndex(0),
        capability: capability(0),
    };
    let sends_next = |is_multicast: bool| {
        let mut node = Node::new(limits());
        node.install(Time(0), GroupConfig { parent: Some(parent.clone()), ..group(1) }).unwrap();
        if is_multicast {
            node.use_multicast(GROUP, capability(8), 0);
        }
        put(&mut node, 0, edge(0), Message::Join).unwrap();
        for number in 0..u32::from(OSOS) {
            put(&mut node, 0, edge(0), request(number, 1)).unwrap();
        }
        // The root's results have reached the member, and not this aggregator.
        put(&mut node, 0, edge(0), request(u32::from(OSOS), 1))
    };
    assert_eq!(sends_next(true), Ok(()));
    assert!(matches!(sends_next(false), Err(FrameError::OutsideWindow { .. })));
}

#[test]
fn copies_that_multicast_has_overtaken_make_room() {
    let mut node = node_with_children(1);
    node.use_multicast(GROUP, capability(8), 64);
    // The child goes on with what it gets by multicast, and reads nothing from its link.
    for number in 0..60 {
        put(&mut node, 0, edge(0), request(number, 1)).unwrap();
    }
    assert!(node.queued_frames(PortId(0)) < 20);
    let (sent, events) = drain(&mut node);
    let is_newest = |header: &Header| matches!(header.message, Message::Result(it) if it == Part { retransmit: it.retransmit, ..part(59, 1) });
    assert!(is_newest(&sent.last().unwrap().1), "what is wanted is there: {sent:?}");
    assert_eq!(events, [], "the group goes on");
}
