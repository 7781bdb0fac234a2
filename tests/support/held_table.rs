//! Statements held up in the middle, so that what happens meanwhile is no accident.

use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};

use super::{database, until};

/// A table that nobody can write to until it is let go. The server gives such statements four
/// seconds, so that nothing slow should be done meanwhile.
pub struct HeldTable {
    conn: AsyncPgConnection,
}

#[derive(diesel::QueryableByName)]
struct Waiting {
    #[diesel(sql_type = diesel::sql_types::Integer)]
    pid: i32,
}

impl HeldTable {
    pub async fn lock(url: &str, table: &str) -> Self {
        let mut conn = database::connection(url).await;
        conn.batch_execute(&format!("BEGIN; LOCK TABLE {table} IN SHARE MODE")).await.expect("the table is locked");
        Self { conn }
    }

    /// Waits until a statement waits for it; answers whose.
    pub async fn until_awaited(&mut self) -> i32 {
        self.until_awaited_by(1).await
    }

    /// Waits until so many do; answers who is one of them.
    pub async fn until_awaited_by(&mut self, statements: usize) -> i32 {
        let waiting = "SELECT l.pid FROM pg_locks l JOIN pg_database d ON d.oid = l.database \
                       WHERE NOT l.granted AND d.datname = current_database()";
        let mut found = Vec::<Waiting>::new();
        until("a statement is held up", async || {
            found = diesel::sql_query(waiting).load(&mut self.conn).await.expect("rows");
            found.len() >= statements
        })
        .await;
        found[0].pid
    }

    /// Cuts the connection of whoever waits for it, once somebody does.
    pub async fn cut_whoever_waits(&mut self) {
        let pid = self.until_awaited().await;
        self.conn.batch_execute(&format!("SELECT pg_terminate_backend({pid})")).await.expect("it is cut");
    }

    /// Does something else before it lets go.
    pub async fn execute(&mut self, sql: &str) {
        self.conn.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    pub async fn let_go(mut self) {
        self.conn.batch_execute("COMMIT").await.expect("the table is let go");
    }
}
