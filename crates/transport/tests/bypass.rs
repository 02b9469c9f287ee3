//! Goal: a socket that bypasses the network stack loses and doubles nothing, whichever way frames come: single ones past
//! the stack, trains and repeats through it. Method: a veth link between two network namespaces; the far end has a
//! socket without a bypass, and the near namespace's counters tell what went through its network stack.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails here")]

#[path = "../../rings/tests/link/mod.rs"]
mod link;

use std::fs;
use std::net::{SocketAddr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use link::{FAR, NEAR};
use tributary_rings::Hook;
use tributary_transport::udp::{Port, WHOLE_PAYLOAD_BYTES};
use tributary_transport::{DatagramSocket, Sent};
use tributary_wire::frame::{Edge, Header, Message, Versions};
use tributary_wire::{Capability, ChildIndex, Epoch, GroupId, Sequence};

const WATCHDOG: Duration = Duration::from_secs(30);
const ECHO: SocketAddrV4 = SocketAddrV4::new(FAR, 7471);

/// A frame without payload that has a number.
fn numbered(number: u32) -> Header {
    let edge = Edge {
        group: GroupId(1),
        epoch: Epoch(2),
        child: ChildIndex(3),
        capability: Capability::from_bytes([4; 16]),
        version: Versions::SPOKEN.newest,
    };
    Header { edge, message: Message::Ack { sequence: Sequence(number), attempt: 0 } }
}

fn number_of(header: &Header) -> u32 {
    let Message::Ack { sequence, .. } = header.message else { panic!("{header:?}") };
    sequence.0
}

/// Sends every frame back, those that came together as a train.
fn echo(is_over: &AtomicBool) {
    let mut socket = DatagramSocket::bind(ECHO.into()).unwrap();
    while !is_over.load(Ordering::Relaxed) {
        let mut came = Vec::new();
        while let Some(datagram) = socket.receive().unwrap() {
            came.push((datagram.source, datagram.frame.header.encode()));
        }
        if came.is_empty() {
            std::thread::sleep(Duration::from_micros(50));
        }
        for (source, header) in came {
            assert_eq!(socket.send(Some(source), &header, &[], None).unwrap(), Sent::Taken);
        }
        while socket.flush() == Sent::Full {}
    }
}

/// Runs a test with a socket that bypasses the stack, in both modes.
fn bypassing(test: fn(DatagramSocket, Hook)) {
    for hook in [Hook::Generic, Hook::Native] {
        link::on_a_link(1, echo, move |_link| {
            link::with_service(hook, |service| {
                let mut socket = DatagramSocket::bind(SocketAddr::from((NEAR, 0))).unwrap();
                let SocketAddr::V4(address) = socket.address().unwrap() else { panic!("IPv4") };
                let port = Port::open(NEAR, address, &socket, &service).unwrap();
                socket.bypass_stack(port);
                socket.connect(ECHO.into()).unwrap();
                test(socket, hook);
            });
        });
    }
}

fn send(socket: &mut DatagramSocket, numbers: impl IntoIterator<Item = u32>) {
    for number in numbers {
        assert_eq!(socket.send(None, &numbered(number).encode(), &[], None).unwrap(), Sent::Taken);
    }
    let until = Instant::now() + WATCHDOG;
    while socket.flush() == Sent::Full {
        assert!(Instant::now() < until, "no room for ever");
    }
}

/// Receives so many frames; their numbers, sorted.
fn receive(socket: &mut DatagramSocket, count: usize) -> Vec<u32> {
    let until = Instant::now() + WATCHDOG;
    let mut numbers = Vec::new();
    while numbers.len() < count {
        assert!(Instant::now() < until, "{} of {count} frames came", numbers.len());
        if let Some(datagram) = socket.receive().unwrap() {
            assert_eq!(datagram.source, SocketAddr::V4(ECHO));
            numbers.push(number_of(&datagram.frame.header));
            socket.confirm_source();
        }
    }
    numbers.sort_unstable();
    numbers
}

/// Datagrams that this network's stack has received and sent.
fn through_the_stack() -> (u64, u64) {
    let text = fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let line = text.lines().filter(|line| line.starts_with("Udp: ")).nth(1).unwrap();
    let figures: Vec<u64> = line.split(' ').skip(1).map(|figure| figure.parse().unwrap()).collect();
    (figures[0], figures[3])
}

#[test]
fn single_frames_go_past_the_network_stack_once_its_peer_was_heard() {
    bypassing(|mut socket, _| {
        send(&mut socket, [0]);
        assert_eq!(receive(&mut socket, 1), [0]);
        assert_eq!(through_the_stack(), (0, 1), "only the first was sent through it");
        for number in 1..300 {
            send(&mut socket, [number]);
            assert_eq!(receive(&mut socket, 1), [number]);
        }
        assert_eq!(through_the_stack(), (0, 1));
        socket.avoid_bypass();
        send(&mut socket, [300]);
        assert_eq!(receive(&mut socket, 1), [300]);
        assert_eq!(through_the_stack(), (0, 2), "a repeat goes through it, its answer past it");
        send(&mut socket, [301]);
        assert_eq!(receive(&mut socket, 1), [301]);
        assert_eq!(through_the_stack(), (0, 2));
        assert_eq!(socket.stats().garbage, 0);
    });
}

/// Behind the driver, short trains are steered as one packet, and long ones go through the stack. For a program in the
/// driver, the kernel cuts them before.
#[test]
fn trains_of_all_lengths_arrive_whole_and_once() {
    bypassing(|mut socket, hook| {
        let mut next = 0;
        for length in (1..=60).chain([1, 2, 1, 60, 1]) {
            let numbers: Vec<u32> = (next..next + length).collect();
            send(&mut socket, numbers.iter().copied());
            assert_eq!(receive(&mut socket, numbers.len()), numbers, "{length} frames");
            next += length;
        }
        assert!(socket.receive().unwrap().is_none(), "no more than was sent");
        assert_eq!(socket.stats().garbage, 0);
        let (came, _) = through_the_stack();
        assert_eq!(came > 0, hook == Hook::Generic, "{hook:?}: {came} came through the stack");
    });
}

#[test]
fn what_is_too_long_for_a_packet_goes_through_the_stack() {
    bypassing(|mut socket, _| {
        send(&mut socket, [0]);
        receive(&mut socket, 1);
        let (_, before) = through_the_stack();
        let payload = vec![0; WHOLE_PAYLOAD_BYTES as usize + 100];
        let header = long_frame(payload.len() as u32).encode();
        assert_eq!(socket.send(None, &header, &payload, None).unwrap(), Sent::Taken);
        assert_eq!(socket.flush(), Sent::Taken);
        assert_eq!(through_the_stack().1, before + 1);
    });
}

fn long_frame(payload_bytes: u32) -> Header {
    use tributary_wire::frame::{Part, RetransmitState, Shape, Target};
    use tributary_wire::{Datatype, OperationNumber, Operator, SegmentIndex};
    let part = Part {
        operation: OperationNumber(0),
        segment: SegmentIndex(0),
        sequence: Sequence(0),
        shape: Shape::new(Operator::BitXor, Datatype::U8, payload_bytes).unwrap(),
        target: Target::All,
        has_data: true,
        retransmit: RetransmitState { attempt: 0, behind: 0 },
    };
    Header { message: Message::Request(part), ..numbered(0) }
}
