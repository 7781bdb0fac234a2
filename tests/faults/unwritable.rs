//! A database that can be read but not written: read-only, or full.

use futures_util::future::join_all;
use serde_json::json;
use tokio::task::JoinHandle;

use crate::support::work::Naming;
use crate::support::{App, HeldTable, Reply, database, ledger, until, within_patience};

/// The number of calls in a batch.
const MANY: usize = 10;

const EVENT: &str = r#"{"title": "a job", "tags": "a"}"#;

fn publish(app: &App) -> JoinHandle<Reply> {
    let request = app.client.post(format!("{}/events", app.base)).header("content-type", "application/json");
    tokio::spawn(async move { Reply::of(request.body(EVENT).send().await.expect("a response")).await })
}

async fn replies_to(calls: Vec<JoinHandle<Reply>>) -> Vec<Reply> {
    within_patience(join_all(calls)).await.into_iter().map(|reply| reply.expect("no panic")).collect()
}

/// Asserts a 503 that nothing was changed, with this reason.
#[track_caller]
fn assert_refused(reply: Reply, why: &str) {
    assert_eq!(reply.header("retry-after"), Some("1"), "{reply:?}");
    let problem = reply.problem(503, "database_unavailable");
    let detail = problem["detail"].as_str().expect("a text");
    assert!(detail.contains(why) && detail.contains("Nothing was changed"), "{why} in {detail}");
}

/// Makes new sessions read-only, and ends all existing sessions.
async fn make_read_only(url: &str, is_read_only: bool) {
    let name = database_name(url);
    let switch =
        if is_read_only { "SET default_transaction_read_only = on" } else { "RESET default_transaction_read_only" };
    // The test's own session may be read-only already.
    database::execute(url, &format!("BEGIN READ WRITE; ALTER DATABASE {name} {switch}; COMMIT")).await;
}

async fn terminate_all(url: &str) {
    let others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
    database::execute(url, &format!("SELECT pg_terminate_backend(pid) {others}")).await;
}

fn database_name(url: &str) -> &str {
    url.rsplit_once('/').expect("a database").1
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_database_is_a_503_that_says_so_and_the_server_recovers() {
    let app = App::start().await;
    let pending = app.publish_tagged("a").await;
    app.publish_tagged("b").await;
    let claim = app.claim_one("b", "w:1").await;
    make_read_only(&app.url, true).await;
    terminate_all(&app.url).await;
    // A cut connection may be handed out once more before the server notices.
    until("the server has noticed", async || app.get("/ready").await.text.contains("read-only")).await;
    assert_refused(app.get("/ready").await, "read-only");
    assert_refused(app.post_text("/events", EVENT).await, "read-only");
    assert_refused(app.get("/events/subscribe?tags=a&worker_id=w:2").await, "read-only");
    assert_refused(app.settle(&claim, "complete", Naming::Lease).await, "read-only");
    assert_refused(app.settle(&claim, "fail", Naming::Lease).await, "read-only");
    assert_refused(app.post_empty(&format!("/events/{pending}/cancel")).await, "read-only");
    app.get(&format!("/events/{pending}")).await.expect(200);
    app.get("/events").await.expect(200);
    make_read_only(&app.url, false).await;
    until("the server is ready again", async || app.get("/ready").await.status == 200).await;
    until("a publish succeeds", async || app.post_text("/events", EVENT).await.status == 201).await;
    app.settle(&claim, "complete", Naming::Lease).await.expect(200);
    assert_eq!(app.count("SELECT count(*) FROM waybill.events").await, 3, "nothing that was refused is stored");
    ledger::check(&app).await;
}

/// Makes the database fail every publish with this SQLSTATE and count the failures in a sequence,
/// which does not roll back.
fn failing(state: &str) -> String {
    format!(
        "CREATE SEQUENCE failures; \
         CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             PERFORM nextval('failures'); RAISE EXCEPTION 'kein Platz' USING ERRCODE = '{state}'; END $$; \
         CREATE TRIGGER fail BEFORE INSERT ON waybill.events FOR EACH STATEMENT EXECUTE FUNCTION fail()"
    )
}

/// Blocks two batches of one call until many calls are queued behind them, all of which the
/// database then fails. Returns the replies and how often the database was called.
async fn fail_a_batch(app: &App, state: &str) -> (Vec<Reply>, i64) {
    let mut held = HeldTable::lock(&app.url, "waybill.events").await;
    let mut calls = Vec::new();
    for busy in 1..=2 {
        calls.push(publish(app));
        held.until_blocked_statements(busy).await;
    }
    calls.extend((0..MANY).map(|_| publish(app)));
    until("the calls are queued", async || app.engine().queued().publish == MANY).await;
    held.execute(&failing(state)).await;
    held.unlock().await;
    let replies = replies_to(calls).await;
    (replies, app.count("SELECT last_value FROM failures").await)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_a_503_that_splits_no_batch_and_is_shown_by_ready_until_a_write_succeeds() {
    let app = App::start().await;
    let (replies, tries) = fail_a_batch(&app, "53100").await;
    assert_eq!(tries, 3, "each batch is tried once");
    replies.into_iter().for_each(|reply| assert_refused(reply, "space"));
    assert_refused(app.get("/ready").await, "space");
    app.get("/events").await.expect(200);
    database::execute(&app.url, "DROP TRIGGER fail ON waybill.events").await;
    app.post_text("/events", EVENT).await.expect(201);
    app.get("/ready").await.expect(200);
    assert_eq!(app.count("SELECT count(*) FROM waybill.events").await, 1);
    ledger::check(&app).await;
}

/// The code counts, whatever the message and its language.
#[tokio::test(flavor = "multi_thread")]
async fn errors_of_the_database_itself_split_no_batch() {
    for state in ["53200", "57P03", "58030", "55P03", "25006"] {
        let app = App::start().await;
        let (replies, tries) = fail_a_batch(&app, state).await;
        assert_eq!(tries, 3, "{state}");
        for reply in replies {
            assert_refused(reply, "");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_serialization_failure_or_deadlock_is_retried() {
    for state in ["40001", "40P01"] {
        let app = App::start().await;
        database::execute(&app.url, &failing(state)).await;
        let keyed = json!({"title": "a job", "tags": "a", "ordering_key": "k"});
        for event in [serde_json::from_str(EVENT).expect("JSON"), keyed] {
            let before = app.count("SELECT last_value FROM failures").await;
            assert_refused(app.post("/events", &event).await, "");
            assert_eq!(app.count("SELECT last_value FROM failures").await - before, 4 - i64::from(before == 1));
        }
    }
}
