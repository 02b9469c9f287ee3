//! Goal: whole programs end, do the same computing in every design, and gain what their collectives lose.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use tributary_algorithms::CollectiveKind;
use tributary_replay::comparison::Comparison;
use tributary_replay::mix;
use tributary_replay::run::{Between, Outcome, ReplayError, run};
use tributary_sim::measure::{FullHosts, InterHost};
use tributary_sim::preset::{self, Preset};
use tributary_sim::system::SystemPlan;
use tributary_workload::Workload;

const TREE: Between = Between::Tree { multicast: true, only: None };

fn edr() -> Preset {
    preset::read_shipped("edr-sharp").unwrap()
}

fn program(text: &str, ranks: u32, per_host: u32) -> Workload {
    let head = "name = \"test\"\nranks = 64\nprocesses_per_host = 1\niterations = 20\n";
    mix::read(&format!("{head}{text}")).unwrap().workload(ranks, per_host).unwrap()
}

fn outcome(preset: &Preset, workload: &Workload, between: &Between) -> Outcome {
    run(preset, &SystemPlan::new(preset).unwrap(), workload, between, 7).unwrap()
}

const PHASE: &str = "[[phase]]\noperation = \"allreduce\"\nbytes = 8\n\
                     compute = { distribution = \"exponential\", mean_us = 30 }\n";

#[test]
fn designs_compute_alike_and_runs_repeat() {
    let workload = program(PHASE, 64, 4);
    let hosts = outcome(&edr(), &workload, &Between::Hosts);
    let tree = outcome(&edr(), &workload, &TREE);
    assert!((hosts.compute_us / tree.compute_us - 1.0).abs() < 1e-9);
    assert_eq!((hosts.trees, tree.trees, tree.refused), (0, 1, 0));
    assert!(tree.total_us < hosts.total_us, "{tree:?} {hosts:?}");
    assert_eq!(tree, outcome(&edr(), &workload, &TREE));
    let operations: u64 = tree.classes.values().map(|times| times.operations).sum();
    assert_eq!(operations, 20);
}

#[test]
fn without_computing_a_call_takes_what_the_benchmark_measures() {
    let mut quiet = edr();
    quiet.noise = preset::read_shipped("loggp").unwrap().noise;
    let lone = "[[phase]]\noperation = \"allreduce\"\nbytes = 8\n\
                compute = { distribution = \"constant\", us = 50 }\n";
    for (processes, between, inter_host) in [
        (1, Between::Hosts, InterHost::HostBased),
        (28, Between::Hosts, InterHost::HostBased),
        (1, TREE, InterHost::Tree { multicast: true }),
        (28, TREE, InterHost::Tree { multicast: true }),
    ] {
        let mut workload = program(lone, 32 * processes, processes);
        // In a second iteration ranks would no longer begin together, as they do in the benchmark.
        workload.scripts[0].iterations = 1;
        let times = outcome(&quiet, &workload, &between);
        let (_, class) = times.classes.iter().next().unwrap();
        let own_us = class.mean_us / class.operations as f64;
        let setting =
            FullHosts { groups: 1, hosts: 32, processes, leaders: 1, inter_host, seed: None };
        let bench_us = setting.set_up(&quiet).unwrap().allreduce(8, 3).unwrap().avg();
        assert!((own_us / bench_us - 1.0).abs() < 0.02, "{processes}: {own_us}, {bench_us}");
    }
}

#[test]
fn every_collective_and_communicator_ends_in_every_design() {
    let communicators = "[[communicator]]\nname = \"row\"\nblocks_of = 6\n\
                         [[communicator]]\nname = \"column\"\nstride = 6\n";
    let mut phases = String::new();
    for kind in CollectiveKind::ALL {
        for communicator in ["world", "row", "column"] {
            phases += &format!(
                "[[phase]]\noperation = \"{}\"\nbytes = 300\nroot = 1\ncommunicator = \"{communicator}\"\n\
                 compute = {{ distribution = \"uniform\", min_us = 0, max_us = 9 }}\n",
                kind.name()
            );
        }
    }
    let workload = program(&format!("{communicators}{phases}"), 48, 3);
    for between in [Between::Hosts, TREE, Between::Tree { multicast: false, only: None }] {
        let times = outcome(&edr(), &workload, &between);
        for kind in CollectiveKind::ALL {
            let of_kind = times.classes.iter().filter(|(class, _)| class.kind == kind);
            let operations: u64 = of_kind.map(|(_, times)| times.operations).sum();
            assert_eq!(operations, 20 * (1 + 8 + 6), "{kind:?} {between:?}");
        }
    }
}

#[test]
fn a_root_waits_for_others_and_others_do_not_wait_for_a_reduce() {
    let text = "[[phase]]\noperation = \"reduce\"\nbytes = 8\n\
                compute = { distribution = \"exponential\", mean_us = 100 }\n";
    let mut workload = program(text, 16, 1);
    workload.scripts[0].iterations = 200;
    let reduce = outcome(&edr(), &workload, &Between::Hosts);
    workload.scripts[0].phases[0].call.kind = CollectiveKind::Allreduce;
    let allreduce = outcome(&edr(), &workload, &Between::Hosts);
    assert!(
        reduce.total_us < 0.8 * allreduce.total_us,
        "{} {}",
        reduce.total_us,
        allreduce.total_us
    );
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let preset = edr();
    let plan = SystemPlan::new(&preset).unwrap();
    let refused = |ranks, per_host| {
        let error = run(&preset, &plan, &program(PHASE, ranks, per_host), &TREE, 1).unwrap_err();
        assert!(matches!(error, ReplayError::Refused(_)));
        error.to_string()
    };
    assert!(refused(1000, 1).starts_with("`hosts` is 1000; allowed: 1 to 128, "));
    assert!(refused(256, 200).starts_with("`processes` is 200; allowed: 1 to 28, "));
}

#[test]
fn shipped_mixes_run_and_the_tree_is_not_slower() {
    for name in mix::names() {
        let mut workload = mix::read_shipped(name).unwrap().workload(64, 4).unwrap();
        workload.scripts[0].iterations = 5;
        let preset = edr();
        let plan = SystemPlan::new(&preset).unwrap();
        let compared = Comparison::new(&preset, &plan, &workload, 1).unwrap();
        assert!(compared.gain(compared.best()) >= 1.0, "{name}: {compared:?}");
        assert_eq!(compared.designs[1].name, "tree");
        assert!(!compared.classes().rows.is_empty());
    }
}
