//! Goal: what the fuzzer of the simulator's files checks also holds on a stable compiler, in every run of
//! the tests. Method: the same body (`fuzz/bodies`) over seeded random bytes, with checks of how deep the
//! inputs get.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a long run reports its progress")]

#[path = "../../../fuzz/bodies/simulator_files.rs"]
mod simulator_files;
#[path = "../../../fuzz/bodies/smoke.rs"]
mod smoke;

#[test]
fn simulator_files() {
    let (runs, total, longest) = smoke::run(4_000, 240, simulator_files::run);
    println!("{runs} inputs, the longest {longest:?}: {total:?}");
    assert!(total.presets > runs / 20, "{total:?}");
    assert!(total.topologies > runs / 50, "{total:?}");
    assert!(total.simulated > runs / 50, "{total:?}");
    assert!(total.refused > runs / 4, "{total:?}");
}
