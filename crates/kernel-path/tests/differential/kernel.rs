//! Goal: in the kernel the program does what it does in user space. Method: the same random packets go
//! to both, one by one (`BPF_PROG_TEST_RUN`); verdicts, the packet sent last, the slots and the counters
//! are compared. Packets sent before the last go out of a loopback interface that is down, in a network
//! namespace of the test's own.
//!
//! `TRIBUTARY_DIFFERENTIAL_ANY_KERNEL=1` loads the program also on a kernel that the product refuses, because
//! links at traffic control do not end with the process there: to see whether the program is at fault too.
//! `tests/kernels/kernel_path.py` boots such kernels.

use aya::programs::{TestRun, TestRunOptions};
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use rustix::thread::UnshareFlags;
use tributary_kernel_path::user_space::{UserSpace, Verdict};
use tributary_kernel_path::{
    GroupTerms, Host, IS_BUILT, LoadError, MissingPrerequisite, Phase, Program, Tables,
};
use tributary_protocol::Time;
use tributary_wire::Sequence;
use tributary_wire::frame::Subscription;

use crate::members::{self, Kind, Members};
use crate::parent::{Parent, UPWARD, parent_terms, result_of};
use crate::{bytes_of, group, host, is_root, multicast_up_to, to_multicast};

const RUNS: u64 = 40;
const SHOTS: usize = 200;

/// The loopback interface of every network namespace.
const INTERFACE: u32 = 1;

/// The first kernel that has what the product needs.
const KERNEL_MIN: (u32, u32) = (6, 6);

/// The program in the kernel, and a network namespace for this thread.
fn loaded() -> Result<(Program, Tables), String> {
    // SAFETY: this thread shares nothing else that a network namespace concerns.
    #[allow(unsafe_code, reason = "the call is unsafe for what other flags do")]
    let unshared = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) };
    unshared.map_err(|error| format!("no network namespace: {error}"))?;
    Program::load_on(&here()).map_err(|error| error.to_string())
}

/// This machine; with a release that is not refused, if that is asked for.
fn here() -> Host {
    let mut host = Host::here();
    if std::env::var("TRIBUTARY_DIFFERENTIAL_ANY_KERNEL").is_ok_and(|value| value == "1") {
        host.release = format!("{}.{}", KERNEL_MIN.0, KERNEL_MIN.1);
    }
    host
}

/// What can be had here, or why not. Where it must be had, its absence is a failure.
fn here_or_skipped<T>(possible: Result<T, String>) -> Result<T, String> {
    let is_ci = std::env::var("CI").is_ok_and(|value| value == "true");
    possible.inspect_err(|reason| assert!(!is_ci, "not possible here: {reason}"))
}

/// Whether the product is to refuse a kernel of this release.
fn is_too_old(release: &str) -> bool {
    let mut numbers = release.split(|it: char| !it.is_ascii_digit()).map(str::parse);
    let mut next =
        || numbers.next().and_then(Result::ok).expect("a release begins with two numbers");
    (next(), next()) < KERNEL_MIN
}

#[test]
fn an_old_kernel_is_refused_by_name_and_another_has_the_program_at_an_interface() {
    let built = IS_BUILT.then_some(()).ok_or_else(|| LoadError::NotBuilt.to_string());
    if let Err(reason) = here_or_skipped(built) {
        println!("SKIPPED: {reason}");
        return;
    }
    let release = Host::here().release;
    if is_too_old(&release) {
        let refused = Program::load().err().expect("the kernel is too old");
        let said = format!("kernel {release} is too old: the kernel path needs 6.6");
        assert_eq!(refused.to_string(), said);
        println!("refused: {refused}");
        return;
    }
    let missing = Host::here().check().err();
    assert!(!matches!(missing, Some(MissingPrerequisite::Kernel { .. })), "{missing:?}");
    let (mut program, _tables) = match here_or_skipped(loaded()) {
        Ok(loaded) => loaded,
        Err(reason) => {
            println!("SKIPPED: {reason}");
            return;
        }
    };
    program.attach("lo").unwrap_or_else(|error| panic!("{error}"));
    println!("not refused: kernel {release} has the program at an interface");
}

#[test]
fn kernel_and_user_space_do_the_same() {
    let (mut program, mut tables) = match here_or_skipped(loaded()) {
        Ok(loaded) => loaded,
        Err(reason) => {
            println!("SKIPPED: {reason}");
            return;
        }
    };
    let info = program.classifier().info().expect("a loaded program has one");
    println!(
        "kernel {}: {:?} instructions verified, {} bytes translated",
        Host::here().release,
        info.verified_instruction_count(),
        info.size_translated().unwrap_or(0)
    );
    let mut seen = Seen::default();
    for seed in 0..RUNS {
        run(seed, &mut program, &mut tables, &mut seen);
    }
    let counters = tables.counters();
    println!("{seen:?}; {counters:?}");
    assert!(seen.forwarded > RUNS && seen.results_from_parent > RUNS, "{seen:?}");
    assert!(counters.completed > RUNS && counters.gathered > RUNS, "{counters:?}");
    assert!(counters.damaged > 0 && counters.multicasts > RUNS, "{counters:?}");
}

#[derive(Debug, Default)]
struct Seen {
    packets: u64,
    forwarded: u64,
    results_from_parent: u64,
}

fn run(seed: u64, program: &mut Program, tables: &mut Tables, seen: &mut Seen) {
    let mut random = Pcg64::seed_from_u64(1000 + seed);
    let children = random.random_range(1..=16);
    let window = random.random_range(1..=16);
    let peers: Vec<_> = (0..children).map(|child| host(child, 4000 + child as u16)).collect();
    let multicast = multicast_up_to(seed).map(to_multicast);
    let is_root = is_root(seed);
    let terms = GroupTerms {
        multicast,
        parent: (!is_root).then(|| parent_terms(multicast.is_some())),
        ..group(window, &peers)
    };
    let (user, mut user_tables) = UserSpace::new();
    let in_user = user_tables.admit(Time(0), &terms).expect("there is a place");
    let in_kernel = tables.admit(Time(0), &terms).expect("there is a place");
    let before = tables.counters();
    let mut members = Members::that_hand_off(children, window);
    let mut parent = Parent::default();
    if !is_root {
        let greeting = bytes_of(&Parent::greeting());
        assert_eq!(user.run(INTERFACE, &greeting, false).0, Verdict::Pass);
        assert_eq!(test_run(program, &greeting), (Verdict::Pass, greeting));
    }
    for number in 0..SHOTS {
        if random.random_bool(0.04) {
            let any = |_| *Subscription::ALL.choose(&mut random).expect("there are some");
            let subscriptions: Vec<_> = (0..children).map(any).collect();
            user_tables.subscribe(in_user, subscriptions.iter().copied());
            tables.subscribe(in_kernel, subscriptions.iter().copied());
        }
        let from_parent = if random.random_bool(0.2) { parent.next(&mut random) } else { None };
        let shot = from_parent.unwrap_or_else(|| members.next(&mut random, &peers));
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
                [user_tables.result_of(in_user, sequence), tables.result_of(in_kernel, sequence)];
            assert_eq!(answers[0], answers[1], "{place}: results");
        }
        let frames: Vec<_> = sent.iter().map(members::sent_frame).collect();
        members.note(&frames);
        parent.note(&frames);
        seen.forwarded += frames.iter().filter(|(to, _)| *to == UPWARD).count() as u64;
        if let Some(number) = result_of(&shot).filter(|_| verdict != Verdict::Pass) {
            members.note_complete(number);
            seen.results_from_parent += 1;
        }
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
    seen.packets += SHOTS as u64;
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
