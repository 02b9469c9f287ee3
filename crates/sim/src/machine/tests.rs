use tributary_algorithms::Algorithm;

use super::*;
use crate::preset;

fn preset_with(constant: &str, value: f64) -> Preset {
    let text = format!(
        "name = \"test\"\nbase = \"loopback\"\n[machine]\n{constant} = {{ value = {value}, unit = \
         \"{}\", source = \"a test\" }}\n",
        if constant == "cores" { "1" } else { "ns" }
    );
    preset::read(&text).unwrap()
}

fn median_us(preset: &Preset, endpoints: u32, joint: Joint, bytes: usize) -> f64 {
    let setting = Setting { endpoints, joint, seed: 1 };
    setting.allreduce(preset, bytes, 40).unwrap().summary().operations.q2
}

const TREE: Joint = Joint::Tree { leaves: 2 };
const MESH: Joint = Joint::Mesh { algorithm: Algorithm::RecursiveDoubling };

#[test]
fn two_ranks_with_a_core_each_exchange_in_one_message_time() {
    let mut preset = preset::shipped("loopback").unwrap();
    preset.noise.jitter = preset.noise.jitter.scaled(0.0);
    let machine = preset.machine.as_ref().unwrap();
    let least_ns =
        [&machine.frame, &machine.send, &machine.receive, &machine.remote, &machine.frame];
    let least_us = least_ns.iter().map(|cost| cost.value()).sum::<f64>() / 1e3;
    let most_us = least_us + 2.0 * (machine.miss.value() + machine.give_way.value()) / 1e3;
    let median = median_us(&preset, 2, MESH, 8);
    assert!((least_us..=most_us).contains(&median), "{least_us} {median} {most_us}");
}

#[test]
fn fewer_cores_and_dearer_calls_take_longer() {
    let shipped = preset::shipped("loopback").unwrap();
    for joint in [TREE, MESH] {
        let base = median_us(&shipped, 4, joint, 8);
        for (constant, value) in
            [("cores", 1.0), ("send", 4_000.0), ("switch", 3_000.0), ("receive", 2_000.0)]
        {
            let other = median_us(&preset_with(constant, value), 4, joint, 8);
            assert!(other > base, "{joint:?} {constant}: {other} is not above {base}");
        }
        let enough = median_us(&preset_with("cores", 16.0), 4, joint, 8);
        assert!(enough < base, "{joint:?}: {enough} is not below {base}");
    }
    let base = median_us(&shipped, 4, TREE, 8);
    assert!(median_us(&preset_with("wake", 4_000.0), 4, TREE, 8) > base);
}

#[test]
fn every_endpoint_times_every_operation_and_longer_vectors_take_longer() {
    let shipped = preset::shipped("loopback").unwrap();
    for joint in [TREE, Joint::Tree { leaves: 0 }, MESH] {
        for endpoints in [2, 3, 8] {
            let setting = Setting { endpoints, joint, seed: 1 };
            let times = setting.allreduce(&shipped, 4096, 10).unwrap();
            assert_eq!(times, setting.allreduce(&shipped, 4096, 10).unwrap());
            assert!(times.avg() > 0.0);
        }
        assert!(median_us(&shipped, 4, joint, 16_384) > median_us(&shipped, 4, joint, 8));
    }
}

#[test]
fn a_preset_without_a_machine_is_refused() {
    let setting = Setting { endpoints: 2, joint: MESH, seed: 1 };
    let refused = |preset: &Preset| setting.allreduce(preset, 8, 1).unwrap_err();
    let cluster = preset::shipped("ethernet-25").unwrap();
    assert!(matches!(refused(&cluster), MachineError::NoMachine(_)));
    assert!(matches!(refused(&preset_with("cores", 0.0)), MachineError::NoCore(_)));
}

/// System calls, wake-ups and switches of a barrier and an allreduce are those that `perf stat` counted
/// for `tributary bench allreduce --transport tcp` on one core: per iteration, from the difference
/// between 2,500 and 500 iterations.
#[test]
fn a_tree_asks_the_kernel_for_what_the_real_one_does() {
    const OPERATIONS: u32 = 100;
    let preset = preset_with("cores", 1.0);
    for (endpoints, [sends, reads, yields, wakes, switches]) in
        [(2, [16, 72, 4, 12, 20]), (4, [24, 68, 8, 16, 32]), (8, [40, 108, 16, 24, 56])]
    {
        let setting = Setting { endpoints, joint: TREE, seed: 1 };
        let counts = setting.simulate(&preset, &Routine::new(OPERATIONS, 2)).unwrap().counts;
        let each = |count: u64| (count as f64 / f64::from(OPERATIONS)).round() as u64;
        let simulated =
            [counts.sends, counts.reads, counts.yields, counts.wakes, counts.switches].map(each);
        assert_eq!(simulated, [sends, reads, yields, wakes, switches], "{endpoints} endpoints");
    }
}

/// For people: what the shipped constants predict.
#[test]
#[ignore = "prints, asserts nothing"]
fn shipped_predictions() {
    let path = std::env::var("TRIBUTARY_PRESET").ok();
    let preset = match path {
        Some(path) => preset::read(&std::fs::read_to_string(path).unwrap()).unwrap(),
        None => preset::shipped("loopback").unwrap(),
    };
    for joint in [TREE, MESH] {
        for endpoints in [2, 4, 8] {
            for bytes in [8, 1024, 4096] {
                let setting = Setting { endpoints, joint, seed: 1 };
                let q = setting.allreduce(&preset, bytes, 300).unwrap().summary().operations;
                println!("{joint:?} {endpoints} {bytes}: {:?}", q.to_array());
            }
        }
    }
}
