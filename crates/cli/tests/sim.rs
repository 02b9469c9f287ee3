//! Goal: what planners try first works. Method: `tributary sim run` on files that they write.

mod support;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

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

/// What `tributary sim run` writes with these options, line by line, without the head.
fn run_rows(options: &[&str], folder: &Path) -> Vec<String> {
    let ended = run(tributary()
        .args(["sim", "run", "--csv", "--operations", "2"])
        .args(options)
        .current_dir(folder));
    assert!(ended.status.success(), "{options:?}: {}", ended.stderr);
    ended.stdout.lines().skip(1).map(str::to_owned).collect()
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
    assert_eq!((through("hosts alone, 1 leader"), through("tree")), (2, 12), "{rows:#?}");
    // Of all divisions into levels the fastest alone, for vectors of one datagram.
    assert_eq!(through("replicated groups of 4x3\",8,"), 1, "{rows:#?}");
    assert_eq!((through("replicated"), through("longer than a datagram")), (2, 1), "{rows:#?}");
}

#[test]
fn without_aggregation_hosts_are_alone() {
    let preset = "name = \"mine\"\nbase = \"ethernet-25\"\nwithout = [\"aggregation\"]\n";
    let rows = rows(&format!("{preset}{FROM_FILE}"));
    assert_eq!(rows.len(), 4, "{rows:#?}");
    assert!(rows.iter().all(|row| row.contains("hosts alone")), "{rows:#?}");
}

#[test]
fn a_fabric_from_a_file_is_as_fast_as_the_same_fat_tree() {
    let base = "name = \"mine\"\nbase = \"edr\"\n";
    let fat_tree = "[fabric]\nkind = \"fat-tree\"\ndown = [4, 4]\nup = [1, 2]\n";
    assert_eq!(rows(&format!("{base}{FROM_FILE}")), rows(&format!("{base}{fat_tree}")));
}

#[test]
fn aggregators_run_beside_ranks_on_as_many_hosts_or_on_those_of_a_file() {
    let folder = tempfile::tempdir().expect("there is room");
    fs::write(folder.path().join("fabric.toml"), leaf_spine()).expect("it can be written");
    fs::write(folder.path().join("nodes"), "node01\nnode09\n").expect("it can be written");
    let all = |options: &[&str]| {
        let common = ["--preset", "ethernet-25", "--sizes", "8", "--hosts", "16"];
        let rows = run_rows(&[&common, options].concat(), folder.path());
        let tree = rows.iter().find(|row| row.starts_with("\"tree")).expect("there is a tree");
        let numbers = tree.rsplit('"').next().expect("it has a design's name before");
        numbers.split(',').nth(2).expect("a mean").parse::<f64>().expect("a number")
    };
    let one = all(&["--aggregators", "1"]);
    let four = all(&["--aggregators", "4"]);
    assert!(four < one, "three leaves take their children side by side: {four} us, {one} us");
    let named = all(&["--fabric", "fabric.toml", "--aggregators", "nodes"]);
    assert!(named < one, "{named} us, {one} us");
}

/// 4 aggregators of radix 64 have no room for 512 hosts. The hosts alone are simulated all the same.
#[test]
fn a_tree_that_cannot_be_is_a_row_with_its_cause() {
    let folder = tempfile::tempdir().expect("there is room");
    let preset = "name = \"large\"\nbase = \"ethernet-25\"\n\
                  [fabric]\nkind = \"fat-tree\"\ndown = [32, 16]\nup = [1, 4]\n";
    fs::write(folder.path().join("large.toml"), preset).expect("it can be written");
    let options = ["--config", "large.toml", "--sizes", "8", "--aggregators", "4"];
    let rows = run_rows(&options, folder.path());
    let [alone, by_groups, trees @ ..] = &rows[..] else { panic!("no rows") };
    for hosts in [alone, by_groups] {
        assert!(hosts.starts_with("\"hosts alone") && !hosts.contains("NA"), "{hosts}");
    }
    assert!(!trees.is_empty(), "{rows:#?}");
    for tree in trees {
        assert!(tree.contains(",8,NA,NA,NA,NA,NA,NA,") && tree.contains("has radix 64"), "{tree}");
    }
}

#[test]
fn every_preset_is_listed_with_what_it_describes() {
    let ended = run(tributary().args(["sim", "run", "--list-presets", "--csv"]));
    assert!(ended.status.success(), "{}", ended.stderr);
    let rows: Vec<_> = ended.stdout.lines().skip(1).collect();
    for name in tributary_sim::preset::names() {
        let row = rows.iter().find(|row| row.starts_with(&format!("{name},"))).expect(name);
        assert!(row.len() > name.len() + 10, "{row}");
    }
    assert_eq!(rows.len(), tributary_sim::preset::names().count());
}
