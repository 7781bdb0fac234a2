//! Lists of events.
//!
//! Pages are in the order of ids. Each field of a filter has an index of its own, its *source*
//! ([`Source`]), so a filter with one field finds what there is, wherever it lies. Of several fields the
//! most selective one is the source, and the others are checked on the rows. That may take long, so a
//! page examines at most `scan` ids; if it ends there, `searched_to` says how far it got. Fields without
//! an index (`text`, `labels`, and what is excluded) are only checked, and payloads last: see `payloads.rs`.
//!
//! `total` is counted along the same source, up to [`limits::LIST_COUNT`], or up to 100 if the row of each
//! must be looked up ([`EventSearch::count_cap`]), and `total_is_exact` says whether it is complete. Payloads
//! are not read in order to count: with conditions on them, `total` counts the events up to the end of the
//! page. Behind a cursor, a search counts the events of its page.

use std::cmp::Reverse;

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::sql_types::{Array, BigInt, Integer};
use diesel_async::AsyncPgConnection;

use crate::domain::limits;
use crate::domain::scope::Scope;
pub use crate::store::lists::event_filter::EventFilter;
use crate::store::lists::event_search::{EventSearch, Selectivity};
use crate::store::lists::event_sources::Source;
use crate::store::lists::event_times::{span_of_times, time_at};
use crate::store::lists::filtered_query::FilteredQuery;
use crate::store::lists::pages::{CHEAP, Page};
use crate::store::lists::payloads::PayloadSearch;
use crate::store::lists::spans::{Examined, Span};
use crate::store::tables::event_columns::{EventColumns, EventRow, WorkColumns};

/// A page of events.
#[derive(Debug)]
pub struct EventPage {
    /// The events, without payload, progress and result.
    pub events: Vec<EventRow>,
    /// The position behind which the next page begins, if there may be more events.
    pub end: Option<i64>,
    /// The time up to which was searched, if the page is not full although there may be more events.
    pub searched_to: Option<DateTime<Utc>>,
    /// The number of matching events, as far as they were counted.
    pub total: i64,
    /// Whether `total` includes all matching events.
    pub total_is_exact: bool,
}

/// The columns that may be large. Lists do not read them.
const LARGE: [&str; 3] = ["payload", "progress", "result"];

/// Returns the columns of an event `e` and its work `d`, with null for those that lists leave out.
pub(super) fn listed_columns() -> String {
    let column = |table: &str, name: &str| match LARGE.contains(&name) {
        true => format!("NULL::json AS {name}"),
        false => format!("{table}.{name}"),
    };
    let event = EventColumns::NAMES.iter().map(|name| column("e", name));
    event.chain(WorkColumns::NAMES.iter().map(|name| column("d", name))).collect::<Vec<_>>().join(", ")
}

/// Returns a page of events, after skipping `offset` of them.
pub async fn list_events(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    filter: &EventFilter,
    page: Page,
    offset: i64,
) -> QueryResult<EventPage> {
    let filter = &filter.of_list();
    let whole = span_of_times(conn, scope, filter, page.descending).await?;
    let rest = page.after.map_or(whole, |after| whole.behind(after));
    let search = choose_search(conn, filter, &rest).await?;
    let mut walk = Walk::new(&search, rest, page.scan + offset);
    let skipped = walk.count(conn, offset).await?;
    let events = walk.read(conn, page.limit).await?;
    let counted = skipped + events.len() as i64;
    let is_full = events.len() as i64 == page.limit;
    // A full page has a cursor even if nothing follows: that is not looked up.
    let end = walk.position().filter(|_| is_full || !walk.has_ended);
    let searched_to = match end.filter(|_| !is_full) {
        Some(position) => Some(time_at(conn, &whole, position).await?),
        None => None,
    };
    let (total, total_is_exact) = match page.after {
        None if walk.payloads.is_some() => (counted, walk.has_ended),
        None => count_on(conn, walk, counted).await?,
        // What was searched once is not searched again to be counted.
        Some(_) if filter.is_search() => (counted, false),
        Some(_) => count_on(conn, Walk::new(&search, whole, page.scan), 0).await?,
    };
    Ok(EventPage { events, end, searched_to, total, total_is_exact })
}

/// Returns the events `ids` without their payloads, ordered by id.
pub(crate) async fn load_events(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    ids: &[i64],
) -> QueryResult<Vec<EventRow>> {
    let own_work = "(SELECT * FROM waybill.deliveries WHERE namespace_id = e.namespace_id AND id = e.id OFFSET 0) d";
    let begin = format!("SELECT {} FROM waybill.events e CROSS JOIN LATERAL {own_work} WHERE true", listed_columns());
    let statement = FilteredQuery::new(begin)
        .and::<Integer, _>("e.namespace_id =", scope.namespace)
        .sql(" AND e.id = ANY(")
        .bind::<Array<BigInt>, _>(ids)
        .sql(")");
    statement.load(conn, "e.id", 0, ids.len() as i64).await
}

/// The number of ids of each source that are read in order to choose one.
const PROBE: i64 = 200;

/// The number of ids from which on no better source is looked for: a look at another one costs more than
/// to look up these.
const FEW: i64 = 20;

