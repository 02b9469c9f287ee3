//! A fabric whose frames are authenticated, and an attacker who has everything except the keys.
//!
//! The attacker reads the network, so he has capabilities, addresses and recorded frames. He sends
//! from any address: to pose as a member, he uses the member's own socket.

use std::net::{Ipv4Addr, UdpSocket};

use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tributary_daemon::embedded::{Fabric, FabricOptions};
use tributary_manager::{ManagerConfig, MulticastRange};
use tributary_transport::{
    AuthenticationKey, DatagramSocket, Inject, Link, ReceiveError, Sent, TcpLink, TcpOptions,
    connect_tcp,
};
use tributary_wire::FrameKey;
use tributary_wire::control::GroupGrant;
use tributary_wire::frame::{
    AbortReason, CODE_BYTES, EXTERNAL_RECEIVER, Edge, Header, Message, announcing_code,
};

use crate::common::*;
use crate::datagrams::{DatagramMember, pair};

fn options(authenticates_frames: bool, leaves: u16) -> FabricOptions {
    let manager_limits = ManagerConfig { authenticates_frames, ..ManagerConfig::default() };
    FabricOptions { leaves, shared_memory: false, manager_limits, ..FabricOptions::default() }
}

fn authenticated(leaves: u16) -> Fabric {
    Fabric::start(&options(true, leaves)).unwrap()
}

fn dropped(fabric: &Fabric, reason: &str) -> f64 {
    let label = format!("reason=\"{reason}\"");
    metric(fabric, "root", "tributary_node_datagrams_dropped_total", &label)
}

fn refused(fabric: &Fabric, reason: &str) -> f64 {
    let label = format!("reason=\"{reason}\"");
    metric(fabric, "root", "tributary_node_refused_total", &label)
}

/// A request of the value 10^9, as its sender would put it on the wire.
fn request(edge: Edge, number: u32, key: Option<&AuthenticationKey>) -> Vec<u8> {
    let header = Header { edge, message: Message::Request(part(1, number)) }.encode();
    let payload = to_bytes(&[1e9]);
    match key {
        None => [&header[..], &payload].concat(),
        Some(key) => {
            let code = key.code(&header, &payload).to_bytes();
            [&announcing_code(header)[..], &payload, &code].concat()
        }
    }
}

/// Sends bytes from the member's own address.
fn pose_as(member: &DatagramMember, bytes: &[u8]) {
    let socket = UdpSocket::from(rustix::io::dup(&member.socket).unwrap());
    socket.send_to(bytes, member.node).unwrap();
}

#[test]
fn every_path_through_the_tree_is_authenticated() {
    guarded(|| {
        let fabric = authenticated(2);
        let job = Job::admit(&fabric);
        let group = job.group(&hosts(2), 2, 64);
        assert!(group.key.is_some());
        let mut members = members(&group, Way::Tcp);
        let sent = |node: &str| metric(&fabric, node, "tributary_node_datagrams_sent_total", "");
        // The aggregators' own links first, then their datagrams.
        eventually("sums by datagram between nodes", || {
            sum_once(&mut members, 1.0);
            ["root", "leaf0", "leaf1"].iter().all(|node| sent(node) > 20.0)
        });
        let [first, _] = &group.endpoints[..] else { panic!("two members") };
        let mut members = members.into_iter();
        let mut member = DatagramMember::open(members.next().unwrap(), &first.address.tcp);
        let mut other = members.next().unwrap();
        // A member's link, or `DatagramMember`, checks every frame that the member receives.
        let number = other.rounds();
        for number in number..number + 10 {
            member.ask(number, 1.0);
            other.contribute(&[2.0]);
            assert_eq!(member.receive_sum(number).1, to_bytes(&[3.0]));
            assert_eq!(other.result(), Ok(vec![3.0]));
        }
        for node in ["root", "leaf0", "leaf1"] {
            assert_eq!(metric(&fabric, node, "tributary_node_refused_total", ""), 0.0);
            let name = "tributary_node_datagrams_dropped_total";
            assert_eq!(metric(&fabric, node, name, ""), 0.0);
        }
    });
}

/// The attack that codes prevent: without them, an attacker who reads the network and forges
/// addresses sends frames in a member's name.
#[test]
fn without_codes_a_perfect_forgery_counts() {
    guarded(|| {
        let fabric = Fabric::start(&options(false, 0)).unwrap();
        let job = Job::admit(&fabric);
        let [mut one, mut two] = pair(&fabric, &job);
        pose_as(&one, &request(one.member.edge, 0, None));
        two.ask(0, 2.0);
        assert_eq!(two.receive_sum(0).1, to_bytes(&[1e9 + 2.0]));
        assert_eq!(one.receive_sum(0).1, to_bytes(&[1e9 + 2.0]));
    });
}

