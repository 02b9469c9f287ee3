//! `tributary swarm`.

mod support;

use serde_json::Value;
use support::{run, tributary};

#[test]
fn a_swarm_tells_what_it_ran() {
    let ended = run(tributary().args(["swarm", "--seeds", "10..30", "--json"]));
    assert!(ended.status.success(), "{}", ended.stderr);
    let told: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(
        (&told["seeds"], &told["failures"]),
        (&Value::from(20), &Value::from(Vec::<u8>::new()))
    );
    assert!(told["commit"].is_string() && told["groups"].as_u64().unwrap() > 20);
    // The same seeds on one thread: the same traces.
    let again = run(tributary().args(["swarm", "--seeds", "10..30", "--threads", "1", "--json"]));
    let again: Value = serde_json::from_str(&again.stdout).unwrap();
    assert_eq!(told["trace_hash"], again["trace_hash"]);
    let table = run(tributary().args(["swarm", "--seeds", "10..30"]));
    assert!(table.stdout.starts_with("20 seeds, 0 failed;"), "{}", table.stdout);
}

#[test]
fn seeds_that_are_none_are_refused() {
    for seeds in ["5", "7..7", "9..1"] {
        let ended = run(tributary().args(["swarm", "--seeds", seeds]));
        assert_eq!(ended.status.code(), Some(2));
        assert!(ended.stderr.contains("--seeds"), "{}", ended.stderr);
    }
}
