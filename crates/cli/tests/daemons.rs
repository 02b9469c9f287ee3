//! Real daemons as processes, and `kill -9` of a rank and of an aggregator.

mod support;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use support::{Daemons, Ended, Running, await_children, is_alive, kill, run, tributary};

/// Descriptors that may differ: connections whose end the other side has not seen yet.
const DESCRIPTORS_SLACK: usize = 2;
/// Memory that may differ: the allocator keeps pages.
const RESIDENT_SLACK_KIB: u64 = 8 << 10;

fn small_bench(daemons: &Daemons) -> Ended {
    let line = "bench allreduce --procs 4 --hosts 4 --sizes 8,64K --iters 20 --json";
    run(daemons.tributary().args(line.split(' ')))
}

fn assert_serves(daemons: &Daemons) {
    let ended = small_bench(daemons);
    assert!(ended.status.success(), "{}", ended.stderr);
    assert_eq!(ended.stdout.lines().filter(|line| line.contains("in_tree")).count(), 2);
    daemons.await_idle();
}

/// Starts a benchmark that never ends by itself, and waits for its group.
fn endless_bench(daemons: &Daemons) -> (Running, Vec<u32>) {
    endless_bench_with(daemons, "on")
}

fn endless_bench_with(daemons: &Daemons, failover: &str) -> (Running, Vec<u32>) {
    let mut command = daemons.tributary();
    command.args("bench allreduce --procs 4 --hosts 4 --sizes 8 --iters 10000000".split(' '));
    command.env("TRIBUTARY_LOG", "off").env("TRIBUTARY_FAILOVER", failover);
    let bench = Running::start(&mut command);
    let mut ranks = await_children(bench.id(), 4);
    ranks.sort_unstable();
    support::await_that("the group is set up", || {
        (!support::list(&daemons.status(), "groups").is_empty()).then_some(())
    });
    std::thread::sleep(std::time::Duration::from_millis(300));
    (bench, ranks)
}

/// Descriptors and memory of each daemon.
fn holdings(daemons: &Daemons) -> Vec<(usize, u64)> {
    std::iter::once(&daemons.manager)
        .chain(&daemons.nodes)
        .map(|daemon| (daemon.descriptors(), daemon.resident_kib()))
        .collect()
}

/// Waits until every daemon has about the descriptors and memory of `before`.
fn await_holdings(daemons: &Daemons, before: &[(usize, u64)]) {
    support::await_that("daemons free what they held", || {
        let now = holdings(daemons);
        before
            .iter()
            .zip(&now)
            .all(|(before, now)| {
                now.0 <= before.0 + DESCRIPTORS_SLACK && now.1 <= before.1 + RESIDENT_SLACK_KIB
            })
            .then_some(())
    });
}

#[test]
fn a_killed_rank_leaves_nothing_behind() {
    let daemons = Daemons::start(&["a", "b", "c"]);
    assert_serves(&daemons);
    let before = holdings(&daemons);
    for _ in 0..3 {
        let (bench, ranks) = endless_bench(&daemons);
        kill(ranks[2]);
        let ended = bench.wait();
        assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
        assert!(
            ended.stderr.contains("rank 2 was ended by signal 9 (SIGKILL)"),
            "{}",
            ended.stderr
        );
        for rank in [0, 1, 3] {
            assert!(ended.stderr.contains(&format!("rank {rank} failed")), "{}", ended.stderr);
        }
        assert!(ranks.iter().all(|&rank| !is_alive(rank)));
        daemons.await_idle();
        assert_serves(&daemons);
    }
    await_holdings(&daemons, &before);
}

#[test]
fn a_killed_node_is_reported_without_failover_and_the_others_serve_on() {
    let mut daemons = Daemons::start(&["a", "b", "c"]);
    assert_serves(&daemons);
    let (bench, ranks) = endless_bench_with(&daemons, "off");
    let mut victim = daemons.nodes.pop().expect("three were started");
    victim.kill();
    let before = holdings(&daemons);
    let ended = bench.wait();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    for rank in 0..4 {
        assert!(ended.stderr.contains(&format!("rank {rank} failed")), "{}", ended.stderr);
    }
    assert!(ended.stderr.contains("aggregation tree"), "{}", ended.stderr);
    assert!(ranks.iter().all(|&rank| !is_alive(rank)));
    daemons.await_nodes(2);
    daemons.await_idle();
    assert_serves(&daemons);
    await_holdings(&daemons, &before);

    daemons.add("c");
    daemons.await_nodes(3);
    assert_serves(&daemons);
}

