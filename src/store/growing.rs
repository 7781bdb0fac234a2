//! A statement that grows by conditions: lists with filters are put together from it.

use diesel::deserialize::QueryableByName;
use diesel::pg::Pg;
use diesel::query_builder::{BoxedSqlQuery, SqlQuery};
use diesel::serialize::ToSql;
use diesel::sql_types::{BigInt, HasSqlType};
use diesel::{QueryResult, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

/// The statement so far. Its text varies with what is asked for, so it is never kept prepared.
pub struct Growing<'a> {
    query: BoxedSqlQuery<'a, Pg, SqlQuery>,
    parameters: usize,
}

impl<'a> Growing<'a> {
    /// Begins with this text.
    pub fn new(text: impl Into<String>) -> Self {
        Growing { query: sql_query(text).into_boxed(), parameters: 0 }
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

    /// Adds a stretch of an index by two columns: what has this value in the first, behind an id.
    /// To be ordered by both. It is written as a range, since of an equality the planner may make
    /// a walk through all ids there are, in search of a few.
    pub fn and_behind(self, column: &str, value: i64, id: &str, after: i64) -> Self {
        let begun = self.sql(&format!(" AND ({column}, {id}) > (")).bind::<BigInt, _>(value);
        let begun = begun.sql(", ").bind::<BigInt, _>(after).sql(")");
        begun.and::<BigInt, _>(&format!("{column} <="), value)
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
