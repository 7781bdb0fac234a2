//! How many events have something in common with one, up to a limit.

use diesel::QueryResult;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Integer, Nullable, Text};
use diesel_async::AsyncPgConnection;

use crate::domain::ids::EventId;
use crate::domain::scope::Scope;
use crate::store::connection::cached::CachedExt;
use crate::store::connection::whole_result::LoadOne;
use crate::store::statement::statement;
use crate::store::tables::event_columns::EventColumns;

/// The number up to which related events are counted.
pub const MOST_RELATED: i64 = 100;

/// The events that have something in common with one. Numbers of [`MOST_RELATED`] mean at least so many.
#[derive(Debug, Clone, Copy, Default, QueryableByName)]
pub struct RelatedEvents {
    /// The number of events with its correlation id, itself included.
    #[diesel(sql_type = BigInt)]
    pub correlated: i64,
    /// The number of unfinished events that come before it in its ordering key.
    #[diesel(sql_type = BigInt)]
    pub ahead: i64,
    /// The first of these, which all others wait for.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub first_ahead: Option<EventId>,
}

/// Counts the events that have something in common with one. Needs no query if it has nothing in common with any.
pub async fn count_related_events(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    event: &EventColumns,
) -> QueryResult<RelatedEvents> {
    if event.correlation_id.is_none() && event.ordering_key.is_none() {
        return Ok(RelatedEvents::default());
    }
    statement!("count_related_events")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<BigInt, _>(event.id)
        .bind::<Nullable<Text>, _>(event.correlation_id.as_deref())
        .bind::<Nullable<Text>, _>(event.ordering_key.as_deref())
        .bind::<BigInt, _>(MOST_RELATED)
        .cached()
        .load_one(conn)
        .await
}
