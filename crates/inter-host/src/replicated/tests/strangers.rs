//! Datagrams of those that are no members: they change nothing, and are counted.

use std::net::UdpSocket;

use tributary_wire::frame::{
    AbortReason, Called, Contribution, Edge, Header, Message, Part, RepeatedHead, RetransmitState,
    Shape, Target, Versions,
};
use tributary_wire::{
    Capability, ChildIndex, EndpointId, Epoch, OperationNumber, SegmentIndex, Sequence,
};

use super::faults::{Faults, Rates};
use super::*;

/// A contribution of one double to operation `number`, as `host` would send it.
pub(super) fn contribution(identity: Identity, host: u16, number: u32) -> (Header, [u8; 8]) {
    let part = Part {
        operation: OperationNumber(number),
        segment: SegmentIndex(0),
        sequence: Sequence(0),
        shape: Shape::new(Operator::Sum, Datatype::F64, 1).unwrap(),
        target: Target::Member(EndpointId(1)),
        has_data: true,
        retransmit: RetransmitState { attempt: CollectiveKind::Allreduce as u8, behind: 0 },
    };
    let edge = Edge {
        group: identity.group,
        epoch: Epoch(0),
        child: ChildIndex(host),
        capability: identity.secret,
        version: Versions::SPOKEN.newest,
    };
    let message = Message::Contribution(Contribution { part, repeated_bytes: 0 });
    (Header { edge, message }, 1e300_f64.to_le_bytes())
}

pub(super) fn send(socket: &UdpSocket, to: SocketAddr, header: Header, payload: &[u8]) {
    let datagram = [&header.encode()[..], payload].concat();
    socket.send_to(&datagram, to).unwrap();
}

/// So many rounds at a host of a group of `levels`, in which a stranger sends to an address of that host's; then the host leaves.
pub(super) fn rounds_beside_a_stranger(
    member: &mut ReplicatedLevels,
    host: u32,
    levels: &[u32],
    rounds: u32,
    to: SocketAddr,
) -> Vec<Vec<u8>> {
    let stranger = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let hosts: u32 = levels.iter().product();
    let (header, payload) = contribution(member.identity(), ((host + 1) % hosts) as u16, 2);
    let mut sums = Vec::new();
    for round in 0..rounds {
        // Garbage, which the kernel drops, and a forged contribution, which has the secret.
        stranger.send_to(&[7; 200], to).unwrap();
        send(&stranger, to, header, &payload);
        sums.push(round_of_doubles(member, host, levels, round).expect("nobody dies"));
    }
    member.leave();
    sums
}

#[test]
fn forged_datagrams_change_nothing_and_are_counted() {
    let (levels, rounds) = (&[2][..], 30);
    for authenticates in [false, true] {
        let identity = identity(authenticates);
        let expected = expected(levels, rounds);
        let mut hosts = members(levels, identity);
        let stranger = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        for member in &mut hosts {
            let to = member.datagram_address();
            for number in 0..4 {
                for host in 0..3 {
                    // Without the secret; with it, from elsewhere; and something else than a contribution.
                    let (header, payload) = contribution(identity, host, number);
                    let mut without = header;
                    // Whichever secret the hosts of this test have, another.
                    let other = header.edge.capability.to_bytes().map(|byte| !byte);
                    without.edge.capability = Capability::from_bytes(other);
                    send(&stranger, to, without, &payload);
                    send(&stranger, to, header, &payload);
                    send(&stranger, to, Header { message: Message::Leave, ..header }, &[]);
                    stranger.send_to(b"nothing at all", to).unwrap();
                }
            }
        }
        let counts = on_all(hosts, move |host, mut member| {
            let sums = rounds_of_doubles(&mut member, host, levels, rounds);
            (sums, member.stats())
        });
        for ((sums, stats), expected) in counts.into_iter().zip(expected) {
            assert!(sums == expected, "authenticated: {authenticates}");
            // The kernel's filter lets frames with the secret pass.
            assert_eq!((stats.refused, stats.unqueued), (24, 24), "{stats:?}");
        }
    }
}

