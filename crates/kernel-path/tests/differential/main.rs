//! Goal: the program answers as the process does, byte for byte. Method: the same random packets, of
//! members that lose, repeat, reorder, forge, damage and disagree, go to the program (compiled for user
//! space) and to `protocol::node` behind its driver's checks; all that both send is compared.
//!
//! Every other group is that of an aggregator below another, which answers what is sent to it, or not.
//!
//! `TRIBUTARY_DIFFERENTIAL_RUNS` sets the number of groups; each gets some hundred packets.

mod floods;
mod handover;
mod interleavings;
mod kernel;
mod members;
mod multicast;
mod overtaking;
mod parent;
mod process;
mod root;
mod threads;
mod turns;
mod upward;

use std::net::{Ipv4Addr, SocketAddrV4};

use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use tributary_kernel_path::user_space::packets::{Checksum, packet, parse};
use tributary_kernel_path::user_space::{UserSpace, Verdict};
use tributary_kernel_path::{ChildTerms, GroupTerms, Multicast};
use tributary_protocol::Time;
use tributary_protocol::node::MulticastTerms;
use tributary_wire::Sequence;
use tributary_wire::frame::{EVERYONE, Header, Message, Subscription, Versions};

use members::{Kind, Members, Shot};
use parent::{Parent, UPWARD, parent_address, parent_terms, result_of};
use process::{PAYLOAD_MAX_BYTES, Process, Sent};
use root::{EPOCH, GROUP, MULTICAST, capability, multicast_capability};

const RUNS: u64 = 2_000;
const SHOTS: usize = 300;

/// Seeds behind those that found something: a subscriber that left before there was a result.
const FOUND: [u64; 1] = [8596];

/// What was seen over all runs, so that a test that sees nothing fails.
#[derive(Debug, Default)]
struct Seen {
    packets: u64,
    frames: u64,
    results: u64,
    handed_over: u64,
    passed: u64,
    multicasts: u64,
    /// Multicast results that no copy went with.
    alone: u64,
    /// Sums sent upward, and how many of them again.
    forwarded: u64,
    forwarded_again: u64,
    /// Segments that members went on from before this aggregator had the result.
    overtaken: u64,
}

#[test]
fn program_and_process_send_the_same_bytes() {
    let runs = std::env::var("TRIBUTARY_DIFFERENTIAL_RUNS");
    let runs = runs.map_or(RUNS, |text| text.parse().expect("a number of runs"));
    let mut seen = Seen::default();
    for seed in (0..runs).chain(FOUND) {
        run(seed, &mut seen);
    }
    println!("{runs} groups: {seen:?}");
    assert!(seen.results > runs * 10, "{seen:?}");
    assert!(seen.handed_over > 0 && seen.passed > seen.handed_over, "{seen:?}");
    assert!(seen.multicasts > runs / 2 && seen.alone > runs / 20, "{seen:?}");
    assert!(seen.forwarded > runs * 3 && seen.forwarded_again > runs, "{seen:?}");
    assert!(seen.overtaken > runs / 2, "{seen:?}");
}

