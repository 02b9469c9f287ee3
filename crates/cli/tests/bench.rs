//! `tributary bench` from end to end, with the fabric that it starts itself.

mod support;

use support::{Running, await_children, is_alive, kill, run, tributary};

fn rows(line: &str) -> Vec<serde_json::Value> {
    let ended = run(tributary().arg("bench").args(line.split(' ')).arg("--json"));
    assert!(ended.status.success(), "{line}: {}", ended.stderr);
    ended.stdout.lines().map(|line| serde_json::from_str(line).expect("a row is JSON")).collect()
}

#[test]
fn json_rows_have_every_column_in_order_of_size() {
    let rows = rows("allreduce --procs 2 --sizes 8,1K --iters 20");
    let sizes: Vec<u64> = rows.iter().map(|row| row["size_bytes"].as_u64().unwrap()).collect();
    assert_eq!(sizes, [8, 1024]);
    for row in &rows {
        assert_eq!(row["collective"], "allreduce");
        assert_eq!((&row["dtype"], &row["op"]), (&"f32".into(), &"sum".into()));
        assert_eq!((&row["algo"], &row["path"]), (&"auto".into(), &"in_host".into()));
        assert_eq!((row["procs"].as_u64(), row["hosts"].as_u64()), (Some(2), Some(1)));
        assert_eq!((row["iterations"].as_u64(), row["verified"].as_bool()), (Some(20), Some(true)));
        for over in ["op", "rank"] {
            let at = |name: &str| row[format!("{over}_{name}_us")].as_f64().unwrap();
            let quartiles = ["min", "q1", "median", "q3", "max"].map(at);
            assert!(quartiles.is_sorted() && quartiles[0] > 0.0, "{quartiles:?}");
            let average = row["avg_us"].as_f64().unwrap();
            assert!(quartiles[0] <= average && average <= quartiles[4]);
        }
    }
}

/// Launchers that fail in ways of their own. A compiler that does nothing takes the place of mpicc.
#[test]
fn a_launcher_that_measures_nothing_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let bench = |mpicc: &str, launcher: &str| {
        let mut command = tributary();
        command.arg("bench").args(["--mpicc", mpicc, "--folder"]).arg(folder.path());
        // Any library is good enough for a launcher that starts nothing.
        std::fs::write(folder.path().join("libtributary.so"), "").unwrap();
        command.env("TRIBUTARY_LIBRARY_PATH", folder.path()).arg("--").args(launcher.split(' '));
        run(&mut command)
    };
    for (mpicc, launcher, words) in [
        ("false", "true", ["false can't compile", "--mpicc"]),
        ("true", "true", ["true ended well", "first line is missing"]),
        ("true", "false", ["false ended (exit status: 1)", "--folder"]),
    ] {
        let ended = bench(mpicc, launcher);
        assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
        for word in words {
            assert!(ended.stderr.contains(word), "{word}: {}", ended.stderr);
        }
        assert_eq!(ended.stdout, "");
    }
    let left: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(left, ["libtributary.so"], "nothing is left");
}

#[test]
fn every_collective_is_verified_in_the_node_and_in_the_tree() {
    for collective in ["allreduce", "reduce", "bcast"] {
        let line = format!(
            "{collective} --procs 4 --hosts 2 --algo host,auto,tree --sizes 4:64K --iters 4"
        );
        let rows = rows(&line);
        assert_eq!(rows.len(), 3 * 15, "{collective}");
        for row in rows {
            let path = if row["algo"] == "host" { "in_host" } else { "in_tree" };
            assert_eq!(row["path"], path, "{collective}");
        }
    }
    let rows = rows("barrier --procs 3 --hosts 3 --algo host,auto --iters 10");
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0]["size_bytes"], 0);
}

#[test]
fn streams_are_verified_whatever_the_number_of_ranks_a_host_has() {
    // Chunks of 4 KiB, two in flight: parts of one chunk, so that the host's own copies overlap.
    let knobs = [
        ("TRIBUTARY_STREAM_MIN", "1"),
        ("TRIBUTARY_STREAM_CHUNK", "4096"),
        ("TRIBUTARY_STREAM_WINDOW", "3"),
    ];
    for (procs, dtype) in [(2, "f32"), (4, "i64-index"), (6, "bf16")] {
        for collective in ["allreduce", "reduce", "bcast"] {
            let line = format!(
                "bench {collective} --procs {procs} --hosts 2 --algo auto,tree --dtype {dtype} \
                 --transport tcp --sizes 16,4K,68K,256K --iters 2 --json"
            );
            let mut command = tributary();
            command.args(line.split_whitespace()).envs(knobs);
            let ended = run(&mut command);
            assert!(ended.status.success(), "{line}: {}", ended.stderr);
            assert_eq!(ended.stdout.lines().count(), 8, "{line}");
        }
    }
}

