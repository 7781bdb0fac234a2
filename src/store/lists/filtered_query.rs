//! A statement that grows by conditions: lists with filters are put together from it.

use diesel::deserialize::QueryableByName;
use diesel::pg::Pg;
use diesel::query_builder::{BoxedSqlQuery, SqlQuery};
use diesel::serialize::ToSql;
use diesel::sql_types::{BigInt, HasSqlType};
use diesel::{QueryResult, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

/// The statement so far. Its text varies with what is asked for, so it is never kept prepared.
pub struct FilteredQuery<'a> {
    query: BoxedSqlQuery<'a, Pg, SqlQuery>,
    parameters: usize,
}

/// The rows of an index by a column and an id that have one value in that column, in the order of
/// ids.
///
/// They are asked for as a range and ordered by both: if the planner were told that all have
/// the same value, it might walk through all ids there are in search of these, by statistics
/// that tell of no value how common it is.
pub struct IndexRange {
    /// The column.
    pub column: &'static str,
    /// The id.
    pub id: &'static str,
    /// The highest first?
    pub descending: bool,
}

impl IndexRange {
    /// How to order it.
    pub fn order(&self) -> String {
        let IndexRange { column, id, descending } = self;
        let direction = if *descending { "DESC" } else { "ASC" };
        format!("{column} {direction}, {id} {direction}")
    }
}

impl<'a> FilteredQuery<'a> {
    /// Begins with this text.
    pub fn new(text: impl Into<String>) -> Self {
        FilteredQuery { query: sql_query(text).into_boxed(), parameters: 0 }
    }

    /// Adds text.
    pub fn sql(mut self, text: &str) -> Self {
        self.query = self.query.sql(text);
        self
    }

    /// Adds a parameter.
    pub fn bind<T, V>(mut self, value: V) -> Self
    where
        Pg: HasSqlType<T>,
        T: Send + 'a,
        V: ToSql<T, Pg> + Send + 'a,
    {
        self.parameters += 1;
        self.query = self.query.sql(format!("${}", self.parameters)).bind::<T, _>(value);
        self
    }

    /// Adds a condition: what is compared how, and with what.
    pub fn and<T, V>(self, condition: &str, value: V) -> Self
    where
        Pg: HasSqlType<T>,
        T: Send + 'a,
        V: ToSql<T, Pg> + Send + 'a,
    {
        self.sql(&format!(" AND {condition} ")).bind::<T, _>(value)
    }

    /// Adds what a range of an index holds: one value of its column, behind an id.
    pub fn and_range<T, V>(self, range: &IndexRange, value: V, after: Option<i64>) -> Self
    where
        Pg: HasSqlType<T>,
        T: Send + 'a,
        V: ToSql<T, Pg> + Clone + Send + 'a,
    {
        let IndexRange { column, id, descending } = range;
        let (behind, within) = if *descending { ("<", ">=") } else { (">", "<=") };
        let begun = match after {
            Some(after) => self
                .sql(&format!(" AND ({column}, {id}) {behind} ("))
                .bind::<T, _>(value.clone())
                .sql(", ")
                .bind::<BigInt, _>(after)
                .sql(")"),
            None => self.and::<T, _>(&format!("{column} {behind}="), value.clone()),
        };
        begun.and::<T, _>(&format!("{column} {within}"), value)
    }

    /// Runs it: so many rows in this order, after leaving out so many.
    pub async fn load<Row>(
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
        statement.sql(" LIMIT ").bind::<BigInt, _>(limit).query.load(conn).await
    }
}