/// Returns the search along the most selective source.
async fn choose_search<'a>(
    conn: &mut AsyncPgConnection,
    filter: &'a EventFilter,
    span: &Span,
) -> QueryResult<EventSearch<'a>> {
    let mut searches = Source::of(filter).into_iter().map(|source| EventSearch { filter, source });
    let mut best = searches.next().unwrap_or(EventSearch { filter, source: Source::All });
    if searches.len() == 0 {
        return Ok(best);
    }
    let mut to_beat = best.selectivity(conn, span, PROBE).await?;
    for search in searches {
        if to_beat >= Selectivity::Ends(Reverse(FEW)) {
            return Ok(best);
        }
        let selectivity = search.selectivity(conn, span, PROBE).await?;
        if selectivity > to_beat {
            (best, to_beat) = (search, selectivity);
        }
    }
    Ok(best)
}

/// Counts on from where a walk is, and returns the total with the `counted` ones, and whether it is
/// complete. A walk that has spent its budget does not go on.
async fn count_on(conn: &mut AsyncPgConnection, mut walk: Walk<'_>, counted: i64) -> QueryResult<(i64, bool)> {
    if walk.budget <= 0 {
        return Ok((counted, walk.has_ended));
    }
    let most = walk.search.count_cap();
    walk.budget += most;
    let total = counted + walk.count(conn, (most - counted).max(0)).await?;
    Ok((total, walk.has_ended))
}

/// A walk along the source of a search, which examines a bounded number of ids.
struct Walk<'a> {
    search: &'a EventSearch<'a>,
    /// What was not searched yet.
    span: Span,
    /// The number of ids that may still be examined.
    budget: i64,
    /// The search through payloads, if the filter has conditions on them.
    payloads: Option<PayloadSearch<'a>>,
    has_ended: bool,
}

impl<'a> Walk<'a> {
    /// The number of ids up to which steps grow.
    const LONGEST_STEP: i64 = 10_000;

    fn new(search: &'a EventSearch<'a>, span: Span, scan: i64) -> Self {
        let budget = if search.is_cheap() { scan * CHEAP } else { scan };
        Walk { search, span, budget, payloads: PayloadSearch::of(search.filter), has_ended: false }
    }

    /// Returns the last id that was searched.
    fn position(&self) -> Option<i64> {
        Some(self.span.edge()).filter(|id| limits::ID.contains(id))
    }

    /// Returns the number of ids of the first step towards `limit` matches. The list of leases is read as a
    /// whole anyway, and has many ids that do not match.
    fn first_step(&self, limit: i64) -> i64 {
        if self.search.source == Source::Held { self.budget } else { limit + 1 }
    }

    /// Returns up to `limit` matching events and moves behind the last of them.
    async fn read(&mut self, conn: &mut AsyncPgConnection, limit: i64) -> QueryResult<Vec<EventRow>> {
        let mut events: Vec<EventRow> = Vec::new();
        let mut step = self.first_step(limit);
        while self.can_go_on(limit - events.len() as i64) {
            let (ids, wanted) = (step.min(self.budget), limit - events.len() as i64);
            events.extend(self.read_step(conn, ids, wanted).await?);
            step = (step * 4).min(Self::LONGEST_STEP.max(step));
        }
        Ok(events)
    }

    /// Reads the next `ids` ids of the source and returns up to `wanted` matching events.
    async fn read_step(&mut self, conn: &mut AsyncPgConnection, ids: i64, wanted: i64) -> QueryResult<Vec<EventRow>> {
        let namespace = self.span.namespace;
        let Some(payloads) = &mut self.payloads else {
            let (events, examined) = self.search.read(conn, &self.span, ids, wanted).await?;
            let last_match = events.last().map(event_id).filter(|_| events.len() as i64 == wanted);
            self.advance(examined, ids, last_match);
            return Ok(events);
        };
        let most = payloads.payloads_left().min(ids);
        let (mut events, examined) = self.search.read(conn, &self.span, ids, most).await?;
        let found: Vec<i64> = events.iter().map(event_id).collect();
        let searched = payloads.search(conn, namespace, &found, wanted).await?;
        // Behind the last event whose payload was read there may be more.
        let is_cut = searched.events < found.len() || found.len() as i64 == most;
        let last_read = found[..searched.events].last().copied().filter(|_| is_cut);
        self.advance(examined, ids, last_read);
        events.retain(|row| searched.matching.contains(&event_id(row)));
        Ok(events)
    }

    /// Counts up to `limit` matching events and moves behind the last of them.
    async fn count(&mut self, conn: &mut AsyncPgConnection, limit: i64) -> QueryResult<i64> {
        if self.payloads.is_some() {
            return Ok(self.read(conn, limit).await?.len() as i64);
        }
        let mut counted = 0;
        let mut step = self.first_step(limit);
        while self.can_go_on(limit - counted) {
            let (ids, wanted) = (step.min(self.budget), limit - counted);
            let found = self.search.count(conn, &self.span, ids, wanted).await?;
            self.advance(found.examined, ids, found.last_match.filter(|_| found.matched == wanted));
            counted += found.matched;
            step = (step * 4).min(Self::LONGEST_STEP.max(step));
        }
        Ok(counted)
    }

    fn can_go_on(&self, wanted: i64) -> bool {
        let may_read = self.payloads.as_ref().is_none_or(|payloads| !payloads.is_over());
        wanted > 0 && self.budget > 0 && may_read && !self.has_ended
    }

    /// Moves behind a step that asked for `ids` ids. If it found all that was wanted, it may have stopped at
    /// its last match, and the ids behind are left to the next step.
    fn advance(&mut self, examined: Examined, ids: i64, last_match: Option<i64>) {
        let position = last_match.or(examined.last_id);
        self.has_ended = examined.ids < ids && position == examined.last_id;
        self.budget -= examined.ids;
        self.span = position.map_or(self.span, |position| self.span.behind(position));
    }
}

fn event_id(row: &EventRow) -> i64 {
    row.event.id.0
}
