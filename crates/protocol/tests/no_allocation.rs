//! Goal: an operation allocates nothing, at an aggregator or at a member. Method: an allocator that counts
//! per thread, one aggregator between two members, and a warm-up before the count.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::num::NonZeroU16;

use tributary_protocol::endpoint::{Endpoint, EndpointConfig, Event, OperationSpec};
use tributary_protocol::node::{GroupConfig, Node, NodeConfig, PortId, StreamConfig, StreamLimits};
use tributary_protocol::payloads::{Payloads, Place, Source};
use tributary_protocol::{Carrier, StreamTerms, Time};
use tributary_protocol_testing::NodeEdges;
use tributary_protocol_testing::workload::OperationPlan;
use tributary_wire::frame::{Shape, Versions};
use tributary_wire::{Datatype, EndpointId, Epoch, GroupId, Operator, TreeId};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to `System` unchanged; counting touches no allocator state.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: `layout` meets the contract of `GlobalAlloc::alloc`, which is `System`'s as well.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `System`, through `alloc` above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the pointer came from `System`, through `alloc` above.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Payload is not moved, because only the machines are tested.
struct Nowhere;

impl Payloads for Nowhere {
    fn park(&mut self, _: Place, _: &[u8]) {}
    fn begin(&mut self, _: Place, _: Shape, _: Source<'_>) {}
    fn fold(&mut self, _: Place, _: Shape, _: Source<'_>) {}
    fn finish(&mut self, _: Place, _: Shape) {}
    fn store(&mut self, _: Place, _: &[u8]) {}
}

const MEMBERS: u16 = 3;
const PAYLOAD_BYTES: u32 = 64;
const DATAGRAM_PORT: NonZeroU16 = NonZeroU16::new(7).unwrap();
const TERMS: StreamTerms = StreamTerms { chunk_bytes: 32, window: 3 };

const EDGES: NodeEdges = NodeEdges { group: GroupId(0), node: 0 };

fn node() -> Node {
    let mut node = Node::new(NodeConfig {
        frame_versions: Versions::SPOKEN,
        radix_max: MEMBERS,
        osos_max: 4,
        groups_max: 1,
        payload_max_bytes: PAYLOAD_BYTES,
        join_timeout_ns: 1,
        streams: StreamLimits { trees: 1, window_max: 4, chunk_bytes_max: PAYLOAD_BYTES },
    });
    let config = GroupConfig {
        group: GroupId(0),
        epoch: Epoch(0),
        frame_version: Versions::SPOKEN.newest,
        osos: 4,
        payload_max_bytes: PAYLOAD_BYTES,
        children: EDGES.children(MEMBERS, 0, 1),
        parent: None,
        stream: Some(StreamConfig { tree: TreeId(0), terms: TERMS }),
    };
    node.install(Time(0), config).expect("it has room");
    node
}

fn endpoint(child: u16) -> Endpoint {
    Endpoint::new(EndpointConfig {
        osos: 4,
        payload_max_bytes: PAYLOAD_BYTES,
        operations_max: 2,
        stream: Some(TERMS),
        ..EDGES.member(child, EndpointId(child.into()))
    })
}

/// Moves frames until nothing moves; counts completed operations.
fn settle(node: &mut Node, members: &mut [Endpoint], carried: &mut [u64; 2]) -> u64 {
    let payload = [0; PAYLOAD_BYTES as usize];
    let mut completed = 0;
    loop {
        let mut has_moved = false;
        for (port, member) in members.iter_mut().enumerate() {
            while let Some(transmit) = member.peek_transmit() {
                member.pop_transmit(Time(0));
                let payload = &payload[..transmit.header.payload_bytes()];
                let port = PortId(port as u32);
                let carrier = transmit.carrier;
                carried[usize::from(carrier == Carrier::Datagram)] += 1;
                node.handle_frame(Time(0), port, carrier, &transmit.header, payload, &mut Nowhere)
                    .expect("honest");
                has_moved = true;
            }
        }
        while let Some(port) = node.poll_ready() {
            while let Some(transmit) = node.peek_transmit(port) {
                members[port.0 as usize]
                    .handle_frame(Time(0), transmit.carrier, &transmit.header)
                    .expect("honest");
                node.pop_transmit(port);
                has_moved = true;
            }
        }
        while node.poll_event().is_some() {}
        for member in members.iter_mut() {
            while let Some(event) = member.poll_event() {
                completed += u64::from(matches!(event, Event::Completed(_)));
            }
        }
        if !has_moved {
            return completed;
        }
    }
}

/// Two overlapping operations of several segments each, then a barrier and a stream.
fn round(node: &mut Node, members: &mut [Endpoint], carried: &mut [u64; 2]) -> u64 {
    let sum = OperationPlan::allreduce(Operator::Sum, Datatype::F64, 50).spec(EndpointId(0));
    for member in members.iter_mut() {
        member.start(sum).expect("room for it");
        member.start(sum).expect("room for it");
    }
    let completed = settle(node, members, carried);
    for member in members.iter_mut() {
        member.start(OperationSpec::BARRIER).expect("room for it");
        member.start_stream(sum, usize::MAX).expect("room for it");
    }
    completed + settle(node, members, carried)
}

/// Runs operations. Returns how many frames went up over links and by datagram.
fn run_without_allocating(takes_datagrams: bool) -> [u64; 2] {
    let mut node = node();
    let mut members: Vec<Endpoint> = (0..MEMBERS).map(endpoint).collect();
    if takes_datagrams {
        node.take_datagrams(DATAGRAM_PORT, PAYLOAD_BYTES);
        members.iter_mut().for_each(|member| member.offer_datagrams(DATAGRAM_PORT, PAYLOAD_BYTES));
    }
    for _ in 0..4 {
        round(&mut node, &mut members, &mut [0; 2]);
    }
    let before = ALLOCATIONS.with(Cell::get);
    let (mut completed, mut carried) = (0, [0; 2]);
    for _ in 0..100 {
        completed += round(&mut node, &mut members, &mut carried);
    }
    let after = ALLOCATIONS.with(Cell::get);
    assert_eq!(completed, 100 * 4 * u64::from(MEMBERS));
    assert_eq!(after - before, 0, "allocations in {completed} completions");
    carried
}

#[test]
fn steady_operations_allocate_nothing() {
    let [by_link, by_datagram] = run_without_allocating(false);
    assert!(by_link > 0 && by_datagram == 0);
}

#[test]
fn steady_operations_by_datagram_allocate_nothing() {
    let [by_link, by_datagram] = run_without_allocating(true);
    // Streams use their links only: a stream request, the chunks and a stream done, from each
    // member in each round.
    let chunks = u64::from((50 * 8_u32).div_ceil(TERMS.chunk_bytes));
    assert_eq!(by_link, 100 * u64::from(MEMBERS) * (1 + chunks + 1));
    assert!(by_datagram > 0);
}

#[test]
fn the_allocator_does_count() {
    let before = ALLOCATIONS.with(Cell::get);
    drop(std::hint::black_box(Box::new(7_u64)));
    assert!(ALLOCATIONS.with(Cell::get) > before);
}
