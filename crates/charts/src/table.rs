//! A figure's numbers: rows under named columns, written as CSV.

use core::fmt::Write as _;

/// One field.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Text.
    Text(String),
    /// A whole number.
    Whole(u64),
    /// A number, and how many decimals it is written with.
    Number(f64, usize),
    /// No value, because what was asked for was refused: not available.
    Refused,
    /// No value.
    Empty,
}

/// Rows under named columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// Their names.
    pub columns: Vec<String>,
    /// Their fields.
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table without rows.
    #[must_use]
    pub fn new(columns: &[&str]) -> Self {
        Self { columns: columns.iter().map(|&name| name.to_owned()).collect(), rows: Vec::new() }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// If it does not have one field for each column.
    pub fn add(&mut self, row: Vec<Cell>) {
        assert_eq!(row.len(), self.columns.len(), "one field for each column");
        self.rows.push(row);
    }

    /// As CSV (RFC 4180), the header first.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut text = self.columns.join(",");
        for row in &self.rows {
            text.push('\n');
            for (index, cell) in row.iter().enumerate() {
                let comma = if index > 0 { "," } else { "" };
                write!(text, "{comma}{}", quote(&cell.to_string())).expect("strings take all");
            }
        }
        text.push('\n');
        text
    }
}

impl core::fmt::Display for Cell {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Whole(number) => write!(f, "{number}"),
            Self::Number(number, decimals) => write!(f, "{number:.decimals$}"),
            Self::Refused => f.write_str("NA"),
            Self::Empty => Ok(()),
        }
    }
}

fn quote(field: &str) -> String {
    if field.contains([',', '"', '\n']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_quotes_what_needs_it() {
        let mut table = Table::new(&["a", "b"]);
        table.add(vec![Cell::Text("x, \"y\"".into()), Cell::Number(1.0 / 3.0, 3)]);
        table.add(vec![Cell::Refused, Cell::Empty]);
        assert_eq!(table.csv(), "a,b\n\"x, \"\"y\"\"\",0.333\nNA,\n");
    }
}