#[test]
fn pairs_and_half_floats_are_verified_too() {
    for options in [
        "--dtype f64-index --op maxloc",
        "--dtype i16-index --op minloc",
        "--dtype bf16 --op max",
        "--dtype f16 --op product",
        "--dtype u8 --op logical-xor",
    ] {
        let rows =
            rows(&format!("allreduce {options} --procs 3 --hosts 3 --sizes 16,4K --iters 3"));
        assert_eq!(rows.len(), 2, "{options}");
    }
}

#[test]
fn overlap_is_told_with_what_it_was_computed_from() {
    let rows = rows("allreduce --procs 2 --hosts 2 --sizes 8,16K --iters 30 --overlap");
    assert_eq!(rows.len(), 2);
    for row in rows {
        let at = |name: &str| row[name].as_f64().unwrap();
        let hidden = 100.0 - 100.0 * (at("overall_us") - at("compute_us")) / at("pure_us");
        assert!((at("overlap_percent") - hidden.clamp(0.0, 100.0)).abs() < 1e-6, "{row}");
        assert!(at("pure_us") > 0.0 && at("compute_us") > 0.0);
    }
}

#[test]
fn people_get_a_table() {
    let ended = run(tributary().args("bench bcast --procs 2 --sizes 8 --iters 5".split(' ')));
    assert!(ended.status.success(), "{}", ended.stderr);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert!(lines[0].contains("bcast of f32, 2 processes") && lines[0].contains("verified"));
    assert!(lines[3].starts_with("algo  path") && lines[3].contains("size_bytes"));
    assert_eq!(lines[4].split_whitespace().count(), lines[3].split_whitespace().count());
    assert_eq!(ended.stderr, "", "no progress bar without a terminal");
}

/// Kills rank 2 of 4 and expects every other rank to fail.
fn a_killed_rank_is_reported(hosts: &str) {
    let mut command = tributary();
    command.args(["bench", "allreduce", "--procs", "4", "--sizes", "8", "--iters", "10000000"]);
    command.args(["--hosts", hosts]).env("TRIBUTARY_LOG", "off");
    let bench = Running::start(&mut command);
    let mut ranks = await_children(bench.id(), 4);
    ranks.sort_unstable();
    std::thread::sleep(std::time::Duration::from_millis(1500));
    kill(ranks[2]);
    let ended = bench.wait();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    let lines: Vec<&str> = ended.stderr.lines().collect();
    assert!(lines[0].contains("rank 2 was ended by signal 9 (SIGKILL)"), "{}", ended.stderr);
    for rank in [0, 1, 3] {
        let named = format!("rank {rank} failed:");
        assert!(lines[1..].iter().any(|line| line.contains(&named)), "{}", ended.stderr);
    }
    assert!(ranks.iter().all(|&rank| !is_alive(rank)), "a rank is left over");
}

#[test]
fn a_killed_rank_of_one_host_is_reported() {
    a_killed_rank_is_reported("1");
}

#[test]
fn a_killed_rank_of_two_hosts_is_reported() {
    a_killed_rank_is_reported("2");
}

#[test]
fn ranks_end_with_their_parent() {
    let mut command = tributary();
    command.args("bench allreduce --procs 3 --sizes 8 --iters 10000000".split(' '));
    let bench = Running::start(&mut command);
    let ranks = await_children(bench.id(), 3);
    kill(bench.id());
    support::await_that("the ranks end", || {
        ranks.iter().all(|&rank| !is_alive(rank)).then_some(())
    });
}

#[test]
fn sigterm_stops_a_benchmark_and_its_ranks() {
    let mut command = tributary();
    command.args("bench allreduce --procs 3 --sizes 8 --iters 10000000".split(' '));
    let bench = Running::start(&mut command);
    let ranks = await_children(bench.id(), 3);
    support::signal(bench.id(), rustix::process::Signal::TERM);
    let ended = bench.wait();
    assert!(ended.stderr.contains("SIGTERM"), "{}", ended.stderr);
    assert!(!ended.status.success());
    assert!(ranks.iter().all(|&rank| !is_alive(rank)));
}
