//! `POST /events/{id}/reset` and `POST /events/reset`.

use serde_json::{Value, json};

use crate::support::locks::HeldRow;
use crate::support::operations::all_that_match;
use crate::support::work::{Naming, W1, W2};
use crate::support::{App, ledger};

/// Resets all events that match a filter. Returns their number.
async fn reset_all(app: &App, filter: Value) -> i64 {
    app.operate_on_all("/events/reset", filter).await
}

async fn would_reset(app: &App, filter: Value) -> Value {
    app.dry_run("/events/reset", filter).await["matched"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_makes_the_event_pending_and_logs_the_reason() {
    let app = App::start().await;
    let id = app.publish_tagged("a").await;
    app.claim_one("a", W1).await;
    let event = app.post_empty(&format!("/events/{id}/reset?reason=worker_timeout")).await.expect(200).json();
    assert_eq!((&event["id"], &event["status"], &event["retry_count"]), (&id.into(), &"PENDING".into(), &0.into()));
    let line = app.event(id).await["logs"][1].clone();
    assert_eq!(
        (&line["action"], &line["reason"], &line["worker_id"]),
        (&"RESET".into(), &"worker_timeout".into(), &W1.into())
    );
    assert_eq!(app.claim_one("a", W2).await.event_id, id);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_held_event_can_be_reset() {
    let app = App::start().await;
    let id = app.publish_tagged("a").await;
    assert_eq!(app.operate(id, "reset").await.problem(409, "wrong_state")["current_status"], "PENDING");
    app.claim_one("a", W1).await;
    app.complete(id, W1).await.expect(200);
    assert_eq!(app.operate(id, "reset").await.problem(409, "wrong_state")["current_status"], "COMPLETED");
    app.operate(4_711, "reset").await.problem(404, "event_not_found");
    let push_only = app.publish(json!({"event_type": "order.paid"})).await;
    app.operate(push_only, "reset").await.problem(409, "wrong_state");
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_parameters_of_a_reset_are_checked() {
    let app = App::start().await;
    for (path, field) in [
        ("/events/1/reset?reason=", "reason"),
        ("/events/1/reset?why=x", "why"),
        ("/events/0/reset", "id"),
        ("/events/x/reset", "id"),
    ] {
        app.post_empty(path).await.names(&[field]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_reset_resets_stale_claims_and_no_others() {
    let app = App::with_fixed_clock().await;
    for _ in 0..5 {
        app.publish_tagged("a").await;
    }
    let orphans = [app.claim_one("a", W1).await, app.claim_one("a", W1).await];
    let alive = app.claim_one("a", W2).await;
    app.advance(20);
    app.settle(&alive, "heartbeat", Naming::Lease).await.expect(200);
    let fresh = app.claim_one("a", W2).await;
    app.advance(10);
    let order = json!({"filter": {"stale_for_seconds": 30}, "reason": "deploy"});
    let started = app.start_operation("/events/reset", &order).await;
    assert_eq!(app.until_complete(&started).await["done"], 2);
    for orphan in &orphans {
        assert_eq!(app.status(orphan.event_id).await, "PENDING");
        assert_eq!(app.event(orphan.event_id).await["logs"][1]["reason"], "deploy");
    }
    assert_eq!(app.status(alive.event_id).await, "PROCESSING");
    assert_eq!(app.status(fresh.event_id).await, "PROCESSING");
    assert_eq!(reset_all(&app, json!({"stale_for_seconds": 30})).await, 0);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_stale_for_seconds_only_expired_leases_are_reset() {
    let app = App::with_fixed_clock().await;
    let short = app.publish_tagged("short").await;
    let long = app.publish_tagged("long").await;
    app.get(&format!("/events/subscribe?tags=short&worker_id={W1}&lease_seconds=60")).await.expect(200);
    app.claim_one("long", W2).await;
    app.advance(59);
    assert_eq!(reset_all(&app, json!({})).await, 0);
    app.advance(1);
    assert_eq!(would_reset(&app, json!({})).await, 1);
    assert_eq!(reset_all(&app, json!({})).await, 1);
    assert_eq!((app.status(short).await, app.status(long).await), ("PENDING".into(), "PROCESSING".into()));
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_lease_is_reset_whatever_stale_for_seconds_is() {
    let app = App::with_fixed_clock().await;
    let id = app.publish_tagged("a").await;
    app.get(&format!("/events/subscribe?tags=a&worker_id={W1}&lease_seconds=60")).await.expect(200);
    app.advance(60);
    assert_eq!(reset_all(&app, json!({"stale_for_seconds": 3600})).await, 1);
    assert_eq!(app.status(id).await, "PENDING");
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_for_seconds_may_be_a_fraction_and_zero_means_all() {
    let app = App::with_fixed_clock().await;
    app.publish_tagged("a").await;
    app.claim_one("a", W1).await;
    assert_eq!(would_reset(&app, json!({"stale_for_seconds": 99.5})).await, 0);
    app.advance(99);
    assert_eq!(reset_all(&app, json!({"stale_for_seconds": 99.5})).await, 0);
    app.advance(1);
    assert_eq!(reset_all(&app, json!({"stale_for_seconds": 99.5})).await, 1);
    app.claim_one("a", W1).await;
    assert_eq!(reset_all(&app, json!({"stale_for_seconds": 0})).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_reset_is_narrowed_by_its_filter() {
    let app = App::with_fixed_clock().await;
    let mut ids = Vec::new();
    for (tags, worker) in [("a", W1), ("a", W2), ("b", W1)] {
        ids.push(app.publish_tagged(tags).await);
        app.claim_one(tags, worker).await;
    }
    let all = json!({"stale_for_seconds": 0});
    let with = |field: &str, value: Value| {
        let mut filter = all.clone();
        filter[field] = value;
        filter
    };
    assert_eq!(would_reset(&app, all.clone()).await, 3);
    assert_eq!(would_reset(&app, with("status", json!("PROCESSING"))).await, 3);
    assert_eq!(would_reset(&app, with("worker_id", json!(W1))).await, 2);
    assert_eq!(would_reset(&app, with("until", json!("2020-01-01T00:00:00Z"))).await, 0);
    assert_eq!(reset_all(&app, with("tags", json!(["b"]))).await, 1);
    assert_eq!(app.status(ids[2]).await, "PENDING");
    assert_eq!(reset_all(&app, with("worker_id", json!(W2))).await, 1);
    assert_eq!((app.status(ids[0]).await, app.status(ids[1]).await), ("PROCESSING".into(), "PENDING".into()));
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dry_run_of_a_reset_shows_the_first_events_and_who_holds_them() {
    let app = App::with_fixed_clock().await;
    let mut ids = Vec::new();
    for _ in 0..14 {
        ids.push(app.publish(json!({"title": "a job", "tags": "a", "payload": {"big": "data"}})).await);
    }
    app.claim_batch("a", W2, 14).await;
    app.advance(40);
    let answer = app.dry_run("/events/reset", json!({"stale_for_seconds": 40})).await;
    assert_eq!((&answer["matched"], &answer["matched_is_exact"]), (&json!(14), &json!(true)));
    let sample = answer["sample"].as_array().expect("a sample");
    assert_eq!(crate::support::work::ids(sample), ids[..10]);
    for event in sample {
        assert_eq!((&event["worker_id"], &event["status"]), (&json!(W2), &json!("PROCESSING")));
        assert_eq!(event.get("payload"), None);
    }
    assert_eq!(app.actions(ids[0]).await, ["PICKED"]);
    assert_eq!(app.get("/operations").await.expect(200).json(), json!({"operations": [], "next": null}));
}

#[tokio::test(flavor = "multi_thread")]
async fn more_stale_claims_than_one_transaction_takes_are_all_reset() {
    let app = App::with_fixed_clock().await;
    for _ in 0..2 {
        let events: Vec<Value> = (0..600).map(|_| json!({"title": "a job", "tags": "a"})).collect();
        app.post("/events/batch", &json!({"events": events})).await.expect(201);
        assert_eq!(app.claim_batch("a", W1, 1000).await.len(), 600);
    }
    app.advance(300);
    assert_eq!(reset_all(&app, json!({})).await, 1200);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_during_a_bulk_reset_saves_the_claim() {
    let app = App::with_fixed_clock().await;
    app.publish_tagged("a").await;
    let claim = app.claim_one("a", W1).await;
    app.advance(30);
    let mut row = HeldRow::lock(&app, claim.event_id).await;
    let sign_of_life = async {
        app.until_blocked_calls(1).await;
        row.execute(&format!("UPDATE waybill.deliveries SET updated_at = '{}'", app.now())).await;
        row.unlock().await;
    };
    let all = json!({"stale_for_seconds": 30});
    let started = app.start_operation("/events/reset", &all_that_match(&all)).await;
    tokio::join!(app.run_steps(), sign_of_life);
    let over = app.operation(&started).await;
    assert_eq!((&over["status"], &over["done"], &over["skipped"]), (&json!("COMPLETED"), &json!(0), &json!(1)));
    app.settle(&claim, "heartbeat", Naming::Lease).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_extended_during_a_bulk_reset_is_kept() {
    let app = App::with_fixed_clock().await;
    app.publish_tagged("a").await;
    let claim = app.claim_one("a", W1).await;
    app.advance(300);
    let mut row = HeldRow::lock(&app, claim.event_id).await;
    let extension = async {
        app.until_blocked_calls(1).await;
        let extended = app.now() + chrono::TimeDelta::seconds(300);
        row.execute(&format!("UPDATE waybill.deliveries SET lease_expires_at = '{extended}'")).await;
        row.unlock().await;
    };
    let started = app.start_operation("/events/reset", &all_that_match(&json!({}))).await;
    tokio::join!(app.run_steps(), extension);
    let over = app.operation(&started).await;
    assert_eq!((&over["status"], &over["done"], &over["skipped"]), (&json!("COMPLETED"), &json!(0), &json!(1)));
    app.settle(&claim, "heartbeat", Naming::Lease).await.expect(200);
}
