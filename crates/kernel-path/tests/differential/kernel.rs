//! Goal: in the kernel the program does what it does in user space. Method: the same random packets go
//! to both, one by one (`BPF_PROG_TEST_RUN`); verdicts, the packet sent last, the slots and the counters
//! are compared. Packets sent before the last go out of a loopback interface that is down, in a network
//! namespace of the test's own.

use aya::programs::{TestRun, TestRunOptions};
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use rustix::thread::UnshareFlags;
use tributary_kernel_path::user_space::{UserSpace, Verdict};
use tributary_kernel_path::{GroupTerms, Phase, Program, Tables};
use tributary_protocol::Time;
use tributary_wire::Sequence;
use tributary_wire::frame::Subscription;

use crate::members::{self, Kind, Members};
use crate::{bytes_of, group, host, multicast_up_to, to_multicast};

const RUNS: u64 = 40;
const SHOTS: usize = 200;

/// The loopback interface of every network namespace.
const INTERFACE: u32 = 1;

/// The program in the kernel, and a network namespace for this thread.
fn loaded() -> Result<(Program, Tables), String> {
    // SAFETY: this thread shares nothing else that a network namespace concerns.
    #[allow(unsafe_code, reason = "the call is unsafe for what other flags do")]
    let unshared = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) };
    unshared.map_err(|error| format!("no network namespace: {error}"))?;
    Program::load().map_err(|error| error.to_string())
}

#[test]
fn kernel_and_user_space_do_the_same() {
    let (mut program, mut tables) = match loaded() {
        Ok(loaded) => loaded,
        Err(reason) => {
            let is_ci = std::env::var("CI").is_ok_and(|value| value == "true");
            assert!(!is_ci, "not possible here: {reason}");
            println!("SKIPPED: {reason}");
            return;
        }
    };
    let info = program.classifier().info().expect("a loaded program has one");
    println!(
        "{:?} instructions verified, {} bytes translated",
        info.verified_instruction_count(),
        info.size_translated().unwrap_or(0)
    );
    let mut packets = 0;
    for seed in 0..RUNS {
        packets += run(seed, &mut program, &mut tables);
    }
    let counters = tables.counters();
    println!("{packets} packets; {counters:?}");
    assert!(counters.completed > RUNS && counters.gathered > RUNS, "{counters:?}");
    assert!(counters.damaged > 0 && counters.multicasts > RUNS, "{counters:?}");
}

fn run(seed: u64, program: &mut Program, tables: &mut Tables) -> u64 {
    let mut random = Pcg64::seed_from_u64(1000 + seed);
    let children = random.random_range(1..=16);
    let window = random.random_range(1..=16);
    let peers: Vec<_> = (0..children).map(|child| host(child, 4000 + child as u16)).collect();
    let multicast = multicast_up_to(seed).map(to_multicast);
    let terms = GroupTerms { multicast, ..group(window, &peers) };
    let (user, mut user_tables) = UserSpace::new();
    let in_user = user_tables.admit(Time(0), &terms).expect("there is a place");
    let in_kernel = tables.admit(Time(0), &terms).expect("there is a place");
    let before = tables.counters();
    let mut members = Members::that_hand_off(children, window);
    for number in 0..SHOTS {
        if random.random_bool(0.04) {
            let any = |_| *Subscription::ALL.choose(&mut random).expect("there are some");
            let subscriptions: Vec<_> = (0..children).map(any).collect();
            user_tables.subscribe(in_user, subscriptions.iter().copied());
            tables.subscribe(in_kernel, subscriptions.iter().copied());
        }
        let shot = members.next(&mut random, &peers);
        let place = format!("seed {seed}, packet {number}, {shot:?}");
        let mut bytes = bytes_of(&shot);
        if shot.kind == Kind::Damaged {
            members::damage(&mut random, &mut bytes);
        }
        let (verdict, sent) = user.run(INTERFACE, &bytes, false);
        let (kernel_verdict, last) = test_run(program, &bytes);
        assert_eq!(kernel_verdict, verdict, "{place}");
        match verdict {
            Verdict::Pass => assert_eq!(last, bytes, "{place}: passed up means unchanged"),
            Verdict::Drop => {}
            Verdict::Redirect => {
                assert_eq!(Some(&last), sent.last().map(|it| &it.bytes), "{place}");
            }
        }
        let words = user_tables.words(in_user);
        assert_eq!(words, tables.words(in_kernel), "{place}: slots");
        for word in words {
            let sequence = word.sequence();
            let answers =
                [user_tables.answered(in_user, sequence), tables.answered(in_kernel, sequence)];
            assert_eq!(answers[0], answers[1], "{place}: results");
        }
        let frames: Vec<_> = sent.iter().map(members::sent_frame).collect();
        members.note(&frames);
        // What was gathered for the process, both hand over alike.
        let words = words.iter().filter(|word| word.phase() == Phase::Gathered);
        for word in words.collect::<Vec<_>>() {
            let sequence = word.sequence();
            let held = user_tables.take(in_user, sequence);
            assert_eq!(held, tables.take(in_kernel, sequence), "{place}: contributions");
            user_tables.finish(in_user, sequence);
            tables.finish(in_kernel, sequence);
            members.note_complete(sequence.distance_from(Sequence::FIRST));
        }
    }
    let after = tables.counters();
    assert_eq!(after.taken - before.taken, user_tables.counters().taken, "seed {seed}");
    assert_eq!(after.gathered - before.gathered, user_tables.counters().gathered, "seed {seed}");
    assert_eq!(after.nacks - before.nacks, user_tables.counters().nacks, "seed {seed}");
    let multicasts = after.multicasts - before.multicasts;
    assert_eq!(multicasts, user_tables.counters().multicasts, "seed {seed}");
    assert_eq!(after.damaged - before.damaged, user_tables.counters().damaged, "seed {seed}");
    tables.remove(Time(0), in_kernel);
    SHOTS as u64
}

/// Runs the program in the kernel over one packet: its verdict, and the packet as it leaves it.
fn test_run(program: &mut Program, bytes: &[u8]) -> (Verdict, Vec<u8>) {
    let mut out = vec![0; 4096];
    let mut options = TestRunOptions::new();
    options.data_in = Some(bytes);
    options.data_out = Some(&mut out);
    let result = program.classifier().test_run(options).expect("the kernel runs it");
    let len_bytes = result.data_size_out as usize;
    out.truncate(len_bytes);
    let verdict = match result.return_value {
        u32::MAX => Verdict::Pass,
        2 => Verdict::Drop,
        7 => Verdict::Redirect,
        other => panic!("the program says {other}"),
    };
    (verdict, out)
}
