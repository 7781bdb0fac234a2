//! Statements blocked in the middle, which makes the order of events in a race deterministic.

use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};

use super::locks::BLOCKED_CALLS;
use super::{database, until};

/// A table that no statement can write to until it is unlocked. The server cancels a blocked
/// statement after four seconds, so nothing slow should happen meanwhile.
pub(crate) struct HeldTable {
    conn: AsyncPgConnection,
}

#[derive(diesel::QueryableByName)]
struct Waiting {
    #[diesel(sql_type = diesel::sql_types::Integer)]
    pid: i32,
}

impl HeldTable {
    pub(crate) async fn lock(url: &str, table: &str) -> Self {
        let mut conn = database::connection(url).await;
        conn.batch_execute(&format!("BEGIN; LOCK TABLE {table} IN SHARE MODE")).await.expect("the table is locked");
        Self { conn }
    }

    /// Waits until a statement is blocked by the lock. Returns the pid of its backend.
    pub(crate) async fn until_blocked(&mut self) -> i32 {
        self.until_blocked_statements(1).await
    }

    /// Waits until at least `statements` statements are blocked. Returns the pid of one of their
    /// backends.
    pub(crate) async fn until_blocked_statements(&mut self, statements: usize) -> i32 {
        let waiting = format!("SELECT pid {BLOCKED_CALLS}");
        let mut found = Vec::<Waiting>::new();
        until("a statement is held up", async || {
            // Within a transaction, PostgreSQL would show the same activity again.
            self.execute("SELECT pg_stat_clear_snapshot()").await;
            found = diesel::sql_query(&waiting).load(&mut self.conn).await.expect("rows");
            found.len() >= statements
        })
        .await;
        found[0].pid
    }

    /// Waits until a statement is blocked, and terminates its connection.
    pub(crate) async fn terminate_blocked(&mut self) {
        let pid = self.until_blocked().await;
        self.conn.batch_execute(&format!("SELECT pg_terminate_backend({pid})")).await.expect("it is cut");
    }

    /// Runs statements in the transaction that holds the lock.
    pub(crate) async fn execute(&mut self, sql: &str) {
        self.conn.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    pub(crate) async fn unlock(mut self) {
        self.conn.batch_execute("COMMIT").await.expect("the table is let go");
    }
}
