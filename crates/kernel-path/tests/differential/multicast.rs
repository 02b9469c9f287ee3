//! Goal: results go by multicast where they arrive, and as copies where they may not.

use std::net::SocketAddrV4;

use tributary_kernel_path::user_space::packets::{Checksum, Parsed, packet, parse};
use tributary_kernel_path::user_space::{SentPacket, UserSpace, Verdict};
use tributary_kernel_path::{GroupTerms, PlaceId, Tables};
use tributary_protocol::Time;
use tributary_protocol_testing::frames::{encode, part, sequence};
use tributary_wire::OperationNumber;
use tributary_wire::frame::{EVERYONE, Header, Message, Shape, Subscription};

use crate::root::{MULTICAST, edge};
use crate::{group, host, members, node, to_multicast};

const CHILDREN: usize = 4;

/// Looks at the envelope of a result to the multicast address.
pub(crate) fn check(parsed: &Parsed<'_>, bytes: &[u8]) {
    assert_eq!((parsed.from, parsed.to), (node(), MULTICAST));
    // RFC 1112, section 6.4: the address's lower 23 bits; 239.255.205.9 has a bit above them.
    assert_eq!(parsed.hardware[..6], [0x01, 0x00, 0x5e, 0x7f, 0xcd, 0x09]);
    assert_eq!(parsed.hardware[6..], members::hardware(0)[..6], "from the node's own address");
    assert_eq!(bytes[22], 8, "routers that it may cross");
}

fn groups_served() -> (UserSpace, Tables, PlaceId) {
    let peers: Vec<_> = (0..CHILDREN).map(|child| host(child, 4000 + child as u16)).collect();
    let (program, mut tables) = UserSpace::new();
    let terms = GroupTerms { multicast: Some(to_multicast(64)), ..group(2, &peers) };
    let place = tables.admit(Time(0), &terms).expect("there is a place");
    (program, tables, place)
}

/// A child contributes to a barrier, through an interface, at one of the aggregator's addresses.
fn contribute(
    program: &UserSpace,
    number: u32,
    child: usize,
    interface: u32,
    own: SocketAddrV4,
) -> Vec<SentPacket> {
    let mut part = part(OperationNumber(number), sequence(number), Shape::BARRIER);
    part.has_data = false;
    let frame = encode(&Header { edge: edge(child), message: Message::Request(part) }, &[]);
    let peer = host(child, 4000 + child as u16);
    let bytes = packet(peer, own, members::hardware(child), Checksum::Full, &frame);
    let (verdict, sent) = program.run(interface, &bytes, false);
    assert_ne!(verdict, Verdict::Pass);
    sent
}

/// All children contribute to a barrier, each through an interface. Returns what is sent at last.
fn barrier(program: &UserSpace, number: u32, interfaces: [u32; CHILDREN]) -> Vec<SentPacket> {
    let mut last = Vec::new();
    for (child, interface) in interfaces.into_iter().enumerate() {
        last = contribute(program, number, child, interface, node());
    }
    last
}

/// The receivers of packets, and through which interface they go.
fn receivers(sent: &[SentPacket]) -> Vec<(u16, u32)> {
    let child = |sent: &SentPacket| {
        let parsed = parse(&sent.bytes);
        (u16::from_le_bytes([parsed.frame[44], parsed.frame[45]]), sent.interface)
    };
    sent.iter().map(child).collect()
}

#[test]
fn a_receiver_of_multicast_gets_no_copy() {
    use Subscription::{Below, Here, Nobody};
    let (program, tables, place) = groups_served();
    tables.subscribe(place, [Here, Below, Here, Nobody].into_iter());
    let sent = receivers(&barrier(&program, 0, [1; CHILDREN]));
    assert_eq!(sent, [(1, 1), (3, 1), (EVERYONE.0, 1)]);
    tables.subscribe(place, [Here; CHILDREN].into_iter());
    let sent = receivers(&barrier(&program, 1, [1; CHILDREN]));
    assert_eq!(sent, [(EVERYONE.0, 1)], "one packet is enough");
}

#[test]
fn a_member_behind_another_interface_gets_a_copy() {
    let (program, tables, place) = groups_served();
    tables.subscribe(place, [Subscription::Here; CHILDREN].into_iter());
    let sent = receivers(&barrier(&program, 0, [1, 2, 1, 1]));
    assert_eq!(sent, [(1, 2), (EVERYONE.0, 1)]);
    let sent = receivers(&barrier(&program, 1, [1, 1, 2, 2]));
    assert_eq!(sent, [(0, 1), (1, 1), (EVERYONE.0, 2)]);
}

/// As at the ports of a switch.
#[test]
fn each_behind_an_interface_of_its_own_gets_a_copy() {
    use Subscription::{Here, Nobody};
    let (program, tables, place) = groups_served();
    tables.subscribe(place, [Here; CHILDREN].into_iter());
    let sent = receivers(&barrier(&program, 0, [1, 2, 3, 4]));
    assert_eq!(sent, [(0, 1), (1, 2), (2, 3), (3, 4)]);
    tables.subscribe(place, [Here, Here, Here, Nobody].into_iter());
    let sent = receivers(&barrier(&program, 1, [1, 2, 3, 4]));
    assert_eq!(sent, [(0, 1), (1, 2), (2, 3), (3, 4)]);
}

#[test]
fn multicast_that_nobody_receives_ends_and_comes_back() {
    let (program, tables, place) = groups_served();
    let mut number = 0;
    let mut is_multicast = || {
        number += 1;
        let sent = receivers(&barrier(&program, number - 1, [1; CHILDREN]));
        sent.iter().any(|(child, _)| *child == EVERYONE.0)
    };
    for _ in 0..64 {
        assert!(is_multicast());
    }
    assert!(!is_multicast() && !is_multicast());
    tables.subscribe(place, [Subscription::Below; CHILDREN].into_iter());
    assert!(is_multicast());
}

#[test]
fn a_node_of_several_addresses_sends_copies_alone() {
    let peers: Vec<_> = (0..CHILDREN).map(|child| host(child, 4000 + child as u16)).collect();
    let (program, mut tables) = UserSpace::new();
    let mut terms = GroupTerms { multicast: Some(to_multicast(64)), ..group(2, &peers) };
    terms.children[1].own.set_port(1);
    let place = tables.admit(Time(0), &terms).expect("there is a place");
    tables.subscribe(place, [Subscription::Here; CHILDREN].into_iter());
    let mut last = Vec::new();
    for (child, terms) in terms.children.iter().enumerate() {
        last = contribute(&program, 0, child, 1, terms.own);
    }
    assert_eq!(receivers(&last), [(0, 1), (1, 1), (2, 1), (3, 1)]);
}
