//! `POST /dead-letters/replay`: replays of many dead letters.

use serde_json::{Value, json};
use waybill::background::subscription_drainer;

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
    let mut order = json!({"filter": {}});
    order.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    app.start_operation("/dead-letters/replay", &order).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_replay_keeps_to_the_requested_rate() {
    let (app, receiver, _) = with_dead_letters(5).await;
    let started = start(&app, json!({"per_second": 2})).await;
    assert_eq!((&started["status"], &started["matched"], &started["done"]), (&json!("RUNNING"), &json!(5), &json!(0)));
    assert_eq!(app.run_steps().await, 1, "at once the first");
    assert_eq!(app.run_steps().await, 0, "the next in half a second");
    app.advance(1);
    assert_eq!(app.run_steps().await, 2);
    assert_eq!(app.operation(&started).await["done"], 3);
    app.advance(60);
    assert!(app.run_steps().await <= 3, "an unused minute is not made up for");
    app.advance(2);
    app.run_steps().await;
    let done = app.operation(&started).await;
    assert_eq!((&done["status"], &done["done"], &done["skipped"]), (&json!("COMPLETED"), &json!(5), &json!(0)));
    receiver.received(10).await;
    until("all were taken", async || app.get("/deliveries?status=COMPLETED").await.json()["deliveries"][4].is_object())
        .await;
    assert_eq!(app.dead_letters("replayed=true").await.len(), 5);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_of_a_bulk_replay_counts_and_shows_a_sample() {
    let (app, _, subscription) = with_dead_letters(3).await;
    let order = json!({"filter": {"subscription_id": subscription["id"]}, "dry_run": true});
    let counted = app.post("/dead-letters/replay", &order).await.expect(200).json();
    assert_eq!((&counted["matched"], &counted["matched_is_exact"]), (&json!(3), &json!(true)));
    assert_eq!(counted["sample"], json!(app.dead_letters("").await));
    assert_eq!(app.get("/operations").await.expect(200).json(), json!({"operations": [], "next": null}));
    assert_eq!(app.run_steps().await, 0);
    assert_eq!(app.dead_letters("replayed=true").await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_replay_takes_only_matching_dead_letters_that_existed_when_it_began() {
    let (app, receiver, _) = with_dead_letters(3).await;
    let first = app.dead_letters("").await[0].clone();
    app.replay(&first["id"], json!({})).await.expect(200);
    let second = app.dead_letters("replayed=false").await[0].clone();
    let narrow = json!({"event_id": second["event_id"], "reason": "exhausted", "since": "2020-01-01T00:00:00Z"});
    let one = start(&app, json!({"filter": narrow, "per_second": 1000})).await;
    assert_eq!(one["filter"], narrow);
    assert_eq!(app.run_steps().await, 1);
    assert_eq!(app.operation(&one).await["status"], "COMPLETED");
    let rest = start(&app, json!({"per_second": 1000})).await;
    assert_eq!(rest["matched"], 1);
    receiver.received(5).await;
    let later = app.publish_and_fail(&receiver, "order.paid", json!("later")).await;
    assert_eq!(app.run_steps().await, 1);
    assert_eq!(app.open_dead_letter(later).await["replayed_at"], json!(null));
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
    let started = start(&app, json!({"per_second": 1})).await;
    assert_eq!(app.run_steps().await, 1);
    for _ in 0..2 {
        let path = format!("/operations/{}/cancel", started["id"]);
        let cancelled = app.post_empty(&path).await.expect(200).json();
        assert_eq!((&cancelled["status"], &cancelled["done"]), (&json!("CANCELLED"), &json!(1)));
    }
    app.advance(60);
    assert_eq!(app.run_steps().await, 0);
    receiver.received(4).await;
    assert_eq!(app.dead_letters("replayed=false").await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_replay_skips_dead_letters_of_deleted_subscriptions() {
    let (app, receiver, subscription) = with_dead_letters(2).await;
    let other = app.subscribe(&receiver.url("/other"), json!({"event_types": ["user.*"], "max_attempts": 1})).await;
    app.delete(&format!("/subscriptions/{}", subscription["id"])).await.expect(204);
    subscription_drainer::run_once(app.engine()).await.expect("a round");
    let event = app.publish_and_fail(&receiver, "user.created", json!(1)).await;
    let started = start(&app, json!({"per_second": 1000})).await;
    assert_eq!(app.run_steps().await, 3);
    let done = app.operation(&started).await;
    assert_eq!((&done["status"], &done["done"], &done["skipped"]), (&json!("COMPLETED"), &json!(1), &json!(2)));
    let delivery = app.until_delivery(app.only_delivery(event).await, "COMPLETED").await;
    assert_eq!(delivery["subscription_id"], other["id"]);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_replay_logs_its_reason_and_uses_the_settings_it_names() {
    let (app, receiver, subscription) = with_dead_letters(1).await;
    let path = format!("/subscriptions/{}", subscription["id"]);
    app.patch(&path, &json!({"url": receiver.url("/moved")})).await.expect(200);
    let started = start(&app, json!({"config": "original", "reason": "receiver fixed"})).await;
    assert_eq!(
        (&started["config"], &started["reason"], &started["actor"]),
        (&json!("original"), &json!("receiver fixed"), &json!(null))
    );
    assert_eq!(app.run_steps().await, 1);
    assert_eq!(receiver.received(2).await[1].path, "/hook");
    let line = "SELECT count(*) FROM waybill.event_log WHERE action = 'REPLAYED' AND reason = 'receiver fixed'";
    assert_eq!(app.count(line).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_fields_of_a_bulk_replay_are_named() {
    let app = App::start().await;
    app.post("/dead-letters/replay", &json!({})).await.names(&["filter"]);
    let wrong = json!({
        "filter": {"event_id": 0, "reason": "bored", "replayed": true}, "by": "me", "config": "latest",
        "per_second": 0.05, "dry_run": 1, "reason": "",
    });
    app.post("/dead-letters/replay", &wrong).await.names(&[
        "filter.event_id",
        "filter.reason",
        "filter.replayed",
        "by",
        "config",
        "per_second",
        "dry_run",
        "reason",
    ]);
    app.post("/dead-letters/replay", &json!({"filter": []})).await.names(&["filter"]);
}
