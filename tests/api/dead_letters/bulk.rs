//! `POST /dead-letters/replay` and `/replays`: replays of many dead letters.

use serde_json::{Value, json};
use waybill::background::{replayer, subscription_drainer};

use crate::support::receiver::{Receiver, Reply};
use crate::support::records::one_attempt;
use crate::support::{App, ledger, until};

/// Starts a server with a fixed clock and `count` dead letters of `order.paid`.
async fn with_dead_letters(count: i64) -> (App, Receiver, Value) {
    let (app, receiver) = (App::with_fixed_clock().await, Receiver::start().await);
    let subscription = app.subscribe(&receiver.url("/hook"), one_attempt()).await;
    receiver.always(Reply::status(500));
    for n in 0..count {
        app.publish_typed("order.paid", json!(n)).await;
    }
    let dead = "SELECT count(*) FROM waybill.dead_letters";
    until("all pushes have failed", async || app.count(dead).await == count).await;
    receiver.always(Reply::ok());
    (app, receiver, subscription)
}

async fn start(app: &App, more: Value) -> Value {
    let mut order = json!({"filter": {}, "by": "an operator"});
    order.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    let reply = app.post("/dead-letters/replay", &order).await.expect(202);
    let job = reply.json();
    assert_eq!(reply.header("location"), Some(format!("/replays/{}", job["id"]).as_str()));
    job
}

async fn job(app: &App, job: &Value) -> Value {
    app.get(&format!("/replays/{}", job["id"])).await.expect(200).json()
}

async fn round(app: &App) -> usize {
    replayer::run_once(app.engine()).await.expect("a round")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_replay_keeps_to_the_requested_rate() {
    let (app, receiver, _) = with_dead_letters(5).await;
    let started = start(&app, json!({"rate_per_second": 2})).await;
    assert_eq!(
        (&started["status"], &started["matched"], &started["replayed"]),
        (&json!("RUNNING"), &json!(5), &json!(0))
    );
    assert_eq!(round(&app).await, 1, "at once the first");
    assert_eq!(round(&app).await, 0, "the next in half a second");
    app.advance(1);
    assert_eq!(round(&app).await, 2);
    assert_eq!(job(&app, &started).await["replayed"], 3);
    app.advance(60);
    assert!(round(&app).await <= 3, "an unused minute is not made up for");
    app.advance(2);
    round(&app).await;
    let done = job(&app, &started).await;
    assert_eq!((&done["status"], &done["replayed"], &done["skipped"]), (&json!("DONE"), &json!(5), &json!(0)));
    receiver.received(10).await;
    until("all were taken", async || app.get("/deliveries?status=COMPLETED").await.json()["deliveries"][4].is_object())
        .await;
    assert_eq!(app.dead_letters("replayed=true").await.len(), 5);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_of_a_bulk_replay_only_counts() {
    let (app, _, subscription) = with_dead_letters(3).await;
    let order = json!({"filter": {"subscription_id": subscription["id"]}, "by": "an operator", "dry_run": true});
    let counted = app.post("/dead-letters/replay", &order).await.expect(200).json();
    assert_eq!(counted, json!({"matched": 3, "matched_is_exact": true, "dry_run": true}));
    assert_eq!(app.get("/replays").await.expect(200).json(), json!({"replays": [], "next": null}));
    assert_eq!(round(&app).await, 0);
    assert_eq!(app.dead_letters("replayed=true").await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_replay_takes_only_matching_dead_letters_that_existed_when_it_began() {
    let (app, receiver, _) = with_dead_letters(3).await;
    let first = app.dead_letters("").await[0].clone();
    app.replay(&first["id"], json!({})).await.expect(200);
    let second = app.dead_letters("replayed=false").await[0].clone();
    let narrow = json!({"event_id": second["event_id"], "reason": "exhausted", "since": "2020-01-01T00:00:00Z"});
    let one = start(&app, json!({"filter": narrow, "rate_per_second": 1000})).await;
    assert_eq!(one["filter"], narrow);
    assert_eq!(round(&app).await, 1);
    assert_eq!(job(&app, &one).await["status"], "DONE");
    let rest = start(&app, json!({"rate_per_second": 1000})).await;
    assert_eq!(rest["matched"], 1);
    receiver.received(5).await;
    let later = app.publish_and_fail(&receiver, "order.paid", json!("later")).await;
    assert_eq!(round(&app).await, 1);
    assert_eq!(app.open_dead_letter(later).await["replayed_at"], json!(null));
    let list = app.get("/replays?limit=1").await.expect(200).json();
    assert_eq!(list["replays"][0]["id"], one["id"]);
    let list = app.get(&format!("/replays?after={}", list["next"].as_str().unwrap())).await.expect(200).json();
    assert_eq!(list["replays"][0]["id"], rest["id"]);
    receiver.received(7).await;
    until("all were taken", async || {
        app.count("SELECT count(*) FROM waybill.deliveries WHERE status IN ('PENDING', 'PROCESSING')").await == 0
    })
    .await;
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_bulk_replay_stops() {
    let (app, receiver, _) = with_dead_letters(3).await;
    let started = start(&app, json!({"rate_per_second": 1})).await;
    assert_eq!(round(&app).await, 1);
    for _ in 0..2 {
        let path = format!("/replays/{}/cancel", started["id"]);
        let cancelled = app.post_empty(&path).await.expect(200).json();
        assert_eq!((&cancelled["status"], &cancelled["replayed"]), (&json!("CANCELLED"), &json!(1)));
    }
    app.advance(60);
    assert_eq!(round(&app).await, 0);
    receiver.received(4).await;
    assert_eq!(app.dead_letters("replayed=false").await.len(), 2);
    app.post_empty("/replays/4711/cancel").await.problem(404, "replay_not_found");
    app.get("/replays/4711").await.problem(404, "replay_not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_replay_skips_dead_letters_of_deleted_subscriptions() {
    let (app, receiver, subscription) = with_dead_letters(2).await;
    let other = app.subscribe(&receiver.url("/other"), json!({"event_types": ["user.*"], "max_attempts": 1})).await;
    app.delete(&format!("/subscriptions/{}", subscription["id"])).await.expect(204);
    subscription_drainer::run_once(app.engine()).await.expect("a round");
    let event = app.publish_and_fail(&receiver, "user.created", json!(1)).await;
    let started = start(&app, json!({"rate_per_second": 1000})).await;
    assert_eq!(round(&app).await, 1);
    let done = job(&app, &started).await;
    assert_eq!((&done["status"], &done["replayed"], &done["skipped"]), (&json!("DONE"), &json!(1), &json!(2)));
    let delivery = app.until_delivery(app.only_delivery(event).await, "COMPLETED").await;
    assert_eq!(delivery["subscription_id"], other["id"]);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_fields_of_a_bulk_replay_are_named() {
    let app = App::start().await;
    app.post("/dead-letters/replay", &json!({})).await.names(&["filter", "by"]);
    let wrong = json!({
        "filter": {"event_id": 0, "reason": "bored", "replayed": true}, "by": "", "config": "latest",
        "rate_per_second": 0.05, "dry_run": 1, "colour": "red",
    });
    app.post("/dead-letters/replay", &wrong).await.names(&[
        "filter.event_id",
        "filter.reason",
        "filter.replayed",
        "by",
        "config",
        "rate_per_second",
        "dry_run",
        "colour",
    ]);
    app.post("/dead-letters/replay", &json!({"filter": [], "by": "b"})).await.names(&["filter"]);
}
