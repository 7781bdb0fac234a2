//! Statements held up in the middle, so that what happens meanwhile is no accident.

use diesel_async::{AsyncPgConnection, SimpleAsyncConnection};

use super::{database, until};

/// A table that nobody can write to until it is let go. The server gives such statements four
/// seconds.
pub struct HeldTable {
    conn: AsyncPgConnection,
    url: String,
}

impl HeldTable {
    pub async fn lock(url: &str, table: &str) -> Self {
        let mut conn = database::connection(url).await;
        conn.batch_execute(&format!("BEGIN; LOCK TABLE {table} IN SHARE MODE")).await.expect("the table is locked");
        Self { conn, url: url.to_owned() }
    }

    /// Waits until a statement waits for it.
    pub async fn until_awaited(&mut self) {
        let found = async || database::count(&self.url, &format!("SELECT count(*) {WAITING}")).await > 0;
        until("a statement is held up", found).await;
    }

    /// Cuts the connection of whoever waits for it, once somebody does.
    pub async fn cut_whoever_waits(&mut self) {
        self.until_awaited().await;
        database::execute(&self.url, &format!("SELECT pg_terminate_backend(pid) {WAITING}")).await;
    }

    pub async fn let_go(mut self) {
        self.conn.batch_execute("COMMIT").await.expect("the table is let go");
    }
}

const WAITING: &str = "FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
