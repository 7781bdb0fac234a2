//! What each kind of operation does. Retries and resets of events and replays of dead letters have tests of
//! their own, beside those of the single actions.

use serde_json::{Value, json};

use super::{assert_counts, lines};
use crate::support::receiver::{Receiver, Reply};
use crate::support::records::{app_that_sends_nothing, one_attempt};
use crate::support::work::{Naming, W1};
use crate::support::{App, database, ledger, until};

const NOWHERE: &str = "http://127.0.0.1:9/hook";

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_cancellation_ends_waiting_events_and_requests_the_end_of_held_ones() {
    let app = App::with_fixed_clock().await;
    let held = app.publish_tagged("a").await;
    let claim = app.claim_one("a", W1).await;
    let waiting = app.publish_tagged("a").await;
    let delayed = app.publish(json!({"title": "a job", "tags": "b", "delay_seconds": 60})).await;
    let done = app.publish_tagged("c").await;
    app.claim_one("c", W1).await;
    app.complete(done, W1).await.expect(200);
    let started = app.start_operation("/events/cancel", &json!({"filter": {}, "reason": "obsolete"})).await;
    assert_eq!((&started["kind"], &started["status"]), (&json!("cancel_events"), &json!("RUNNING")));
    assert_eq!((&started["matched"], &started["started_at"]), (&json!(3), &json!(null)));
    let over = app.until_complete(&started).await;
    assert_counts(&over, 3, 0, 0);
    assert_eq!((&over["reason"], &over["finished_at"]), (&json!("obsolete"), &over["started_at"]));
    for id in [waiting, delayed] {
        let event = app.event(id).await;
        assert_eq!((&event["status"], &event["logs"][0]["reason"]), (&json!("CANCELLED"), &json!("obsolete")));
    }
    assert_eq!(app.event(held).await["cancel_requested"], true);
    app.settle(&claim, "release", Naming::Lease).await.expect(200);
    assert_eq!((app.status(held).await, app.status(done).await), ("CANCELLED".into(), "COMPLETED".into()));
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_cancellation_takes_only_events_that_match_and_that_existed_when_it_began() {
    let app = App::with_fixed_clock().await;
    let mut ids = Vec::new();
    for tags in ["a", "b", "a"] {
        ids.push(app.publish_tagged(tags).await);
    }
    app.claim_one("b", W1).await;
    assert_eq!(app.dry_run("/events/cancel", json!({"status": "PROCESSING"})).await["matched"], 1);
    let started = app.start_operation("/events/cancel", &json!({"filter": {"tags": ["a"]}, "per_second": 1})).await;
    let later = app.publish_tagged("a").await;
    assert_counts(&app.until_complete(&started).await, 2, 0, 0);
    let states =
        [app.status(ids[0]).await, app.status(ids[1]).await, app.status(ids[2]).await, app.status(later).await];
    assert_eq!(states, ["CANCELLED", "PROCESSING", "CANCELLED", "PENDING"]);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bulk_operations_on_events_take_only_those_with_the_ordering_key_or_type_of_the_filter() {
    let app = App::with_fixed_clock().await;
    let mut ids = Vec::new();
    for (key, event_type) in [("k", "order.paid"), ("k", "order.created"), ("other", "order.paid")] {
        let event = json!({"title": "a job", "tags": "a", "ordering_key": key, "event_type": event_type});
        ids.push(app.publish(event).await);
    }
    for filter in [json!({"ordering_key": "k"}), json!({"event_type": "order.paid"})] {
        assert_eq!(app.dry_run("/events/cancel", filter).await["matched"], 2);
    }
    assert_eq!(app.operate_on_all("/events/cancel", json!({"ordering_key": "k", "event_type": "order.paid"})).await, 1);
    assert_eq!(app.operate_on_all("/events/cancel", json!({"ordering_key": "k"})).await, 1);
    assert_eq!(app.status(ids[2]).await, "PENDING");
    // Failed and cancelled events have an index by their state, which must not hide the key.
    assert_eq!(app.operate_on_all("/events/retry", json!({"ordering_key": "other"})).await, 0);
    assert_eq!(app.operate_on_all("/events/retry", json!({"ordering_key": "k", "status": "CANCELLED"})).await, 2);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_was_finished_before_its_turn_is_skipped() {
    let app = App::with_fixed_clock().await;
    let ids = super::waiting(&app, 2).await;
    let started = app.start_operation("/events/cancel", &json!({"filter": {}, "per_second": 1})).await;
    assert_eq!(app.run_steps().await, 1);
    app.operate(ids[1], "cancel").await.expect(200);
    assert_counts(&app.until_complete(&started).await, 1, 0, 0);
    assert_eq!(lines(&app, "CANCELLED").await, 2);
}

/// Publishes an event for each of two subscriptions and waits until both pushes have failed. Returns the
/// subscription that is meant and its delivery.
async fn with_two_failed(app: &App, receiver: &Receiver) -> (Value, i64) {
    receiver.always(Reply::status(500));
    app.subscribe(&receiver.url("/other"), one_attempt()).await;
    let meant = app.subscribe(&receiver.url("/meant"), one_attempt()).await;
    let event = app.publish_typed("order.paid", json!(1)).await;
    until("both have failed", async || app.dead_letters("").await.len() == 2).await;
    receiver.always(Reply::ok());
    let deliveries = app.deliveries_of(event).await;
    let of_meant = deliveries.iter().find(|delivery| delivery["subscription_id"] == meant["id"]);
    (meant, of_meant.expect("a delivery")["id"].as_i64().expect("an id"))
}

/// Asserts that a dry run leaves no operation and no log entry of one, and all deliveries in this state.
async fn assert_unchanged(app: &App, path: &str, filter: &Value, status: &str) {
    let entries = app.count("SELECT count(*) FROM waybill.event_log").await;
    app.dry_run(path, filter.clone()).await;
    assert_eq!(app.count("SELECT count(*) FROM waybill.operations").await, 0);
    assert_eq!(app.count("SELECT count(*) FROM waybill.event_log").await, entries);
    let others =
        format!("SELECT count(*) FROM waybill.deliveries WHERE status <> '{status}' AND subscription_id IS NOT NULL");
    assert_eq!(app.count(&others).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_retry_of_deliveries_sends_those_that_match_again() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    let (meant, delivery) = with_two_failed(&app, &receiver).await;
    let filter = json!({"subscription_id": meant["id"], "since": "2020-01-01T00:00:00Z"});
    let dry = app.dry_run("/deliveries/retry", filter.clone()).await;
    assert_eq!((&dry["matched"], &dry["sample"][0]["id"]), (&json!(1), &json!(delivery)));
    assert_eq!(dry["sample"][0]["status"], "FAILED");
    assert_unchanged(&app, "/deliveries/retry", &filter, "FAILED").await;
    let started = app.start_operation("/deliveries/retry", &json!({"filter": filter, "reason": "fixed"})).await;
    assert_eq!((&started["kind"], &started["filter"]), (&json!("retry_deliveries"), &filter));
    assert_counts(&app.until_complete(&started).await, 1, 0, 0);
    app.until_delivery(delivery, "COMPLETED").await;
    assert_eq!((receiver.count(), lines(&app, "RETRIED").await), (3, 1));
    assert_eq!(app.dry_run("/deliveries/retry", json!({})).await["matched"], 1, "the other one");
    assert_eq!(app.dry_run("/deliveries/retry", json!({"until": "2020-01-01T00:00:00Z"})).await["matched"], 0);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_cancellation_of_deliveries_ends_those_that_wait() {
    let app = app_that_sends_nothing().await;
    app.subscribe_many(3, NOWHERE, json!({})).await;
    let events = [app.publish_typed("order.paid", json!(1)).await, app.publish_typed("order.paid", json!(2)).await];
    let filter = json!({"event_id": events[0]});
    let dry = app.dry_run("/deliveries/cancel", filter.clone()).await;
    let sample: Vec<&Value> = dry["sample"].as_array().expect("a list").iter().map(|each| &each["event_id"]).collect();
    assert_eq!((&dry["matched"], &dry["matched_is_exact"]), (&json!(3), &json!(true)));
    assert_eq!(sample, [&json!(events[0]); 3]);
    assert_unchanged(&app, "/deliveries/cancel", &filter, "PENDING").await;
    assert_eq!(app.operate_on_all("/deliveries/cancel", filter).await, 3);
    assert_eq!((app.status(events[0]).await, app.status(events[1]).await), ("COMPLETED".into(), "PENDING".into()));
    assert_eq!(app.operate_on_all("/deliveries/cancel", json!({})).await, 3);
    assert_eq!(lines(&app, "CANCELLED").await, 6);
    assert_eq!(app.operate_on_all("/deliveries/retry", json!({"event_id": events[1]})).await, 3);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_deliveries_are_cancelled_only_if_asked_for_and_if_they_block_their_key() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    receiver.always(Reply::status(500));
    let ordered = json!({"max_attempts": 1, "ordering": "by_key", "on_exhausted": "block"});
    app.subscribe(&receiver.url("/ordered"), ordered).await;
    app.subscribe(&receiver.url("/plain"), one_attempt()).await;
    let event = app.publish(json!({"event_type": "order.paid", "ordering_key": "k"})).await;
    until("both have failed", async || app.dead_letters("").await.len() == 2).await;
    assert_eq!(app.dry_run("/deliveries/cancel", json!({})).await["matched"], 0);
    assert_eq!(app.operate_on_all("/deliveries/cancel", json!({"status": "FAILED"})).await, 1);
    let states: Vec<Value> =
        app.deliveries_of(event).await.into_iter().map(|delivery| delivery["status"].clone()).collect();
    assert!(states.contains(&json!("CANCELLED")) && states.contains(&json!("FAILED")), "{states:?}");
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_that_is_started_begins_at_once() {
    let app = App::start().await;
    let id = app.publish_tagged("a").await;
    let started = app.start_operation("/events/cancel", &json!({"filter": {}})).await;
    assert_counts(&app.until_complete(&started).await, 1, 0, 0);
    assert_eq!(app.status(id).await, "CANCELLED");
}

#[tokio::test(flavor = "multi_thread")]
async fn operations_with_ids_change_these_rows_only() {
    let app = App::with_fixed_clock().await;
    let mut ids = Vec::new();
    for tag in ["a", "a", "b", "a"] {
        ids.push(app.publish_tagged(tag).await);
    }
    let chosen = json!({"ids": [ids[2], ids[0], ids[0], ids[2], 4711]});
    assert_eq!(app.dry_run("/events/cancel", chosen.clone()).await["matched"], 2);
    let started = app.start_operation("/events/cancel", &json!({"filter": chosen})).await;
    assert_eq!(started["filter"], json!({"ids": [ids[0], ids[2], 4711]}));
    assert_counts(&app.until_complete(&started).await, 2, 0, 0);
    let retried = app.operate_on_all("/events/retry", json!({"ids": ids, "tags": ["b"]})).await;
    app.claim_one("a", W1).await;
    app.claim_one("a", W1).await;
    let reset = app.operate_on_all("/events/reset", json!({"ids": [ids[1]], "stale_for_seconds": 0})).await;
    assert_eq!((retried, reset), (1, 1));
    let mut states = Vec::new();
    for id in ids {
        states.push(app.status(id).await);
    }
    assert_eq!(states, ["CANCELLED", "PENDING", "PENDING", "PROCESSING"]);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operations_on_deliveries_and_dead_letters_take_ids() {
    let app = app_that_sends_nothing().await;
    app.subscribe(NOWHERE, json!({})).await;
    let mut deliveries = Vec::new();
    for _ in 0..4 {
        let event = app.publish_typed("order", json!(1)).await;
        deliveries.push(app.only_delivery(event).await);
    }
    assert_eq!(app.operate_on_all("/deliveries/cancel", json!({"ids": &deliveries[..2]})).await, 2);
    assert_eq!(app.operate_on_all("/deliveries/retry", json!({"ids": &deliveries[1..]})).await, 1);
    for id in &deliveries[2..] {
        app.dead_letter(*id, "wrong").await.expect(200);
    }
    let letters = app.dead_letters("replayed=false").await;
    assert_eq!(app.operate_on_all("/dead-letters/replay", json!({"ids": [letters[0]["id"]]})).await, 1);
    let replayed = app.dead_letters("replayed=true").await;
    assert_eq!((replayed.len(), &replayed[0]["id"]), (1, &letters[0]["id"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_deliveries_are_listed_and_cancelled() {
    let app = app_that_sends_nothing().await;
    let subscription = app.subscribe(NOWHERE, json!({})).await;
    let of_subscription = format!("failing=true&subscription_id={}", subscription["id"]);
    let mut deliveries = Vec::new();
    for _ in 0..4 {
        let event = app.publish_typed("order", json!(1)).await;
        deliveries.push(app.only_delivery(event).await);
    }
    let failed_once = format!("UPDATE waybill.deliveries SET retry_count = 1 WHERE id = {}", deliveries[0]);
    database::execute(&app.url, &failed_once).await;
    app.dead_letter(deliveries[1], "wrong").await.expect(200);
    assert_eq!(app.operate_on_all("/deliveries/cancel", json!({"ids": [deliveries[2]]})).await, 1);
    for (query, wanted) in [
        ("failing=true", &[0, 1][..]),
        ("failing=false", &[2, 3]),
        ("failing=true&status=FAILED", &[1]),
        (of_subscription.as_str(), &[0, 1]),
        ("failing=true&status=CANCELLED", &[]),
    ] {
        let page = app.get(&format!("/deliveries?{query}")).await.expect(200).json();
        let ids: Vec<i64> =
            page["deliveries"].as_array().expect("a list").iter().filter_map(|row| row["id"].as_i64()).collect();
        assert_eq!(ids, wanted.iter().map(|at| deliveries[*at]).collect::<Vec<_>>(), "{query}");
    }
    app.get("/deliveries?failing=yes").await.names(&["failing"]);
    assert_eq!(app.dry_run("/deliveries/cancel", json!({"failing": true})).await["matched"], 1);
    assert_eq!(app.dry_run("/deliveries/cancel", json!({"failing": false})).await["matched"], 1);
}

/// Filter by filter, samples would list everything.
#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_shows_no_rows_to_those_who_may_not_read() {
    let app = app_that_sends_nothing().await.with_admin_key().await;
    app.subscribe(NOWHERE, json!({})).await;
    app.publish(json!({"title": "s3cret", "tags": "a", "event_type": "order.paid"})).await;
    let operator = app.holder_of("operate").await;
    let reading = app.holding(&app.make_key(json!({"scopes": ["operate", "read"]})).await);
    for path in ["/events/cancel", "/deliveries/cancel"] {
        let counted = json!({"matched": 1, "matched_is_exact": true, "hidden": ["sample"]});
        assert_eq!(operator.dry_run(path, json!({})).await, counted, "{path}");
        assert_eq!(reading.dry_run(path, json!({})).await["sample"].as_array().map(Vec::len), Some(1), "{path}");
    }
    assert_eq!(operator.dry_run("/dead-letters/replay", json!({})).await.get("sample"), None);
}
