//! Reads the log entries of a worker.
//!
//! They may be everywhere or nowhere. The block range index skips the blocks without them, so one window
//! can have most of the log: if only few entries are in it, they are all read at once. If there are many,
//! the first of them is searched for, and the page is read from there.

use chrono::{DateTime, TimeDelta, Utc};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

use crate::store::lists::log_entries::{LogFilter, LogPage};
use crate::store::lists::log_times::{Sample, last_id, time_at};
use crate::store::lists::log_windows::{Window, first_window, next_window, peek, read_window};
use crate::store::lists::pages::Page;
use crate::store::lists::spans::Span;
use crate::store::tables::event_log::LogEntry;

/// The number of ids of a window of a worker's entries, in units of `page.scan`.
const SCANS: i64 = 1_000;

/// The number of entries that are few enough to read them all, in order to find the last of them.
const FEW: i64 = 200;

/// The same for the first of them, which need not all be read.
const SOME: i64 = 50;

/// The number of the newest ids, which are read first.
const NEWEST: i64 = 1_024;

/// The number of ids of the first step of the search for the last entry.
const GALLOP: i64 = 8 * NEWEST;

/// The number of ids at which the bisection ends.
const PART: i64 = 2_048;

/// Reads a page of a worker's entries, up to `page.scan` times 1,000 ids.
pub(super) async fn read_entries_of_worker(
    conn: &mut AsyncPgConnection,
    filter: &LogFilter,
    span: Span,
    page: Page,
) -> QueryResult<LogPage> {
    let size = page.scan.saturating_mul(SCANS);
    let (entries, end) = match span.descending {
        false => {
            let window = window_of_oldest(conn, &span, &page, size).await?;
            (read_oldest(conn, filter, &window, page.limit).await?, window.far)
        }
        true => read_newest(conn, filter, &span, &page, size).await?,
    };
    if entries.len() as i64 == page.limit {
        let end = entries.last().map(|entry| entry.id);
        return Ok(LogPage { entries, end, ..LogPage::default() });
    }
    let (end, searched_to) = end.map(|sample| (sample.id, sample.created_at)).unzip();
    Ok(LogPage { entries, end, searched_to, tail: None })
}

/// Returns the window of the first `size` ids. It is the whole span, if that may have no more.
async fn window_of_oldest(conn: &mut AsyncPgConnection, span: &Span, page: &Page, size: i64) -> QueryResult<Window> {
    if span.above.saturating_add(size) > last_id(conn).await? {
        return Ok(Window { span: *span, near: None, far: None });
    }
    let first = first_window(conn, span, page, 0).await?;
    match first.far {
        Some(sample) => {
            let window = next_window(conn, span, sample, size).await?;
            Ok(Window { span: Span { above: span.above, ..window.span }, near: first.near, far: window.far })
        }
        None => Ok(first),
    }
}

/// Returns the first `wanted` entries of an ascending window. The disk is almost in the order of ids, so
/// they are no further than those that come first on disk.
async fn read_oldest(
    conn: &mut AsyncPgConnection,
    filter: &LogFilter,
    window: &Window,
    wanted: i64,
) -> QueryResult<Vec<LogEntry>> {
    let limit = SOME.max(wanted + 1);
    let mut entries = peek(conn, filter, window, limit).await?;
    let wanted_entries = usize::try_from(wanted).unwrap_or(usize::MAX);
    if let Some(last) = entries.get(wanted_entries).filter(|_| entries.len() as i64 == limit) {
        // Partitions are read one after the other, so those before the first entry have none.
        let near = entries.iter().map(|entry| entry.created_at).min();
        let far = Some(Sample { id: last.id, created_at: last.created_at });
        let window = Window { span: Span { below: last.id, ..window.span }, near, far };
        return read_window(conn, filter, &window, wanted).await;
    }
    entries.truncate(wanted_entries);
    Ok(entries)
}

/// Returns the last entries of a span, and the sample up to which was searched if there may be more.
async fn read_newest(
    conn: &mut AsyncPgConnection,
    filter: &LogFilter,
    span: &Span,
    page: &Page,
    size: i64,
) -> QueryResult<(Vec<LogEntry>, Option<Sample>)> {
    let edge = span.below.min(last_id(conn).await? + 1);
    let near = match page.after {
        Some(_) => time_at(conn, span, edge).await?,
        None => None,
    };
    if let Some(entries) = read_recent(conn, filter, span, page, edge, near).await? {
        return Ok((entries, None));
    }
    let mut window = Window { span: Span { below: edge, ..*span }, near, far: None };
    if edge.saturating_sub(size) > span.above {
        let first = first_window(conn, span, page, 0).await?;
        if let Some(sample) = first.far {
            let farther = next_window(conn, span, sample, size).await?;
            window = Window { span: Span { below: edge, ..farther.span }, near, far: farther.far };
        }
    }
    let limit = FEW.max(page.limit + 1);
    let mut entries = peek(conn, filter, &window, limit).await?;
    if entries.len() as i64 == limit {
        entries = read_from_last(conn, filter, &window, page.limit).await?;
    }
    entries.truncate(usize::try_from(page.limit).unwrap_or(usize::MAX));
    Ok((entries, window.far))
}

/// Returns a full page of entries of the last day before the beginning of the page, if there are as many
/// among the newest ids. Most lists are about workers that are at work, and older partitions are left out.
/// The clock of this server decides only whether it is worth a try.
async fn read_recent(
    conn: &mut AsyncPgConnection,
    filter: &LogFilter,
    span: &Span,
    page: &Page,
    edge: i64,
    near: Option<DateTime<Utc>>,
) -> QueryResult<Option<Vec<LogEntry>>> {
    let recent = near.or(filter.until).unwrap_or_else(Utc::now) - TimeDelta::days(1);
    let newest = Span { above: span.above.max(edge - NEWEST - 1), below: edge, ..*span };
    let far = Some(Sample { id: newest.above, created_at: recent });
    let entries = read_window(conn, filter, &Window { span: newest, near, far }, page.limit).await?;
    let is_full = entries.len() as i64 == page.limit && entries.iter().all(|entry| entry.created_at >= recent);
    Ok(is_full.then_some(entries))
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
    // In steps that grow, since a page near the beginning is more likely.
    let (mut step, mut is_near) = (GALLOP, false);
    while below - above > PART {
        let middle = if is_near { above + (below - above) / 2 } else { above.max(below - step) };
        if let Some(entry) = peek(conn, filter, &part(middle, below), 1).await?.first() {
            (above, is_near) = (entry.id - 1, true);
        } else {
            (below, step) = (middle + 1, step * 8);
        }
    }
    let mut entries: Vec<LogEntry> = Vec::new();
    let mut size = PART;
    while (entries.len() as i64) < wanted && below > window.span.above + 1 {
        above = window.span.above.max(below - size);
        entries.extend(read_window(conn, filter, &part(above, below), wanted - entries.len() as i64).await?);
        below = above + 1;
        size *= 4;
    }
    Ok(entries)
}
