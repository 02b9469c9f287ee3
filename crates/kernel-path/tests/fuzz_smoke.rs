//! Goal: what the fuzzer of the kernel path checks also holds on a stable compiler, in every run of the tests.
//! Method: the same body (`fuzz/bodies`) over seeded random bytes, with checks of how deep the inputs get.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a long run reports its progress")]

#[path = "../../../fuzz/bodies/kernel_path.rs"]
mod kernel_path;
#[path = "../../../fuzz/bodies/smoke.rs"]
mod smoke;

#[test]
fn kernel_path() {
    let (runs, total, longest) = smoke::run(2_000, 1_200, kernel_path::run);
    println!("{runs} inputs, the longest {longest:?}: {total:?}");
    assert!(total.packets > 10 * runs && total.honest_sums > runs, "{total:?}");
    assert!(total.completed - total.honest_sums > 2 * runs, "{total:?}");
    assert!(total.gathered > runs / 4 && total.ended > runs, "{total:?}");
    assert!(total.repeats > runs / 4 && total.nacks > runs / 8, "{total:?}");
    assert!(total.refused > runs / 2 && total.passed > runs / 3, "{total:?}");
    let (forwarded, from_parents) = (total.forwarded, total.from_parents);
    let honest = total.honest_sums / 2;
    assert!(forwarded - honest > runs && from_parents - honest > runs / 40, "{total:?}");
    assert!(total.damaged > runs / 40 && total.multicasts > runs / 2, "{total:?}");
}
