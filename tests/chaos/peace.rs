//! What must hold once the faults have stopped.

use std::collections::HashMap;
use std::time::Duration;

use diesel::sql_types::{BigInt, Text};
use diesel::{QueryableByName, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::servers::Servers;
use super::work::{BUSY_TAGS, Promises};
use crate::support::work::Claim;
use crate::support::{PATIENCE, database, ledger};

/// The longest time for which work may be overdue, or wait to be handed out.
const IN_TIME: Duration = Duration::from_secs(2);

/// The time between two checks.
const CHECK_EVERY: Duration = Duration::from_millis(50);

/// The most of the time between two checks that counts: a machine that had no time for the test had
/// none for the servers.
const MAX_COUNTED: Duration = Duration::from_millis(100);

const WORKERS_PER_SERVER: usize = 2;

/// Work that a server or a waiting worker should be handling.
const WAITING: &str = "
    SELECT 'in ready' AS what, seq AS number FROM waybill.ready
    UNION ALL
    SELECT 'held under a lease that ran out', id FROM waybill.deliveries WHERE lease_expires_at <= clock_timestamp()
    UNION ALL
    SELECT 'due', id FROM waybill.deliveries WHERE due_at <= clock_timestamp()
    UNION ALL
    SELECT 'expired', id FROM waybill.deliveries WHERE status = 'PENDING' AND expires_at <= clock_timestamp()";

const OPEN: &str = "SELECT count(*) FROM waybill.deliveries WHERE status IN ('PENDING', 'PROCESSING')";

#[derive(Debug, Clone, PartialEq, Eq, Hash, QueryableByName)]
struct Waiting {
    #[diesel(sql_type = Text)]
    what: String,
    #[diesel(sql_type = BigInt)]
    number: i64,
}

/// Checks consistency, lets everything be finished, and checks again.
pub(super) async fn check(servers: &Servers, promises: &Promises) {
    let database = servers.database();
    ledger::check(&database).await;
    let numbers = 0..servers.len() * WORKERS_PER_SERVER;
    let working = join_all(numbers.map(|number| work_without_faults(servers, number)));
    let finished = tokio::select! {
        _ = working => unreachable!("these workers never stop"),
        finished = tokio::time::timeout(PATIENCE, until_finished(servers)) => finished,
    };
    assert!(finished.is_ok(), "{} deliveries are still open", database.count(OPEN).await);
    ledger::check(&database).await;
    assert_promises_kept(promises, &database.url).await;
}

/// A worker that starts when the faults have stopped, and completes all it gets.
async fn work_without_faults(servers: &Servers, number: usize) {
    let (server, worker_id) = (number % servers.len(), format!("peace:{number}"));
    loop {
        let is_answered = complete_next(servers, server, &BUSY_TAGS.join(","), &worker_id).await;
        assert!(is_answered, "server {server} did not answer");
    }
}

/// A worker that polls again whatever happens. When the faults stop it has been waiting since
/// before, and learns of work only if it is notified.
pub(super) async fn wait_through_faults(servers: &Servers, server: usize, tag: &str) {
    let worker_id = format!("patient-{tag}:{server}");
    loop {
        if !complete_next(servers, server, tag, &worker_id).await {
            sleep(CHECK_EVERY).await;
        }
    }
}

/// Waits for work and completes it. Returns whether the server answered.
async fn complete_next(servers: &Servers, server: usize, tags: &str, worker_id: &str) -> bool {
    let tags: Vec<&str> = tags.split(',').collect();
    let claim = json!({"tags": tags, "worker_id": worker_id, "lease_seconds": 1, "wait_seconds": 60, "max": 10});
    let answer = servers.post(server, "/events/claim", &claim).await;
    let Some(answer) = answer.filter(|answer| answer.status == 200) else { return false };
    let events = answer.body["events"].as_array().cloned().unwrap_or_default();
    let settlements: Vec<Value> =
        events.iter().map(|event| Claim::of(event).settlement("complete", json!({}))).collect();
    if settlements.is_empty() {
        return true;
    }
    let body = json!({"worker_id": worker_id, "settlements": settlements});
    servers.post(server, "/events/settle", &body).await.is_some_and(|answer| answer.status == 200)
}

/// Waits until nothing is open, and asserts that no work waits for too long.
async fn until_finished(servers: &Servers) {
    let mut conn = database::connection(&servers.url).await;
    let mut ages: HashMap<Waiting, Duration> = HashMap::new();
    let mut last = Instant::now();
    while is_any_open(&mut conn).await {
        let waiting: Vec<Waiting> = sql_query(WAITING).load(&mut conn).await.expect("rows");
        let passed = last.elapsed().min(MAX_COUNTED);
        last = Instant::now();
        let aged = |waiting: Waiting| {
            let age = ages.get(&waiting).map_or(Duration::ZERO, |age| *age + passed);
            (waiting, age)
        };
        ages = waiting.into_iter().map(aged).collect();
        let late: Vec<_> = ages.iter().filter(|(_, age)| **age > IN_TIME).collect();
        assert!(late.is_empty(), "these were not handled in time: {late:?}");
        sleep(CHECK_EVERY).await;
    }
}

async fn is_any_open(conn: &mut AsyncPgConnection) -> bool {
    #[derive(QueryableByName)]
    struct Count {
        #[diesel(sql_type = BigInt)]
        count: i64,
    }
    let row: Count = sql_query(OPEN).get_result(conn).await.expect("a row");
    row.count > 0
}

/// Asserts that everything that was acknowledged is stored.
async fn assert_promises_kept(promises: &Promises, url: &str) {
    let published = promises.published.lock().expect("no panic").clone();
    let completed = promises.completed.lock().expect("no panic").clone();
    let list = |ids: &std::collections::BTreeSet<i64>| ids.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
    let count = |table: &str, ids: &str, and: &str| {
        let sql = format!("SELECT count(*) FROM waybill.{table} WHERE id = ANY ('{{{ids}}}') {and}");
        async move { database::count(url, &sql).await }
    };
    assert_eq!(count("events", &list(&published), "").await, published.len() as i64, "published events are lost");
    let done = count("deliveries", &list(&completed), "AND status = 'COMPLETED'").await;
    assert_eq!(done, completed.len() as i64, "completions are lost");
    println!("{} events published, {} completed", published.len(), completed.len());
}
