//! `GET /deliveries/{id}`, and deliveries included in their event.

use serde_json::json;

use crate::support::receiver::{Receiver, Reply};
use crate::support::records::app_that_sends_nothing;
use crate::support::work::time;
use crate::support::{App, ledger};

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_shows_all_its_attempts() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    let backoff = json!({"strategy": "fixed", "seconds": 0});
    let subscription = app.subscribe(&receiver.url("/hook"), json!({"backoff": backoff})).await;
    receiver.next(Reply::status(503).body("busy"));
    receiver.next(Reply::reset());
    receiver.next(Reply::ok().body("thanks"));
    let event = app.publish_typed("order.paid", json!(1)).await;
    let id = app.only_delivery(event).await;
    let delivery = app.until_delivery(id, "COMPLETED").await;
    assert_eq!((&delivery["attempts_made"], &delivery["max_attempts"]), (&json!(3), &json!(4)));
    assert_eq!((&delivery["event_id"], &delivery["subscription_id"]), (&json!(event), &subscription["id"]));
    assert_eq!(delivery["created_at"], app.event(event).await["created_at"]);
    let attempts = delivery["attempts"].as_array().unwrap();
    let shown: Vec<_> = attempts
        .iter()
        .map(|a| json!([a["attempt"], a["status_code"], a["error_kind"], a["response_excerpt"]]))
        .collect();
    assert_eq!(
        shown,
        [json!([1, 503, null, "busy"]), json!([2, null, "connection", null]), json!([3, 200, null, "thanks"])]
    );
    for (attempt, is_last) in attempts.iter().zip([false, false, true]) {
        assert_eq!(attempt["next_attempt_at"].is_null(), is_last, "{attempt}");
        assert_eq!(attempt["error_message"].is_null(), is_last, "{attempt}");
        assert_eq!(attempt["subscription_version"], subscription["version"]);
        assert!(attempt["duration_ms"].as_i64() >= Some(0));
        assert!(time(&attempt["started_at"]) >= time(&delivery["created_at"]), "{attempt}");
    }
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_delivery_shows_when_it_is_retried() {
    let (app, receiver) = (App::with_fixed_clock().await, Receiver::start().await);
    receiver.always(Reply::status(500));
    let backoff = json!({"strategy": "fixed", "seconds": 60});
    app.subscribe(&receiver.url("/hook"), json!({"backoff": backoff})).await;
    let event = app.publish_typed("order.paid", json!(1)).await;
    let id = app.only_delivery(event).await;
    crate::support::until("it was tried", async || app.delivery(id).await["attempts_made"] == 1).await;
    let delivery = app.delivery(id).await;
    assert_eq!(app.seconds_ahead(&delivery["next_attempt_at"]), 60);
    assert_eq!(delivery["attempts"][0]["next_attempt_at"], delivery["next_attempt_at"]);
    assert_eq!(delivery["last_error"], "the receiver answered 500");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_delivery_is_not_found() {
    let app = app_that_sends_nothing().await;
    app.get("/deliveries/4711").await.problem(404, "delivery_not_found");
    let event = app.publish_tagged("a").await;
    app.get(&format!("/deliveries/{event}")).await.problem(404, "delivery_not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_includes_its_deliveries_on_request() {
    let app = app_that_sends_nothing().await;
    for _ in 0..2 {
        app.subscribe("http://127.0.0.1:9/hook", json!({"event_types": ["order.paid"]})).await;
    }
    let id = app.publish_typed("order.paid", json!(1)).await;
    let event = app.get(&format!("/events/{id}?include_deliveries=true")).await.expect(200).json();
    assert_eq!(event["deliveries"], json!(app.deliveries_of(id).await));
    assert!(event["deliveries"][0].get("attempts").is_none());
    let event = app.get(&format!("/events/{id}")).await.expect(200).json();
    assert!(event.get("deliveries").is_none());
    let unsubscribed = app.publish_tagged("a").await;
    let event = app.get(&format!("/events/{unsubscribed}?include_deliveries=true")).await.expect(200).json();
    assert_eq!(event["deliveries"], json!([]));
}
