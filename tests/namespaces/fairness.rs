//! A loud namespace: calls of others do not wait for its batches.

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::two_namespaces;
use crate::support::locks::{BLOCKED_CALLS, HeldRow};
use crate::support::{App, Options, Reply, database, until, within_patience};

/// The number of events of a loud call: more than fit into an express batch.
const MANY: usize = 30;

/// Statements that write rows of the namespace `north` wait for a lock that the test holds. They stand for batches that
/// take long.
async fn hold_up(app: &App, table: &str, write: &str) -> HeldRow {
    let sql = format!(
        "CREATE FUNCTION wait_for_test() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN PERFORM pg_advisory_xact_lock_shared(4711); RETURN NEW; END $$; \
         DO $$ BEGIN EXECUTE format('CREATE TRIGGER wait_for_test BEFORE {write} ON waybill.{table} FOR EACH ROW \
         WHEN (NEW.namespace_id = %s) EXECUTE FUNCTION wait_for_test()', \
         (SELECT id FROM waybill.namespaces WHERE name = 'north')); END $$"
    );
    database::execute(&app.url, &sql).await;
    HeldRow::with_uncommitted(app, "SELECT pg_advisory_xact_lock(4711)").await
}

/// Sends a request without waiting for its response.
fn send(namespace: &App, path: &str, body: &Value) -> JoinHandle<Reply> {
    let request = namespace.client.post(format!("{}{path}", namespace.base)).json(body);
    tokio::spawn(async move { Reply::of(request.send().await.expect("a response")).await })
}

/// Unlocks, and returns the responses to the loud calls.
async fn finish(held: HeldRow, loud: Vec<JoinHandle<Reply>>) -> Vec<Value> {
    held.unlock().await;
    let mut replies = Vec::new();
    for call in loud {
        let reply = within_patience(call).await.expect("no panic");
        assert!(reply.status < 300, "{reply:?}");
        replies.push(reply.json());
    }
    replies
}

fn events() -> Value {
    json!({"events": vec![json!({"title": "a job", "tags": "a"}); MANY]})
}

