//! Reads the log of a namespace with few entries.
//!
//! They lie among those of other namespaces, and the windows of `log_windows` read whole blocks to find them. The two
//! indexes of the trails of events begin with the namespace, so all its entries are read through these instead, and
//! sorted here. Whether there are few is first estimated by the number of samples, which costs a large namespace five
//! buffers.

use diesel::QueryResult;
use diesel::sql_types::{BigInt, Integer};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::store::connection::cached::CachedExt;
use crate::store::lists::log_entries::{LogFilter, LogPage};
use crate::store::lists::pages::{IdRow, Page};
use crate::store::lists::spans::Span;
use crate::store::statement::statement;
use crate::store::tables::event_log::LogEntry;

/// The number of entries that are few. Each may be in a page of its own.
const FEW: usize = 128;

/// The number of samples beyond which a namespace hardly has so few entries: one of 64 entries is a sample.
const FEW_SAMPLES: i64 = 4;

/// Returns a page, or `None` if the namespace has more than a few entries.
pub(super) async fn read_small_log(
    conn: &mut AsyncPgConnection,
    filter: &LogFilter,
    span: &Span,
    page: Page,
) -> QueryResult<Option<LogPage>> {
    let samples: Vec<IdRow> = statement!("find_log_sample")
        .query()
        .bind::<Integer, _>(span.namespace)
        .bind::<BigInt, _>(FEW_SAMPLES)
        .cached()
        .load(conn)
        .await?;
    if !samples.is_empty() {
        return Ok(None);
    }
    let mut entries: Vec<LogEntry> = statement!("read_small_log")
        .query()
        .bind::<Integer, _>(span.namespace)
        .bind::<BigInt, _>(FEW as i64 + 1)
        .cached()
        .load(conn)
        .await?;
    if entries.len() > FEW {
        return Ok(None);
    }
    entries.retain(|entry| span.above < entry.id && entry.id < span.below && filter.matches(entry));
    entries.sort_unstable_by_key(|entry| if span.descending { -entry.id } else { entry.id });
    entries.truncate(usize::try_from(page.limit).unwrap_or(usize::MAX));
    let is_full = entries.len() as i64 == page.limit;
    let end = entries.last().filter(|_| is_full).map(|entry| entry.id);
    Ok(Some(LogPage { entries, end, ..LogPage::default() }))
}
