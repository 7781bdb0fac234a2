//! Tables that fit the terminal.

use anstyle::Style;

use super::style::{Paint, state_style};
use super::text::{clean, cut, width_of};

/// The space between two columns.
const GAP: &str = "  ";

/// A column, and how it gives way where the terminal is narrow.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    head: &'static str,
    is_right: bool,
    /// The least width to which the column may be cut, if it may.
    least: Option<usize>,
}

impl Column {
    pub(crate) fn new(head: &'static str) -> Self {
        Column { head, is_right: false, least: None }
    }

    /// Returns a column of numbers, aligned to the right.
    pub(crate) fn number(head: &'static str) -> Self {
        Column { is_right: true, ..Column::new(head) }
    }

    /// Returns a column that may be cut to this width.
    pub(crate) fn flexible(head: &'static str, least: usize) -> Self {
        Column { least: Some(least), ..Column::new(head) }
    }
}

/// The text in a row and a column. It is clean.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    pub(crate) fn new(text: impl AsRef<str>) -> Self {
        Cell { text: clean(text.as_ref()), style: Style::new() }
    }

    /// Returns a state in its colour.
    pub(crate) fn state(text: impl AsRef<str>) -> Self {
        let cell = Cell::new(text);
        Cell { style: state_style(&cell.text), ..cell }
    }

    pub(crate) fn styled(self, style: Style) -> Self {
        Cell { style, ..self }
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Cell::new(text)
    }
}

/// A table with a head.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(crate) fn new(columns: Vec<Column>) -> Self {
        Table { columns, rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(cells);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the lines of the table, or nothing if it has no rows.
    pub(crate) fn render(&self, paint: Paint, width: Option<usize>) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let widths = self.widths(width);
        let head: Vec<Cell> =
            self.columns.iter().map(|column| Cell::new(column.head).styled(Style::new().bold())).collect();
        std::iter::once(&head).chain(&self.rows).map(|row| self.line(row, &widths, paint)).collect()
    }

    fn line(&self, row: &[Cell], widths: &[usize], paint: Paint) -> String {
        let mut line = String::new();
        let last = row.len().saturating_sub(1);
        for (number, ((cell, column), width)) in row.iter().zip(&self.columns).zip(widths).enumerate() {
            let text = cut(&cell.text, *width);
            let space = " ".repeat(width - width_of(&text));
            let text = paint.paint(cell.style, &text);
            match column.is_right {
                true => line.push_str(&format!("{space}{text}")),
                false if number == last => line.push_str(&text),
                false => line.push_str(&format!("{text}{space}")),
            }
            if number != last {
                line.push_str(GAP);
            }
        }
        line.truncate(line.trim_end().len());
        line.push('\n');
        line
    }

    /// Returns the widths of the columns. The widest flexible one is cut first.
    fn widths(&self, limit: Option<usize>) -> Vec<usize> {
        let widest = |number: usize| self.rows.iter().map(|row| width_of(&row[number].text)).max().unwrap_or(0);
        let mut widths: Vec<usize> =
            self.columns.iter().enumerate().map(|(n, column)| widest(n).max(width_of(column.head))).collect();
        let Some(limit) = limit else { return widths };
        let gaps = GAP.len() * widths.len().saturating_sub(1);
        let mut excess = (widths.iter().sum::<usize>() + gaps).saturating_sub(limit);
        while excess > 0 {
            let least =
                |number: usize| self.columns[number].least.unwrap_or(usize::MAX).max(self.columns[number].head.len());
            let widest = (0..widths.len()).filter(|number| widths[*number] > least(*number)).max_by_key(|n| widths[*n]);
            let Some(widest) = widest else { return widths };
            widths[widest] -= 1;
            excess -= 1;
        }
        widths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let columns = vec![Column::number("ID"), Column::new("STATUS"), Column::flexible("TITLE", 8)];
        let mut table = Table::new(columns);
        table.row(vec!["7".into(), Cell::state("FAILED"), "a title that is long".into()]);
        table.row(vec!["1234".into(), Cell::state("PENDING"), "日本\u{1b}[2J語".into()]);
        table
    }

    #[test]
    fn a_table_is_as_wide_as_its_texts_if_nothing_limits_it() {
        let text = "  ID  STATUS   TITLE\n   7  FAILED   a title that is long\n1234  PENDING  日本\u{fffd}[2J語\n";
        assert_eq!(table().render(Paint(false), None), text);
    }

    #[test]
    fn what_is_flexible_is_cut_to_fit() {
        let text = "  ID  STATUS   TITLE\n   7  FAILED   a title th…\n1234  PENDING  日本\u{fffd}[2J語\n";
        assert_eq!(table().render(Paint(false), Some(26)), text);
        // Not below its least width, however narrow the terminal is.
        assert!(table().render(Paint(false), Some(5)).contains("a title…\n"));
    }

    #[test]
    fn colours_do_not_move_columns() {
        let colored = table().render(Paint(true), Some(26));
        assert!(colored.contains("\u{1b}[31mFAILED\u{1b}[0m   a title th…"), "{colored:?}");
    }
}
