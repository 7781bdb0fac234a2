//! What pages of lists have in common.

use diesel::prelude::QueryableByName;
use diesel::sql_types::BigInt;

/// An id, and nothing else.
#[derive(Debug, QueryableByName)]
pub(in crate::store) struct IdRow {
    /// It.
    #[diesel(sql_type = BigInt)]
    pub id: i64,
}

impl IdRow {
    /// The bare ids.
    pub fn ids<Id>(rows: Vec<IdRow>, id: fn(i64) -> Id) -> Vec<Id> {
        rows.into_iter().map(|row| id(row.id)).collect()
    }
}

/// Where the next page begins: behind the last row of this one. None if it is not full, since
/// then there is no more.
pub fn page_end<Row, Position>(rows: &[Row], limit: i64, position: impl Fn(&Row) -> Position) -> Option<Position> {
    rows.last().filter(|_| rows.len() as i64 == limit).map(position)
}
