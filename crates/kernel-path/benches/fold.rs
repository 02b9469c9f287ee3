//! What the program needs for the packet of the last contribution, in the kernel, by type and length: reading,
//! folding, writing and sending. As root: `cargo bench -p tributary-kernel-path --bench fold`.

#![allow(clippy::print_stdout, reason = "a benchmark prints what it measures")]

use std::net::{Ipv4Addr, SocketAddrV4};

use aya::programs::{TestRun, TestRunOptions};
use rustix::thread::UnshareFlags;
use tributary_kernel_path::coverage::{Fold, fold};
use tributary_kernel_path::user_space::packets::{Checksum, packet};
use tributary_kernel_path::{ChildTerms, GroupTerms, Program, Tables};
use tributary_protocol::Time;
use tributary_protocol_testing::frames::{encode, part, sequence};
use tributary_wire::frame::{Edge, Header, Message, Shape, Subscription, Versions};
use tributary_wire::{
    Capability, ChildIndex, Datatype, Epoch, GroupId, OperationNumber, Operator, Sequence,
};

const CHILDREN: usize = 8;
const WINDOW: u16 = 8;
const ROUNDS: u32 = 400;
const GROUP: GroupId = GroupId(1);
const EPOCH: Epoch = Epoch(1);

fn peer(child: usize) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, child as u8 + 1), 4000)
}

fn own() -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 1, 1), 7471)
}

fn capability(child: usize) -> Capability {
    Capability::from_bytes([child as u8 + 1; 16])
}

fn terms() -> GroupTerms {
    let child = |child| ChildTerms {
        capability: capability(child),
        peer: peer(child),
        own: own(),
        next: Sequence::FIRST,
        subscription: Subscription::Nobody,
    };
    GroupTerms {
        group: GROUP,
        epoch: EPOCH,
        frame_version: Versions::SPOKEN.newest,
        window: WINDOW,
        payload_max_bytes: 1024,
        children: (0..CHILDREN).map(child).collect(),
        parent: None,
        multicast: None,
        floor: Sequence::FIRST,
        known: Vec::new(),
    }
}

fn request(child: usize, number: u32, shape: Shape) -> Vec<u8> {
    let mut part = part(OperationNumber(number), sequence(number), shape);
    part.has_data = true;
    let edge = Edge {
        group: GROUP,
        epoch: EPOCH,
        child: ChildIndex(child as u16),
        capability: capability(child),
        version: Versions::SPOKEN.newest,
    };
    let header = Header { edge, message: Message::Request(part) };
    // Finite floats of different exponents, and any integers.
    let payload: Vec<_> =
        (0..shape.bytes()).map(|at| 0x30 | (at + child + number as usize) as u8 & 15).collect();
    packet(peer(child), own(), [child as u8; 12], Checksum::Partial, &encode(&header, &payload))
}

/// Nanoseconds that the kernel took for a packet.
fn run(program: &mut Program, bytes: &[u8]) -> u64 {
    let mut options = TestRunOptions::new();
    options.data_in = Some(bytes);
    let result = program.classifier().test_run(options).expect("the kernel runs it");
    u64::try_from(result.duration.as_nanos()).expect("a run is short")
}

fn median_ns(program: &mut Program, tables: &mut Tables, shape: Shape) -> u64 {
    let place = tables.admit(Time(0), &terms()).expect("there is a place");
    let mut last: Vec<_> = (0..ROUNDS)
        .map(|number| {
            for child in 1..CHILDREN {
                run(program, &request(child, number, shape));
            }
            let took = run(program, &request(0, number, shape));
            // What the process is to fold, it has.
            tables.take(place, sequence(number));
            tables.finish(place, sequence(number));
            took
        })
        .collect();
    tables.remove(Time(0), place);
    last.sort_unstable();
    last[last.len() / 2]
}

fn main() {
    // SAFETY: this thread shares nothing else that a network namespace concerns.
    #[allow(unsafe_code, reason = "the call is unsafe for what other flags do")]
    let unshared = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) };
    unshared.expect("a network namespace, as root");
    let (mut program, mut tables) = Program::load().expect("the kernel takes the program");
    println!("sums of {CHILDREN} children: the last packet's run, median of {ROUNDS}");
    // An exact sum of one double is one of two or three i64, of a float of two.
    for datatype in [Datatype::I32, Datatype::I64, Datatype::F32, Datatype::F64] {
        for bytes in [8, 16, 24, 64, 256, 512, 1024] {
            let elements = bytes / datatype.size_bytes() as u32;
            let shape = Shape::new(Operator::Sum, datatype, elements).expect("it is defined");
            let by = match fold(Operator::Sum, datatype, elements, CHILDREN) {
                Some(Fold::InKernel) => "folded here",
                _ => "left to the process",
            };
            let took_ns = median_ns(&mut program, &mut tables, shape);
            println!("{:>4} {bytes:>5} B: {took_ns:>6} ns, {by}", datatype.name());
        }
    }
}
