//! Pages of lists.

use diesel::prelude::QueryableByName;
use diesel::sql_types::BigInt;

/// The page of a list to read. Rows are in the order of ids.
#[derive(Debug, Clone, Copy)]
pub struct Page {
    /// Whether the highest id comes first.
    pub descending: bool,
    /// The id behind which the page begins. `None` means the beginning of the list.
    pub after: Option<i64>,
    /// The maximum number of rows to return.
    pub limit: i64,
    /// The maximum number of rows to read for a filter without an index.
    pub scan: i64,
}

impl Page {
    /// Returns the comparison that holds for the ids behind an id.
    pub(crate) fn behind(&self) -> &'static str {
        if self.descending { "<" } else { ">" }
    }

    /// Returns the comparison that holds for the ids up to an id.
    pub(crate) fn up_to(&self) -> &'static str {
        if self.descending { ">=" } else { "<=" }
    }

    /// Returns the direction of the `ORDER BY` expression.
    pub(crate) fn direction(&self) -> &'static str {
        if self.descending { "DESC" } else { "ASC" }
    }
}

/// How many rows can be read one after the other for what it costs to look up one.
pub(super) const CHEAP: i64 = 20;

/// The page of a list whose rows are in the order of their names.
#[derive(Debug)]
pub struct NamePage {
    /// Whether the last name comes first.
    pub descending: bool,
    /// The name behind which the page begins. `None` means the beginning of the list.
    pub after: Option<String>,
    /// The maximum number of rows to return.
    pub limit: i64,
}

/// A row that consists of an id.
#[derive(Debug, QueryableByName)]
pub(in crate::store) struct IdRow {
    #[diesel(sql_type = BigInt)]
    pub id: i64,
}

/// Returns the position behind which the next page begins: that of the last row. Returns `None` if the
/// page is not full, since then there are no more rows.
pub(crate) fn page_end<Row, Position>(
    rows: &[Row],
    limit: i64,
    position: impl Fn(&Row) -> Position,
) -> Option<Position> {
    rows.last().filter(|_| rows.len() as i64 == limit).map(position)
}
