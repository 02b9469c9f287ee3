//! Hosts that share the cores of one machine: nobody runs without a core, and cores for all change nothing.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use tributary_algorithms::Algorithm;
use tributary_sim::fabric::Vertex;
use tributary_sim::measure::{HostRun, TreeBenchmark};
use tributary_sim::preset::{self, Preset};

const HOSTS: u32 = 8;

fn lab(cores: u32, switch_ns: f64) -> Preset {
    let text = format!(
        "name = \"mine\"\nbase = \"lab\"\n[machine]\n\
         cores = {{ value = {cores}, unit = \"1\", source = \"a test\" }}\n\
         switch = {{ value = {switch_ns}, unit = \"ns\", source = \"a test\" }}\n"
    );
    preset::read(&text).unwrap()
}

fn cores_for_all() -> Preset {
    preset::read("name = \"mine\"\nbase = \"lab\"\nwithout = [\"machine\"]\n").unwrap()
}

/// The longest time of a host, in microseconds.
fn hosts_us(preset: &Preset, bytes: usize) -> f64 {
    let hosts: Vec<_> = (0..HOSTS).map(Vertex).collect();
    let mut run = HostRun::set_up(preset, &hosts, Algorithm::RecursiveDoubling, Some(5)).unwrap();
    run.allreduce(bytes, 1).unwrap().summary().processes.max
}

fn tree_us(preset: &Preset, bytes: usize) -> f64 {
    let mut run = TreeBenchmark::of_first(HOSTS).set_up(preset).unwrap();
    run.allreduce(bytes, 1).unwrap().summary().processes.max
}

#[test]
fn a_core_for_everybody_changes_nothing() {
    let many = lab(1024, 0.0);
    for bytes in [8, 65_536] {
        assert_eq!(hosts_us(&many, bytes).to_bits(), hosts_us(&cores_for_all(), bytes).to_bits());
        assert_eq!(tree_us(&many, bytes).to_bits(), tree_us(&cores_for_all(), bytes).to_bits());
    }
}

#[test]
fn all_that_is_done_takes_its_time_on_the_cores_there_are() {
    let preset = lab(1, 0.0);
    let rounds = HOSTS.ilog2();
    let ns = |constant: &preset::Constant<preset::Nanoseconds>| constant.value();
    let message = ns(&preset.software.send) + ns(&preset.software.receive);
    let work_us =
        f64::from(HOSTS) * (ns(&preset.software.call) + f64::from(rounds) * message) / 1e3;
    let alone = hosts_us(&preset, 8);
    assert!(alone >= work_us, "{alone} us for {work_us} us of work");
    assert!(alone < 1.1 * work_us, "one core is busy until all is done: {alone}, {work_us}");
    assert!(hosts_us(&lab(2, 0.0), 8) >= work_us / 2.0);
    let nodes = preset.aggregation.as_ref().unwrap();
    let (tree, node) = (&preset.tree, ns(&nodes.packet) + ns(&nodes.reply));
    let member = ns(&tree.call) + ns(&tree.request) + ns(&tree.result);
    let work_us = f64::from(HOSTS) * (member + node) / 1e3;
    let in_tree = tree_us(&preset, 8);
    assert!(in_tree >= work_us, "{in_tree} us for {work_us} us of work");
}

#[test]
fn fewer_cores_and_longer_switches_take_longer() {
    for us in [hosts_us, tree_us] {
        let by_cores = [1, 2, 4, 16].map(|cores| us(&lab(cores, 1000.0), 8));
        assert!(by_cores.is_sorted_by(|fewer, more| fewer >= more), "{by_cores:?}");
        assert!(by_cores[0] > 1.5 * by_cores[3], "{by_cores:?}");
        let by_switch = [0.0, 1000.0, 5000.0].map(|ns| us(&lab(2, ns), 8));
        assert!(by_switch.is_sorted(), "{by_switch:?}");
    }
}

#[test]
fn a_node_in_a_switch_is_on_no_machine() {
    let text = "name = \"mine\"\nbase = \"edr-sharp\"\n[machine]\n\
                cores = { value = 2, unit = \"1\", source = \"a test\" }\n\
                switch = { value = 0, unit = \"ns\", source = \"a test\" }\n";
    let error = preset::read(text).unwrap_err().to_string();
    assert!(error.contains("`aggregation.on_hosts` is false; allowed: true"), "{error}");
    let error = preset::read(&text.replace("value = 2", "value = 0")).unwrap_err().to_string();
    assert!(error.contains("`machine.cores` is 0"), "{error}");
}
