//! An event log with so many weekly partitions that the database has too few locks to read it.

use crate::support::foreign::ForeignPostgres;
use crate::support::process::{Process, waybill};
use crate::support::{ClusterDir, database};

/// Settings that allow some hundred locks.
const FEW_LOCKS: [&str; 6] = [
    "max_locks_per_transaction=10",
    "max_connections=16",
    "max_worker_processes=1",
    "max_wal_senders=0",
    "autovacuum_max_workers=1",
    "max_parallel_workers=0",
];

const WEEKS: u32 = 150;

/// The trail of an event that has left is searched in all partitions.
const TRAIL: &str = "/logs?event_id=4711";

#[tokio::test(flavor = "multi_thread")]
async fn too_many_log_partitions_for_the_locks_of_the_database_are_reported() {
    let postgres = ForeignPostgres::start(ClusterDir::with_cluster(), &FEW_LOCKS, &[]).await;
    let serve = || {
        let mut command = waybill(&["serve", "--bind", "127.0.0.1:0", "--db-connections", "2"]);
        command.env("DATABASE_URL", postgres.url());
        Process::start(command)
    };
    let server = serve();
    server.app.publish_tagged("a").await;
    server.app.get(TRAIL).await.expect(200);
    assert!(!server.stderr().contains("max_locks_per_transaction"), "{}", server.stderr());
    server.stop().await;

    for week in 0..WEEKS {
        let create = format!("SELECT waybill.create_event_log_partition('2020-01-01'::date + 7 * {week})");
        database::execute(&postgres.url(), &create).await;
    }
    let server = serve();
    let warning = server.stderr();
    assert!(warning.contains("partitions") && warning.contains("max_locks_per_transaction"), "{warning}");
    let problem = server.app.get(TRAIL).await.problem(503, "database_unavailable");
    let detail = problem["detail"].as_str().expect("a text");
    assert!(detail.contains("max_locks_per_transaction"), "{detail}");

    // Claiming and completing still work.
    let id = server.app.claim("a", "w:1").await.expect("an event")["id"].clone();
    server.app.post(&format!("/events/{id}/complete"), &serde_json::json!({"worker_id": "w:1"})).await.expect(200);
    server.stop().await;
}
