//! Measures the cost of a store function in buffers, which are the same on every machine.
//!
//! PostgreSQL reports how many buffers a transaction has fetched so far. The function runs between
//! two such readings, on one of the server's own connections.

use diesel::QueryResult;
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};

use super::App;

impl App {
    /// Returns the result of a function and the number of buffers that it fetched.
    pub(crate) async fn buffers_of<T>(
        &self,
        function: impl AsyncFnOnce(&mut AsyncPgConnection) -> QueryResult<T>,
    ) -> (T, i64) {
        let mut conn = self.engine().database().connection().await.expect("a connection");
        conn.batch_execute("BEGIN").await.expect("a transaction");
        let before = blocks_fetched(&mut conn).await;
        let answer = function(&mut conn).await.expect("a response");
        let buffers = blocks_fetched(&mut conn).await - before;
        conn.batch_execute("ROLLBACK").await.expect("its end");
        (answer, buffers)
    }

    /// Returns the result of a function and the number of buffers that it fetches on a connection that has
    /// run it before: the first time, PostgreSQL also reads what it then remembers about each index.
    pub(crate) async fn buffers_of_repeated<T>(
        &self,
        function: impl AsyncFn(&mut AsyncPgConnection) -> QueryResult<T>,
    ) -> (T, i64) {
        let repeated = async |conn: &mut AsyncPgConnection| {
            function(conn).await?;
            let before = blocks_fetched(conn).await;
            let answer = function(conn).await?;
            Ok((answer, blocks_fetched(conn).await - before))
        };
        self.buffers_of(repeated).await.0
    }
}

async fn blocks_fetched(conn: &mut AsyncPgConnection) -> i64 {
    #[derive(diesel::QueryableByName)]
    struct Row {
        #[diesel(sql_type = diesel::sql_types::BigInt)]
        n: i64,
    }
    let sql = "SELECT coalesce(sum(pg_stat_get_xact_blocks_fetched(oid)), 0)::bigint AS n \
               FROM pg_class WHERE relnamespace = 'waybill'::regnamespace";
    diesel::sql_query(sql).get_result::<Row>(conn).await.expect("a sum").n
}
