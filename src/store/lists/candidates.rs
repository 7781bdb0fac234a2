//! Finds the rows that an operation is about, in the order of ids and at a bounded cost.
//!
//! Each search reads at most `scan` rows along one index and returns those of them that match. If it
//! finds none it still has a position from which to go on, so a filter that matches few rows is followed
//! to the end of the table in bounded steps.

use diesel::QueryResult;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Bool, Integer};
use diesel_async::AsyncPgConnection;

use crate::domain::scope::Scope;
use crate::domain::status::Status;
use crate::store::connection::whole_result::LoadOne;
use crate::store::lists::filtered_query::FilteredQuery;
use crate::store::lists::pages::{IdRow, Page};
use crate::store::lists::payloads::PayloadSearch;
use crate::store::lists::targets::Target;
use crate::store::statement::statement;

/// The part of a table to search.
#[derive(Debug, Clone, Copy)]
pub struct Walk<'a> {
    /// Only these rows, unless it is empty.
    pub ids: &'a [i64],
    /// The first row has a higher id.
    pub after: i64,
    /// The highest id to return.
    pub until: i64,
    /// The maximum number of rows to return.
    pub limit: i64,
    /// The maximum number of rows to read.
    pub scan: i64,
}

impl Walk<'_> {
    /// Returns the same without the highest id.
    pub(super) fn page(&self) -> Page {
        let Walk { after, limit, scan, .. } = *self;
        Page { descending: false, after: Some(after), limit, scan }
    }
}

/// The result of a search.
#[derive(Debug, Default)]
pub struct Candidates {
    /// In ascending order.
    pub ids: Vec<i64>,
    /// The position of the next search. `None` if there are no more rows.
    pub next: Option<i64>,
}

/// Returns the highest id of the table that an operation walks through, or 0 if it is empty.
pub(crate) async fn last_id(conn: &mut AsyncPgConnection, scope: &Scope, target: Target<'_>) -> QueryResult<i64> {
    let statement = match target {
        Target::DeadLetters { .. } => statement!("last_dead_letter_id"),
        Target::Events { .. } | Target::HeldEvents { .. } | Target::Pushes { .. } => statement!("last_delivery_id"),
    };
    let row: IdRow = statement.query().bind::<Integer, _>(scope.namespace).load_one(conn).await?;
    Ok(row.id)
}

/// Searches for the next rows that an operation is about. Payloads are read last, and a bounded number of them.
pub async fn find_candidates(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    target: Target<'_>,
    walk: Walk<'_>,
) -> QueryResult<Candidates> {
    let Some(mut payloads) = target.event_filter().and_then(PayloadSearch::of) else {
        return search_indexes(conn, scope, target, walk).await;
    };
    // Most of what is found may have other payloads.
    let wide = Walk { limit: walk.limit.max(payloads.payloads_left()), ..walk };
    let found = search_indexes(conn, scope, target, wide).await?;
    let searched = payloads.search(conn, scope.namespace, &found.ids, walk.limit).await?;
    // The payloads behind the last one that was read are left to the next search.
    let next = match searched.events < found.ids.len() {
        true => found.ids[..searched.events].last().copied(),
        false => found.next,
    };
    Ok(Candidates { ids: searched.matching, next })
}

/// Searches for the next rows that match all but the conditions on payloads.
async fn search_indexes(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    target: Target<'_>,
    walk: Walk<'_>,
) -> QueryResult<Candidates> {
    let unhappy = target.listed_statuses();
    if unhappy.is_empty() || !walk.ids.is_empty() {
        return search(conn, scope, target, None, walk).await;
    }
    // The index holds the rows of each state in the order of ids, so each state is searched on its own.
    let mut found = Vec::new();
    for status in unhappy {
        found.push(search(conn, scope, target, Some(status), walk).await?);
    }
    Ok(merge(found, walk.limit))
}

/// Merges searches of the same part of a table. Beyond the position where the first of them ended, nothing
/// is known, so later rows are left to the next search.
fn merge(found: Vec<Candidates>, limit: i64) -> Candidates {
    let end = found.iter().filter_map(|candidates| candidates.next).min();
    let mut ids: Vec<i64> = found.into_iter().flat_map(|candidates| candidates.ids).collect();
    ids.retain(|id| end.is_none_or(|end| *id <= end));
    ids.sort_unstable();
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let is_cut = ids.len() > limit;
    ids.truncate(limit);
    let next = if is_cut { ids.last().copied() } else { end };
    Candidates { ids, next }
}

#[derive(QueryableByName)]
struct Read {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Bool)]
    fits: bool,
    /// Whether it is the last row that was read, and there may be more.
    #[diesel(sql_type = Bool)]
    is_end: bool,
}

/// Reads rows along one index. The inner query reads up to `scan` rows; the outer one stops it as soon as
/// `limit` of them match, since all parts have the order of the index. The row at which the scan ends is
/// returned even if it does not match.
async fn search(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    target: Target<'_>,
    unhappy: Option<Status>,
    walk: Walk<'_>,
) -> QueryResult<Candidates> {
    let begin = FilteredQuery::new("SELECT id, fits, n = ")
        .bind::<BigInt, _>(walk.scan)
        .sql(" AS is_end FROM (SELECT r.id, r.range_key, row_number() OVER (ORDER BY r.range_key, r.id) AS n, (true");
    let conditions = target.conditions(begin, scope);
    let rows = target.rows(conditions.sql(") IS TRUE AS fits FROM ("), scope, unhappy, walk);
    let statement = rows.sql(" LIMIT ").bind::<BigInt, _>(walk.scan).sql(") r) r WHERE (fits OR n = ");
    let statement = statement.bind::<BigInt, _>(walk.scan).sql(")");
    let read: Vec<Read> = statement.load(conn, "range_key, id", 0, walk.limit).await?;
    let is_full = read.len() as i64 == walk.limit;
    let end = read.last().filter(|row| is_full || row.is_end).map(|row| row.id);
    let ids = read.into_iter().filter(|row| row.fits).map(|row| row.id).collect();
    Ok(Candidates { ids, next: end.filter(|end| *end < walk.until) })
}

#[cfg(test)]
mod tests {
    use super::{Candidates, merge};

    fn found(ids: &[i64], next: Option<i64>) -> Candidates {
        Candidates { ids: ids.to_vec(), next }
    }

    #[test]
    fn merged_searches_end_where_the_first_of_them_ended() {
        let merged = merge(vec![found(&[1, 4, 9], Some(9)), found(&[2, 12], None)], 10);
        assert_eq!((merged.ids, merged.next), (vec![1, 2, 4, 9], Some(9)));
        let merged = merge(vec![found(&[1, 4], None), found(&[2], None)], 10);
        assert_eq!((merged.ids, merged.next), (vec![1, 2, 4], None));
    }

    #[test]
    fn merged_searches_return_no_more_than_the_limit() {
        let merged = merge(vec![found(&[1, 4], Some(4)), found(&[2, 3], Some(3))], 2);
        assert_eq!((merged.ids, merged.next), (vec![1, 2], Some(2)));
    }
}
