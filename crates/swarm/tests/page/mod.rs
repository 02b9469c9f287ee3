//! `docs/evidence/swarm.md`, as far as tests compare it with the code.

const PAGE: &str = include_str!("../../../../docs/evidence/swarm.md");

/// The rows of the table below a heading, without its head, as trimmed cells.
pub(crate) fn table(heading: &str) -> Vec<Vec<&'static str>> {
    let (_, section) =
        PAGE.split_once(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("no {heading}"));
    let section = section.split("\n## ").next().expect("a heading has a section");
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}
