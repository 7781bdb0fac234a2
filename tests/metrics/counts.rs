//! What happens to events is counted.

use serde_json::{Value, json};
use waybill::background::{expirer, lease_reaper};

use super::{Scrape, start};
use crate::support::process::{Process, waybill};
use crate::support::{App, database};

/// Publishes an event, and claims it for `w:1`. Returns it.
async fn claimed(app: &App, event: Value) -> Value {
    app.publish(event).await;
    app.claim("a", "w:1").await.expect("an event")
}

fn id_of(event: &Value) -> i64 {
    event["id"].as_i64().expect("an id")
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_failures_and_repeated_settlements_are_counted() {
    let app = start(&[]).await;
    let retried = claimed(&app, json!({"title": "t", "tags": "a", "max_retries": 2})).await;
    app.fail(id_of(&retried), "w:1").await.expect(200);
    let failed = claimed(&app, json!({"title": "t", "tags": "a", "max_retries": 1})).await;
    app.fail(id_of(&failed), "w:1").await.problem(400, "max_retries_exceeded");
    let completed = claimed(&app, json!({"title": "t", "tags": "a"})).await;
    for _ in 0..2 {
        app.complete(id_of(&completed), "w:1").await.expect(200);
    }
    let scrape = Scrape::of(&app).await;
    assert_eq!(scrape.value("waybill_events_claimed_total"), 3.0);
    assert_eq!(scrape.value("waybill_events_retried_total"), 1.0);
    assert_eq!(scrape.value("waybill_events_failed_total"), 1.0);
    assert_eq!(scrape.value("waybill_events_poisoned_total"), 0.0);
    assert_eq!(scrape.value("waybill_settlements_repeated_total"), 1.0);
    assert_eq!(scrape.value("waybill_settlements_total{action=\"FAILED\"}"), 2.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_leases_poison_and_resets_are_counted() {
    let app = start(&["--poison-after=2"]).await;
    let first = claimed(&app, json!({"title": "t", "tags": "a"})).await;
    app.advance(3_600);
    lease_reaper::run_once(app.engine()).await.expect("a round");
    let scrape = Scrape::of(&app).await;
    assert_eq!(scrape.value("waybill_leases_expired_total"), 1.0);
    assert_eq!(scrape.value("waybill_events_reset_total"), 1.0);
    app.claim("a", "w:1").await.expect("the same event");
    app.advance(3_600);
    lease_reaper::run_once(app.engine()).await.expect("a round");
    assert_eq!(app.event(id_of(&first)).await["status"], "FAILED");
    let by_hand = claimed(&app, json!({"title": "t", "tags": "a"})).await;
    app.post_empty(&format!("/events/{}/reset", id_of(&by_hand))).await.expect(200);
    let scrape = Scrape::of(&app).await;
    assert_eq!(scrape.value("waybill_leases_expired_total"), 2.0);
    assert_eq!(scrape.value("waybill_events_poisoned_total"), 1.0);
    assert_eq!(scrape.value("waybill_events_failed_total"), 1.0);
    assert_eq!(scrape.value("waybill_events_reset_total"), 3.0, "two by the server and one by an operator");
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_events_and_repeated_publishes_are_counted() {
    let app = start(&[]).await;
    let expires_at = app.now() + chrono::TimeDelta::seconds(60);
    app.publish(json!({"title": "t", "tags": "a", "expires_at": expires_at.to_rfc3339()})).await;
    app.advance(61);
    expirer::run_once(app.engine()).await.expect("a round");
    let event = json!({"title": "t", "tags": "a", "idempotency_key": "k"});
    app.post("/events", &event).await.expect(201);
    app.post("/events", &event).await;
    let scrape = Scrape::of(&app).await;
    assert_eq!(scrape.value("waybill_events_expired_total"), 1.0);
    assert_eq!(scrape.value("waybill_events_repeated_total"), 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_are_counted_by_lane_with_their_size_and_time() {
    let app = start(&[]).await;
    app.publish_tagged("a").await;
    app.publish_tagged("a").await;
    let event = app.claim("a", "w:1").await.expect("an event");
    app.complete(id_of(&event), "w:1").await.expect(200);
    let scrape = Scrape::of(&app).await;
    for (lane, batches) in [("publish", 2.0), ("claim", 1.0), ("settle", 1.0), ("settle_pushes", 0.0)] {
        for family in ["batch_duration_seconds", "batch_calls"] {
            assert_eq!(scrape.value(&format!("waybill_{family}_count{{lane=\"{lane}\"}}")), batches, "{lane}");
        }
        assert_eq!(scrape.value(&format!("waybill_batch_calls_sum{{lane=\"{lane}\"}}")), batches);
        assert_eq!(scrape.value(&format!("waybill_calls_queued{{lane=\"{lane}\"}}")), 0.0);
    }
    assert!(scrape.value("waybill_batch_duration_seconds_sum{lane=\"publish\"}") > 0.0);
}

/// An alert that looks for an increase does not see the first value of a series.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_server_has_the_series_of_a_subscription_at_zero() {
    let url = database::migrated().await;
    let serve = || {
        let mut command =
            waybill(&["serve", "--bind", "127.0.0.1:0", "--dispatch=false", "--webhook-allow=127.0.0.0/8"]);
        command.env("DATABASE_URL", &url);
        Process::start(command)
    };
    let first = serve();
    let subscription = first.app.subscribe("http://127.0.0.1:9/", json!({"event_types": ["t"]})).await;
    let series = ["pushes_dead_lettered", "filters_over_budget"]
        .map(|family| format!("waybill_{family}_total{{subscription=\"{}\"}}", subscription["id"]));
    let of_creator = Scrape::of(&first.app).await;
    first.stop().await;
    let second = serve();
    let of_new_server = Scrape::of(&second.app).await;
    for series in &series {
        assert_eq!((of_creator.value(series), of_new_server.value(series)), (0.0, 0.0), "{series}");
    }
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_subscription_leaves_the_metrics() {
    let app = start(&["--dispatch=false"]).await;
    let subscribe = async || app.subscribe("http://127.0.0.1:9/", json!({"event_types": ["t"]})).await["id"].clone();
    let (gone, kept) = (subscribe().await, subscribe().await);
    let series = |id: &Value| format!("waybill_pushes_dead_lettered_total{{subscription=\"{id}\"}}");
    let before = Scrape::of(&app).await;
    assert_eq!((before.value(&series(&gone)), before.value(&series(&kept))), (0.0, 0.0));
    app.delete(&format!("/subscriptions/{gone}")).await.expect(204);
    let after = Scrape::of(&app).await;
    assert!(!after.has(&series(&gone)), "{after:?}");
    assert_eq!(after.value(&series(&kept)), 0.0);
}
