//! Single connections are cut, when idle and in the middle of a statement.

use diesel_async::SimpleAsyncConnection;
use futures_util::future::join_all;
use serde_json::json;
use tokio::task::JoinHandle;

use crate::support::locks::HeldRow;
use crate::support::{App, HeldTable, Options, Reply, database, until, within_patience};

/// Starts a server with one connection for requests, which the test cuts. With a fixed clock it removes nothing on its
/// own: the removal would wait for a locked table, too, and hold the connection.
async fn app_with_one_connection() -> App {
    let flags = vec!["--db-connections=1".into()];
    App::start_with(Options { flags, fixed_clock: true, ..Options::default() }).await
}

/// Waits until the server is ready: a cut connection may be handed out once more before the server
/// notices.
async fn until_ready(app: &App) {
    until("the server is ready", async || app.get("/ready").await.status == 200).await;
}

fn in_background(request: reqwest::RequestBuilder) -> JoinHandle<Reply> {
    tokio::spawn(async move { Reply::of(request.send().await.expect("a response")).await })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_whose_connection_is_cut_is_503_and_stores_nothing() {
    let app = app_with_one_connection().await;
    let mut held = HeldTable::lock(&app.url, "waybill.events").await;
    let event = json!({"title": "t", "tags": "a"});
    let publish = in_background(app.client.post(format!("{}/events", app.base)).json(&event));
    held.terminate_blocked().await;
    within_patience(publish).await.expect("no panic").problem(503, "database_unavailable");
    held.unlock().await;
    until_ready(&app).await;
    assert_eq!(app.count("SELECT count(*) FROM waybill.events").await, 0);
    app.publish(event).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_whose_connection_is_cut_is_503_and_claims_nothing() {
    let app = app_with_one_connection().await;
    let id = app.publish_tagged("a").await;
    let mut held = HeldTable::lock(&app.url, "waybill.event_log").await;
    let claim = in_background(app.client.get(format!("{}/events/subscribe?tags=a&worker_id=w:1", app.base)));
    held.terminate_blocked().await;
    within_patience(claim).await.expect("no panic").problem(503, "database_unavailable");
    held.unlock().await;
    until_ready(&app).await;
    assert_eq!(app.event(id).await["status"], "PENDING");
    app.claim("a", "w:2").await.expect("an event");
    assert_eq!(app.actions(id).await, ["PICKED"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_completion_whose_connection_is_cut_is_503_and_can_be_repeated() {
    let app = app_with_one_connection().await;
    let id = app.publish_tagged("a").await;
    app.claim("a", "w:1").await.expect("an event");
    let mut held = HeldTable::lock(&app.url, "waybill.event_log").await;
    let path = format!("{}/events/{id}/complete", app.base);
    let complete = in_background(app.client.post(path).json(&json!({"worker_id": "w:1"})));
    held.terminate_blocked().await;
    within_patience(complete).await.expect("no panic").problem(503, "database_unavailable");
    held.unlock().await;
    until_ready(&app).await;
    assert_eq!(app.event(id).await["status"], "PROCESSING");
    app.complete(id, "w:1").await.expect(200);
    assert_eq!(app.actions(id).await, ["PICKED", "COMPLETED"]);
}

/// The server cancels a statement that waits too long for others before its caller's time is over.
#[tokio::test(flavor = "multi_thread")]
async fn a_publish_blocked_by_another_transaction_is_503_in_time() {
    let app = App::start().await;
    let held = HeldTable::lock(&app.url, "waybill.events").await;
    let sent_at = std::time::Instant::now();
    let reply = app.post("/events", &json!({"title": "t", "tags": "a"})).await;
    assert!(sent_at.elapsed() < std::time::Duration::from_secs(5));
    reply.problem(503, "database_unavailable");
    held.unlock().await;
    app.publish_tagged("a").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_were_cut_while_idle_are_replaced() {
    let app = App::start().await;
    let event = json!({"title": "t", "tags": "a"});
    let publishing: Vec<_> =
        (0..32).map(|_| in_background(app.client.post(format!("{}/events", app.base)).json(&event))).collect();
    for publish in publishing {
        publish.await.expect("no panic").expect(201);
    }
    let idle = "FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle'";
    database::execute(&app.url, &format!("SELECT pg_terminate_backend(pid) {idle}")).await;
    until("a publish succeeds", async || app.post("/events", &event).await.status == 201).await;
    assert_eq!(app.count("SELECT count(*) FROM waybill.events").await, 33, "no more and no less than acknowledged");
}

/// Statements whose callers are gone still run. No request waits behind one of them, nor for each of them in turn.
#[tokio::test(flavor = "multi_thread")]
async fn connections_with_abandoned_statements_are_not_given_to_the_next_request() {
    const CONNECTIONS: usize = 24;
    let flags = vec![format!("--db-connections={CONNECTIONS}")];
    let app = App::start_with(Options { flags, fixed_clock: true, ..Options::default() }).await;
    let held = HeldRow::with_uncommitted(&app, "SELECT pg_advisory_xact_lock(4711)").await;
    let opened = join_all((0..CONNECTIONS).map(|_| app.engine().database().connection())).await;
    let statements: Vec<_> = opened
        .into_iter()
        .map(|connection| {
            let mut connection = connection.expect("a connection");
            tokio::spawn(async move { connection.batch_execute("SELECT pg_advisory_lock(4711)").await })
        })
        .collect();
    app.until_blocked_calls(CONNECTIONS as i64).await;
    for statement in statements {
        statement.abort();
        assert!(statement.await.is_err_and(|end| end.is_cancelled()), "it still runs");
    }
    let sent_at = std::time::Instant::now();
    app.publish_tagged("a").await;
    assert!(sent_at.elapsed() < std::time::Duration::from_secs(2), "{:?}", sent_at.elapsed());
    held.unlock().await;
}

/// If `BEGIN` or `COMMIT` themselves fail, the driver does not know that a transaction is left open.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_left_in_an_aborted_transaction_is_replaced() {
    let app = app_with_one_connection().await;
    let mut conn = app.engine().database().connection().await.expect("a connection");
    conn.batch_execute("BEGIN; SELECT 1 / 0").await.expect_err("a refused statement");
    drop(conn);
    app.publish_tagged("a").await;
}
