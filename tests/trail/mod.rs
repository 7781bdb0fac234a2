//! The live trail: `GET /logs/stream`, and `/logs` for those who follow it with cursors.

mod crowd;
mod ends;
mod late_commits;
mod positions;
mod resume;
mod slow_readers;
mod streams;

use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::support::{App, Rng, database};

/// A statement that adds an entry of a worker to the event log.
fn entry_of(worker_id: &str) -> String {
    format!(
        "INSERT INTO waybill.event_log (event_id, action, lease_id, attempt, worker_id) \
         VALUES (1, 'PICKED', 1, 1, '{worker_id}')"
    )
}

/// Adds an entry of a worker to the event log.
async fn add_entry(app: &App, worker_id: &str) {
    database::execute(&app.url, &entry_of(worker_id)).await;
}

/// Returns the ids of all entries of the event log.
async fn all_ids(url: &str) -> Vec<i64> {
    #[derive(diesel::QueryableByName)]
    struct Row {
        #[diesel(sql_type = diesel::sql_types::BigInt)]
        id: i64,
    }
    let query = diesel::sql_query("SELECT id FROM waybill.event_log ORDER BY id");
    let rows: Vec<Row> = query.load(&mut database::connection(url).await).await.expect("the log");
    rows.into_iter().map(|row| row.id).collect()
}

fn ids_of(page: &Value) -> Vec<i64> {
    page["logs"].as_array().expect("logs").iter().map(|entry| entry["id"].as_i64().expect("an id")).collect()
}

/// Writers that add entries to the log at the same time.
struct Writers {
    tasks: JoinSet<()>,
    /// The number of entries that they commit.
    entries: usize,
}

/// A transaction of a writer.
struct Transaction {
    entries: u64,
    /// For how long it holds them back.
    milliseconds: u64,
    is_undone: bool,
}

impl Writers {
    /// Starts writers with a connection each. They hold their entries back for up to 20 ms, and commit most of them.
    fn start(url: &str, writers: u64, transactions: usize) -> Self {
        let (mut tasks, mut entries) = (JoinSet::new(), 0);
        for seed in 0..writers {
            let mut rng = Rng::new(seed);
            let plan = (0..transactions).map(|_| Transaction {
                entries: rng.below(3) + 1,
                milliseconds: rng.below(20),
                is_undone: rng.one_in(10),
            });
            let plan: Vec<Transaction> = plan.collect();
            entries += plan.iter().filter(|one| !one.is_undone).map(|one| one.entries as usize).sum::<usize>();
            let url = url.to_owned();
            tasks.spawn(async move {
                let mut conn = database::connection(&url).await;
                for transaction in plan {
                    transaction.run(&mut conn).await;
                }
            });
        }
        Writers { tasks, entries }
    }
}

impl Transaction {
    async fn run(&self, conn: &mut AsyncPgConnection) {
        let entries: Vec<String> = (0..self.entries).map(|_| entry_of("w:1")).collect();
        let (entries, wait) = (entries.join("; "), self.milliseconds);
        let end = if self.is_undone { "ROLLBACK" } else { "COMMIT" };
        let sql = format!("BEGIN; {entries}; SELECT pg_sleep({wait} / 1000.0); {end}");
        conn.batch_execute(&sql).await.expect("a transaction");
    }
}
