//! Finds events by their idempotency keys.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::{ExpressionMethods, OptionalExtension, QueryDsl, QueryableByName};
use diesel::sql_types::{Array, BigInt, Bool, Bytea, Integer, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::idempotency::{IdempotencyKey, KeyOrigin};
use crate::domain::ids::{EventId, NamespaceId};
use crate::domain::scope::Scope;
use crate::store::connection::cached::CachedExt;
use crate::store::connection::whole_result::LoadOne;
use crate::store::statement::{Statement, statement};
use crate::store::tables::columns::StatusColumn;
use crate::store::tables::schema::events;

/// An event that was published under an idempotency key.
#[derive(Debug, Clone, QueryableByName)]
pub(crate) struct KeyedEvent {
    /// The place of its key among those that were asked for, from 1.
    #[diesel(sql_type = BigInt)]
    pub place: i64,
    #[diesel(sql_type = BigInt)]
    pub event_id: EventId,
    #[diesel(sql_type = Timestamptz)]
    pub created_at: DateTime<Utc>,
    /// The fingerprint of the content that was published under the key.
    #[diesel(sql_type = Bytea)]
    pub fingerprint: Vec<u8>,
    /// The present state, or the last one of an event that was removed.
    #[diesel(sql_type = Nullable<Text>)]
    pub status: Option<StatusColumn>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub updated_at: Option<DateTime<Utc>>,
    /// Whether the event still exists.
    #[diesel(sql_type = Bool)]
    pub is_present: bool,
}

/// An event that was published again under its idempotency key.
#[derive(Debug, Clone, QueryableByName)]
pub(crate) struct RepeatedEvent {
    #[diesel(sql_type = BigInt)]
    pub event_id: EventId,
    #[diesel(sql_type = Nullable<Text>)]
    status: Option<StatusColumn>,
}

impl RepeatedEvent {
    /// Returns the present state, or the last one of an event that was removed. If nothing is left of the event, it had
    /// finished long ago.
    pub(crate) fn status(&self) -> &'static str {
        self.status.map_or("COMPLETED", |status| status.0.as_str())
    }
}

const FIND_EVENTS_BY_KEYS: Statement = statement!("find_events_by_keys");

/// Returns the events of these keys, in no particular order. Those without an event are left out.
pub(crate) async fn find_events_by_keys(
    conn: &mut AsyncPgConnection,
    namespace: NamespaceId,
    keys: &[&IdempotencyKey],
) -> QueryResult<Vec<KeyedEvent>> {
    FIND_EVENTS_BY_KEYS
        .query()
        .bind::<Integer, _>(namespace)
        .bind::<Array<BigInt>, _>(keys.iter().map(|key| key.origin.number()).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(keys.iter().map(|key| key.key.as_str()).collect::<Vec<_>>())
        .cached()
        .load(conn)
        .await
}

const FIND_REPEATED_EVENTS: Statement = statement!("find_repeated_events");

/// Returns the present states of events that were published again, each with its key.
pub(crate) async fn find_repeated_events(
    conn: &mut AsyncPgConnection,
    namespace: NamespaceId,
    events: &[(EventId, &IdempotencyKey)],
) -> QueryResult<Vec<RepeatedEvent>> {
    FIND_REPEATED_EVENTS
        .query()
        .bind::<Integer, _>(namespace)
        .bind::<Array<BigInt>, _>(events.iter().map(|(id, _)| *id).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(events.iter().map(|(_, key)| key.origin.number()).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(events.iter().map(|(_, key)| key.key.as_str()).collect::<Vec<_>>())
        .cached()
        .load(conn)
        .await
}

/// Returns the idempotency key of an event, if it has one of this origin.
pub(crate) async fn find_key_of_event(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    origin: KeyOrigin,
    id: EventId,
) -> QueryResult<Option<String>> {
    events::table
        .find((scope.namespace, id))
        .filter(events::key_origin.eq(origin.number()))
        .select(events::idempotency_key)
        .load_first::<Option<String>>(conn)
        .await
        .optional()
        .map(Option::flatten)
}
