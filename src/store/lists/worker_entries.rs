//! Reads the log entries of a worker.
//!
//! They may be everywhere or nowhere. The block range index skips the blocks without them, so one window
//! can have most of the log: if only few entries are in it, they are all read at once. If there are many,
//! the page is near the beginning of the window or far from it, and is looked for in parts of the window
//! that grow.

use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

use crate::store::lists::log_entries::{LogFilter, LogPage};
use crate::store::lists::log_windows::{Window, first_window, next_window, peek, read_window};
use crate::store::lists::pages::Page;
use crate::store::lists::spans::Span;
use crate::store::tables::event_log::LogEntry;

/// The number of ids of a window of a worker's entries, in units of `page.scan`.
const SCANS: i64 = 1_000;

/// The number of entries from which on there are many.
const CROWD: i64 = 200;

/// The number of ids of a part of a window that is read as a whole.
const SMALL: i64 = 1_024;

/// How much larger the next part is, if there is nothing in one.
const GROWTH: i64 = 8;

/// Reads a page of a worker's entries, up to `page.scan` times 1,000 ids.
pub(super) async fn read_entries_of_worker(
    conn: &mut AsyncPgConnection,
    filter: &LogFilter,
    span: Span,
    page: Page,
) -> QueryResult<LogPage> {
    // Most lists are about workers that are at work, whose entries are the newest.
    let near = first_window(conn, &span, page.limit).await?;
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
    let limit = CROWD.max(wanted + 1);
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
        _ => read_parts(conn, filter, *window, wanted).await,
    }
}

/// Returns the first `wanted` entries of a window with many, by parts that grow until there are some.
async fn read_parts(
    conn: &mut AsyncPgConnection,
    filter: &LogFilter,
    mut rest: Window,
    wanted: i64,
) -> QueryResult<Vec<LogEntry>> {
    let mut entries: Vec<LogEntry> = Vec::new();
    let mut size = SMALL;
    while rest.span.below - rest.span.above > 1 {
        let missing = wanted - entries.len() as i64;
        let part = Span { above: rest.span.above.max(rest.span.below.saturating_sub(size) - 1), ..rest.span };
        let window = Window { span: part, ..rest };
        let limit = CROWD.max(missing + 1);
        let mut read = match size {
            SMALL => read_window(conn, filter, &window, missing).await?,
            _ => peek(conn, filter, &window, limit).await?,
        };
        if size > SMALL && read.len() as i64 == limit {
            // The entries are in its farther part, since the nearer one was looked at.
            size = SMALL;
            continue;
        }
        read.truncate(usize::try_from(missing).unwrap_or(usize::MAX));
        entries.extend(read);
        if entries.len() as i64 == wanted {
            return Ok(entries);
        }
        rest.span.below = part.above + 1;
        size *= GROWTH;
    }
    Ok(entries)
}
