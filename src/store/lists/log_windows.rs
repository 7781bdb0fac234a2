//! Reads the event log in windows of ids.
//!
//! The log has no index by id: each event adds two entries, and an index entry more would be felt.
//! Instead, every 64th entry is in an index (the *samples*), and a block range index knows which ids and
//! which workers 16 pages of the table may have. A window of ids between two samples is read through the
//! block range index. If it has too few entries, the next window is larger.

use chrono::{DateTime, Datelike, TimeDelta, Utc};
use diesel::QueryResult;
use diesel::sql_types::BigInt;
use diesel_async::AsyncPgConnection;

use crate::store::lists::filtered_query::FilteredQuery;
use crate::store::lists::log_entries::{COLUMNS, LogFilter, LogPage, conditions};
use crate::store::lists::log_times::{Sample, samples, time_at};
use crate::store::lists::pages::{CHEAP, Page};
use crate::store::lists::spans::Span;
use crate::store::tables::event_log::LogEntry;

/// Ids per sample.
const SAMPLE: i64 = 64;

/// Further ids of the first window. The entries next to the bounds of a time may not match, and a few more
/// cost nothing: they are in the same blocks.
const MARGIN_ENTRIES: i64 = 4 * SAMPLE;

/// Partitions are left out if they begin or end further than this from the window. It is for a database
/// whose clock was set back.
const MARGIN: TimeDelta = TimeDelta::days(1);

/// A window of ids. The times of the samples at both ends are known, unless it is at an end of the log.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    pub span: Span,
    pub near: Option<DateTime<Utc>>,
    /// The sample at which it ends. `None` at the end of the log.
    pub far: Option<Sample>,
}

/// Reads a page in windows that follow each other, up to `page.scan` ids, or [`CHEAP`] times as many for a time alone: all
/// those within a minute of it may not match.
pub(super) async fn read_windows(
    conn: &mut AsyncPgConnection,
    filter: &LogFilter,
    span: Span,
    page: Page,
) -> QueryResult<LogPage> {
    let mut found = LogPage::default();
    let mut size = page.limit + MARGIN_ENTRIES;
    let mut window = first_window(conn, &span, &page, size).await?;
    let mut budget = if filter.action.is_none() { page.scan * CHEAP } else { page.scan };
    loop {
        let wanted = page.limit - found.entries.len() as i64;
        found.entries.extend(read_window(conn, filter, &window, wanted).await?);
        if found.entries.len() as i64 == page.limit {
            found.end = found.entries.last().map(|entry| entry.id);
            return Ok(found);
        }
        let Some(sample) = window.far else { return Ok(found) };
        budget -= size;
        if budget <= 0 {
            return Ok(LogPage { end: Some(sample.id), searched_to: Some(sample.created_at), ..found });
        }
        size *= 4;
        window = next_window(conn, &span, sample, size.min(budget)).await?;
    }
}

/// Returns the first window, which has at least `entries` entries, unless other namespaces have some of
/// the ids.
pub(super) async fn first_window(
    conn: &mut AsyncPgConnection,
    span: &Span,
    page: &Page,
    entries: i64,
) -> QueryResult<Window> {
    let near = match page.after {
        Some(_) => time_at(conn, span, span.edge()).await?,
        None => None,
    };
    // Before the n-th sample there are more than n - 1 times 64 entries.
    let skipped = (entries + SAMPLE - 1) / SAMPLE;
    let order = format!("id {}", span.direction());
    let far: Vec<Sample> = span.limit(samples(span), "id").load(conn, &order, skipped, 1).await?;
    Ok(Window { span: up_to(span, far.first()), near, far: far.first().copied() })
}

/// Returns the window behind a sample, of about `size` ids. Ids may have large gaps, so it ends at the next
/// sample behind that.
pub(super) async fn next_window(
    conn: &mut AsyncPgConnection,
    span: &Span,
    sample: Sample,
    size: i64,
) -> QueryResult<Window> {
    let span = span.behind(sample.id);
    let (behind, end) = match span.descending {
        false => ("id >=", sample.id.saturating_add(size)),
        true => ("id <=", sample.id.saturating_sub(size)),
    };
    if end <= span.above {
        return Ok(Window { span, near: Some(sample.created_at), far: None });
    }
    let query = span.limit(samples(&span), "id").and::<BigInt, _>(behind, end);
    let far: Vec<Sample> = query.load(conn, &format!("id {}", span.direction()), 0, 1).await?;
    Ok(Window { span: up_to(&span, far.first()), near: Some(sample.created_at), far: far.first().copied() })
}

/// Returns the part of a span up to and including a sample.
fn up_to(span: &Span, sample: Option<&Sample>) -> Span {
    match sample {
        Some(sample) if span.descending => Span { above: sample.id - 1, ..*span },
        Some(sample) => Span { below: sample.id + 1, ..*span },
        None => *span,
    }
}

/// Returns the first `wanted` entries of a window.
pub(super) async fn read_window(
    conn: &mut AsyncPgConnection,
    filter: &LogFilter,
    window: &Window,
    wanted: i64,
) -> QueryResult<Vec<LogEntry>> {
    let direction = window.span.direction();
    entries_of(filter, window).sql(&format!(" ORDER BY id {direction} LIMIT {wanted}")).load_all(conn).await
}

/// Returns up to `limit` entries of a window, those that come first on disk. It reads no more than them.
pub(super) async fn peek(
    conn: &mut AsyncPgConnection,
    filter: &LogFilter,
    window: &Window,
    limit: i64,
) -> QueryResult<Vec<LogEntry>> {
    let mut entries: Vec<LogEntry> = entries_of(filter, window).sql(&format!(" LIMIT {limit}")).load_all(conn).await?;
    entries.sort_unstable_by_key(|entry| if window.span.descending { -entry.id } else { entry.id });
    Ok(entries)
}

/// Returns the query of the entries of a window. Its times leave out the partitions of other times. They are
/// literals, so that the planner need not even look at those partitions.
fn entries_of<'q>(filter: &LogFilter, window: &Window) -> FilteredQuery<'q> {
    let Window { span, near, far } = window;
    let far = far.map(|sample| sample.created_at);
    let (from, to) = if span.descending { (far, *near) } else { (*near, far) };
    let time = |condition: &str, time: Option<DateTime<Utc>>| {
        // PostgreSQL reads no other years in this format. There are no such partitions.
        let time = time.filter(|time| (1..=9999).contains(&time.year()));
        time.map_or_else(String::new, |time| format!(" AND created_at {condition} '{}'", time.to_rfc3339()))
    };
    let query = FilteredQuery::new(format!(
        "SELECT {COLUMNS} FROM waybill.event_log WHERE namespace_id = {}{}{}",
        span.namespace,
        time(">=", from.and_then(|from| from.checked_sub_signed(MARGIN))),
        time("<", to.and_then(|to| to.checked_add_signed(MARGIN))),
    ));
    conditions(span.limit(query, "id").and_time_range("created_at", filter.since, filter.until), filter)
}
