//! Tables for people: aligned columns, within 100 columns of a terminal.

use std::io::IsTerminal;

use bristlecone_cli::failure::Outcome;
use bristlecone_cli::output::Output;

/// Maximum width of a line on a terminal.
const WIDTH: usize = 100;
/// Minimum width to which text is cut.
const CELL_MIN: usize = 12;

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// For text.
    Left,
    /// For numbers.
    Right,
}

/// Rows of cells.
#[derive(Debug)]
pub struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Begins a table with these columns. An empty heading is not printed.
    pub fn new(columns: &[(&'static str, Align)]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        // A name may contain any characters: a cell must still be one line.
        let clean =
            |cell: String| cell.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
        self.rows.push(cells.into_iter().map(clean).collect());
    }

    /// Prints the table: cut to fit a terminal, complete otherwise.
    pub fn print(&self, output: &mut Output) -> Outcome {
        self.lines_to_fit().into_iter().try_for_each(|line| output.line(line))
    }

    /// Returns the lines, heading first: cut to fit a terminal, complete otherwise.
    pub fn lines_to_fit(&self) -> Vec<String> {
        self.lines(std::io::stdout().is_terminal().then_some(WIDTH))
    }

    fn lines(&self, width: Option<usize>) -> Vec<String> {
        let mut widths: Vec<usize> = self.columns.iter().map(|(name, _)| name.chars().count()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        if let Some(most) = width {
            self.fit(&mut widths, most);
        }
        let heading = self.columns.iter().map(|(name, _)| (*name).to_owned()).collect::<Vec<_>>();
        let headed = heading.iter().any(|name| !name.is_empty()).then_some(&heading);
        headed.into_iter().chain(&self.rows).map(|row| self.line(row, &widths)).collect()
    }

    /// Shrinks the widest text columns until a line fits.
    fn fit(&self, widths: &mut [usize], most: usize) {
        let gaps = 2 * widths.len().saturating_sub(1);
        while widths.iter().sum::<usize>() + gaps > most {
            let text = widths.iter_mut().zip(&self.columns).filter(|(_, (_, align))| *align == Align::Left);
            let Some((widest, _)) =
                text.max_by_key(|(width, _)| **width).filter(|(width, _)| **width > CELL_MIN)
            else {
                return;
            };
            *widest -= 1;
        }
    }

    fn line(&self, row: &[String], widths: &[usize]) -> String {
        let mut line = String::new();
        for ((cell, &width), (_, align)) in row.iter().zip(widths).zip(&self.columns) {
            if !line.is_empty() {
                line.push_str("  ");
            }
            let cell = cut(cell, width);
            match align {
                Align::Left => line.push_str(&format!("{cell:width$}")),
                Align::Right => line.push_str(&format!("{cell:>width$}")),
            }
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// Returns the text, or its beginning and an ellipsis.
pub fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
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
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
        assert!(table(&long).lines(Some(WIDTH))[1].contains('…'));
        assert!(table(&long).lines(None)[1].contains(&long));
    }
}
