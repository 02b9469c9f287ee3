//! Goal: a client in C gets from every function what the header says, whatever it leaves uninitialised, on one
//! host and through aggregation nodes. Method: `tests/client/client.c` runs a scenario as several processes
//! and checks its results itself; where operations went is read from the report.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod support;

use std::process::{Command, Output};
use std::sync::OnceLock;

use support::Program;
use tributary_client::report::{CollectiveKind, Report};
use tributary_daemon::embedded::{Fabric, FabricOptions};

/// What a process adds to the sum of statuses that a signal ended.
const KILLED: i32 = 900;
const ABORTED: i32 = 600;

fn client(scenario: &str, ranks: u32) -> Command {
    static CLIENT: OnceLock<Program> = OnceLock::new();
    let compile = || Program::compile(&["client.c", "collectives.c", "ranks.c"]);
    let mut command = CLIENT.get_or_init(compile).command();
    command.args([scenario, &ranks.to_string()]);
    command
}

/// A client's ranks as so many hosts, and the aggregators between them.
fn client_on_hosts(scenario: &str, hosts: u32) -> (Command, Fabric) {
    client_on(scenario, &FabricOptions { hosts, ..FabricOptions::default() })
}

fn client_on(scenario: &str, options: &FabricOptions) -> (Command, Fabric) {
    let fabric = Fabric::start(options).unwrap();
    let mut command = client(scenario, options.hosts);
    command
        .env("TRIBUTARY_MANAGER", fabric.manager().to_string())
        .env("TRIBUTARY_TOKEN_FILE", fabric.token_file())
        .env("TRIBUTARY_HOSTS", options.hosts.to_string());
    (command, fabric)
}

/// The same with room for one communicator.
fn client_beside_one_group(scenario: &str) -> (Command, Fabric) {
    let mut options = FabricOptions { hosts: 2, ..FabricOptions::default() };
    options.manager_limits.groups_max = 1;
    client_on(scenario, &options)
}

/// Runs it; its output where the statuses of its ranks add up to `expected`.
fn run(mut command: Command, expected: i32) -> Output {
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    let problems = String::from_utf8_lossy(&output.stderr);
    assert!(told.ends_with(&format!("statuses {expected}\n")), "{command:?}: {told}{problems}");
    output
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn every_collective_gives_its_result_on_one_host() {
    for ranks in [1, 2, 3, 4] {
        run(client("everything", ranks), 0);
    }
}

#[test]
fn every_collective_gives_its_result_through_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.json");
    let (mut command, _fabric) = client_on_hosts("everything", 4);
    command.env("TRIBUTARY_REPORT", &path);
    run(command, 0);
    let report: Report = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!((report.jobs, report.in_host, report.direct), (1, 0, 0), "{report}");
    for kind in [
        CollectiveKind::Allreduce,
        CollectiveKind::Reduce,
        CollectiveKind::Broadcast,
        CollectiveKind::Barrier,
        CollectiveKind::ReduceScatter,
        CollectiveKind::Allgather,
    ] {
        assert!(report.communicators[0].collectives[&kind].in_tree > 0, "{kind:?}: {report}");
    }
}

#[test]
fn several_communicators_and_threads_run_at_once() {
    run(client("several", 4), 0);
    let (command, _fabric) = client_on_hosts("several", 3);
    run(command, 0);
}

#[test]
fn a_process_may_end_without_freeing_anything() {
    run(client("leaves", 3), 0);
    let (command, _fabric) = client_on_hosts("leaves", 2);
    run(command, 0);
}

#[test]
fn what_is_freed_too_early_is_refused_or_goes_on() {
    run(client("frees-early", 3), 0);
    let (command, _fabric) = client_on_hosts("frees-early", 2);
    run(command, 0);
}

#[test]
fn requests_that_nobody_frees_do_not_run_out() {
    run(client("never-frees", 1), 0);
}

#[test]
fn a_client_that_waits_is_called_back() {
    run(client("waits", 2), 0);
    let (command, _fabric) = client_on_hosts("waits", 2);
    run(command, 0);
}

#[test]
fn a_lost_rank_is_told_where_it_can_be() {
    let told = errors(&run(client("loses-a-rank", 4), KILLED));
    assert!(told.contains("rank 3 of sharp_coll_comm_init was lost"), "{told}");
}

#[test]
fn a_lost_rank_never_looks_like_success() {
    let aborted = errors(&run(client("tests-for-a-lost-rank", 3), KILLED + 2 * ABORTED));
    assert!(aborted.contains("TRIBUTARY_SHARP_FAILURE=stall"), "{aborted}");
    let mut command = client("tests-for-a-lost-rank", 3);
    command.env("TRIBUTARY_SHARP_FAILURE", "stall");
    run(command, KILLED);
}

#[test]
fn all_ranks_fail_together() {
    run(client("out-of-band-fails", 3), 0);
    run(client("setting-of-one-rank", 3), 0);
    let mut command = client("no-nodes", 4);
    command.env("TRIBUTARY_HOSTS", "2").env("TRIBUTARY_FABRIC", "manager");
    run(command, 0);
}

#[test]
fn a_refused_group_is_told_and_goes_over_direct_links() {
    let (mut command, _fabric) = client_beside_one_group("second-is-refused");
    command.env("TRIBUTARY_HOST_ADDRESS", "127.0.0.1");
    let told = errors(&run(command, 0));
    assert!(told.contains("warning: communicator of 2 ranks: the manager refuses"), "{told}");
    let (mut command, _fabric) = client_beside_one_group("second-is-refused");
    command.env("TRIBUTARY_FALLBACK", "mpi");
    run(command, 0);
}

#[test]
fn a_manager_that_is_not_there_is_named_and_costs_the_tree_alone() {
    let (mut command, _fabric) = client_on_hosts("no-manager", 2);
    command.env("TRIBUTARY_MANAGER", "127.0.0.1:9").env("TRIBUTARY_HOST_ADDRESS", "127.0.0.1");
    let told = errors(&run(command, 0));
    assert!(told.contains("warning: manager 127.0.0.1:9 does not answer"), "{told}");
    let (mut command, _fabric) = client_on_hosts("no-manager", 2);
    command.env("TRIBUTARY_MANAGER", "127.0.0.1:9").env("TRIBUTARY_HOST_ADDRESS", "127.0.0.1");
    command.env("TRIBUTARY_REQUIRE", "tree");
    run(command, 0);
}

#[test]
fn settings_and_counts_are_told() {
    let mut command = client("tells", 2);
    command.env("SHARP_COLL_JOB_QUOTA_OSTS", "5").env("SHARP_COLL_STATS_DUMP_MODE", "2");
    let output = run(command, 0);
    let settings = String::from_utf8_lossy(&output.stdout);
    assert!(settings.contains("TRIBUTARY_OSOS=5 (environment)"), "{settings}");
    let counts = errors(&output);
    let is_count = |line: &&str| line.contains("barrier") && line.contains("1 in_host");
    // By sharp_coll_dump_stats() and at the end.
    assert_eq!(counts.lines().filter(is_count).count(), 2, "{counts}");
}
