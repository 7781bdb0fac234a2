//! Finished events are removed, with all that belongs to them. Others stay.

use serde_json::json;

use super::{publish_completed, publish_failed};
use crate::support::receiver::{Receiver, Reply};
use crate::support::records::one_attempt;
use crate::support::retention::DAY;
use crate::support::{App, database, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_finished_event_is_removed_with_all_its_rows_after_its_retention() {
    let (app, receiver) = (App::with_fixed_clock().await, Receiver::start().await);
    app.subscribe(&receiver.url("/hook"), json!({"event_types": ["order.*"]})).await;
    let pulled = publish_completed(&app, "a,b,c").await;
    let pushed = app.publish_typed("order.paid", json!(1)).await;
    app.until_delivery(app.only_delivery(pushed).await, "COMPLETED").await;
    app.advance(30 * DAY);
    assert_eq!(app.remove_old().await["events"], 0, "not yet");
    app.advance(1);
    let removed = app.remove_old().await;
    assert_eq!((removed["events"], removed["deliveries"], removed["event_tags"]), (2, 3, 2));
    for id in [pulled, pushed] {
        assert!(!app.has_event(id).await);
    }
    for table in ["events", "deliveries", "event_tags"] {
        assert_eq!(app.count(&format!("SELECT count(*) FROM waybill.{table}")).await, 0, "{table}");
    }
    let metrics = app.get("/metrics").await.expect(200).text;
    for line in [
        "waybill_removed_rows_total{table=\"events\"} 2\n",
        "waybill_removed_rows_total{table=\"deliveries\"} 3\n",
        "waybill_removed_rows_total{table=\"event_tags\"} 2\n",
        "waybill_retention_lag_seconds{table=\"events\"} 0.0\n",
    ] {
        assert!(metrics.contains(line), "{line}{metrics}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_trail_of_a_removed_event_is_still_found() {
    let (app, receiver) = (App::with_fixed_clock().await, Receiver::start().await);
    app.subscribe(&receiver.url("/hook"), json!({"event_types": ["order.*"]})).await;
    let pulled = publish_completed(&app, "a").await;
    let pushed = app.publish_typed("order.paid", json!(1)).await;
    app.until_delivery(app.only_delivery(pushed).await, "COMPLETED").await;
    let trail = async |id: i64| app.get(&format!("/logs?event_id={id}")).await.expect(200).json()["logs"].clone();
    let before = [trail(pulled).await, trail(pushed).await];
    app.advance(31 * DAY);
    assert_eq!(app.remove_old().await["events"], 2);
    let after = [trail(pulled).await, trail(pushed).await];
    assert_eq!(after, before);
    for trail in after {
        let actions: Vec<&str> =
            trail.as_array().unwrap().iter().map(|line| line["action"].as_str().unwrap()).collect();
        assert_eq!(actions, ["PICKED", "COMPLETED"]);
    }
    app.get(&format!("/events/{pulled}?include_logs=true")).await.problem(404, "event_not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_cancelled_expired_and_unhandled_events_are_removed_too() {
    let app = App::with_fixed_clock().await;
    let failed = publish_failed(&app).await;
    let cancelled = app.publish_tagged("c").await;
    app.post_empty(&format!("/events/{cancelled}/cancel")).await.expect(200);
    let unhandled = app.publish_typed("nobody.cares", json!(1)).await;
    let expires_at = app.now() + chrono::TimeDelta::seconds(5);
    let expired = app.publish(json!({"title": "t", "tags": "e", "expires_at": expires_at.to_rfc3339()})).await;
    app.advance(6);
    waybill::background::expirer::run_once(app.engine()).await.expect("a sweep");
    assert_eq!(app.event(expired).await["status"], "FAILED");
    app.advance(31 * DAY);
    assert_eq!(app.remove_old().await["events"], 4);
    for id in [failed, cancelled, unhandled, expired] {
        assert!(!app.has_event(id).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_wait_or_are_worked_on_stay() {
    let app = App::with_fixed_clock().await;
    let pending = app.publish_tagged("p").await;
    let delayed = app.publish(json!({"title": "t", "tags": "d", "delay_seconds": 60})).await;
    let first = app.publish(json!({"title": "t", "tags": "k", "ordering_key": "k"})).await;
    let behind = app.publish(json!({"title": "t", "tags": "k", "ordering_key": "k"})).await;
    app.claim("k", "w:1").await.expect("the first of the key");
    let retrying = app.publish_tagged("r").await;
    app.claim("r", "w:1").await.expect("an event");
    app.fail(retrying, "w:1").await.expect(200);
    app.advance(365 * DAY);
    assert_eq!(app.remove_old().await["events"], 0);
    for (id, status) in
        [(pending, "PENDING"), (delayed, "PENDING"), (first, "PROCESSING"), (behind, "PENDING"), (retrying, "PENDING")]
    {
        assert_eq!(app.event(id).await["status"], status);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_retention_of_an_event_begins_when_it_finishes() {
    let app = App::with_fixed_clock().await;
    let late = app.publish_tagged("late").await;
    app.advance(100 * DAY);
    app.claim("late", "w:1").await.expect("an event");
    app.complete(late, "w:1").await.expect(200);
    app.advance(30 * DAY);
    assert_eq!(app.remove_old().await["events"], 0);
    app.advance(1);
    assert_eq!(app.remove_old().await["events"], 1);
}

/// A clock that was ahead for a moment, and was set back.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_from_the_future_stays_and_those_behind_it_are_removed() {
    let app = App::with_fixed_clock().await;
    let before = publish_completed(&app, "a").await;
    let ahead = publish_completed(&app, "a").await;
    let after = publish_completed(&app, "a").await;
    let future = format!(
        "UPDATE waybill.events SET created_at = created_at + interval '1 year' WHERE id = {ahead};
         UPDATE waybill.deliveries SET updated_at = updated_at + interval '1 year' WHERE id = {ahead}"
    );
    database::execute(&app.url, &future).await;
    app.advance(31 * DAY);
    assert_eq!(app.remove_old().await["events"], 2);
    assert!(!app.has_event(before).await && !app.has_event(after).await);
    assert!(app.has_event(ahead).await);
    app.advance(366 * DAY);
    assert_eq!(app.remove_old().await["events"], 1, "its time has come");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_with_an_open_push_stays() {
    let (app, receiver) = (App::with_fixed_clock().await, Receiver::start().await);
    let subscription = app.subscribe(&receiver.url("/hook"), json!({"event_types": ["order.*"]})).await;
    let path = format!("/subscriptions/{}", subscription["id"]);
    app.patch(&path, &json!({"is_active": false})).await.expect(200);
    app.patch(&path, &json!({"is_active": true})).await.expect(200);
    receiver.always(Reply::status(503));
    let both = app.publish(json!({"title": "t", "tags": "a", "event_type": "order.paid"})).await;
    app.claim("a", "w:1").await.expect("an event");
    app.complete(both, "w:1").await.expect(200);
    let only_pushed = app.publish_typed("order.paid", json!(1)).await;
    receiver.received(2).await;
    until("both wait for a retry", async || {
        app.count("SELECT count(*) FROM waybill.deliveries WHERE due_at IS NOT NULL").await == 2
    })
    .await;
    app.advance(100 * DAY);
    assert_eq!(app.remove_old().await["events"], 0);
    assert_eq!(app.event(both).await["status"], "COMPLETED");
    assert_eq!(app.event(only_pushed).await["status"], "PENDING");
    assert_eq!(app.orphans().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_whose_failed_push_blocks_its_key_stays_until_the_key_is_free() {
    let (app, receiver) = (App::with_fixed_clock().await, Receiver::start().await);
    let in_order = json!({"max_attempts": 1, "ordering": "by_key", "on_exhausted": "block"});
    app.subscribe(&receiver.url("/hook"), in_order).await;
    receiver.next(Reply::status(500));
    let blocking = app.publish(json!({"event_type": "order.paid", "ordering_key": "k"})).await;
    let push = app.only_delivery(blocking).await;
    app.until_delivery(push, "FAILED").await;
    app.advance(100 * DAY);
    assert_eq!(app.remove_old().await["events"], 0);
    app.operate_on_delivery(push, "cancel").await.expect(200);
    app.advance(31 * DAY);
    assert_eq!(app.remove_old().await["events"], 1);
    assert!(!app.has_event(blocking).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_stays_while_one_of_its_pushes_finished_recently() {
    let (app, receiver) = (App::with_fixed_clock().await, Receiver::start().await);
    app.subscribe(&receiver.url("/hook"), one_attempt()).await;
    receiver.next(Reply::status(500));
    let id = app.publish(json!({"title": "t", "tags": "a", "event_type": "order.paid"})).await;
    app.claim("a", "w:1").await.expect("an event");
    app.complete(id, "w:1").await.expect(200);
    let push = app.only_delivery(id).await;
    app.until_delivery(push, "FAILED").await;
    app.advance(29 * DAY);
    app.operate_on_delivery(push, "retry").await.expect(200);
    app.until_delivery(push, "COMPLETED").await;
    app.advance(2 * DAY);
    assert_eq!(app.remove_old().await["events"], 0, "the push ended two days ago");
    app.advance(29 * DAY);
    assert_eq!(app.remove_old().await["deliveries"], 2);
}