/// Where frames carry codes, the source of a member and the secret are not enough.
#[test]
fn a_datagram_from_a_members_address_needs_the_code() {
    let levels = &[2][..];
    for authenticates in [false, true] {
        let identity = identity(authenticates);
        let mut hosts = members(levels, identity);
        let to = hosts[0].datagram_address();
        let (header, payload) = contribution(identity, 1, 0);
        hosts[1].send_raw(to, &header.encode(), &payload);
        let outcomes = on_all(hosts, move |host, mut member| {
            let mut vector = doubles(host, 0, 1);
            let operation = allreduce_of(&mut vector, Operator::Sum, Datatype::F64, levels);
            let outcome = run(&mut member, &operation);
            member.leave();
            (outcome.is_ok(), member.stats().refused)
        });
        // Without codes it counts as the member's: it says another digest, and the member itself disagrees with it.
        let [(is_ok, refused), _] = outcomes[..] else { panic!("two hosts") };
        assert_eq!((is_ok, refused), (authenticates, u64::from(authenticates)));
    }
}

/// The header's fields are those of a member, and what lies behind is not what they say.
#[test]
fn what_a_member_sends_amiss_is_dropped() {
    let (levels, rounds) = (&[2][..], 10);
    let identity = identity(false);
    let expected = expected(levels, rounds);
    let mut hosts = members(levels, identity);
    let to = hosts[0].datagram_address();
    for (level, number, repeated_bytes) in
        [(1, 0, 0), (u32::MAX, 0, 0), (0, 7, 0), (0, 1 << 31, 0), (0, 5, 20)]
    {
        let (mut header, payload) = contribution(identity, 1, number);
        let Message::Contribution(contribution) = &mut header.message else { panic!("it is one") };
        contribution.part.sequence = Sequence(level);
        contribution.repeated_bytes = repeated_bytes;
        let behind = vec![0xff; usize::from(repeated_bytes)];
        hosts[1].send_raw(to, &header.encode(), &[&payload[..], &behind].concat());
    }
    let sums =
        on_all(hosts, move |host, mut member| rounds_of_doubles(&mut member, host, levels, rounds));
    assert!(sums == expected);
}

/// A member that breaks the rules and dies: what it has said can't be passed on, and harms nobody.
#[test]
fn what_no_host_can_have_called_is_not_passed_on() {
    let levels = &[3][..];
    let identity = identity(false);
    let mut hosts = members(levels, identity);
    let to = hosts[0].datagram_address();
    let (mut header, payload) = contribution(identity, 1, 1);
    let Message::Contribution(contribution) = &mut header.message else { panic!("it is one") };
    // A barrier of eight bytes.
    let called = Called { collective: 1, operator: Operator::Barrier, datatype: Datatype::U8 };
    let head = RepeatedHead { called, digest: 7 };
    contribution.repeated_bytes = 16;
    hosts[1].send_raw(to, &header.encode(), &[&payload[..], &head.encode(), &payload].concat());
    let outcomes = on_all(hosts, move |host, mut member| {
        if host == 1 {
            return Ok(Vec::new());
        }
        round_of_doubles(&mut member, host, levels, 0)
    });
    let died = Err(Abort { reason: AbortReason::MemberLost, at_fault: EndpointId(1) });
    assert_eq!([&outcomes[0], &outcomes[2]], [&died, &died]);
}

/// As behind a firewall that lets no datagrams through to one host. A greeting that comes late is no fault.
#[test]
fn a_host_that_datagrams_do_not_come_to_finds_it_out_before_the_first_operation() {
    let levels = &[2, 2][..];
    for authenticates in [false, true] {
        let hosts = members(levels, identity(authenticates));
        let reached = on_all(hosts, move |host, mut member| {
            if host == 2 {
                // Nobody hears of it.
                member.inject(Faults::new(0, Rates { lost: 1000, ..Rates::default() }));
            }
            let is_reached = member.find_reach(Duration::from_millis(200)).by_copies;
            let (refused, heard) = (member.stats().refused, member.stats().heard);
            (is_reached, refused, heard)
        });
        // Hosts 3 and 0 are in its groups.
        let expected = [false, true, true, false].map(|is_reached| (is_reached, 0, 0));
        assert_eq!(reached, expected, "authenticated: {authenticates}");
    }
    let sums = on_all(members(levels, identity(true)), move |host, mut member| {
        assert!(member.find_reach(WATCHDOG).by_copies, "all greet");
        rounds_of_doubles(&mut member, host, levels, 8)
    });
    assert!(sums.iter().all(|it| *it == sums[0]));
}
