//! An event that a worker waits for is claimed by the statement that publishes it.

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use waybill::store::connection::connect::open;

use super::hangups::{RawWorker, UNDONE, assert_handed_to_another};
use super::sharing::{CLAIM, counted_app};
use super::{Waiter, quiet, quiet_app, quiet_app_with_fixed_clock, until_asleep};
use crate::support::locks::HeldRow;
use crate::support::receiver::Receiver;
use crate::support::wire::{Cut, DatabaseProxy};
use crate::support::{App, HeldTable, Options, Reply, database, ledger, until, within_patience};

/// A part of the text of the statement that hands events over.
const HAND_OVER: &str = "-- publish_and_fan_out";

/// Starts a server whose statements are counted, and which knows the subscriptions already.
async fn counted() -> (App, DatabaseProxy) {
    let (app, proxy) = counted_app().await;
    app.publish_tagged("warm").await;
    (app, proxy)
}

fn event(title: &str) -> Value {
    json!({"title": title, "tags": "a"})
}

/// Publishes in the background.
pub(super) fn publish(app: &App, event: &Value) -> JoinHandle<Reply> {
    let request = app.client.post(format!("{}/events", app.base)).json(event);
    tokio::spawn(async move { Reply::of(request.send().await.expect("a response")).await })
}

/// Waits for the response to a publish, and returns the id of the event.
pub(super) async fn published(publishing: JoinHandle<Reply>) -> i64 {
    let reply = within_patience(publishing).await.expect("no panic");
    reply.expect(201).json()["id"].as_i64().expect("an id")
}

/// Waits until the statement that hands an event over is blocked by a lock.
async fn until_handing_over(url: &str) {
    let blocked = format!(
        "SELECT count(*) FROM pg_stat_activity \
         WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '{HAND_OVER}%'"
    );
    until("the statement is blocked", async || database::count(url, &blocked).await == 1).await;
}

async fn publish_all(app: &App, events: &[Value]) -> Vec<i64> {
    let receipts = app.post("/events/batch", &json!({"events": events})).await.expect(201).json();
    receipts["events"].as_array().expect("events").iter().map(|event| event["id"].as_i64().expect("an id")).collect()
}

