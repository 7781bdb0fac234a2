//! Helpers for pages of lists.

use diesel::prelude::QueryableByName;
use diesel::sql_types::BigInt;

/// A row that consists of an id.
#[derive(Debug, QueryableByName)]
pub(in crate::store) struct IdRow {
    #[diesel(sql_type = BigInt)]
    pub id: i64,
}

impl IdRow {
    /// Returns the ids of `rows`, each converted by `id`.
    pub(crate) fn ids<Id>(rows: Vec<IdRow>, id: fn(i64) -> Id) -> Vec<Id> {
        rows.into_iter().map(|row| id(row.id)).collect()
    }
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
