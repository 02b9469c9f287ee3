//! The published values, read from their files.

/// Rows of a published CSV file: comments and the header left out, fields as text.
fn rows(text: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    text.lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        .skip(1)
        .map(|line| line.split(',').collect())
}

/// The published mean of a row of table 1, in microseconds.
pub(crate) fn table1(mode: &str, size_bytes: usize) -> Option<f64> {
    let mut found = rows(include_str!("../published/table1.csv"));
    found.find(|row| row[0] == mode && row[1] == size_bytes.to_string())?[2].parse().ok()
}

/// A row of table 1 with all its numbers.
pub(super) struct Distribution {
    pub(super) mode: &'static str,
    pub(super) size_bytes: usize,
    /// The mean, then minimum, quartiles and maximum over operations, then those over processes, in
    /// microseconds.
    pub(super) statistics: Vec<f64>,
}

/// The rows of table 1 with all numbers published.
pub(super) fn distributions() -> Vec<Distribution> {
    let whole = |row: Vec<&'static str>| {
        let statistics: Option<Vec<f64>> = row[2..].iter().map(|us| us.parse().ok()).collect();
        Some(Distribution {
            mode: row[0],
            size_bytes: row[1].parse().ok()?,
            statistics: statistics?,
        })
    };
    rows(include_str!("../published/table1.csv")).filter_map(whole).collect()
}

/// The published mean of a row of table 2, in microseconds.
pub(crate) fn table2(size_bytes: usize, total: u32, each: u16, comms: u32) -> Option<f64> {
    let wanted =
        [size_bytes as u64, total.into(), each.into(), comms.into()].map(|n| n.to_string());
    let mut found = rows(include_str!("../published/table2.csv"));
    found.find(|row| row[..4] == wanted[..])?[4].parse().ok()
}

/// A published statement: its source, its words and its value.
pub(super) struct Statement {
    pub(super) id: &'static str,
    pub(super) source: &'static str,
    pub(super) statement: String,
    pub(super) value: &'static str,
}

/// All published statements.
pub(super) fn statements() -> Vec<Statement> {
    let text = include_str!("../published/statements.csv");
    let lines = text.lines().skip(1).filter(|line| !line.trim().is_empty());
    lines.filter_map(statement).collect()
}

/// The numbers of a statement's value: of a range both ends, of `from -> to` both.
///
/// # Panics
/// If there is no such statement.
pub(super) fn statement_numbers(id: &str) -> Vec<f64> {
    let all = statements();
    let found =
        all.iter().find(|statement| statement.id == id).expect("the statement is published");
    let parts = found.value.split(|one: char| !one.is_ascii_digit() && one != '.');
    parts.filter_map(|part| part.parse().ok()).collect()
}

/// The value of a statement: its only number, or the middle of a range.
///
/// # Panics
/// If there is no such statement, or its value has no number.
pub(super) fn statement_value(id: &str) -> f64 {
    let numbers = statement_numbers(id);
    assert!(!numbers.is_empty(), "statement {id} has a number");
    numbers.iter().sum::<f64>() / numbers.len() as f64
}

/// `id,source,"words, with commas",value`.
fn statement(line: &'static str) -> Option<Statement> {
    let (id, rest) = line.split_once(',')?;
    let (source, rest) = rest.split_once(',')?;
    let (words, value) = rest.strip_prefix('"')?.rsplit_once("\",")?;
    Some(Statement { id, source, statement: words.to_owned(), value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_rows_are_found() {
        assert_eq!(table1("sharp", 8), Some(2.39));
        assert_eq!(table1("host", 1024), Some(18.49));
        assert_eq!(table1("sharp", 16), None);
        let whole = distributions();
        assert_eq!(whole.len(), 5);
        assert!(whole.iter().all(|row| row.statistics.len() == 11));
        assert_eq!(table2(2048, 64, 4, 4), Some(8.374));
        assert_eq!(table2(8, 8, 1, 1), None);
        let all = statements();
        assert_eq!(all.len(), 12);
        assert_eq!(["S2", "S7", "S12"].map(statement_value), [17.0, 3.95, 6.5]);
        assert_eq!(statement_numbers("S4"), [6.01, 2.83]);
        assert_eq!((all[0].id, all[0].value), ("S1", "16%"));
        assert!(all[1].statement.contains("28 processes a host"));
    }
}
