//! Tables for people: as wide as the terminal, and no wider.
//!
//! What does not fit is shortened with `…` or left out, column by column, as each column allows. On a pipe a line is as
//! long as it likes, and nothing is left out.

use anstyle::Style;
use unicode_width::UnicodeWidthStr as _;

use crate::cli::look::view::{DIM, state_look};

/// What may become of a column for which there is no room.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// It stays as it is.
    Needed,
    /// It may be cut to this width.
    Shorten(usize),
    /// It may go; the highest number goes first.
    Spare(u8),
}

struct Column {
    name: &'static str,
    room: Room,
    is_right: bool,
}

/// What stands in one place.
pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text: one_line(&text), style: Style::new() }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl Cell {
    /// A state with its shape, in its colour.
    pub(crate) fn state(state: &str) -> Self {
        let (shape, style) = state_look(state);
        Self { text: format!("{shape} {state}"), style }
    }

    pub(crate) fn styled(text: impl Into<String>, style: Style) -> Self {
        Self { text: one_line(&text.into()), style }
    }
}

/// A control character in a name must not move the cursor.
fn one_line(text: &str) -> String {
    text.chars().map(|it| if it.is_control() { ' ' } else { it }).collect()
}

/// Rows under names.
#[derive(Default)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
    /// What is said instead, if there are no rows.
    empty: String,
}

const GAP: usize = 2;

impl Table {
    /// A table that says this if it has no rows.
    pub(crate) fn new(empty: impl Into<String>) -> Self {
        Self { empty: empty.into(), ..Self::default() }
    }

    pub(crate) fn column(mut self, name: &'static str, room: Room) -> Self {
        self.columns.push(Column { name, room, is_right: false });
        self
    }

    /// A column of numbers.
    pub(crate) fn number(mut self, name: &'static str, room: Room) -> Self {
        self.columns.push(Column { name, room, is_right: true });
        self
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let cells: Vec<Cell> = cells.into_iter().collect();
        debug_assert_eq!(cells.len(), self.columns.len(), "a cell for each column");
        self.rows.push(cells);
    }

    /// The table as text, with lines no longer than `width` where that can be.
    pub(crate) fn fit(&self, width: usize) -> String {
        if self.rows.is_empty() {
            return if self.empty.is_empty() { String::new() } else { format!("{}\n", self.empty) };
        }
        let widths = self.widths(width);
        let last = widths.iter().rposition(Option::is_some).unwrap_or(0);
        let mut text = String::new();
        let heads = self.columns.iter().map(|column| (column.name, DIM)).collect::<Vec<_>>();
        let rows = self
            .rows
            .iter()
            .map(|row| row.iter().map(|cell| (cell.text.as_str(), cell.style)).collect::<Vec<_>>());
        for cells in std::iter::once(heads).chain(rows) {
            for (at, (cell, style)) in cells.into_iter().enumerate() {
                let Some(width) = widths[at] else { continue };
                let cell = shortened(cell, width);
                let blank = " ".repeat(width - cell.width());
                let (before, after) = match (self.columns[at].is_right, at == last) {
                    (true, _) => (blank.as_str(), ""),
                    (false, true) => ("", ""),
                    (false, false) => ("", blank.as_str()),
                };
                text.push_str(&format!("{before}{style}{cell}{style:#}{after}"));
                if at != last {
                    text.push_str(&" ".repeat(GAP));
                }
            }
            text.push('\n');
        }
        text
    }

    /// How wide each column is. None for one that is left out.
    fn widths(&self, room: usize) -> Vec<Option<usize>> {
        let natural = |at: usize| {
            let cells = self.rows.iter().map(|row| row[at].text.width());
            cells.chain([self.columns[at].name.width()]).max()
        };
        let mut widths: Vec<Option<usize>> = (0..self.columns.len()).map(natural).collect();
        let least = |at: usize, width: usize| match self.columns[at].room {
            Room::Shorten(least) => width.min(least),
            Room::Needed | Room::Spare(_) => width,
        };
        let whole = |widths: &[Option<usize>], wide: &dyn Fn(usize, usize) -> usize| {
            let shown = widths.iter().enumerate().filter_map(|(at, it)| it.map(|it| wide(at, it)));
            shown.clone().sum::<usize>() + shown.count().saturating_sub(1) * GAP
        };
        // What may go goes only if it does not help to shorten the others.
        while whole(&widths, &least) > room {
            let rank = |at: usize| match self.columns[at].room {
                Room::Spare(rank) => widths[at].map(|_| rank),
                Room::Needed | Room::Shorten(_) => None,
            };
            let spare = (0..widths.len()).filter(|at| rank(*at).is_some());
            let Some(next) = spare.max_by_key(|at| rank(*at)) else { break };
            widths[next] = None;
        }
        for at in 0..widths.len() {
            let excess = whole(&widths, &|_, width| width).saturating_sub(room);
            widths[at] = widths[at].map(|it| it.saturating_sub(excess).max(least(at, it)));
        }
        widths
    }
}

/// The text, or its beginning and `…`.
pub(crate) fn shortened(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut short = String::new();
    for next in text.chars() {
        if short.width() + next.to_string().width() + 1 > width {
            break;
        }
        short.push(next);
    }
    short + "…"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new("There is nothing.")
            .column("ID", Room::Needed)
            .column("KIND", Room::Shorten(4))
            .number("N", Room::Spare(1));
        table.row(["job_1".into(), "send_mail".into(), "7".into()]);
        table.row(["job_22".into(), "a\nb".into(), "1234".into()]);
        table
    }

    fn check(width: usize, expected: &str) {
        let plain = anstream::adapter::strip_str(&table().fit(width)).to_string();
        assert_eq!(plain, expected, "{width}");
    }

    #[test]
    fn a_table_fits_where_it_is_shown() {
        check(
            usize::MAX,
            "ID      KIND          N\njob_1   send_mail     7\njob_22  a b        1234\n",
        );
        check(20, "ID      KIND       N\njob_1   send_…     7\njob_22  a b     1234\n");
        check(13, "ID      KIND\njob_1   send…\njob_22  a b\n");
        check(1, "ID      KIND\njob_1   sen…\njob_22  a b\n");
    }

    #[test]
    fn a_table_without_rows_says_so() {
        let table = Table::new("There is nothing.").column("ID", Room::Needed);
        assert_eq!(table.fit(80), "There is nothing.\n");
    }
}
