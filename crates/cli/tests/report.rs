//! `tributary report`: text, comparison, JSON, drawing and refusals.

mod support;

use std::path::{Path, PathBuf};

use support::{Ended, run, tributary};
use tempfile::TempDir;

/// A report of 4 ranks, each with 100 allreduces of 8 bytes that took `mean_ns` on `path`.
fn written(folder: &TempDir, name: &str, path: &str, mean_ns: u64) -> PathBuf {
    let counted = if path == "in_tree" { (100, 0) } else { (0, 100) };
    let (in_tree, passed_through) = counted;
    let text = format!(
        r#"{{"run_id":"1","jobs":1,"in_host":0,"in_tree":{in_tree},"direct":0,
        "passed_through":{passed_through},"reasons":{{}},"communicators":[{{"label":"world","ranks":4,
        "hosts":2,"communicators":1,"collectives":{{"allreduce":{{"in_host":0,"in_tree":{in_tree},
        "direct":0,"passed_through":{passed_through}}}}}}}],
        "times":{{"ranks":4,"program_ns":{},"not_measured":{{"barrier":8}},"collectives":{{"allreduce":
        {{"{path}":{{"8":{{"calls":400,"total_ns":{},"min_ns":900,"max_ns":90000,
        "durations":{{"896":1,"20480":395,"81920":4}}}}}}}}}}}}}}"#,
        1600 * mean_ns,
        400 * mean_ns,
    );
    let path = folder.path().join(name);
    std::fs::write(&path, text).expect("a folder of the test can be written");
    path
}

fn report(file: &Path, more: &[&str]) -> Ended {
    run(tributary().arg("report").arg(file).args(more))
}

fn reviewed(name: &str, text: &str) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots/report");
    let path = folder.join(name);
    if std::env::var_os("TRIBUTARY_BLESS").is_some() {
        std::fs::create_dir_all(folder).expect("a folder of the test can be written");
        std::fs::write(&path, text).expect("a folder of the test can be written");
    }
    assert_eq!(text, std::fs::read_to_string(&path).unwrap_or_default(), "{}", path.display());
}

#[test]
fn text_is_as_reviewed() {
    let folder = tempfile::tempdir().unwrap();
    let ours = written(&folder, "ours.json", "in_tree", 20_000);
    let baseline = written(&folder, "baseline.json", "passed_through", 50_000);
    let alone = report(&ours, &[]);
    assert!(alone.status.success(), "{}", alone.stderr);
    reviewed("alone.txt", &alone.stdout);
    let beside = report(&ours, &["--baseline", baseline.to_str().unwrap()]);
    assert!(beside.stdout.starts_with(alone.stdout.trim_end()), "{}", beside.stdout);
    reviewed("beside.txt", &beside.stdout);
}

#[test]
fn json_has_counts_rows_and_comparison() {
    let folder = tempfile::tempdir().unwrap();
    let ours = written(&folder, "ours.json", "in_tree", 20_000);
    let baseline = written(&folder, "baseline.json", "passed_through", 50_000);
    let ended = report(&ours, &["--baseline", baseline.to_str().unwrap(), "--json"]);
    let value: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(value["in_tree"], 100);
    assert_eq!(value["times"]["rows"][0]["calls"], 400);
    assert_eq!(value["times"]["rows"][0]["p99_ns"], serde_json::json!([20480, 24576]));
    assert_eq!(value["compared"][0]["speed_up"], 2.5);
    assert_eq!(value["compared"][0]["saved_ns"], 12_000_000.0);
}

#[test]
fn a_drawing_is_written_with_its_baseline() {
    let folder = tempfile::tempdir().unwrap();
    let ours = written(&folder, "ours.json", "in_tree", 20_000);
    let baseline = written(&folder, "baseline.json", "passed_through", 50_000);
    let drawing = folder.path().join("gain.svg");
    let options = ["--baseline", baseline.to_str().unwrap(), "--plot", drawing.to_str().unwrap()];
    let ended = report(&ours, &options);
    assert!(ended.status.success(), "{}", ended.stderr);
    let text = std::fs::read_to_string(&drawing).unwrap();
    for word in ["allreduce: 400 calls at 4 ranks", "in_tree", "baseline", "8-15 B"] {
        assert!(text.contains(word), "{word} is missing");
    }
}

#[test]
fn what_a_report_lacks_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let ours = written(&folder, "ours.json", "in_tree", 20_000);
    let without = folder.path().join("without.json");
    let plain =
        r#"{"jobs":1,"in_host":3,"in_tree":0,"passed_through":0,"reasons":{},"communicators":[]}"#;
    std::fs::write(&without, plain).unwrap();
    let told = report(&without, &[]);
    assert!(told.status.success() && told.stdout.contains("3 in_host"), "{}", told.stdout);
    let without = without.to_str().unwrap();
    let broken = folder.path().join("broken.json");
    std::fs::write(&broken, "not a report").unwrap();
    let drawing = folder.path().join("gain.svg");
    let cases: [(&Path, &[&str], &str); 4] = [
        (&ours, &["--baseline", without], "--baseline"),
        (Path::new(without), &["--baseline", ours.to_str().unwrap()], "FILE"),
        (Path::new(without), &["--plot", drawing.to_str().unwrap()], "FILE"),
        (&broken, &[], "FILE"),
    ];
    for (file, options, named) in cases {
        let ended = report(file, options);
        assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains(named), "{}", ended.stderr);
        assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    }
    assert!(!drawing.exists());
}