async fn waiter_for_several(app: &App, worker_id: &str, max: usize) -> Waiter {
    let body = json!({"tags": ["a"], "worker_id": worker_id, "max": max, "wait_seconds": 60});
    Waiter::post(app, "/events/claim", &body).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_worker_gets_an_event_by_the_statement_that_publishes_it() {
    let (app, proxy) = counted().await;
    let waiter = Waiter::enter(&app, "a,b", "w:1").await;
    let claims = proxy.statements(CLAIM);
    let receipt = app.post("/events", &json!({"title": "a job", "tags": "b,c"})).await.expect(201).json();
    assert_eq!((&receipt["status"], &receipt["worker_id"]), (&json!("PENDING"), &Value::Null), "as it was published");
    let event = waiter.event().await;
    assert_eq!((&event["id"], &event["status"]), (&receipt["id"], &json!("PROCESSING")));
    let id = event["id"].as_i64().expect("an id");
    assert_eq!(app.actions(id).await, ["PICKED"]);
    assert_eq!((proxy.statements(HAND_OVER), proxy.statements(CLAIM) - claims), (1, 0));
    let watched = format!("SELECT count(*) FROM waybill.lease_watch WHERE delivery_ids = '{{{id}}}'");
    assert_eq!(app.count(&watched).await, 1);
    assert_eq!(app.engine().metrics().events_claimed.get(), 1);
    app.complete(id, "w:1").await.expect(200);
    ledger::check(&app).await;
}

/// Everything that can differ is set. The clock stands still, so times are the same, too.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_handed_over_is_what_a_claim_would_have_returned() {
    let app = quiet_app_with_fixed_clock().await;
    let text = r#"{"title": " a job ", "description": "all of it", "event_type": "job.made", "tags": "b, a",
        "labels": {"z": "1", "a": "é"}, "payload": {"b": 1.50,  "a": [1e3, "\u00e9"]}, "priority": 7, "max_retries": 9,
        "backoff": {"strategy": "fixed", "seconds": 5}, "correlation_id": "c-1", "run_at": "2020-01-01T00:00:00.1234567Z",
        "expires_at": "2099-01-01T00:00:00.1234567Z"}"#;
    let traced = || app.client.post(format!("{}/events", app.base)).header("content-type", "application/json");
    let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let publish = async || {
        let request = traced().header("traceparent", traceparent).body(text.to_owned());
        Reply::of(request.send().await.expect("a response")).await.expect(201).json()["id"].as_i64().expect("an id")
    };
    let handed_over = Waiter::enter(&app, "a", "w:1").await;
    let first = publish().await;
    let handed_over = handed_over.reply().await.expect(200);
    let second = publish().await;
    let claimed = app.get("/events/subscribe?tags=a&worker_id=w:1").await.expect(200);
    // Ids and leases come from sequences; all else must be the same, byte by byte.
    let normalized = |reply: &Reply| {
        let event = reply.json();
        let id = format!("{{\"id\":{}", event["id"]);
        assert!(event["lease_id"].as_i64().is_some_and(|lease| lease > 0), "{event}");
        reply.text.replace(&id, "{\"id\":0").replace(&format!("\"lease_id\":{}", event["lease_id"]), "\"lease_id\":0")
    };
    assert_eq!(normalized(&handed_over), normalized(&claimed));
    assert_eq!((&handed_over.json()["id"], &claimed.json()["id"]), (&json!(first), &json!(second)));
    let rows = |table: &str, id: &str| {
        format!(
            "SELECT count(DISTINCT to_jsonb(r) - '{{id,event_id,lease_id,order_seq}}'::text[]) \
             FROM waybill.{table} r WHERE {id} IN ({first}, {second})"
        )
    };
    for (table, id) in [("events", "id"), ("deliveries", "id"), ("event_log", "event_id")] {
        assert_eq!(app.count(&rows(table, id)).await, 1, "the rows of {table} differ");
    }
    assert_eq!(app.count("SELECT count(DISTINCT look_at) FROM waybill.lease_watch").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_waiting_worker_gets_an_event_of_a_batch_by_one_statement() {
    let (app, proxy) = counted().await;
    let waiters = [Waiter::enter(&app, "a", "w:1").await, Waiter::enter(&app, "a", "w:2").await];
    let claims = proxy.statements(CLAIM);
    let ids = publish_all(&app, &[event("first"), event("second"), event("third")]).await;
    for (waiter, id) in waiters.into_iter().zip(&ids) {
        assert_eq!(waiter.event().await["id"], *id);
    }
    assert_eq!((proxy.statements(HAND_OVER), proxy.statements(CLAIM) - claims), (1, 0));
    assert_eq!(app.claim("a", "w:3").await.expect("the third")["id"], ids[2]);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_waits_for_several_events_gets_several_of_a_batch() {
    let (app, proxy) = counted().await;
    let waiter = waiter_for_several(&app, "w:1", 2).await;
    let ids = publish_all(&app, &[event("first"), event("second"), event("third")]).await;
    let events = waiter.event().await["events"].clone();
    assert_eq!((&events[0]["id"], &events[1]["id"], &events[2]), (&json!(ids[0]), &json!(ids[1]), &Value::Null));
    assert_eq!(proxy.statements(HAND_OVER), 1);
    assert_eq!(app.claim("a", "w:2").await.expect("the third")["id"], ids[2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_event_by_priority_is_handed_over() {
    let app = quiet_app().await;
    let waiter = Waiter::enter(&app, "a", "w:1").await;
    let urgent = json!({"title": "urgent", "tags": "a", "priority": 5});
    let ids = publish_all(&app, &[event("first"), urgent, event("third")]).await;
    assert_eq!(waiter.event().await["id"], ids[1]);
    assert_eq!(app.drain("a", "w:2").await, [ids[0], ids[2]]);
}

/// The older worker claims by itself, because it has an idempotency key. Its event is in the queue when the next one is
/// published.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_not_handed_over_past_one_that_waits() {
    let (app, proxy) = counted().await;
    let body = json!({"tags": ["a"], "worker_id": "w:1", "wait_seconds": 60, "idempotency_key": "k1"});
    let older = Waiter::post(&app, "/events/claim", &body).await;
    let younger = Waiter::enter(&app, "a", "w:2").await;
    let held = HeldTable::lock(&app.url, "waybill.event_log").await;
    let ids = [app.publish(event("first")).await, app.publish(event("second")).await];
    held.unlock().await;
    let (repeatable, other) = (older.event().await, younger.event().await);
    let mut got = [&repeatable["events"][0]["id"], &other["id"]].map(|id| id.as_i64().expect("an id"));
    got.sort_unstable();
    assert_eq!(got, ids);
    assert_eq!(proxy.statements(HAND_OVER), 0);
    let again = app.post("/events/claim", &body).await.expect(200).json();
    assert_eq!(again["events"][0]["lease_id"], repeatable["events"][0]["lease_id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_with_an_ordering_key_are_claimed_in_their_order() {
    let (app, proxy) = counted().await;
    let [first, second] = [Waiter::enter(&app, "a", "w:1").await, Waiter::enter(&app, "a", "w:2").await];
    let keyed = json!({"title": "keyed", "tags": "a", "ordering_key": "k"});
    let ids = publish_all(&app, &[keyed.clone(), keyed]).await;
    assert_eq!(first.event().await["id"], ids[0]);
    assert!(second.is_still_waiting());
    app.complete(ids[0], "w:1").await.expect(200);
    assert_eq!(second.event().await["id"], ids[1]);
    assert_eq!(proxy.statements(HAND_OVER), 0);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_handed_over_and_pushed() {
    let app = quiet_app().await;
    let receiver = Receiver::start().await;
    app.subscribe(&receiver.url("/"), json!({})).await;
    let waiter = Waiter::enter(&app, "a", "w:1").await;
    let id = app.publish(json!({"title": "both", "tags": "a", "event_type": "both"})).await;
    assert_eq!(waiter.event().await["id"], id);
    let picked_by_the_publication = format!(
        "SELECT count(*) FROM waybill.event_log l JOIN waybill.events e ON e.id = l.event_id AND e.xmin = l.xmin \
         WHERE e.id = {id} AND l.worker_id = 'w:1'"
    );
    assert_eq!(app.count(&picked_by_the_publication).await, 1);
    app.complete(id, "w:1").await.expect(200);
    let pushed = "SELECT count(*) FROM waybill.deliveries WHERE subscription_id IS NOT NULL AND status = 'COMPLETED'";
    until("it is pushed", async || app.count(pushed).await == 1).await;
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_for_a_worker_that_hangs_up_before_the_commit_is_released() {
    let app = quiet_app().await;
    let worker = RawWorker::waiting(&app, "w:1").await;
    let held = HeldTable::lock(&app.url, "waybill.event_log").await;
    let publishing = publish(&app, &event("a job"));
    until_handing_over(&app.url).await;
    worker.hang_up(&app).await;
    held.unlock().await;
    assert_handed_to_another(&app, published(publishing).await).await;
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_for_a_worker_that_hangs_up_before_the_commit_goes_to_the_next_waiter() {
    let app = quiet_app().await;
    let worker = RawWorker::waiting(&app, "w:1").await;
    let next = Waiter::enter(&app, "a", "w:2").await;
    let held = HeldTable::lock(&app.url, "waybill.event_log").await;
    let publishing = publish(&app, &event("a job"));
    until_handing_over(&app.url).await;
    worker.hang_up(&app).await;
    held.unlock().await;
    let id = published(publishing).await;
    let event = next.event().await;
    assert_eq!((&event["id"], &event["attempt"]), (&json!(id), &json!(1)));
    assert_eq!(app.actions(id).await, ["PICKED", "RELEASED", "PICKED"]);
}

/// The database refuses one event of a batch, which is then split.
#[tokio::test(flavor = "multi_thread")]
async fn waiters_of_a_refused_publication_go_on_waiting() {
    let app = quiet_app().await;
    let refuse = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
                      $$ BEGIN RAISE check_violation USING MESSAGE = 'refused'; END $$; \
                  CREATE TRIGGER refuse BEFORE INSERT ON waybill.events FOR EACH ROW \
                      WHEN (NEW.title = 'culprit') EXECUTE FUNCTION refuse()";
    database::execute(&app.url, refuse).await;
    let waiters = [Waiter::enter(&app, "a", "w:1").await, Waiter::enter(&app, "a", "w:2").await];
    // Publishes that wait for the table keep the batcher busy, so that the next two leave together.
    let mut held = HeldTable::lock(&app.url, "waybill.events").await;
    let mut ahead = Vec::new();
    for busy in 1..=2 {
        ahead.push(publish(&app, &json!({"title": "ahead", "tags": "z"})));
        held.until_blocked_statements(busy).await;
    }
    let (culprit, innocent) = (publish(&app, &event("culprit")), publish(&app, &event("innocent")));
    until("both are queued", async || app.engine().queued().publish == 2).await;
    held.unlock().await;
    let refused = within_patience(culprit).await.expect("no panic");
    assert!(refused.status >= 400, "{refused:?}");
    let innocent = published(innocent).await;
    let later = app.publish(event("later")).await;
    let mut got = Vec::new();
    for waiter in waiters {
        got.push(waiter.event().await["id"].as_i64().expect("an id"));
    }
    got.sort_unstable();
    assert_eq!(got, [innocent, later]);
    ledger::check(&app).await;
}

/// A subscription that is being changed holds up the publication, and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn a_publication_that_is_held_up_does_not_hold_up_the_worker_that_waits_for_it() {
    let app = quiet_app().await;
    let receiver = Receiver::start().await;
    app.subscribe(&receiver.url("/"), json!({"event_types": ["slow"]})).await;
    let waiter = Waiter::enter(&app, "a", "w:1").await;
    let held = HeldRow::with_uncommitted(&app, "SELECT 1 FROM waybill.subscriptions FOR UPDATE").await;
    let publishing = publish(&app, &json!({"title": "slow", "tags": "a", "event_type": "slow"}));
    until_handing_over(&app.url).await;
    let id = app.publish(event("quick")).await;
    assert_eq!(waiter.event().await["id"], id);
    held.unlock().await;
    let slow = published(publishing).await;
    until("it is released", async || app.count(UNDONE).await == 1).await;
    assert_eq!(app.claim("a", "w:2").await.expect("the slow one")["id"], slow);
    ledger::check(&app).await;
}

/// The worker does not learn of its claim, which lasts until its lease expires.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_whose_publication_has_an_unknown_outcome_comes_back_when_its_lease_expires() {
    let url = database::migrated().await;
    let proxy = DatabaseProxy::to(&url).await;
    let options = Options { flags: quiet(), url: Some(proxy.url()), fixed_clock: true };
    let mut app = App::start_with(options).await;
    app.url = url;
    let waiter = Waiter::enter(&app, "a", "w:1").await;
    proxy.cut_at(HAND_OVER, Cut::After);
    app.post("/events", &event("lost")).await.problem(503, "outcome_unknown");
    assert!(proxy.was_cut());
    assert_eq!(app.count("SELECT count(*) FROM waybill.deliveries WHERE status = 'PROCESSING'").await, 1);
    assert!(waiter.is_still_waiting());
    app.advance(300);
    assert_eq!(app.reap().await, 1);
    let event = waiter.event().await;
    assert_eq!(event["title"], "lost");
    assert_eq!(app.actions(event["id"].as_i64().expect("an id")).await, ["PICKED", "RESET", "PICKED"]);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_whose_server_is_gone_after_the_commit_is_given_to_a_worker_of_another() {
    let (app, proxy) = counted().await;
    let path = "/events/subscribe?tags=a&worker_id=w:1&wait_seconds=60&lease_seconds=1";
    let waiter = Waiter::send(&app, app.client.get(format!("{}{path}", app.base))).await;
    proxy.cut_at(HAND_OVER, Cut::After);
    app.post("/events", &event("lost")).await.problem(503, "outcome_unknown");
    assert!(proxy.was_cut());
    let url = app.url.clone();
    within_patience(app.stop()).await;
    waiter.reply().await.expect(204);
    let app = App::start_with(Options { url: Some(url), ..Options::default() }).await;
    let reply = within_patience(app.get("/events/subscribe?tags=a&worker_id=w:2&wait_seconds=60")).await;
    let id = reply.expect(200).json()["id"].as_i64().expect("an id");
    assert_eq!(app.actions(id).await, ["PICKED", "RESET", "PICKED"]);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_still_delivers_what_it_hands_over() {
    let app = quiet_app().await;
    let (engine, url) = (app.engine().clone(), app.url.clone());
    let waiter = Waiter::enter(&app, "a", "w:1").await;
    let held = HeldTable::lock(&url, "waybill.event_log").await;
    let publishing = publish(&app, &event("a job"));
    until_handing_over(&url).await;
    let stopping = tokio::spawn(app.stop());
    until("waits end", async || engine.hub().is_closed()).await;
    held.unlock().await;
    let id = published(publishing).await;
    assert_eq!(waiter.event().await["id"], id);
    within_patience(stopping).await.expect("no panic");
    let held = format!("SELECT count(*) FROM waybill.deliveries WHERE id = {id} AND status = 'PROCESSING'");
    assert_eq!(database::count(&url, &held).await, 1, "the worker has it");
}

#[tokio::test(flavor = "multi_thread")]
async fn other_servers_are_not_notified_of_what_is_handed_over() {
    let flags = super::flags("--poll-interval-ms 60000");
    let one = App::start_with(Options { flags: flags.clone(), ..Options::default() }).await;
    let other = App::start_with(Options { flags, url: Some(one.url.clone()), ..Options::default() }).await;
    until("both listen", async || one.count(super::LISTENERS).await == 2).await;
    // The first message of each server tells the others to scan everything.
    for (app, tag) in [(&one, "x"), (&other, "y")] {
        let waiter = Waiter::enter(if tag == "x" { &other } else { &one }, tag, "w:0").await;
        app.publish_tagged(tag).await;
        waiter.event().await;
    }
    let there = Waiter::enter(&other, "a", "w:2").await;
    let here = Waiter::enter(&one, "a", "w:1").await;
    let mut listener = open(&one.url, "LISTEN waybill_ready").await.expect("it listens");
    let id = one.publish_tagged("a").await;
    assert_eq!(here.event().await["id"], id);
    let next = one.publish_tagged("a").await;
    assert_eq!(there.event().await["id"], next);
    database::execute(&one.url, "NOTIFY waybill_ready, 'the end'").await;
    let mut heard = 0;
    while within_patience(listener.notifications.recv()).await.expect("a notification") != "the end" {
        heard += 1;
    }
    assert_eq!(heard, 1, "only the second event entered a queue");
    until_asleep(&one, 0).await;
}
