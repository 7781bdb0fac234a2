//! Tags: the number of waiting events, the age of the oldest one, and the number of workers.

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Bool, Double, Integer, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::scope::Scope;
use crate::store::lists::pages::NamePage;
use crate::store::statement::statement;

/// A tag and the state of its queue.
#[derive(Debug, QueryableByName)]
pub struct TagRow {
    #[diesel(sql_type = Text)]
    pub tag: String,
    /// The number of waiting events, counted up to the cap + 1.
    #[diesel(sql_type = BigInt)]
    pub waiting: i64,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub oldest_at: Option<DateTime<Utc>>,
    #[diesel(sql_type = Nullable<Double>)]
    pub oldest_seconds: Option<f64>,
    /// The number of workers that have requested the tag recently.
    #[diesel(sql_type = BigInt)]
    pub workers: i64,
}

/// Returns a page of tags in the order of their names. Waiting events are counted up to `count_cap` + 1.
pub async fn list_tags(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    page: &NamePage,
    count_cap: i64,
) -> QueryResult<Vec<TagRow>> {
    statement!("list_tags")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .bind::<Nullable<Text>, _>(page.after.as_deref())
        .bind::<Bool, _>(page.descending)
        .bind::<BigInt, _>(page.limit)
        .bind::<BigInt, _>(count_cap)
        .load(conn)
        .await
}
