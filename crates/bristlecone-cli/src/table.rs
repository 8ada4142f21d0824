//! Tables for people: aligned columns, within 100 columns of a terminal.

use std::io::IsTerminal;

use bristlecone_cli::failure::Outcome;
use bristlecone_cli::output::Output;
pub use comfy_table::CellAlignment as Align;
use comfy_table::{ColumnConstraint, ContentArrangement, Row, presets};

/// Maximum width of a line on a terminal.
const WIDTH: u16 = 100;
/// Columns between two cells.
const GAP: u16 = 2;

/// Rows of cells.
pub struct Table {
    columns: Vec<(&'static str, Align)>,
    table: comfy_table::Table,
}

impl Table {
    /// Begins a table with these columns. Empty headings are not printed.
    pub fn new(columns: &[(&'static str, Align)]) -> Self {
        let mut table = comfy_table::Table::new();
        // No cell contains the delimiter: a cell is cut anywhere, not only between words.
        table.load_style(presets::NOTHING).set_delimiter('\0').set_truncation_indicator("…");
        if columns.iter().any(|(name, _)| !name.is_empty()) {
            table.set_header(columns.iter().map(|(name, _)| *name).collect::<Vec<_>>());
        }
        Self { columns: columns.to_vec(), table }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        // A name may contain any characters: a cell must still be one line.
        let clean =
            |cell: String| cell.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
        let mut row = Row::from(cells.into_iter().map(clean).collect::<Vec<String>>());
        row.max_height(1);
        self.table.add_row(row);
    }

    /// Prints the table: cut to fit a terminal, complete otherwise.
    pub fn print(self, output: &mut Output) -> Outcome {
        self.lines_to_fit().into_iter().try_for_each(|line| output.line(line))
    }

    /// Returns the lines, heading first: cut to fit a terminal, complete otherwise.
    pub fn lines_to_fit(self) -> Vec<String> {
        self.lines(std::io::stdout().is_terminal().then_some(WIDTH))
    }

    fn lines(mut self, width: Option<u16>) -> Vec<String> {
        for (column, (_, align)) in self.table.column_iter_mut().zip(&self.columns) {
            column.set_padding((0, GAP)).set_cell_alignment(*align);
            // Numbers are never cut.
            if *align == Align::Right {
                column.set_constraint(ColumnConstraint::ContentWidth);
            }
        }
        self.table.set_content_arrangement(ContentArrangement::Disabled);
        if let Some(width) = width {
            // The gap after the last cell is trimmed.
            self.table.set_width(width + GAP).set_content_arrangement(ContentArrangement::Dynamic);
        }
        self.table.lines().map(|line| line.trim_end().to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &str) -> Table {
        let mut table =
            Table::new(&[("name", Align::Left), ("entries", Align::Right), ("what", Align::Left)]);
        table.row([name.to_owned(), "7".to_owned(), "x".repeat(60)]);
        table.row(["b".to_owned(), "12,345".to_owned(), "y\tz".to_owned()]);
        table
    }

    #[test]
    fn columns_line_up() {
        let lines = table("a").lines(None);
        assert_eq!(lines[0], "name  entries  what");
        assert_eq!(lines[1], format!("a           7  {}", "x".repeat(60)));
        assert_eq!(lines[2], "b      12,345  y\u{fffd}z");
    }

    #[test]
    fn lines_fit_a_terminal_and_are_whole_elsewhere() {
        let long = "n".repeat(300);
        for line in table(&long).lines(Some(WIDTH)) {
            assert!(line.chars().count() <= usize::from(WIDTH), "{line}");
        }
        assert!(table(&long).lines(Some(WIDTH))[1].contains('…'));
        assert!(table(&long).lines(None)[1].contains(&long));
    }
}
