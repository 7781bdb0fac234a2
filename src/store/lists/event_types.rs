//! Event types: those that are declared, and those that events have.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Bool, Integer, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::event_pattern::SYSTEM_PREFIX;
use crate::domain::scope::Scope;
use crate::store::lists::pages::NamePage;
use crate::store::statement::statement;

/// An event type and the number of its recent events.
#[derive(Debug, QueryableByName)]
pub(crate) struct ListedEventType {
    #[diesel(sql_type = Text)]
    pub name: String,
    #[diesel(sql_type = Nullable<Text>)]
    pub description: Option<String>,
    /// `None` if the type is not declared.
    #[diesel(sql_type = Nullable<Integer>)]
    pub version: Option<i32>,
    #[diesel(sql_type = Bool)]
    pub has_schema: bool,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub created_at: Option<DateTime<Utc>>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub updated_at: Option<DateTime<Utc>>,
    /// The number of events of about the last 24 hours, counted up to the cap + 1.
    #[diesel(sql_type = BigInt)]
    pub events: i64,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub last_event_at: Option<DateTime<Utc>>,
}

/// Returns a page of event types in the order of their names. Recent events are counted up to `count_cap` + 1.
pub(crate) async fn list_event_types(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    page: &NamePage,
    count_cap: i64,
) -> QueryResult<Vec<ListedEventType>> {
    statement!("list_event_types")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .bind::<Nullable<Text>, _>(page.after.as_deref())
        .bind::<Bool, _>(page.descending)
        .bind::<BigInt, _>(page.limit)
        .bind::<BigInt, _>(count_cap)
        .bind::<Text, _>(SYSTEM_PREFIX)
        .load(conn)
        .await
}
