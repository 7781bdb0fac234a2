//! Rows locked by the test itself, which makes the order in which calls meet deterministic.

use std::time::Duration;

use diesel_async::{AsyncPgConnection, SimpleAsyncConnection};

use super::{App, database};

/// The statements of calls that are blocked by a lock: the end of a query of `pg_stat_activity`. What the server removes
/// in the background may wait for the same lock at any time, and does not count.
pub(crate) const BLOCKED_CALLS: &str = "FROM pg_stat_activity WHERE datname = current_database() \
     AND wait_event_type = 'Lock' AND query !~ '^-- (remove|delete_old)_'";

/// A delivery's row, locked until it is unlocked.
pub(crate) struct HeldRow {
    conn: AsyncPgConnection,
}

impl HeldRow {
    /// Locks the row of an event.
    pub(crate) async fn lock(app: &App, event_id: i64) -> Self {
        let mut conn = database::connection(&app.url).await;
        let sql = format!("BEGIN; SELECT 1 FROM waybill.deliveries WHERE id = {event_id} FOR UPDATE");
        conn.batch_execute(&sql).await.expect("the row is locked");
        HeldRow { conn }
    }

    /// Makes a change that stays invisible to others until it is unlocked.
    pub(crate) async fn with_uncommitted(app: &App, sql: &str) -> Self {
        let mut held = HeldRow { conn: database::connection(&app.url).await };
        held.execute(&format!("BEGIN; {sql}")).await;
        held
    }

    /// Changes something under the lock.
    pub(crate) async fn execute(&mut self, sql: &str) {
        self.conn.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    /// Commits the changes and unlocks the row.
    pub(crate) async fn unlock(mut self) {
        self.execute("COMMIT").await;
    }
}

impl App {
    /// Waits until at least `wanted` of the server's calls are blocked by locks.
    pub(crate) async fn until_blocked_calls(&self, wanted: i64) {
        let waiting = format!("SELECT count(*) {BLOCKED_CALLS}");
        let arrived = async { while self.count(&waiting).await < wanted {} };
        tokio::time::timeout(Duration::from_secs(30), arrived).await.expect("the calls reach the lock");
    }
}
