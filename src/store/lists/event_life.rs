//! Everything that is known about the life of one event, at a bounded cost.

use std::collections::BTreeSet;

use diesel::QueryResult;
use diesel::prelude::{OptionalExtension, QueryDsl};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::ids::EventId;
use crate::domain::scope::Scope;
use crate::store::lists::pushes::{PushRow, find_pushes};
use crate::store::lists::related_events::{RelatedEvents, count_related_events};
use crate::store::tables::columns::JsonColumn;
use crate::store::tables::event_log::{LogEntry, count_earlier_logs, latest_logs_of_event};
use crate::store::tables::events::{EventDetails, get_event_details};
use crate::store::tables::refused_settlements::{RefusedSettlement, refused_settlements_of_event};
use crate::store::tables::schema::events;
use crate::store::tables::subscriptions::{SubscriptionAddress, addresses_of_subscriptions};

/// The maximum number of log entries of a life. `/logs` has all.
pub const MAX_ENTRIES: i64 = 500;

/// The number up to which earlier entries are counted.
pub const MOST_EARLIER: i64 = 1_000;

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
    /// The pushes that entries are about.
    pub pushes: Vec<PushRow>,
    /// Where the subscriptions of these pushes send now.
    pub addresses: Vec<SubscriptionAddress>,
}

/// Returns an event with its life, or `None` if there is none.
pub async fn read_event_life(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    id: EventId,
) -> QueryResult<Option<EventLife>> {
    let Some(details) = get_event_details(conn, scope, id).await? else { return Ok(None) };
    let backoff = events::table.find((scope.namespace, id)).select(events::backoff).first(conn).await.optional()?;
    let entries = latest_logs_of_event(conn, scope, id, MAX_ENTRIES).await?;
    let earlier = match entries.as_slice().first().filter(|_| entries.len() as i64 == MAX_ENTRIES) {
        Some(first) => count_earlier_logs(conn, scope, id, first.id, MOST_EARLIER).await?,
        None => 0,
    };
    let refused = refused_settlements_of_event(conn, scope, id).await?;
    let related = count_related_events(conn, scope, &details.row.event).await?;
    let (pushes, addresses) = read_pushes(conn, scope, &entries).await?;
    Ok(Some(EventLife { details, backoff: backoff.flatten(), entries, earlier, refused, related, pushes, addresses }))
}

/// Returns the pushes that entries are about, and where their subscriptions send.
async fn read_pushes(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    entries: &[LogEntry],
) -> QueryResult<(Vec<PushRow>, Vec<SubscriptionAddress>)> {
    let ids: BTreeSet<i64> = entries.iter().filter_map(|entry| entry.delivery_id).map(|id| id.0).collect();
    if ids.is_empty() {
        return Ok((Vec::new(), Vec::new()));
    }
    let pushes = find_pushes(conn, scope, &ids.into_iter().collect::<Vec<_>>()).await?;
    let subscriptions = pushes.iter().map(|push| push.subscription_id).collect();
    let addresses = addresses_of_subscriptions(conn, scope, &subscriptions).await?;
    Ok((pushes, addresses))
}
