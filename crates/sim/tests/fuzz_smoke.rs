//! Goal: what the fuzzer of the simulator's files checks also holds on a stable compiler, in every run of
//! the tests. Method: the same body (`fuzz/bodies`) over seeded random bytes, with checks of how deep the
//! inputs get. `TRIBUTARY_FUZZ_RUNS` makes more of them, and `TRIBUTARY_FUZZ_SEED` others.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a long run reports its progress")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rayon::prelude::*;
use tributary_sim::engine::Random;

#[path = "../../../fuzz/bodies/simulator_files.rs"]
mod simulator_files;

use simulator_files::Reached;

const RUNS: u64 = 4_000;

/// Inputs from one seed, which a failure prints.
const CHUNK: u64 = 500;

/// How long one chunk may take before the watchdog ends the test.
const HUNG: Duration = Duration::from_secs(120);

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

/// The inputs of one chunk. Returns what they reached, and the longest time of one.
fn chunk(seed: u64) -> (Reached, Duration) {
    let mut random = Random::new(seed);
    let mut total = Reached::default();
    let mut longest = Duration::ZERO;
    for _ in 0..CHUNK {
        let length = random.below(240);
        let bytes: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
        let started = processor_time();
        let ended = std::panic::catch_unwind(|| simulator_files::run(&bytes));
        let reached = ended.unwrap_or_else(|_| panic!("seed {seed}, input {bytes:?}"));
        let took = processor_time() - started;
        if took > Duration::from_millis(500) {
            println!("{took:?}: seed {seed}, input {bytes:?}");
        }
        longest = longest.max(took);
        total = sum(total, reached);
    }
    (total, longest)
}

/// How long this thread has run: other load on the machine does not count.
fn processor_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn sum(one: Reached, other: Reached) -> Reached {
    Reached {
        presets: one.presets + other.presets,
        topologies: one.topologies + other.topologies,
        simulated: one.simulated + other.simulated,
        refused: one.refused + other.refused,
    }
}

/// Ends the test if no chunk ends for long.
fn watch(done: &'static AtomicU64) {
    thread::spawn(move || {
        let mut before = 0;
        loop {
            thread::sleep(HUNG);
            // Relaxed: only progress is read.
            let now = done.load(Ordering::Relaxed);
            if now == before {
                eprintln!("an input hangs: no chunk after {before} has ended for {HUNG:?}");
                std::process::abort();
            }
            before = now;
        }
    });
}

#[test]
fn simulator_files() {
    static DONE: AtomicU64 = AtomicU64::new(0);
    watch(&DONE);
    let runs = number("TRIBUTARY_FUZZ_RUNS", RUNS);
    let first = number("TRIBUTARY_FUZZ_SEED", 1);
    let (total, longest) = (0..runs.div_ceil(CHUNK))
        .into_par_iter()
        .map(|index| {
            let ended = chunk(first + index);
            DONE.fetch_add(1, Ordering::Relaxed);
            ended
        })
        .reduce(
            || (Reached::default(), Duration::ZERO),
            |(one, long), (other, also)| (sum(one, other), long.max(also)),
        );
    println!("{runs} inputs, the longest {longest:?}: {total:?}");
    assert!(total.presets > runs / 20, "{total:?}");
    assert!(total.topologies > runs / 50, "{total:?}");
    assert!(total.simulated > runs / 50, "{total:?}");
    assert!(total.refused > runs / 4, "{total:?}");
}
