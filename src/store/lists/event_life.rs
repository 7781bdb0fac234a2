//! Everything that is known about the life of one event, at a bounded cost.

use std::collections::BTreeSet;

use diesel::QueryResult;
use diesel::prelude::{OptionalExtension, QueryDsl};
use diesel_async::AsyncPgConnection;

use crate::domain::ids::EventId;
use crate::domain::scope::Scope;
use crate::store::connection::whole_result::LoadOne;
use crate::store::lists::push_context::{PushContext, read_push_context};
use crate::store::lists::pushes::{PushRow, find_pushes, pushes_of_event};
use crate::store::lists::related_events::{RelatedEvents, count_related_events};
use crate::store::tables::columns::JsonColumn;
use crate::store::tables::event_log::{LogEntry, count_earlier_logs, latest_logs_of_event};
use crate::store::tables::events::{EventDetails, get_event_details};
use crate::store::tables::refused_settlements::{RefusedSettlement, refused_settlements_of_event};
use crate::store::tables::schema::events;

/// The maximum number of log entries of a life. `/logs` has all.
pub const MAX_ENTRIES: i64 = 500;

/// The number up to which earlier entries are counted.
pub const MOST_EARLIER: i64 = 1_000;

/// The maximum number of pushes of a life that no entry is about yet. The list of deliveries has all.
pub const MAX_PUSHES: i64 = 50;

/// An event with its life.
#[derive(Debug)]
pub struct EventLife {
    pub details: EventDetails,
    /// How long it waits between attempts, if it has a rule of its own.
    pub backoff: Option<JsonColumn>,
    /// The last [`MAX_ENTRIES`] log entries, oldest first.
    pub entries: Vec<LogEntry>,
    /// The number of entries before these, up to [`MOST_EARLIER`].
    pub earlier: i64,
    pub refused: Vec<RefusedSettlement>,
    pub related: RelatedEvents,
    /// The pushes that entries are about, and the first [`MAX_PUSHES`] of the event.
    pub pushes: Vec<PushRow>,
    /// Where these pushes go, and what keeps them from being sent.
    pub push_context: PushContext,
}

/// Returns an event with its life, or `None` if there is none.
pub async fn read_event_life(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    id: EventId,
) -> QueryResult<Option<EventLife>> {
    let Some(details) = get_event_details(conn, scope, id).await? else { return Ok(None) };
    let backoff =
        events::table.find((scope.namespace, id)).select(events::backoff).load_first(conn).await.optional()?;
    let entries = latest_logs_of_event(conn, scope, id, MAX_ENTRIES).await?;
    let earlier = match entries.as_slice().first().filter(|_| entries.len() as i64 == MAX_ENTRIES) {
        Some(first) => count_earlier_logs(conn, scope, id, first.id, MOST_EARLIER).await?,
        None => 0,
    };
    let refused = refused_settlements_of_event(conn, scope, id).await?;
    let related = count_related_events(conn, scope, &details.row.event).await?;
    let pushes = read_pushes(conn, scope, id, &entries).await?;
    let subscriptions = pushes.iter().map(|push| push.subscription_id).collect();
    let push_context = read_push_context(conn, scope, &BTreeSet::new(), &subscriptions).await?;
    let backoff = backoff.flatten();
    Ok(Some(EventLife { details, backoff, entries, earlier, refused, related, pushes, push_context }))
}

/// Returns the first pushes of an event, and those that entries are about.
async fn read_pushes(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    id: EventId,
    entries: &[LogEntry],
) -> QueryResult<Vec<PushRow>> {
    let mut pushes = pushes_of_event(conn, scope, id, MAX_PUSHES).await?;
    let known: BTreeSet<i64> = pushes.iter().map(|push| push.id.0).collect();
    let named: BTreeSet<i64> = entries.iter().filter_map(|entry| entry.delivery_id).map(|id| id.0).collect();
    let others: Vec<i64> = named.difference(&known).copied().collect();
    if !others.is_empty() {
        pushes.extend(find_pushes(conn, scope, &others).await?);
    }
    Ok(pushes)
}
