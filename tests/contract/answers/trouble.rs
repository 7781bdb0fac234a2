//! Servers that cannot do what is requested.

use futures_util::future::{join_all, select_all};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::contract::document::Operation;
use crate::contract::witness::{CheckedServer, Coverage};
use crate::support::wire::{Cut, DatabaseProxy};
use crate::support::{App, HeldTable, Options, Reply, database};

pub(super) async fn run(coverage: &Coverage) {
    with_too_many_waiters(coverage).await;
    with_full_queues(coverage).await;
    with_a_broken_schema(coverage).await;
    with_the_database_gone(coverage).await;
    with_a_lost_response(coverage).await;
}

/// Returns the operations that need the database.
fn operations_on_the_database(coverage: &Coverage) -> Vec<Operation> {
    // What `/doctor` cannot ask is one of its findings.
    let asks_nobody = ["", "health", "metrics", "doctor", "openapi", "docs", "problems"];
    let mut operations = coverage.document.operations();
    let first = |path: &str| path.split(['/', '.']).nth(1).unwrap_or_default().to_owned();
    operations.retain(|operation| !asks_nobody.contains(&first(&operation.path).as_str()));
    operations
}

async fn with_too_many_waiters(coverage: &Coverage) {
    let options = Options { flags: vec!["--max-waiting=0".into()], ..Options::default() };
    let server = CheckedServer::of(App::start_with(options).await, coverage);
    let body = json!({"worker_id": "w:1", "tags": ["none"], "wait_seconds": 1});
    server.get("/events/subscribe?tags=none&worker_id=w:1&wait_seconds=1").await.problem(429, "overloaded");
    server.post("/events/claim", &body).await.problem(429, "overloaded");
    let id = server.app.publish_tagged("work").await;
    server.app.claim("work", "w:1").await.expect("an event");
    let settlements = json!([{"event_id": id, "action": "complete"}]);
    let claim = json!({"tags": ["none"], "wait_seconds": 1});
    let body = json!({"worker_id": "w:1", "settlements": settlements, "claim": claim});
    let reply = server.post("/events/settle", &body).await.expect(200).json();
    assert_eq!(
        (&reply["results"][0]["accepted"], &reply["claim_problem"]["code"]),
        (&json!(true), &json!("overloaded"))
    );
}

/// For each verb two batches are blocked at the database and a third call is queued, which fills
/// the queue.
async fn with_full_queues(coverage: &Coverage) {
    let options = Options { flags: vec!["--max-queued=1".into()], ..Options::default() };
    let server = CheckedServer::of(App::start_with(options).await, coverage);
    let id = server.app.publish_tagged("work").await;
    server.app.claim("work", "w:1").await.expect("an event");
    let mut held = HeldTable::lock(&server.app.url, "waybill.events, waybill.deliveries").await;
    let event = json!({"title": "a job", "tags": "work"});
    let body = json!({"worker_id": "w:1"});
    let stuck = [
        fill(&server.app, &mut held, 0, "/events", &event).await,
        fill(&server.app, &mut held, 2, &format!("/events/{id}/complete"), &body).await,
    ];
    server.post("/events", &event).await.problem(429, "overloaded");
    server.post("/events/batch", &json!({"events": [event]})).await.problem(429, "overloaded");
    for verb in ["start", "heartbeat", "complete", "fail", "release"] {
        server.post(&format!("/events/{id}/{verb}"), &body).await.problem(429, "overloaded");
    }
    let body = json!({"worker_id": "w:1", "settlements": [{"event_id": id, "action": "complete"}]});
    server.post("/events/settle", &body).await.problem(429, "overloaded");
    held.unlock().await;
    for reply in stuck.into_iter().flatten() {
        expect_done(reply.await.expect("a response"));
    }
}

/// Sends calls of one verb until its queue is full, and returns those that wait. `before` is the
/// number of statements that were blocked already.
async fn fill(app: &App, held: &mut HeldTable, before: usize, path: &str, body: &Value) -> Vec<JoinHandle<Reply>> {
    let send = || {
        let request = app.client.post(format!("{}{path}", app.base)).json(body);
        tokio::spawn(async move { Reply::of(request.send().await.expect("a response")).await })
    };
    let mut stuck = Vec::new();
    for statements in 1..=2 {
        stuck.push(send());
        held.until_blocked_statements(before + statements).await;
    }
    // One of the next two calls takes the last place in the queue, and the other is refused.
    let (refused, _, waiting) = select_all([send(), send()]).await;
    refused.expect("a response").problem(429, "overloaded");
    stuck.extend(waiting);
    stuck
}

/// Asserts that a blocked call is carried out once it can be.
#[track_caller]
fn expect_done(reply: Reply) {
    assert!([200, 201].contains(&reply.status), "{reply:?}");
}

async fn with_a_broken_schema(coverage: &Coverage) {
    let server = CheckedServer::of(App::with_keys().await, coverage);
    // From now on the server has the key in memory.
    server.get("/keys").await.expect(200);
    database::execute(&server.app.url, "ALTER SCHEMA waybill RENAME TO elsewhere").await;
    for operation in operations_on_the_database(coverage) {
        let request = server.example_of(&operation, 7, operation.required_query());
        let problem = server.send(request).await.problem(500, "internal_error");
        assert_eq!(problem["detail"], "A fault of the server; the cause is in its log.");
    }
    server.get("/metrics").await.expect(200);
    assert_eq!(server.get("/doctor").await.expect(200).json()["status"], "problem");
}

async fn with_the_database_gone(coverage: &Coverage) {
    let server = CheckedServer::of(App::with_keys().await, coverage);
    // From now on the server has the key in memory.
    server.get("/keys").await.expect(200);
    database::drop_by_force(&server.app.url).await;
    let operations = operations_on_the_database(coverage);
    // All at once, because each waits for the database as long as it may.
    join_all(operations.iter().map(async |operation| {
        let request = server.example_of(operation, 7, operation.required_query());
        server.send(request).await.problem(503, "database_unavailable");
    }))
    .await;
    server.get("/metrics").await.expect(200);
    assert_eq!(server.get("/doctor").await.expect(200).json()["status"], "problem");
}

async fn with_a_lost_response(coverage: &Coverage) {
    let proxy = DatabaseProxy::to(&database::migrated().await).await;
    let options = Options { url: Some(proxy.url()), ..Options::default() };
    let server = CheckedServer::of(App::start_with(options).await, coverage);
    proxy.cut_at("INSERT INTO waybill.events", Cut::After);
    let event = json!({"title": "a job", "tags": "work"});
    server.post("/events", &event).await.problem(503, "outcome_unknown");
}
