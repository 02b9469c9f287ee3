//! Goal: GOAL programs take the time that the LogGP model gives them, and the same as the collective that
//! they were written from.

use tributary_algorithms::CollectiveKind;
use tributary_sim::preset;
use tributary_sim::system::SystemPlan;
use tributary_sim::world::RunError;
use tributary_workload::goal;
use tributary_workload::{Call, Communicator, Distribution, Phase, Script, Workload};

use super::*;
use crate::run::{self as replay, Between, ReplayError};

/// The LogGP parameters of the preset, in microseconds.
const LATENCY_US: f64 = 2.5;
const OVERHEAD_US: f64 = 1.5;
const BYTE_US: f64 = 0.006;

fn total_us(text: &str) -> Result<f64, ReplayError> {
    let preset = preset::read_shipped("loggp").unwrap();
    let plan = SystemPlan::new(&preset).unwrap();
    Ok(run(&preset, &plan, &goal::read(text).unwrap(), 1, 1)?.total_us())
}

fn near(us: f64, expected_us: f64) {
    assert!((us / expected_us - 1.0).abs() < 1e-3, "{us}, expected {expected_us}");
}

#[test]
fn a_message_takes_two_overheads_a_latency_and_its_bytes() {
    let text =
        "num_ranks 2\nrank 0 {\nsend 1000b to 1 tag 5\n}\nrank 1 {\nrecv 1000b from -1 tag 5\n}\n";
    near(total_us(text).unwrap(), 2.0 * OVERHEAD_US + LATENCY_US + 1000.0 * BYTE_US);
}

#[test]
fn dependencies_and_tags_are_kept() {
    // Rank 1 wants tag 2 first, which comes last, and computes only when it has begun to wait.
    let text = "num_ranks 2\nrank 0 {\na: send 1b to 1 tag 1\nb: calc 100000\nb requires a\n\
                c: send 1b to 1 tag 2\nc requires b\n}\nrank 1 {\na: recv 1b from 0 tag 2\n\
                b: recv 1b from 0 tag 1\nb requires a\nc: calc 1000000\nc irequires a\n}\n";
    // The calculation of 1 ms keeps the core from taking both messages; then they follow each other.
    near(total_us(text).unwrap(), 1000.0 + 2.0 * OVERHEAD_US);
}

#[test]
fn rendezvous_needs_the_receiver() {
    let text = "num_ranks 2\nrank 0 {\nsend 70000b to 1\n}\nrank 1 {\na: calc 5000000\n\
                b: recv 70000b from 0\nb requires a\n}\n";
    let us = total_us(text).unwrap();
    assert!(us > 5000.0 + 70_000.0 * BYTE_US, "{us}: the data waits for the receive");
}

#[test]
fn what_waits_for_itself_is_reported() {
    let text = "num_ranks 2\nrank 0 {\na: calc 1\nb: calc 1\na requires b\nb requires a\n}\n";
    let error = total_us(text).unwrap_err();
    assert!(matches!(error, ReplayError::Run(RunError::Stuck { waiting: 1, of: 2 })), "{error}");
}

#[test]
fn long_chains_do_not_exhaust_the_stack() {
    let mut text = "num_ranks 1\nrank 0 {\n".to_owned();
    let waits = 200_000;
    for number in 0..waits {
        text += &format!("l{number}: recv 1b from 0\n");
    }
    for number in 1..waits {
        text += &format!("l{number} irequires l{}\n", number - 1);
    }
    text += "}\n";
    let error = total_us(&text).unwrap_err();
    assert!(matches!(error, ReplayError::Run(RunError::Stuck { .. })), "{error}");
}

fn collective(kind: CollectiveKind, ranks: u32, bytes: u64) -> Workload {
    let call = Call { communicator: 0, kind, root: 3, bytes };
    let compute = Distribution::Constant { us: 7.0 };
    Workload {
        name: "one".into(),
        hosts: (0..ranks).collect(),
        communicators: vec![Communicator {
            name: "world".into(),
            parts: vec![(0..ranks).collect()],
        }],
        scripts: vec![Script {
            iterations: 1,
            phases: vec![Phase { compute, call, repeat: 1, every: 1 }],
        }],
        script_of: Vec::new(),
        skew: Distribution::NONE,
        imbalance: 0.0,
    }
}

#[test]
fn an_exported_collective_takes_as_long_as_itself() {
    let preset = preset::read_shipped("loggp").unwrap();
    let plan = SystemPlan::new(&preset).unwrap();
    for kind in CollectiveKind::ALL {
        for (ranks, bytes, within) in [(16, 8, 0.05), (13, 4096, 0.1)] {
            let workload = collective(kind, ranks, bytes);
            let itself = replay::run(&preset, &plan, &workload, &Between::Hosts, 1).unwrap();
            let exported = export(&preset, &workload, 1).unwrap();
            let text = goal::write(&exported);
            let read = goal::read(&text).unwrap();
            assert_eq!(read, exported);
            let us = run(&preset, &plan, &read, 1, 1).unwrap().total_us();
            // The order in which a core serves two messages that are there at once may differ.
            assert!(
                (us / itself.total_us - 1.0).abs() < within,
                "{kind:?}, {ranks} ranks: {us}, {itself:?}"
            );
        }
    }
}

#[test]
fn recursive_doubling_is_what_the_model_says() {
    let preset = preset::read_shipped("loggp").unwrap();
    let plan = SystemPlan::new(&preset).unwrap();
    let workload = collective(CollectiveKind::Allreduce, 64, 1024);
    let us = replay::run(&preset, &plan, &workload, &Between::Hosts, 1).unwrap().total_us;
    let round_us = 2.0 * OVERHEAD_US + LATENCY_US + 1024.0 * BYTE_US;
    near(us, 7.0 + 6.0 * round_us);
}
