//! What groups wait for.

use super::*;

fn missing(node: &Node) -> Option<(WaitsFor, Vec<u16>)> {
    let mut waits = node.waits();
    let wait = waits.next()?;
    assert_eq!((wait.group, wait.epoch), (GROUP, EPOCH));
    assert_eq!(waits.next(), None, "there is one group");
    Some((wait.for_what, wait.missing.iter().map(|child| child.0).collect()))
}

fn operation(number: u32) -> WaitsFor {
    let part = part(number, 8);
    WaitsFor::Operation { operation: part.operation, part: part.sequence.0 }
}

#[test]
fn a_group_waits_for_members_that_have_not_joined() {
    let mut node = Node::new(limits());
    node.install(Time(0), group(3)).unwrap();
    put(&mut node, 1, edge(1), Message::Join).unwrap();
    assert_eq!(missing(&node), Some((WaitsFor::Members, vec![0, 2])));
    for child in [0, 2] {
        put(&mut node, u32::from(child), edge(child), Message::Join).unwrap();
    }
    assert_eq!(missing(&node), None, "nothing was begun");
}

#[test]
fn a_group_waits_for_the_oldest_operation_also_where_numbers_wrap() {
    let mut node = node_with_children(3);
    for number in (0..300).step_by(2) {
        for ahead in [number, number + 1] {
            put(&mut node, 0, edge(0), request(ahead, 8)).unwrap();
        }
        assert_eq!(missing(&node), Some((operation(number), vec![1, 2])));
        put(&mut node, 2, edge(2), request(number, 8)).unwrap();
        assert_eq!(missing(&node), Some((operation(number), vec![1])));
        put(&mut node, 1, edge(1), request(number, 8)).unwrap();
        assert_eq!(missing(&node), Some((operation(number + 1), vec![1, 2])));
        for child in [1, 2] {
            put(&mut node, u32::from(child), edge(child), request(number + 1, 8)).unwrap();
        }
        assert_eq!(missing(&node), None, "all is complete");
        drain(&mut node);
    }
}

#[test]
fn a_node_that_has_all_waits_for_its_parent() {
    let mut node = Node::new(limits());
    let parent = ParentConfig {
        name: "above".into(),
        port: PortId(9),
        child: ChildIndex(0),
        capability: Capability::default(),
    };
    node.install(Time(0), GroupConfig { parent: Some(parent), ..group(1) }).unwrap();
    put(&mut node, 0, edge(0), Message::Join).unwrap();
    put(&mut node, 0, edge(0), request(0, 8)).unwrap();
    assert_eq!(missing(&node), Some((operation(0), vec![])));
}

#[test]
fn a_stream_waits_for_requests_and_for_chunks() {
    let mut node = Node::new(limits());
    let terms = StreamTerms { chunk_bytes: 16, window: 2 };
    let stream = Some(StreamConfig { tree: TreeId(0), terms });
    node.install(Time(0), GroupConfig { stream, ..group(2) }).unwrap();
    for child in 0..2 {
        put(&mut node, u32::from(child), edge(child), Message::Join).unwrap();
    }
    put(&mut node, 1, edge(1), stream_request(1)).unwrap();
    let of_stream = |part| WaitsFor::Operation { operation: OperationNumber(1), part };
    assert_eq!(missing(&node), Some((of_stream(0), vec![0])));
    put(&mut node, 0, edge(0), stream_request(1)).unwrap();
    assert_eq!(missing(&node), None, "the stream may begin, and no chunk has");
    put(&mut node, 0, edge(0), stream_chunk(1, 0)).unwrap();
    assert_eq!(missing(&node).map(|(_, missing)| missing), Some(vec![1]));
}

#[test]
fn the_earlier_of_two_waits_is_known_also_where_numbers_wrap() {
    let wait = |for_what| Wait { group: GROUP, epoch: EPOCH, for_what, missing: vec![] };
    for number in 0..300 {
        let (one, next) = (wait(operation(number)), wait(operation(number + 1)));
        assert!(one.is_before(&next) && !next.is_before(&one) && !one.is_before(&one));
        assert!(
            wait(WaitsFor::Members).is_before(&one) && !one.is_before(&wait(WaitsFor::Members))
        );
    }
}
