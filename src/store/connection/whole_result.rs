//! Results of one row that are read to the end of their statement.
//!
//! PostgreSQL may fail after it has sent the last row: the parts of a statement that change tables go on after that, and
//! so does the clock of `statement_timeout`. Diesel's `get_result` and `first` return with the first row and never see
//! such an error. In a transaction the following `COMMIT` is then answered like any other, and is a rollback. So the
//! store reads single rows with the functions of this module, which `tests/walls.rs` checks.

use std::future::Future;

use diesel::QueryResult;
use diesel::query_dsl::methods::{LimitDsl, LoadQuery as BlockingLoadQuery};
use diesel::result::Error::NotFound;
use diesel_async::methods::LoadQuery;
use diesel_async::{AsyncPgConnection, RunQueryDsl};

/// Adds functions that return one row to queries.
pub(crate) trait LoadOne: Sized {
    /// Returns the first row of the result, or [`NotFound`] if it is empty.
    fn load_one<'query, U>(self, conn: &mut AsyncPgConnection) -> impl Future<Output = QueryResult<U>> + Send
    where
        U: Send,
        Self: LoadQuery<'query, AsyncPgConnection, U> + Send + 'query,
    {
        async move { first_of(RunQueryDsl::load(self, conn).await?) }
    }

    /// Returns the first row that the query finds, or [`NotFound`] if there is none.
    fn load_first<'query, U>(self, conn: &mut AsyncPgConnection) -> impl Future<Output = QueryResult<U>> + Send
    where
        U: Send,
        Self: LimitDsl + Send,
        diesel::dsl::Limit<Self>: LoadQuery<'query, AsyncPgConnection, U> + Send + 'query,
    {
        LimitDsl::limit(self, 1).load_one(conn)
    }

    /// Does the same as [`load_one`](LoadOne::load_one) on a connection that blocks.
    fn load_one_blocking<'query, U, Conn>(self, conn: &mut Conn) -> QueryResult<U>
    where
        Self: BlockingLoadQuery<'query, Conn, U>,
    {
        first_of(self.internal_load(conn)?.collect::<QueryResult<Vec<U>>>()?)
    }
}

impl<Q> LoadOne for Q {}

fn first_of<U>(rows: Vec<U>) -> QueryResult<U> {
    rows.into_iter().next().ok_or(NotFound)
}
