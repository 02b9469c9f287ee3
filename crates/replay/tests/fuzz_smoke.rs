//! Goal: what the fuzzer of program files checks also holds on a stable compiler, in every run of the tests.
//! Method: the same body (`fuzz/bodies`) over seeded random bytes, with checks of how deep the inputs get.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a long run reports its progress")]

#[path = "../../../fuzz/bodies/smoke.rs"]
mod smoke;
#[path = "../../../fuzz/bodies/workload_files.rs"]
mod workload_files;

#[test]
fn workload_files() {
    let (runs, total, longest) = smoke::run(8_000, 200, workload_files::run);
    println!("{runs} inputs, the longest {longest:?}: {total:?}");
    assert!(total.mixes > runs / 50, "{total:?}");
    assert!(total.goals > runs / 10, "{total:?}");
    assert!(total.traces > runs / 40, "{total:?}");
    assert!(total.run > runs / 20, "{total:?}");
    assert!(total.stuck > runs / 50, "{total:?}");
    assert!(total.refused > runs / 4, "{total:?}");
}