fn run(seed: u64, seen: &mut Seen) {
    let mut random = Pcg64::seed_from_u64(seed);
    let children = random.random_range(1..=16);
    let window = random.random_range(1..=16);
    let peers: Vec<_> = (0..children).map(|child| host(child, 4000 + child as u16)).collect();
    let multicast = multicast_up_to(seed);
    let is_root = is_root(seed);
    let mut process = Process::new(window, &peers, multicast, is_root);
    let (program, mut tables) = UserSpace::new();
    let terms = GroupTerms {
        multicast: multicast.map(to_multicast),
        parent: (!is_root).then(|| parent_terms(multicast.is_some())),
        ..group(window, &peers)
    };
    let place_id = tables.admit(Time(0), &terms).expect("there is a place");
    // What nobody answers is the process's in the end, which ends the comparison.
    let attempts_max = if is_root || seed % 8 == 1 { u8::MAX } else { ATTEMPTS_UNANSWERED_MAX - 1 };
    let mut members = Members::new(children, window).with_attempts_up_to(attempts_max);
    let mut parent = Parent::default();
    if !is_root {
        let (verdict, sent) = hand(&program, multicast.is_some(), &Parent::greeting());
        assert!(verdict == Verdict::Pass && sent.is_empty());
    }
    for number in 0..SHOTS {
        if multicast.is_some() && random.random_bool(0.04) {
            let child = random.random_range(0..children);
            let subscription = *Subscription::ALL.choose(&mut random).expect("there are some");
            tables.subscribe(place_id, process.subscribe(child, subscription).into_iter());
        }
        let from_parent = if random.random_bool(0.15) { parent.next(&mut random) } else { None };
        let shot = from_parent.unwrap_or_else(|| members.next(&mut random, &peers));
        let place = format!("seed {seed}, packet {number}, {:?}", shot.kind);
        seen.packets += 1;
        if shot.kind == Kind::Damaged {
            // The process's own socket drops it.
            let mut bytes = bytes_of(&shot);
            if parse(&bytes).checksums.len() > 1 {
                // Damaged, it would look like one that is left to the network card.
                continue;
            }
            members::damage(&mut random, &mut bytes);
            let (_, sent) = program.run(interface(multicast.is_some(), shot.child), &bytes, false);
            assert!(sent.is_empty(), "{place}");
            continue;
        }
        let expected = process.take(shot.from, &shot.frame);
        let (verdict, sent) = hand(&program, multicast.is_some(), &shot);
        if verdict == Verdict::Pass {
            assert!(sent.is_empty(), "{place}: passed up means unchanged");
            seen.passed += 1;
            if expected.is_some() {
                // Members that disagree, or garbage that is a request of another kind: the sequence is
                // the process's from here on, which `handover.rs` plays.
                let is_odd = matches!(shot.kind, Kind::Disagreement | Kind::Garbage);
                let is_unanswered = !is_root && attempt_of(&shot) >= ATTEMPTS_UNANSWERED_MAX;
                assert!(is_odd || is_unanswered || process.has_failed, "{place}");
                seen.handed_over += 1;
                return;
            }
        }
        assert!(!process.has_failed, "{place}: only the process judges members that disagree");
        if let Some(number) = result_of(&shot).filter(|_| expected.is_some()) {
            members.note_complete(number);
        }
        let (expected, _) = without_repeats(expected.unwrap_or_default());
        let (sent, again) = without_repeats(sent);
        // Its child is acked, and that is all.
        assert!(
            again == 0 || again == 1 && expected.len() == 1 && expected[0].0 != UPWARD,
            "{place}"
        );
        seen.forwarded_again += again;
        compare(&expected, &sent, &place);
        for number in parent.note(&sent) {
            seen.forwarded += 1;
            if multicast.is_some() && random.random_bool(0.3) {
                // The members have the result by multicast.
                members.note_complete(number);
                seen.overtaken += 1;
            }
        }
        seen.frames += sent.len() as u64;
        seen.multicasts += sent.iter().filter(|(child, _)| *child == EVERYONE).count() as u64;
        seen.alone += u64::from(sent.len() == 1 && sent[0].0 == EVERYONE);
        seen.results += members.note(&expected);
    }
}

fn host(child: usize, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, child as u8 + 1), port)
}

fn node() -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 1, 200), 7471)
}

/// Up to which length a seed's results go by multicast, if they do.
fn multicast_up_to(seed: u64) -> Option<u32> {
    [None, Some(PAYLOAD_MAX_BYTES), None, Some(64), Some(0)][(seed % 5) as usize]
}

fn to_multicast(longest_bytes: u32) -> Multicast {
    let capability = multicast_capability();
    let terms = MulticastTerms { capability, longest_bytes, unreceived: 0 };
    Multicast { address: MULTICAST, terms }
}

/// Whether a seed's group is that of a root.
fn is_root(seed: u64) -> bool {
    seed.is_multiple_of(2)
}

/// The attempt from which on the process is asked, if the parent does not answer: `parent.h`.
const ATTEMPTS_UNANSWERED_MAX: u8 = 3;

