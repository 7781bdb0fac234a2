//! Counts the events for which a subscription's filter exceeded its budget.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::{ExpressionMethods, QueryDsl, Queryable, Selectable, SelectableHelper};
use diesel::sql_types::{Array, BigInt, Integer, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::ids::{EventId, NamespaceId, SubscriptionId};
use crate::domain::scope::Scope;
use crate::store::connection::cached::CachedExt;
use crate::store::statement::statement;
use crate::store::tables::schema::filter_overruns;

/// The events for which a subscription's filter exceeded its budget. The migration describes the columns.
#[derive(Debug, Clone, Queryable, Selectable)]
#[diesel(table_name = filter_overruns, check_for_backend(diesel::pg::Pg))]
pub(crate) struct FilterOverrun {
    pub namespace_id: NamespaceId,
    pub subscription_id: SubscriptionId,
    pub events: i64,
    pub last_at: DateTime<Utc>,
    pub last_event_id: EventId,
}

/// Adds overruns to the counts of their subscriptions.
pub(crate) async fn record_filter_overruns(
    conn: &mut AsyncPgConnection,
    overruns: &[FilterOverrun],
) -> QueryResult<()> {
    statement!("record_filter_overruns")
        .query()
        .bind::<Array<Integer>, _>(overruns.iter().map(|overrun| overrun.namespace_id).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(overruns.iter().map(|overrun| overrun.subscription_id).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(overruns.iter().map(|overrun| overrun.events).collect::<Vec<_>>())
        .bind::<Array<Timestamptz>, _>(overruns.iter().map(|overrun| overrun.last_at).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(overruns.iter().map(|overrun| overrun.last_event_id).collect::<Vec<_>>())
        .cached()
        .execute(conn)
        .await
        .map(drop)
}

/// Returns the overruns of `subscription_ids`. Subscriptions without an overrun are left out.
pub(crate) async fn load_filter_overruns(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    subscription_ids: &[SubscriptionId],
) -> QueryResult<Vec<FilterOverrun>> {
    filter_overruns::table
        .filter(filter_overruns::namespace_id.eq(scope.namespace))
        .filter(filter_overruns::subscription_id.eq_any(subscription_ids))
        .select(FilterOverrun::as_select())
        .load(conn)
        .await
}
