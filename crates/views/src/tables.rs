//! Text tables in one style.

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table};

/// A table without lines: a header, and columns two spaces apart.
#[must_use]
pub fn plain<const COLUMNS: usize>(header: [&str; COLUMNS]) -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.map(Cell::new));
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table
}

/// Aligns columns to the right, because they hold numbers.
pub fn right(table: &mut Table, columns: std::ops::Range<usize>) {
    for index in columns {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

/// The table as text, without trailing blanks.
#[must_use]
pub fn text(table: &Table) -> String {
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n")
}