#[test]
fn a_spoofed_source_without_the_key_changes_nothing() {
    guarded(|| {
        let fabric = authenticated(0);
        let job = Job::admit(&fabric);
        let [mut one, mut two] = pair(&fabric, &job);
        let edge = one.member.edge;
        let guess = AuthenticationKey::new(FrameKey::from_bytes([0x55; 16]));
        pose_as(&one, &request(edge, 0, None));
        pose_as(&one, &request(edge, 0, Some(&guess)));
        pose_as(&one, &Header { edge, message: Message::Probe(0) }.encode());
        one.ask(0, 1.0);
        two.ask(0, 2.0);
        for member in [&mut one, &mut two] {
            assert_eq!(member.receive_sum(0).1, to_bytes(&[3.0]));
        }
        eventually("the forgeries are counted", || dropped(&fabric, "not-authentic") == 3.0);
        assert_eq!(metric(&fabric, "root", "tributary_node_refused_total", ""), 0.0);
    });
}

#[test]
fn a_datagram_altered_in_flight_changes_nothing() {
    guarded(|| {
        let fabric = authenticated(0);
        let job = Job::admit(&fabric);
        let [mut one, mut two] = pair(&fabric, &job);
        let key = one.member.key;
        let whole = request(one.member.edge, 0, key.as_ref());
        let payload_at = whole.len() - CODE_BYTES - 8;
        // Its group, epoch, child and capability stay: other values make it another edge's frame.
        let altered = [20, 24, 28, 43, payload_at, payload_at + 7, whole.len() - 1];
        for at in altered {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            pose_as(&one, &bytes);
        }
        // Cut short, it is no frame any more.
        pose_as(&one, &whole[..whole.len() - 1]);
        one.ask(0, 1.0);
        two.ask(0, 2.0);
        for member in [&mut one, &mut two] {
            assert_eq!(member.receive_sum(0).1, to_bytes(&[3.0]));
        }
        eventually("all are counted", || {
            dropped(&fabric, "not-authentic") == altered.len() as f64
                && dropped(&fabric, "garbage") == 1.0
        });
    });
}

#[test]
fn replays_change_nothing_be_they_of_this_epoch_or_an_old_one() {
    guarded(|| {
        let fabric = authenticated(0);
        let job = Job::admit(&fabric);
        let [mut one, mut two] = pair(&fabric, &job);
        let old = one.member.edge;
        let recorded = request(old, 0, one.member.key.as_ref());
        pose_as(&one, &recorded);
        two.ask(0, 2.0);
        assert_eq!(two.receive_sum(0).1, to_bytes(&[1e9 + 2.0]), "it was the member's own");
        assert_eq!(one.receive_sum(0).1, to_bytes(&[1e9 + 2.0]));
        // Within the epoch the request was counted, so it is answered and not counted again.
        pose_as(&one, &recorded);
        assert_eq!(one.receive_sum(0).1, to_bytes(&[1e9 + 2.0]));
        drop((one, two));
        eventually("the group ends", || fabric.status().groups.is_empty());

        let [mut one, mut two] = pair(&fabric, &job);
        let new = one.member.edge;
        assert_eq!(new.group, old.group, "the number is used again");
        assert_ne!(new.epoch, old.epoch);
        // Unchanged; then with the new epoch's readable fields and the old code.
        pose_as(&one, &recorded);
        let fresh = request(new, 0, None);
        let code = &recorded[recorded.len() - CODE_BYTES..];
        let header = announcing_code(*fresh.first_chunk().unwrap());
        pose_as(&one, &[&header, &fresh[header.len()..], code].concat());
        one.ask(0, 1.0);
        two.ask(0, 2.0);
        for member in [&mut one, &mut two] {
            assert_eq!(member.receive_sum(0).1, to_bytes(&[3.0]));
        }
        eventually("both are counted", || {
            dropped(&fabric, "no-edge") == 1.0 && dropped(&fabric, "not-authentic") == 1.0
        });
    });
}

#[test]
fn a_flood_from_a_non_member_changes_nothing() {
    guarded(|| {
        let fabric = authenticated(0);
        let job = Job::admit(&fabric);
        let [mut one, mut two] = pair(&fabric, &job);
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut random = Pcg64Mcg::seed_from_u64(3);
        let mut noise = [0; 200];
        for number in 0..200 {
            for _ in 0..20 {
                random.fill_bytes(&mut noise);
                let length = random.random_range(1..noise.len());
                stranger.send_to(&noise[..length], one.node).unwrap();
                stranger.send_to(&request(one.member.edge, number, None), one.node).unwrap();
            }
            one.ask(number, 1.0);
            two.ask(number, 2.0);
            for member in [&mut one, &mut two] {
                assert_eq!(member.receive_sum(number).1, to_bytes(&[3.0]));
            }
        }
        // The socket's buffer holds more than comes between two sums, so few requests are lost.
        eventually("the flood is counted", || {
            dropped(&fabric, "not-authentic") > 2000.0 && dropped(&fabric, "not-queued") >= 4000.0
        });
        assert_eq!(metric(&fabric, "root", "tributary_node_refused_total", ""), 0.0);
    });
}