#[test]
fn status_and_tree_show_a_running_job() {
    let daemons = Daemons::start(&["a", "b", "c"]);
    let (bench, _) = endless_bench(&daemons);
    let status = daemons.status();
    assert_eq!(status["jobs"][0]["processes"], 4);
    assert_eq!(status["groups"][0]["label"], "bench");
    let tree = run(daemons.tributary().arg("tree"));
    assert!(tree.stdout.starts_with("fabric\n  a at "), "{}", tree.stdout);
    assert!(
        tree.stdout.contains("\n    b at ") && tree.stdout.contains("'bench'"),
        "{}",
        tree.stdout
    );
    assert!(tree.stdout.contains("#3"), "hosts are listed: {}", tree.stdout);
    let text = run(daemons.tributary().arg("status"));
    assert!(text.stdout.contains("nodes: 3") && text.stdout.contains("jobs: 1"), "{}", text.stdout);
    drop(bench);
    daemons.await_idle();
}

#[test]
fn daemons_stop_cleanly_and_a_wrong_token_is_refused() {
    let daemons = Daemons::start(&["a"]);
    let other = tempfile::tempdir().unwrap();
    let token = other.path().join("token");
    assert!(run(support::tributary().args(["token", "create"]).arg(&token)).status.success());
    let ended = run(daemons.tributary().arg("status").env("TRIBUTARY_TOKEN_FILE", &token));
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("another token"), "{}", ended.stderr);
    let Daemons { manager, nodes, .. } = daemons;
    for daemon in nodes.into_iter().chain([manager]) {
        let status = daemon.stop();
        assert!(status.success(), "{status}");
    }
}

/// The options that give tokens, as processes take them.
#[test]
fn roles_are_told_apart_and_tokens_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["old", "new", "reader", "tenant"] {
        let made = run(support::tributary().args(["token", "create"]).arg(path(name)));
        assert!(made.status.success(), "{}", made.stderr);
    }
    let text = |name: &str| std::fs::read_to_string(path(name)).unwrap();
    let write = |name: &str, text: String| {
        std::fs::write(path(name), text).unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(path(name), private).unwrap();
    };
    write("both", text("new") + &text("old"));
    write("tenants.toml", "[physics]\ntoken_file = \"tenant\"\n".to_owned());
    let tokens = format!(
        "--reader-token-file {} --tenants {}",
        path("reader").display(),
        path("tenants.toml").display()
    );
    let words: Vec<&str> =
        "manager --listen 127.0.0.1:0".split(' ').chain(tokens.split(' ')).collect();
    let manager = support::Daemon::start(&words, &path("both"));
    let with = |token: &str, words: &str| {
        let mut command = support::tributary();
        command.args(words.split(' ')).args(["--manager", &manager.address]);
        run(command.arg("--token-file").arg(path(token)))
    };
    for token in ["old", "new", "both", "reader", "tenant"] {
        let ended = with(token, "status");
        assert!(ended.status.success(), "{token}: {}", ended.stderr);
        assert!(ended.stdout.contains("physics"), "{token}: {}", ended.stdout);
    }
    for (token, opens) in [("old", true), ("new", true), ("reader", true), ("tenant", false)] {
        assert_eq!(with(token, "open").status.success(), opens, "{token}");
        let drained = with(token, "drain nothing").stderr;
        let is_operator = ["old", "new"].contains(&token);
        let told = if is_operator { "no living aggregation node" } else { "the operator's token" };
        assert!(drained.contains(told), "{token}: {drained}");
    }
    for path in ["/healthz", "/readyz"] {
        let mut stream = TcpStream::connect(&manager.address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        assert!(answer.contains("200"), "{path}: {answer}");
    }
    // A token that two roles have would be good for one of them alone.
    let mut command = support::tributary();
    command.args(["manager", "--listen", "127.0.0.1:0", "--token-file"]).arg(path("both"));
    let ended = run(command.arg("--reader-token-file").arg(path("old")));
    assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("the operator has the same token"), "{}", ended.stderr);
}

