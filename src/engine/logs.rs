//! Reads of the event log that need a transaction.

use chrono::DateTime;
use diesel::QueryResult;
use diesel_async::{AsyncConnection, AsyncPgConnection};

use crate::domain::scope::Scope;
use crate::engine::Engine;
use crate::engine::trail::SettledLog;
use crate::error::Error;
use crate::store::lists::log_entries::{
    LogFilter, LogPage, find_entry_before, list_log_entries, list_log_entries_below,
};
use crate::store::lists::pages::Page;

impl Engine {
    /// Returns a page of the event log. The transaction is for the planner's settings, which end with it.
    ///
    /// A page with the oldest entries first has only settled ones (see [`crate::engine::trail`]). Otherwise an entry
    /// that is committed late could have an id before the cursor to the next page, which would skip it.
    pub(crate) async fn list_log_entries(
        &self,
        scope: &Scope,
        filter: &LogFilter,
        page: Page,
    ) -> Result<LogPage, Error> {
        if page.descending {
            let mut conn = self.database().connection().await?;
            return Ok(conn.transaction(async |conn| list_log_entries(conn, scope, filter, page).await).await?);
        }
        // First what is settled, then the entries: they are visible by then.
        let (mut conn, log) = self.settle_log().await?;
        let list = conn.transaction(async |conn| {
            let settled = log.id.unwrap_or(0);
            let found = list_log_entries_below(conn, scope, filter, page, settled.saturating_add(1)).await?;
            if found.end.is_some() { Ok(found) } else { end_page(conn, scope, page, log, found).await }
        });
        Ok(list.await?)
    }
}

/// Ends a page that has reached the end of what is settled. If that is not all that was committed, the next page goes
/// on from there, and otherwise a later request does.
///
/// The position is that of an entry. Beyond the last one, ids may be handed out again after a crash of the database.
async fn end_page(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    page: Page,
    log: SettledLog,
    found: LogPage,
) -> QueryResult<LogPage> {
    let settled = log.id.unwrap_or(0);
    let before = find_entry_before(conn, scope, settled).await?;
    let last = found.entries.last().map(|entry| entry.id);
    let position = [page.after, last, before.map(|(id, _)| id)].into_iter().flatten().max().or(Some(0));
    if log.id.is_some_and(|id| id >= log.last_id) {
        return Ok(LogPage { tail: position, ..found });
    }
    let searched_to = before.map(|(_, time)| time).or_else(|| found.entries.last().map(|entry| entry.created_at));
    let searched_to = searched_to.unwrap_or(DateTime::UNIX_EPOCH);
    Ok(LogPage { end: position, searched_to: Some(searched_to), ..found })
}
