//! Goal: the process judges a request rightly, however far the program goes on while the process reads what the
//! program has made. Method: members go on at each of the process's accesses in turn, as on another core.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tributary_kernel_path::user_space::packets::{Checksum, packet};
use tributary_kernel_path::user_space::{UserSpace, Verdict, follow};
use tributary_kernel_path::{Arrival, Handover};
use tributary_protocol::node::PortId;
use tributary_protocol::{Carrier, Time};
use tributary_protocol_testing::frames::{encode, part, sequence};
use tributary_wire::frame::{Header, Message, Shape};
use tributary_wire::{Datatype, OperationNumber, Operator};

use crate::handover::{PAYLOAD_MAX_BYTES, path};
use crate::root::{GROUP, edge, root};

/// A window of one has two slots: each segment has that of the one before the last.
const WINDOW: u16 = 1;

fn request(child: usize, number: u32) -> (Header, Vec<u8>) {
    let shape = Shape::new(Operator::Sum, Datatype::I32, 1).expect("it is defined");
    let part = part(OperationNumber(number), sequence(number), shape);
    (Header { edge: edge(child), message: Message::Request(part) }, vec![1; 4])
}

/// True if the program takes it.
fn run_packet(program: &UserSpace, child: usize, number: u32) -> bool {
    let (header, payload) = request(child, number);
    let ends = path(PortId(child as u32));
    let frame = encode(&header, &payload);
    let bytes = packet(ends.peer, ends.own, [child as u8; 12], Checksum::None, &frame);
    program.run(1, &bytes, false).0 != Verdict::Pass
}

/// A request for a segment comes over the link. Before the process's access with this number, its repeat
/// completes the segment in the program, which also completes those up to `end`, and that one begins. False if
/// there is no such access.
fn judges_rightly(first: u32, end: u32, access: usize) -> bool {
    let (program, tables) = UserSpace::new();
    let program = Arc::new(program);
    let (mut node, mut memory) = root(2, WINDOW, PAYLOAD_MAX_BYTES);
    let mut handover = Handover::new(tables);
    let mut hand = |handover: &mut Handover, child: usize, (header, payload): (Header, Vec<u8>)| {
        let (port, carrier) = (PortId(child as u32), Carrier::Link);
        let arrival = Arrival { now: Time(0), port, carrier, header: &header, payload: &payload };
        let handed = handover.handle_frame(&mut node, arrival, &mut memory);
        if header.message == Message::Join && child == 1 {
            assert!(
                handover.admit(Time(0), &node, GROUP, None, |port| Some(path(port))).expect("room")
            );
        }
        handed
    };
    for child in 0..2 {
        let join = Header { edge: edge(child), message: Message::Join };
        hand(&mut handover, child, (join, Vec::new())).expect("its place is free");
    }
    for number in 0..first {
        assert!((0..2).all(|child| run_packet(&program, child, number)));
    }
    assert!(run_packet(&program, 0, first));
    let accesses = Arc::new(AtomicUsize::new(0));
    follow({
        let (program, accesses) = (Arc::clone(&program), Arc::clone(&accesses));
        move |_| {
            if accesses.fetch_add(1, Ordering::Relaxed) + 1 == access {
                // Accesses of another thread are not followed. Once the process has the segment, the repeat is its.
                let both = |number| (0..2).all(|child| run_packet(&program, child, number));
                let go_on = || {
                    run_packet(&program, 1, first)
                        && (first + 1..end).all(both)
                        && run_packet(&program, 0, end)
                };
                thread::scope(|scope| scope.spawn(go_on).join()).expect("the program takes them");
            }
        }
    });
    let judged = hand(&mut handover, 1, request(1, first));
    follow(|_| {});
    assert_eq!(judged, Ok(()), "segment {first}, up to {end}, before access {access}");
    // All is well afterwards, too.
    for number in first..end + 6 {
        for child in 0..2 {
            if !run_packet(&program, child, number) {
                let judged = hand(&mut handover, child, request(child, number));
                assert_eq!(judged, Ok(()), "{number} behind {first} to {end}, access {access}");
            }
        }
    }
    accesses.load(Ordering::Relaxed) >= access
}

#[test]
fn the_process_hears_of_what_is_made_while_it_reads() {
    // In turn, the segment's slot is the first or the second that is read.
    for first in [2, 3] {
        for end in first + 1..first + 5 {
            let accesses = (1..).take_while(|access| judges_rightly(first, end, *access)).count();
            assert!(accesses > 2, "{accesses} accesses");
        }
    }
}
