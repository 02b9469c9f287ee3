//! A fuzzer's body over seeded random bytes, on all cores. `TRIBUTARY_FUZZ_RUNS` makes more of them, and
//! `TRIBUTARY_FUZZ_SEED` others.

use std::ops::Add;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rayon::prelude::*;
use tributary_sim::engine::Random;

/// Inputs from one seed, which a failure prints.
const CHUNK: u64 = 500;

/// How long one chunk may take before the watchdog ends the test.
const HUNG: Duration = Duration::from_secs(120);

/// Runs `body` over `runs` inputs of less than `length_max` bytes. Returns how many there were, what they
/// reached, and the longest time of one.
pub(crate) fn run<R: Add<Output = R> + Default + Send>(
    runs: u64,
    length_max: u64,
    body: impl Fn(&[u8]) -> R + Sync,
) -> (u64, R, Duration) {
    static DONE: AtomicU64 = AtomicU64::new(0);
    watch(&DONE);
    let runs = number("TRIBUTARY_FUZZ_RUNS", runs);
    let first = number("TRIBUTARY_FUZZ_SEED", 1);
    let (total, longest) = (0..runs.div_ceil(CHUNK))
        .into_par_iter()
        .map(|index| {
            let ended = chunk(first + index, length_max, &body);
            DONE.fetch_add(1, Ordering::Relaxed);
            ended
        })
        .reduce(
            || (R::default(), Duration::ZERO),
            |(one, long), (other, also)| (one + other, long.max(also)),
        );
    (runs, total, longest)
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

/// The inputs of one chunk. Returns what they reached, and the longest time of one.
fn chunk<R: Add<Output = R> + Default>(
    seed: u64,
    length_max: u64,
    body: &(impl Fn(&[u8]) -> R + Sync),
) -> (R, Duration) {
    let mut random = Random::new(seed);
    let mut total = R::default();
    let mut longest = Duration::ZERO;
    for _ in 0..CHUNK {
        let length = random.below(length_max);
        let bytes: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
        let started = processor_time();
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(&bytes)));
        let reached = ended.unwrap_or_else(|_| panic!("seed {seed}, input {bytes:?}"));
        let took = processor_time() - started;
        if took > Duration::from_millis(500) {
            println!("{took:?}: seed {seed}, input {bytes:?}");
        }
        longest = longest.max(took);
        total = total + reached;
    }
    (total, longest)
}

/// How long this thread has run: other load on the machine does not count.
fn processor_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
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