/// A link to the aggregator that serves the group's first member.
fn link_to(group: &GroupGrant, key: Option<FrameKey>) -> TcpLink {
    let address = group.endpoints[0].address.tcp.parse().unwrap();
    let mut link = connect_tcp(address, TcpOptions::new(1024).unwrap(), WATCHDOG).unwrap();
    if let Some(key) = key {
        link.authenticate(AuthenticationKey::new(key));
    }
    link
}

fn join_over(link: &mut TcpLink, edge: Edge) -> Result<Header, ReceiveError> {
    let join = Header { edge, message: Message::Join }.encode();
    assert_eq!(link.send(&join, &[]), Ok(Sent::Taken));
    loop {
        match link.receive() {
            Ok(Some(frame)) => return Ok(frame.header),
            Ok(None) => std::thread::yield_now(),
            Err(error) => return Err(error),
        }
    }
}

#[test]
fn links_without_the_key_are_closed_and_the_group_does_not_notice() {
    guarded(|| {
        let fabric = authenticated(0);
        let job = Job::admit(&fabric);
        let group = job.group(&hosts(2), 2, 64);
        let wrong = FrameKey::from_bytes([0x55; 16]);
        for (count, key) in [(1.0, None), (2.0, Some(wrong))] {
            // The attacker has the capability.
            let mut link = link_to(&group, key);
            assert_eq!(join_over(&mut link, edge(&group, 0)), Err(ReceiveError::Closed));
            eventually("the refusal is counted", || refused(&fabric, "not-authentic") == count);
        }
        sum_once(&mut members(&group, Way::Tcp), 1.0);
    });
}

#[test]
fn a_frame_altered_on_a_link_ends_the_group_with_a_typed_error() {
    guarded(|| {
        let fabric = authenticated(0);
        let job = Job::admit(&fabric);
        let mut bystanders = members(&job.group(&hosts(2), 2, 64), Way::Tcp);
        let group = job.group(&hosts(2), 2, 64);
        let mut other = Member::join(&group, 1, Way::Tcp);
        let mut link = link_to(&group, group.key);
        let joined = join_over(&mut link, edge(&group, 0)).unwrap();
        assert_eq!(joined.message, Message::Joined);
        let mut bytes = request(edge(&group, 0), 0, group.key.map(AuthenticationKey::new).as_ref());
        bytes[64] ^= 1;
        assert_eq!(link.inject(&bytes), Ok(Sent::Taken));
        let End::Aborted(abort) = other.receive().unwrap_err() else { panic!("no reason") };
        assert_eq!(abort.reason, AbortReason::Misbehaved);
        assert_eq!(abort.at_fault, group.endpoints[0].endpoint);
        eventually("the refusal is counted", || refused(&fabric, "not-authentic") == 1.0);
        sum_once(&mut bystanders, 1.0);
    });
}

#[test]
fn an_external_receiver_has_a_key_of_its_own() {
    guarded(|| {
        let fabric = authenticated(0);
        let job = Job::admit(&fabric);
        let group = job.watched_group(&hosts(2));
        let external_receiver = group.external_receiver.as_ref().unwrap();
        assert_ne!(external_receiver.key, group.key);
        let edge = Edge {
            child: EXTERNAL_RECEIVER,
            capability: external_receiver.capability,
            ..edge(&group, 0)
        };
        // A member's key does not admit an external receiver, nor the reverse.
        let mut link = link_to(&group, group.key);
        assert_eq!(join_over(&mut link, edge), Err(ReceiveError::Closed));
        let mut link = link_to(&group, external_receiver.key);
        assert_eq!(join_over(&mut link, self::edge(&group, 0)), Err(ReceiveError::Closed));
        eventually("the refusal is counted", || refused(&fabric, "not-authentic") == 2.0);
        let mut link = link_to(&group, external_receiver.key);
        assert_eq!(join_over(&mut link, edge).unwrap().message, Message::Joined);
    });
}

#[test]
fn multicast_results_are_authenticated() {
    guarded(|| {
        let first = Ipv4Addr::new(239, 255, 72, 0);
        let range = MulticastRange { first, addresses: 4, port: 7478 };
        let mut options = options(true, 0);
        options.manager_limits.multicast = Some(range);
        let fabric = Fabric::start(&options).unwrap();
        let job = Job::admit(&fabric);
        let group = job.group(&hosts(2), 2, 64);
        let address = group.multicast.as_ref().unwrap().address.parse().unwrap();
        let mut socket = DatagramSocket::subscribe(address, Ipv4Addr::LOCALHOST).unwrap();
        sum_once(&mut members(&group, Way::Tcp), 1.0);
        let key = AuthenticationKey::new(group.key.unwrap());
        eventually("a result by multicast", || {
            let datagram = socket.receive().unwrap();
            datagram.is_some_and(|datagram| key.authenticates(&datagram.frame))
        });
    });
}
