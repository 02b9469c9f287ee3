//! `tributary model` and `tributary tune`: measurements are shown, and communicators select by them.

mod support;

use support::{run, tributary};

const CONSTANTS: &str = "--network-startup-ns 1000 --network-ns-per-byte 0.1 \
    --memory-startup-ns 100 --memory-ns-per-byte 0.05 --reduce-ns-per-byte 0.02";

fn rows(stdout: &str) -> Vec<serde_json::Value> {
    stdout.lines().map(|line| serde_json::from_str(line).expect("a row is JSON")).collect()
}

/// 4 hosts of 4 processes, 4000 bytes, by hand: l (a' + b' n / l) twice, (p / (h l) - 1) n c,
/// 2 (a + n b / l + n c / l).
#[test]
fn predictions_are_the_formulas() {
    let line = format!("model --hosts 4 --ppn 4 --sizes 4000 --json {CONSTANTS}");
    let ended = run(tributary().args(line.split_whitespace()));
    assert!(ended.status.success(), "{}", ended.stderr);
    let rows = rows(&ended.stdout);
    let leaders: Vec<u64> = rows.iter().map(|row| row["leaders"].as_u64().unwrap()).collect();
    assert_eq!(leaders, [1, 2, 4]);
    for row in &rows {
        let l = row["leaders"].as_f64().unwrap();
        let copies = 2.0 * (l * 100.0 + 0.05 * 4000.0);
        let reduce = (4.0 / l - 1.0) * 4000.0 * 0.02;
        let network = 2.0 * (1000.0 + 4000.0 * (0.1 + 0.02) / l);
        let expected_us = (copies + reduce + network) / 1000.0;
        assert!((row["predicted_us"].as_f64().unwrap() - expected_us).abs() < 1e-9, "{row}");
        assert!(row["measured_us"].is_null());
    }
    assert_eq!(rows.iter().filter(|row| row["best"] == true).count(), 1);
}

#[test]
fn a_missing_constant_is_named() {
    let ended = run(tributary().args(["model", "--network-startup-ns", "5"]));
    assert_eq!(ended.status.code(), Some(2));
    assert!(ended.stderr.contains("--network-ns-per-byte"), "{}", ended.stderr);
    let ended = run(tributary().args(["model", "--tuning", "/no/such/file"]));
    assert!(ended.stderr.contains("/no/such/file"), "{}", ended.stderr);
}

/// Predicted and measured side by side, without a file.
#[test]
fn what_is_measured_now_stands_beside_the_prediction() {
    let line = "model --measure --hosts 2 --ppn 2 --sizes 8,4K --iters 5 --json";
    let ended = run(tributary().args(line.split(' ')).args(CONSTANTS.split_whitespace()));
    assert!(ended.status.success(), "{}", ended.stderr);
    let rows = rows(&ended.stdout);
    let leaders: Vec<u64> = rows.iter().map(|row| row["leaders"].as_u64().unwrap()).collect();
    assert_eq!(leaders, [1, 2, 1, 2]);
    assert!(rows.iter().all(|row| row["measured_us"].as_f64().unwrap() > 0.0), "{}", ended.stdout);
    let alone = run(tributary().args("model --measure --hosts 1 --ppn 2".split(' ')));
    assert_eq!(alone.status.code(), Some(2));
    assert!(alone.stderr.contains("2 hosts or more"), "{}", alone.stderr);
}

/// The model shows a table that is measured here, and communicators select by it.
#[test]
fn what_was_tuned_is_shown_and_chosen_by() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tuning.toml");
    let line = "tune --hosts 2 --ppn 2 --sizes 8,4K --iters 5";
    let ended = run(tributary().args(line.split(' ')).arg(&file));
    assert!(ended.status.success(), "{}", ended.stderr);
    let shown = run(tributary()
        .args("model --hosts 2 --ppn 2 --sizes 8,4K --json --tuning".split(' '))
        .arg(&file));
    let rows = rows(&shown.stdout);
    assert_eq!(rows.len(), 4, "{}", shown.stdout);
    for row in rows {
        assert!(row["measured_us"].as_f64().unwrap() > 0.0, "{row}");
    }
    // Make one path the fastest for short vectors and the other for longer ones.
    let mut table: toml::Table = std::fs::read_to_string(&file).unwrap().parse().unwrap();
    for row in table["measurements"].as_array_mut().unwrap() {
        let is_short = row["len_bytes"].as_integer() == Some(8);
        let wins = is_short == (row["method"].as_str() == Some("direct"));
        row["time_us"] = toml::Value::Float(if wins { 1.0 } else { 2.0 });
    }
    std::fs::write(&file, table.to_string()).unwrap();
    let bench = "bench allreduce --procs 4 --hosts 2 --iters 5 --json --sizes";
    for (sizes, path) in [("8", "direct"), ("4K", "in_tree"), ("8,4K", "direct,in_tree")] {
        let ended =
            run(tributary().args(bench.split(' ')).arg(sizes).env("TRIBUTARY_TUNING", &file));
        assert!(ended.status.success(), "{}", ended.stderr);
        let row: serde_json::Value =
            serde_json::from_str(ended.stdout.lines().next().unwrap()).unwrap();
        assert_eq!((row["path"].as_str(), row["verified"].as_bool()), (Some(path), Some(true)));
    }
}
