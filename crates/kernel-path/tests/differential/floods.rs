//! Goal: what is refused stores nothing. Method: between the packets of honest members come many with a wrong
//! capability, source, window, edge or checksum, and random bytes; all that the program keeps for the group is
//! compared before and after each. And packets for other aggregators go on.

use std::net::{Ipv4Addr, SocketAddrV4};

use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;
use tributary_kernel_path::Counters;
use tributary_kernel_path::user_space::packets::{Checksum, packet};
use tributary_kernel_path::user_space::{UserSpace, Verdict};
use tributary_protocol::Time;

use crate::members::{self, Kind, Members};
use crate::{bytes_of, group, hand, host, node};

const RUNS: u64 = 40;
const SHOTS: usize = 400;

/// What of a packet can be wrong before it may be stored.
fn is_refused(kind: Kind) -> bool {
    matches!(kind, Kind::WrongCapability | Kind::WrongSource | Kind::WrongEdge | Kind::Damaged)
}

/// A packet with the envelope of a request and any bytes as its frame.
fn garbage(random: &mut impl Rng, from: SocketAddrV4) -> Vec<u8> {
    let mut frame = vec![0; random.random_range(0..1200)];
    random.fill_bytes(&mut frame);
    if random.random_bool(0.5) && frame.len() >= 8 {
        frame[..6].copy_from_slice(b"TRIB\x02\x03");
    }
    packet(from, node(), [0xaa; 12], Checksum::Full, &frame)
}

#[test]
fn what_is_refused_stores_nothing() {
    let mut refused = 0;
    for seed in 0..RUNS {
        let mut random = Pcg64::seed_from_u64(seed);
        let peers: Vec<_> = (0..4).map(|child| host(child, 4000 + child as u16)).collect();
        let (program, mut tables) = UserSpace::new();
        tables.admit(Time(0), &group(8, &peers)).expect("there is a place");
        let mut members = Members::new(peers.len(), 8);
        for number in 0..SHOTS {
            let shot = members.next(&mut random, &peers);
            let mut bytes = bytes_of(&shot);
            if shot.kind == Kind::Honest {
                members.note(&hand(&program, false, &shot).1);
                bytes = garbage(&mut random, peers[shot.child]);
            } else if !is_refused(shot.kind) {
                continue;
            }
            if shot.kind == Kind::Damaged {
                members::damage(&mut random, &mut bytes);
            }
            let before = program.copy_slots();
            let (_, sent) = program.run(1, &bytes, false);
            assert!(sent.is_empty(), "seed {seed}, packet {number}: {:?}", shot.kind);
            assert!(
                before == program.copy_slots(),
                "seed {seed}, packet {number}: {:?}",
                shot.kind
            );
            refused += 1;
        }
        assert!(tables.counters().completed > 0);
    }
    println!("{refused} packets stored nothing");
    assert!(refused > RUNS * 100);
}

/// A number far outside the window is refused, wherever it lies.
#[test]
fn no_window_is_left() {
    let peers = [host(0, 4000)];
    let (program, mut tables) = UserSpace::new();
    tables.admit(Time(0), &group(4, &peers)).expect("there is a place");
    let mut random = Pcg64::seed_from_u64(1);
    let mut members = Members::new(1, 4);
    let before = program.copy_slots();
    let mut tried = 0;
    for _ in 0..20_000 {
        let mut shot = members.next(&mut random, &peers);
        let ahead: u32 = random.random_range(4..1 << 31);
        if shot.kind != Kind::Honest {
            continue;
        }
        let number = 0xffff_ffc0_u32.wrapping_add(ahead);
        shot.frame[28..32].copy_from_slice(&number.to_le_bytes());
        let (verdict, sent) = hand(&program, false, &shot);
        assert_eq!((verdict, sent.len()), (Verdict::Drop, 0), "{ahead} ahead");
        tried += 1;
    }
    assert!(before == program.copy_slots());
    assert_eq!(tables.counters(), Counters { refused: tried, ..Counters::default() });
}

#[test]
fn a_packet_for_another_node_of_the_group_passes() {
    let peers = [host(0, 4000)];
    let (program, mut tables) = UserSpace::new();
    tables.admit(Time(0), &group(4, &peers)).expect("there is a place");
    let mut members = Members::new(1, 4);
    let mut random = Pcg64::seed_from_u64(2);
    let shot = std::iter::repeat_with(|| members.next(&mut random, &peers))
        .find(|shot| shot.kind == Kind::Honest)
        .expect("most are");
    let before = program.copy_slots();
    let own = node();
    for other in [
        SocketAddrV4::new(Ipv4Addr::new(10, 0, 1, 201), own.port()),
        SocketAddrV4::new(*own.ip(), own.port() + 1),
    ] {
        let bytes = packet(shot.from, other, members::hardware(0), shot.checksum, &shot.frame);
        assert_eq!(program.run(1, &bytes, false), (Verdict::Pass, Vec::new()), "{other}");
    }
    assert!(before == program.copy_slots());
    assert_eq!(tables.counters(), Counters::default(), "another node's packet is not counted here");
    assert_ne!(hand(&program, false, &shot).0, Verdict::Pass, "its own is taken");
}