/// The person who started a daemon from a terminal may close it.
#[test]
fn a_hang_up_ends_no_daemon() {
    let daemons = Daemons::start(&["a"]);
    for daemon in daemons.nodes.iter().chain([&daemons.manager]) {
        support::signal(daemon.id(), rustix::process::Signal::HUP);
    }
    assert_serves(&daemons);
    let Daemons { manager, nodes, .. } = daemons;
    for daemon in nodes.into_iter().chain([manager]) {
        assert!(daemon.stop().success());
    }
}

/// Each process of the test has a name of its own, in the network namespace that it shares with others.
#[test]
fn a_service_of_rings_is_found_by_config_and_ends_by_a_signal() {
    let socket = format!("@tributary-test-{}", std::process::id());
    let config = || run(tributary().args(["config", "--json"]).env("TRIBUTARY_RINGS", &socket));
    let problem = || -> serde_json::Value {
        let machine: serde_json::Value =
            serde_json::from_str(config().stdout.lines().last().unwrap()).unwrap();
        machine["rings"]["problem"].clone()
    };
    assert!(problem().as_str().unwrap().starts_with("no service of rings at @tributary-test-"));
    let service = Running::start(tributary().args(["rings", "--socket", &socket]));
    let id = service.id();
    support::await_that("the service", || problem().is_null().then_some(()));
    let second = run(tributary().args(["rings", "--socket", &socket]));
    assert!(second.stderr.contains("another service takes connections at @tributary-test-"));
    support::signal(id, rustix::process::Signal::HUP);
    assert!(problem().is_null(), "a hang-up ends no daemon");
    support::signal(id, rustix::process::Signal::TERM);
    let ended = service.wait();
    assert!(ended.status.success(), "{}", ended.stderr);
    assert_eq!(ended.stdout, format!("the service of rings takes connections at {socket}\n"));
}

/// Escape sequences, and a line that the manager never wrote.
const STEERING: &str = "\u{1b}[2J\u{1b}]0;x\u{7}\njobs: 0\u{9b}31m\u{202e}";

#[test]
fn names_of_jobs_steer_no_terminal_and_feign_no_line() {
    let daemons = Daemons::start(&["a"]);
    let token = std::fs::read_to_string(daemons.token()).unwrap();
    let post = |path: &str, body: serde_json::Value| {
        let mut stream = TcpStream::connect(&daemons.manager.address).unwrap();
        let (body, token) = (body.to_string(), token.trim());
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nHost: manager\r\nAuthorization: Bearer {token}\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        BufReader::new(stream)
    };
    let mut lease = post("/v1/jobs", serde_json::json!({"name": STEERING, "processes": 1}));
    let mut line = String::new();
    while !line.starts_with('{') {
        line.clear();
        lease.read_line(&mut line).unwrap();
    }
    let admission: serde_json::Value = serde_json::from_str(&line).unwrap();
    let group = serde_json::json!({
        "secret": admission["secret"], "label": STEERING, "hosts": [STEERING, "other"],
        "frame_versions": {"oldest": 2, "newest": 2}, "osos": 1, "payload_max_bytes": 1024,
    });
    let mut answer = String::new();
    let path = format!("/v1/jobs/{}/groups", admission["job"]);
    post(&path, group).read_line(&mut answer).unwrap();
    assert!(answer.contains("200"), "{answer}");
    // A name that is refused is logged, too; not all of it.
    post("/v1/jobs", serde_json::json!({"name": STEERING.repeat(50_000), "processes": 1}))
        .read_line(&mut answer)
        .unwrap();
    support::await_that("the refusal is logged", || {
        daemons.manager.log().contains("job refused").then_some(())
    });
    let mut shown = vec![daemons.manager.log()];
    for words in ["status", "tree", "status --json", "status --waiting"] {
        shown.push(run(daemons.tributary().args(words.split(' '))).stdout);
    }
    for text in &shown {
        assert!(text.chars().all(|it| it == '\n' || !it.is_control()), "{text:?}");
        assert!(!text.contains('\u{202e}'), "{text:?}");
        assert!(!text.lines().any(|line| line.starts_with("jobs: 0")), "{text}");
        assert!(text.len() < 16 << 10, "{} bytes", text.len());
    }
    for text in &shown[..3] {
        assert!(text.contains("u{1b}[2J"), "{text}");
    }
}