fn claim() -> Value {
    json!({"tags": ["a"], "worker_id": "w:1", "max": MANY})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_does_not_wait_for_the_batches_of_a_loud_namespace() {
    let app = App::start().await;
    let (loud, quiet) = two_namespaces(&app).await;
    let held = hold_up(&app, "events", "INSERT").await;
    let mut calls = Vec::new();
    // As many as there are ordinary batches at once.
    for number in 1..=2 {
        calls.push(send(&loud, "/events/batch", &events()));
        app.until_blocked_calls(number).await;
    }
    quiet.publish_tagged("a").await;
    finish(held, calls).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_does_not_wait_for_that_of_a_loud_namespace() {
    let app = App::start().await;
    let (loud, quiet) = two_namespaces(&app).await;
    loud.post("/events/batch", &events()).await.expect(201);
    let id = quiet.publish_tagged("a").await;
    let held = hold_up(&app, "deliveries", "UPDATE").await;
    let calls = vec![send(&loud, "/events/claim", &claim())];
    app.until_blocked_calls(1).await;
    assert_eq!(quiet.claim("a", "w:1").await.expect("an event")["id"], id);
    let claimed = finish(held, calls).await;
    assert_eq!(claimed[0]["events"].as_array().map(Vec::len), Some(MANY));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_completion_does_not_wait_for_those_of_a_loud_namespace() {
    let app = App::start().await;
    let (loud, quiet) = two_namespaces(&app).await;
    let id = quiet.publish_tagged("a").await;
    quiet.claim("a", "w:1").await.expect("an event");
    let mut settlements = Vec::new();
    for _ in 0..2 {
        loud.post("/events/batch", &events()).await.expect(201);
        let claimed = loud.post("/events/claim", &claim()).await.expect(200).json();
        let complete =
            |event: &Value| json!({"event_id": event["id"], "lease_id": event["lease_id"], "action": "complete"});
        let of_call: Vec<Value> = claimed["events"].as_array().expect("events").iter().map(complete).collect();
        settlements.push(json!({"worker_id": "w:1", "settlements": of_call}));
    }
    let held = hold_up(&app, "deliveries", "UPDATE").await;
    let mut calls = Vec::new();
    for (number, body) in (1..).zip(&settlements) {
        calls.push(send(&loud, "/events/settle", body));
        app.until_blocked_calls(number).await;
    }
    quiet.post(&format!("/events/{id}/complete"), &json!({"worker_id": "w:1"})).await.expect(200);
    for reply in finish(held, calls).await {
        let results = reply["results"].as_array().expect("results");
        assert!(results.len() == MANY && results.iter().all(|result| result["accepted"] == true), "{reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_lists_of_a_loud_namespace_leave_connections_for_others() {
    let flags = ["--db-connections=8", "--batches-at-once=2"].map(str::to_owned);
    let app = App::start_with(Options { flags: flags.to_vec(), ..Options::default() }).await;
    let (loud, quiet) = two_namespaces(&app).await;
    let held = HeldRow::with_uncommitted(&app, "LOCK TABLE waybill.dead_letters IN ACCESS EXCLUSIVE MODE").await;
    // More than there are connections.
    let lists: Vec<_> = (0..16)
        .map(|_| {
            let request = loud.client.get(format!("{}/dead-letters", loud.base));
            tokio::spawn(async move { Reply::of(request.send().await.expect("a response")).await.status })
        })
        .collect();
    app.until_blocked_calls(2).await;
    // Several times, because the other lists arrive meanwhile.
    for _ in 0..10 {
        let id = quiet.publish_tagged("a").await;
        assert_eq!(quiet.claim("a", "w:1").await.expect("an event")["id"], id);
        quiet.get("/events").await.expect(200);
        quiet.post(&format!("/events/{id}/complete"), &json!({"worker_id": "w:1"})).await.expect(200);
        let blocked = app.count(&format!("SELECT count(*) {BLOCKED_CALLS}")).await;
        assert!(blocked <= 2, "{blocked} lists of one namespace use connections");
    }
    held.unlock().await;
    for list in lists {
        // On a slow machine, some have waited too long.
        let status = within_patience(list).await.expect("no panic");
        assert!([200, 429, 503].contains(&status), "{status}");
    }
}

/// A client that gives up and asks again must not have more statements at the database than one that waits.
#[tokio::test(flavor = "multi_thread")]
async fn lists_whose_clients_are_gone_count_until_the_database_has_ended_them() {
    let flags = ["--db-connections=8", "--batches-at-once=2"].map(str::to_owned);
    let app = App::start_with(Options { flags: flags.to_vec(), ..Options::default() }).await;
    let (loud, quiet) = two_namespaces(&app).await;
    let held = HeldRow::with_uncommitted(&app, "LOCK TABLE waybill.dead_letters IN ACCESS EXCLUSIVE MODE").await;
    let list = || {
        let request = loud.client.get(format!("{}/dead-letters", loud.base));
        tokio::spawn(async move { Reply::of(request.send().await.expect("a response")).await.status })
    };
    let abandoned = [list(), list()];
    app.until_blocked_calls(2).await;
    abandoned.into_iter().for_each(|list| list.abort());
    let next = list();
    let id = quiet.publish_tagged("a").await;
    while !next.is_finished() {
        let blocked = app.count(&format!("SELECT count(*) {BLOCKED_CALLS}")).await;
        assert!(blocked <= 2, "{blocked} lists of one namespace use connections");
        quiet.get(&format!("/events/{id}")).await.expect(200);
    }
    // On a slow machine, the database has ended the others meanwhile.
    let status = within_patience(next).await.expect("no panic");
    assert!([429, 503].contains(&status), "{status}");
    held.unlock().await;
    until("the turns are over", async || loud.get("/dead-letters").await.status == 200).await;
}

/// Which namespace a request names must not matter: pages ignore the header, and show the namespace of their viewer.
#[tokio::test(flavor = "multi_thread")]
async fn slow_pages_that_name_no_namespace_of_theirs_leave_connections_for_others() {
    let flags = ["--db-connections=8", "--batches-at-once=2"].map(str::to_owned);
    let app = App::start_with(Options { flags: flags.to_vec(), ..Options::default() }).await;
    let held = HeldRow::with_uncommitted(&app, "LOCK TABLE waybill.dead_letters IN ACCESS EXCLUSIVE MODE").await;
    let pages: Vec<_> = (0..16)
        .map(|_| {
            let request = app.client.get(format!("{}/ui/dead-letters", app.base));
            let request = request.header("Waybill-Namespace", "no-such-namespace");
            tokio::spawn(async move { Reply::of(request.send().await.expect("a response")).await.status })
        })
        .collect();
    app.until_blocked_calls(2).await;
    for _ in 0..10 {
        app.publish_tagged("a").await;
        let blocked = app.count(&format!("SELECT count(*) {BLOCKED_CALLS}")).await;
        assert!(blocked <= 2, "{blocked} pages of one namespace use connections");
    }
    held.unlock().await;
    for page in pages {
        // On a slow machine, some have waited too long.
        let status = within_patience(page).await.expect("no panic");
        assert!([200, 429, 503].contains(&status), "{status}");
    }
}