fn attempt_of(shot: &Shot) -> u8 {
    match Header::decode(&shot.frame).map(|header| header.message) {
        Ok(Message::Request(part)) => part.retransmit.attempt,
        _ => 0,
    }
}

/// Without repeats to the parent, and how many there are: the program sends them at those of children, and the process
/// by its timer, and at once where the parent shows that something was lost.
fn without_repeats(sent: Vec<Sent>) -> (Vec<Sent>, u64) {
    let is_repeat = |(to, frame): &Sent| {
        let Ok(Header { message: Message::Request(part), .. }) = Header::decode(frame) else {
            return false;
        };
        *to == UPWARD && part.retransmit.attempt > 0
    };
    let (again, sent): (Vec<_>, Vec<_>) = sent.into_iter().partition(is_repeat);
    (sent, again.len() as u64)
}

/// The interface that a child is behind. One for each, but where results go by multicast.
fn interface(has_multicast: bool, child: usize) -> u32 {
    if has_multicast { 1 } else { child as u32 + 1 }
}

/// The group as the program is to serve it.
fn group(window: u16, peers: &[SocketAddrV4]) -> GroupTerms {
    let child = |(child, peer): (usize, &SocketAddrV4)| ChildTerms {
        capability: capability(child),
        peer: *peer,
        own: node(),
        next: Sequence::FIRST,
        subscription: Subscription::Nobody,
    };
    GroupTerms {
        group: GROUP,
        epoch: EPOCH,
        frame_version: Versions::SPOKEN.newest,
        window,
        payload_max_bytes: PAYLOAD_MAX_BYTES,
        children: peers.iter().enumerate().map(child).collect(),
        parent: None,
        multicast: None,
        floor: Sequence::FIRST,
        known: Vec::new(),
    }
}

fn bytes_of(shot: &Shot) -> Vec<u8> {
    packet(shot.from, node(), members::hardware(shot.child), shot.checksum, &shot.frame)
}

/// Hands a shot to the program, and takes apart what it sends.
fn hand(program: &UserSpace, has_multicast: bool, shot: &Shot) -> (Verdict, Vec<Sent>) {
    let bytes = bytes_of(shot);
    let is_ambiguous = parse(&bytes).checksums.len() > 1;
    let (verdict, sent) = program.run(interface(has_multicast, shot.child), &bytes, false);
    let frames = sent.iter().map(|sent| {
        let parsed = parse(&sent.bytes);
        let to = members::sent_frame(sent).0;
        if to == EVERYONE {
            multicast::check(&parsed, &sent.bytes);
        } else {
            let child = usize::from(to.0);
            let mut hardware = members::hardware(child);
            hardware.rotate_left(6);
            assert_eq!(parsed.hardware, hardware, "it goes where frames from there came from");
            assert_eq!(sent.interface, interface(has_multicast, child));
            let address =
                if to == UPWARD { parent_address() } else { host(child, 4000 + child as u16) };
            assert_eq!((parsed.from, parsed.to), (node(), address));
        }
        let is_alike = parsed.checksums.contains(&shot.checksum);
        let is_without = is_ambiguous && parsed.checksums == [Checksum::None];
        assert!(is_alike || is_without, "answers give the checksum as the request did");
        members::sent_frame(sent)
    });
    (verdict, frames.collect())
}

/// Compares what each child is sent, in order.
fn compare(expected: &[Sent], sent: &[Sent], place: &str) {
    let sorted = |frames: &[Sent]| {
        let mut frames = frames.to_vec();
        frames.sort_by_key(|(child, _)| *child);
        frames
    };
    let (expected, sent) = (sorted(expected), sorted(sent));
    assert_eq!(expected.len(), sent.len(), "{place}: number of frames\n{expected:x?}\n{sent:x?}");
    for ((expected_child, expected), (child, sent)) in expected.iter().zip(&sent) {
        assert_eq!(expected_child, child, "{place}");
        assert_eq!(expected, sent, "{place}: frame to child {child}\n{expected:x?}\n{sent:x?}");
    }
}