/// An aggregator without descriptors, at which connectors knock: it waits, and says so a few times.
#[test]
fn a_node_that_lacks_descriptors_neither_spins_nor_floods_its_log() {
    let mut daemons = Daemons::start(&[]);
    daemons.add_with_descriptors("a", 40);
    daemons.await_nodes(1);
    let node = &daemons.nodes[0];
    let mut held = Vec::new();
    // Half-open connectors over shared memory, whose time is up in between; then as many over TCP as there are
    // descriptors, and more.
    let greeters: Vec<UnixStream> =
        (0..8).map(|_| UnixStream::connect(daemons.socket("a")).unwrap()).collect();
    support::await_that("the node has them", || (node.descriptors() > 20).then_some(()));
    for _ in 0..60 {
        held.push(TcpStream::connect(&node.address).unwrap());
    }
    support::await_that("descriptors run out", || {
        node.log().contains("cannot accept links for now").then_some(())
    });
    let begin = (std::time::Instant::now(), node.processor_ticks());
    std::thread::sleep(std::time::Duration::from_secs(5));
    let spent = node.processor_ticks() - begin.1;
    let passed = begin.0.elapsed().as_millis() as u64 / 10;
    assert!(spent < passed / 10, "{spent} of {passed} ticks were spent on waiting");
    let lines = node.log().lines().filter(|line| line.contains("cannot accept links")).count();
    assert!(lines <= 400, "{lines} lines");
    drop((held, greeters));
    support::await_that("the node is well again", || {
        let ended = small_bench(&daemons);
        ended.status.success().then_some(())
    });
}

/// Without aggregation nodes there is no group: operations take direct links, and the report says so,
/// unless TRIBUTARY_FALLBACK sends them to the underlying MPI.
#[test]
fn a_refused_group_falls_back_to_a_host_algorithm() {
    let daemons = Daemons::start(&[]);
    let ended = small_bench(&daemons);
    assert!(ended.status.success(), "{}", ended.stderr);
    assert_eq!(ended.stdout.lines().filter(|line| line.contains("direct")).count(), 2);
    let bench = "bench allreduce --procs 4 --hosts 4 --sizes 8 --iters 20".split(' ');
    let ended = run(daemons.tributary().args(bench.clone()).env("TRIBUTARY_FALLBACK", "mpi"));
    assert!(!ended.status.success());
    let mut command = daemons.tributary();
    command.args(bench).env("TRIBUTARY_BETWEEN_HOSTS", "tree");
    let ended = run(command.env("TRIBUTARY_REQUIRE", "tree"));
    assert!(!ended.status.success());
    assert!(ended.stderr.contains("TRIBUTARY_REQUIRE=tree"), "{}", ended.stderr);
    let log = daemons.manager.log();
    assert!(log.contains("group refused") && log.contains("no aggregation node"), "{log}");
}

#[test]
fn a_killed_rank_on_direct_links_is_named_by_all_others() {
    let daemons = Daemons::start(&[]);
    let mut command = daemons.tributary();
    command.args("bench allreduce --procs 4 --hosts 4 --sizes 8 --iters 10000000".split(' '));
    let bench = Running::start(command.env("TRIBUTARY_LOG", "off"));
    let mut ranks = await_children(bench.id(), 4);
    ranks.sort_unstable();
    std::thread::sleep(std::time::Duration::from_millis(500));
    kill(ranks[2]);
    let ended = bench.wait();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("rank 2 was ended by signal 9 (SIGKILL)"), "{}", ended.stderr);
    for rank in [0, 1, 3] {
        let line = format!("rank {rank} failed");
        let line = ended.stderr.lines().find(|said| said.contains(&line));
        let line = line.unwrap_or_else(|| panic!("{}", ended.stderr));
        assert!(line.contains("a member was lost") && line.contains("#2"), "{line}");
    }
}
