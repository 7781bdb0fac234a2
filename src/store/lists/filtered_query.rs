//! A query to which conditions are added one by one, for lists with filters.

use chrono::{DateTime, Utc};
use diesel::deserialize::QueryableByName;
use diesel::pg::Pg;
use diesel::query_builder::{BoxedSqlQuery, SqlQuery};
use diesel::serialize::ToSql;
use diesel::sql_types::{BigInt, HasSqlType, Timestamptz};
use diesel::{QueryResult, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::store::lists::pages::Page;

/// A query under construction. Its text varies with the filter, so it must never be cached as a prepared
/// statement.
pub(crate) struct FilteredQuery<'a> {
    query: BoxedSqlQuery<'a, Pg, SqlQuery>,
    parameters: usize,
}

/// The rows with one value of `column`, in the order of ids, as an index by `(column, id)` has them.
///
/// The query selects a range and orders by both columns. With `column = value` and an order by id, the
/// planner might walk all ids in search of these rows, since its statistics may not show how rare the
/// value is.
#[derive(Clone, Copy)]
pub(crate) struct IndexRange {
    pub column: &'static str,
    pub id: &'static str,
    /// The cast of a value to the type of the column, such as `::waybill.status`. Empty if none is needed.
    pub cast: &'static str,
}

impl IndexRange {
    /// Returns the `ORDER BY` expression that follows the index, forwards or backwards.
    pub(crate) fn order(&self, page: &Page) -> String {
        let IndexRange { column, id, .. } = self;
        let direction = page.direction();
        format!("{column} {direction}, {id} {direction}")
    }
}

impl<'a> FilteredQuery<'a> {
    /// Begins a query with `text`.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        FilteredQuery { query: sql_query(text).into_boxed(), parameters: 0 }
    }

    /// Appends `text`.
    pub(crate) fn sql(mut self, text: &str) -> Self {
        self.query = self.query.sql(text);
        self
    }

    /// Appends a parameter and binds `value` to it.
    pub(crate) fn bind<T, V>(mut self, value: V) -> Self
    where
        Pg: HasSqlType<T>,
        T: Send + 'a,
        V: ToSql<T, Pg> + Send + 'a,
    {
        self.parameters += 1;
        self.query = self.query.sql(format!("${}", self.parameters)).bind::<T, _>(value);
        self
    }

    /// Appends `AND <condition> <value>`. `condition` ends with the operator, as in `"d.id <="`.
    pub(crate) fn and<T, V>(self, condition: &str, value: V) -> Self
    where
        Pg: HasSqlType<T>,
        T: Send + 'a,
        V: ToSql<T, Pg> + Send + 'a,
    {
        self.sql(&format!(" AND {condition} ")).bind::<T, _>(value)
    }

    /// Appends `AND <condition> <value>` if there is a value.
    pub(crate) fn and_given<T, V>(self, condition: &str, value: Option<V>) -> Self
    where
        Pg: HasSqlType<T>,
        T: Send + 'a,
        V: ToSql<T, Pg> + Send + 'a,
    {
        match value {
            Some(value) => self.and::<T, _>(condition, value),
            None => self,
        }
    }

    /// Appends the condition that a time is not before `since`, and before `until`.
    pub(crate) fn and_time_range(
        self,
        column: &str,
        since: Option<DateTime<Utc>>,
        until: Option<DateTime<Utc>>,
    ) -> Self {
        self.and_given::<Timestamptz, _>(&format!("{column} >="), since)
            .and_given::<Timestamptz, _>(&format!("{column} <"), until)
    }

    /// Appends the condition that a row is behind the beginning of the page.
    pub(crate) fn and_page(self, id: &str, page: &Page) -> Self {
        match page.after {
            Some(after) => self.and::<BigInt, _>(&format!("{id} {}", page.behind()), after),
            None => self,
        }
    }

    /// Appends the conditions of an index range: rows of the page with `value`.
    pub(crate) fn and_range<T, V>(self, range: &IndexRange, value: V, page: &Page) -> Self
    where
        Pg: HasSqlType<T>,
        T: Send + 'a,
        V: ToSql<T, Pg> + Clone + Send + 'a,
    {
        let IndexRange { column, id, cast } = range;
        let (behind, up_to) = (page.behind(), page.up_to());
        let lower_bound = match page.after {
            Some(after) => self
                .sql(&format!(" AND ({column}, {id}) {behind} ("))
                .bind::<T, _>(value.clone())
                .sql(&format!("{cast}, "))
                .bind::<BigInt, _>(after)
                .sql(")"),
            None => self.and::<T, _>(&format!("{column} {behind}="), value.clone()).sql(cast),
        };
        lower_bound.and::<T, _>(&format!("{column} {up_to}"), value).sql(cast)
    }

    /// Runs the query and returns all rows.
    pub(crate) async fn load_all<Row>(self, conn: &mut AsyncPgConnection) -> QueryResult<Vec<Row>>
    where
        Row: QueryableByName<Pg> + Send + 'static,
    {
        self.query.load(conn).await
    }

    /// Runs the query. Skips `offset` rows and returns up to `limit` rows.
    pub(crate) async fn load<Row>(
        self,
        conn: &mut AsyncPgConnection,
        order: &str,
        offset: i64,
        limit: i64,
    ) -> QueryResult<Vec<Row>>
    where
        Row: QueryableByName<Pg> + Send + 'static,
    {
        let statement = self.sql(&format!(" ORDER BY {order} OFFSET ")).bind::<BigInt, _>(offset);
        statement.sql(" LIMIT ").bind::<BigInt, _>(limit).load_all(conn).await
    }
}
