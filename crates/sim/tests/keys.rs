//! Goal: the reference of keys is that of the code. Method: the reader of presets names the keys that it knows, and the
//! unit that it wants.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::collections::BTreeSet;

use tributary_sim::preset;

const PAGE: &str = include_str!("../../../docs/preset-keys.md");

/// A preset that has every table.
const BASE: &str = "lab";

/// Keys of the layers of presets, which no table of the reader has.
const LAYERS: [&str; 2] = ["base", "without"];

/// What the reader says of a preset with this text.
fn refusal(text: &str) -> String {
    let text = format!("name = \"mine\"\nbase = \"{BASE}\"\n{text}\n");
    preset::read(&text).unwrap_err().to_string()
}

/// The keys of a table, or those above all tables.
fn keys(table: &str) -> Vec<String> {
    let unknown =
        if table.is_empty() { "unheard = 1".into() } else { format!("{table}.unheard = 1") };
    let refusal = refusal(&unknown);
    let (_, expected) = refusal.split_once("expected").unwrap();
    expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The unit of a constant; empty if the key has no such value.
fn unit(key: &str) -> String {
    let refusal = refusal(&format!("{key} = {{ value = 1, unit = \"?\", source = \"a test\" }}"));
    match refusal.split_once("it must be `") {
        Some((_, unit)) => unit.trim_end_matches('`').to_owned(),
        None => String::new(),
    }
}

/// Key and unit of each row of the page.
fn documented() -> BTreeSet<(String, String)> {
    let rows = PAGE.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        (cells[1].trim_matches('`').to_owned(), cells[2].to_owned())
    })
    .collect()
}

#[test]
fn every_key_is_documented_with_its_unit_and_no_other() {
    let mut known: BTreeSet<(String, String)> =
        LAYERS.iter().map(|key| ((*key).to_owned(), String::new())).collect();
    for key in keys("") {
        if !is_table(&key) {
            known.insert((key, String::new()));
            continue;
        }
        for own in keys(&key) {
            let own = format!("{key}.{own}");
            let unit = unit(&own);
            known.insert((own, unit));
        }
    }
    assert_eq!(documented(), known);
    assert!(known.len() > 70, "{}", known.len());
}

/// Whether a key has keys of its own. Those of a fabric depend on its kind, and are in another page.
fn is_table(key: &str) -> bool {
    let refusal = refusal(&format!("{key}.unheard = 1"));
    key != "fabric" && refusal.contains("unknown field `unheard`")
}
