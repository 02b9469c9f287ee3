//! `tributary listen`: a process outside a job reads the job's results.

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;
use support::{Daemons, Running, is_alive, kill, run};

/// What four ranks reduce to that contribute their numbers, in two elements: 6, twice.
const RESULT: &str = "0000c0400000c040";

/// Starts a benchmark that never ends by itself, and waits until its results can be read.
fn observed_bench(daemons: &Daemons, grant: &Path) -> Running {
    let mut command = daemons.tributary();
    command.args("bench allreduce --procs 4 --hosts 4 --sizes 8 --iters 10000000".split(' '));
    let bench = Running::start(command.env("TRIBUTARY_EXTERNAL_RECEIVER", grant));
    support::await_that("the grant is there", || grant.exists().then_some(()));
    bench
}

#[test]
fn a_process_outside_the_job_reads_its_results_and_costs_it_nothing() {
    let daemons = Daemons::start(&["a", "b", "c"]);
    let folder = tempfile::tempdir().unwrap();
    let grant = folder.path().join("grant");
    let bench = observed_bench(&daemons, &grant);
    assert_eq!(std::fs::metadata(&grant).unwrap().permissions().mode() & 0o777, 0o600);

    let listen =
        |count: &str| run(daemons.tributary().arg("listen").arg(&grant).args(["--count", count]));
    let mut next = 0;
    for count in ["1", "100"] {
        // The second process can join once the first has left.
        let ended = support::await_that("the receiver's place is free", || {
            Some(listen(count)).filter(|ended| ended.status.success())
        });
        assert_eq!(ended.stdout.lines().count(), count.parse::<usize>().unwrap());
        for line in ended.stdout.lines() {
            let line: Value = serde_json::from_str(line).expect("JSON");
            assert_eq!((&line["operator"], &line["datatype"]), (&"sum".into(), &"f32".into()));
            assert_eq!(line["data"], RESULT);
            let operation = line["operation"].as_u64().expect("a number");
            assert!(operation >= next, "operation {operation} where {next} is the next");
            next = operation + 1;
        }
    }
    assert!(is_alive(bench.id()), "the job runs on without it");
    kill(bench.id());
    bench.wait();
    daemons.await_idle();
    assert_eq!(listen("1").status.code(), Some(1), "the group is gone");
}

/// Waits for a result that is read in another tree than `before`, and returns that one's group and epoch.
fn await_tree(listener: &Running, before: Option<(u64, u64)>) -> (u64, u64) {
    support::await_that("results of another tree are read", || {
        let lines = listener.last_lines();
        let (whole, _) = lines.rsplit_once('\n')?;
        let line: Value = serde_json::from_str(whole.rsplit('\n').next()?).ok()?;
        assert_eq!(line["data"], RESULT);
        let tree = (line["group"].as_u64()?, line["epoch"].as_u64()?);
        Some(tree).filter(|tree| Some(*tree) != before)
    })
}

/// Kills the aggregator at which the only group's results are read.
fn kill_root(daemons: &mut Daemons) {
    let status = daemons.status();
    let root = status["groups"][0]["nodes"][0]["name"].as_str().expect("there is one").to_owned();
    let place = daemons.nodes.iter().position(|node| node.name == root).expect("it is ours");
    daemons.nodes.remove(place).kill();
}

#[test]
fn a_process_outside_the_job_follows_it_from_tree_to_tree() {
    let mut daemons = Daemons::start(&["a", "b", "c"]);
    let folder = tempfile::tempdir().unwrap();
    let grant = folder.path().join("grant");
    let bench = observed_bench(&daemons, &grant);
    let mut listen = daemons.tributary();
    let listener =
        Running::start(listen.arg("listen").arg(&grant).args(["--next-tree-within", "5"]));
    let mut tree = await_tree(&listener, None);

    for _ in 0..3 {
        kill_root(&mut daemons);
        if daemons.nodes.is_empty() {
            daemons.add("d");
        }
        tree = await_tree(&listener, Some(tree));
    }
    assert!(is_alive(bench.id()), "the job goes on");

    kill(bench.id());
    bench.wait();
    let ended = listener.wait();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    let lost = ended.stderr.matches("waiting for the job's next tree");
    assert_eq!(lost.count(), 4, "{}", ended.stderr);
    assert!(ended.stderr.contains("the job wrote no other grant within 5 s"), "{}", ended.stderr);
    daemons.await_idle();
}
