//! Goal: what planners try first works. Method: `tributary sim run` on files that they write.

mod support;

use std::fmt::Write as _;
use std::fs;

use support::{run, tributary};

/// Four leaves with four hosts each, below two spines.
fn leaf_spine() -> String {
    let mut text = "root = \"spine0\"\n".to_owned();
    for spine in 0..2 {
        writeln!(text, "[[switch]]\nname = \"spine{spine}\"").expect("strings take all");
    }
    for leaf in 0..4 {
        let hosts = format!("node[{:02}-{:02}]", 4 * leaf + 1, 4 * leaf + 4);
        let links = "links = [\"spine[0-1]\"]";
        writeln!(text, "[[switch]]\nname = \"leaf{leaf}\"\n{links}\nhosts = [\"{hosts}\"]")
            .expect("strings take all");
    }
    text
}

/// The rows that a preset file with this text gives, without the head.
fn rows(preset: &str) -> Vec<String> {
    let folder = tempfile::tempdir().expect("there is room");
    fs::write(folder.path().join("fabric.toml"), leaf_spine()).expect("it can be written");
    fs::write(folder.path().join("cluster.toml"), preset).expect("it can be written");
    let options = ["sim", "run", "--config", "cluster.toml", "--sizes", "8,4K", "--csv"];
    let ended = run(tributary().args(options).args(["--operations", "5"]).current_dir(&folder));
    assert!(ended.status.success(), "{preset}: {}", ended.stderr);
    ended.stdout.lines().skip(1).map(str::to_owned).collect()
}

const FROM_FILE: &str = "[fabric]\nkind = \"topology\"\nfile = \"fabric.toml\"\n";

#[test]
fn software_nodes_have_places_in_a_fabric_from_a_file() {
    let rows = rows(&format!("name = \"mine\"\nbase = \"ethernet-25\"\n{FROM_FILE}"));
    let through = |how: &str| rows.iter().filter(|row| row.contains(how)).count();
    assert_eq!((through("hosts alone"), through("tree")), (2, 2), "{rows:#?}");
}

#[test]
fn without_aggregation_hosts_are_alone() {
    let preset = "name = \"mine\"\nbase = \"ethernet-25\"\nwithout = [\"aggregation\"]\n";
    let rows = rows(&format!("{preset}{FROM_FILE}"));
    assert_eq!(rows.len(), 2, "{rows:#?}");
    assert!(rows.iter().all(|row| row.contains("hosts alone")), "{rows:#?}");
}

#[test]
fn a_fabric_from_a_file_is_as_fast_as_the_same_fat_tree() {
    let base = "name = \"mine\"\nbase = \"edr\"\n";
    let fat_tree = "[fabric]\nkind = \"fat-tree\"\ndown = [4, 4]\nup = [1, 2]\n";
    assert_eq!(rows(&format!("{base}{FROM_FILE}")), rows(&format!("{base}{fat_tree}")));
}
