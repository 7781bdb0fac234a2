//! Reads the log entries of a worker.
//!
//! They may be everywhere or nowhere. The block range index skips the blocks without them, so one window
//! can have most of the log: if only few entries are in it, they are all read at once. If there are many,
//! the first of them is searched for, and the page is read from there.

use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

use crate::store::lists::log_entries::{LogFilter, LogPage};
use crate::store::lists::log_windows::{Window, first_window, next_window, peek, read_window};
use crate::store::lists::pages::Page;
use crate::store::lists::spans::Span;
use crate::store::tables::event_log::LogEntry;

/// The number of ids of a window of a worker's entries, in units of `page.scan`.
const SCANS: i64 = 1_000;

/// The number of entries that are few enough to read them all, in order to find the last of them.
const FEW: i64 = 200;

/// The number of ids that are read as a whole. Without entries of the worker, their blocks are not read.
const SMALL: i64 = 1_024;

/// Reads a page of a worker's entries, up to `page.scan` times 1,000 ids.
pub(super) async fn read_entries_of_worker(
    conn: &mut AsyncPgConnection,
    filter: &LogFilter,
    span: Span,
    page: Page,
) -> QueryResult<LogPage> {
    // Most lists are about workers that are at work, whose entries are the newest.
    let near = first_window(conn, &span, &page, SMALL).await?;
    let mut entries = read_window(conn, filter, &near, page.limit).await?;
    let mut end = near.far;
    if let Some(sample) = near.far.filter(|_| (entries.len() as i64) < page.limit) {
        let window = next_window(conn, &span, sample, page.scan.saturating_mul(SCANS)).await?;
        entries.extend(read_large(conn, filter, &window, page.limit - entries.len() as i64).await?);
        end = window.far;
    }
    if entries.len() as i64 == page.limit {
        let end = entries.last().map(|entry| entry.id);
        return Ok(LogPage { entries, end, searched_to: None });
    }
    Ok(LogPage { entries, end: end.map(|sample| sample.id), searched_to: end.map(|sample| sample.created_at) })
}

/// Returns the first `wanted` entries of a large window.
async fn read_large(
    conn: &mut AsyncPgConnection,
    filter: &LogFilter,
    window: &Window,
    wanted: i64,
) -> QueryResult<Vec<LogEntry>> {
    let limit = if window.span.descending { FEW.max(wanted + 1) } else { wanted + 1 };
    let mut entries = peek(conn, filter, window, limit).await?;
    if (entries.len() as i64) < limit {
        entries.truncate(usize::try_from(wanted).unwrap_or(usize::MAX));
        return Ok(entries);
    }
    match entries.last() {
        // The disk is almost in the order of ids: the page is no further than what was read first.
        Some(last) if !window.span.descending => {
            let span = Span { below: last.id + 1, ..window.span };
            read_window(conn, filter, &Window { span, ..*window }, wanted).await
        }
        _ => read_from_last(conn, filter, window, wanted).await,
    }
}

/// Returns the last `wanted` entries of a window that has as many, in descending order. The last of them is
/// found by bisection, since the disk cannot be read backwards.
async fn read_from_last(
    conn: &mut AsyncPgConnection,
    filter: &LogFilter,
    window: &Window,
    wanted: i64,
) -> QueryResult<Vec<LogEntry>> {
    let part = |above: i64, below: i64| Window { span: Span { above, below, ..window.span }, ..*window };
    let Span { mut above, mut below, .. } = window.span;
    while below - above > SMALL {
        let middle = above + (below - above) / 2;
        match peek(conn, filter, &part(middle, below), 1).await?.is_empty() {
            true => below = middle + 1,
            false => above = middle,
        }
    }
    let mut entries: Vec<LogEntry> = Vec::new();
    let mut size = SMALL;
    while (entries.len() as i64) < wanted && below > window.span.above + 1 {
        above = window.span.above.max(below - size);
        entries.extend(read_window(conn, filter, &part(above, below), wanted - entries.len() as i64).await?);
        below = above + 1;
        size *= 4;
    }
    Ok(entries)
}
