//! `POST /events/{id}/reset` and `POST /events/reset`.

use serde_json::{Value, json};

use crate::support::locks::HeldRow;
use crate::support::work::{Naming, W1, W2};
use crate::support::{App, ledger};

async fn reset_all(app: &App, query: &str) -> Value {
    app.post_empty(&format!("/events/reset{query}")).await.expect(200).json()
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
        ("/events/reset?stale_for=-1", "stale_for"),
        ("/events/reset?stale_for=NaN", "stale_for"),
        ("/events/reset?stale_for=x", "stale_for"),
        ("/events/reset?dry_run=yes", "dry_run"),
        ("/events/reset?status=PROCESSING", "status"),
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
    assert_eq!(reset_all(&app, "?stale_for=30&reason=deploy").await["reset"], 2);
    for orphan in &orphans {
        assert_eq!(app.status(orphan.event_id).await, "PENDING");
        assert_eq!(app.event(orphan.event_id).await["logs"][1]["reason"], "deploy");
    }
    assert_eq!(app.status(alive.event_id).await, "PROCESSING");
    assert_eq!(app.status(fresh.event_id).await, "PROCESSING");
    assert_eq!(reset_all(&app, "?stale_for=30").await["reset"], 0);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_stale_for_only_expired_leases_are_reset() {
    let app = App::with_fixed_clock().await;
    let short = app.publish_tagged("short").await;
    let long = app.publish_tagged("long").await;
    app.get(&format!("/events/subscribe?tags=short&worker_id={W1}&lease_seconds=60")).await.expect(200);
    app.claim_one("long", W2).await;
    app.advance(59);
    assert_eq!(reset_all(&app, "").await["reset"], 0);
    app.advance(1);
    assert_eq!(reset_all(&app, "?dry_run=true").await["reset"], 1);
    assert_eq!(reset_all(&app, "").await["reset"], 1);
    assert_eq!((app.status(short).await, app.status(long).await), ("PENDING".into(), "PROCESSING".into()));
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_lease_is_reset_whatever_stale_for_is() {
    let app = App::with_fixed_clock().await;
    let id = app.publish_tagged("a").await;
    app.get(&format!("/events/subscribe?tags=a&worker_id={W1}&lease_seconds=60")).await.expect(200);
    app.advance(60);
    assert_eq!(reset_all(&app, "?stale_for=3600").await["reset"], 1);
    assert_eq!(app.status(id).await, "PENDING");
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_for_counts_in_seconds() {
    let app = App::with_fixed_clock().await;
    app.publish_tagged("a").await;
    app.claim_one("a", W1).await;
    assert_eq!(reset_all(&app, "?stale_for=100&dry_run=true").await["reset"], 0);
    app.advance(99);
    assert_eq!(reset_all(&app, "?stale_for=100").await["reset"], 0);
    app.advance(1);
    assert_eq!(reset_all(&app, "?stale_for=100").await["reset"], 1);
    app.claim_one("a", W1).await;
    assert_eq!(reset_all(&app, "?stale_for=0").await["reset"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_counts_and_changes_nothing() {
    let app = App::with_fixed_clock().await;
    let id = app.publish_tagged("a").await;
    app.claim_one("a", W1).await;
    app.advance(30);
    let answer = reset_all(&app, "?stale_for=30&dry_run=true").await;
    assert_eq!((&answer["reset"], &answer["dry_run"], &answer["more"]), (&1.into(), &true.into(), &false.into()));
    assert_eq!(app.actions(id).await, ["PICKED"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_names_the_workers_whose_events_it_would_reset() {
    let app = App::with_fixed_clock().await;
    let mut ids = Vec::new();
    for _ in 0..14 {
        ids.push(app.publish_tagged("a").await);
    }
    app.claim_batch("a", W1, 1).await;
    app.claim_batch("a", W2, 13).await;
    app.advance(40);
    let answer = reset_all(&app, "?stale_for=40&dry_run=true").await;
    let whose = json!([
        {"worker_id": W2, "events": 13, "event_ids": &ids[1..11]},
        {"worker_id": W1, "events": 1, "event_ids": [ids[0]]},
    ]);
    assert_eq!((&answer["reset"], &answer["workers"]), (&14.into(), &whose));
    let wet = reset_all(&app, "?stale_for=40").await;
    assert_eq!(wet, json!({"reset": 14, "more": false, "dry_run": false}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_names_at_most_a_hundred_workers() {
    let app = App::with_fixed_clock().await;
    let events: Vec<Value> = (0..130).map(|_| json!({"title": "a job", "tags": "a"})).collect();
    app.post("/events/batch", &json!({"events": events})).await.expect(201);
    app.claim_batch("a", "host:100", 2).await;
    for pid in 1..=128 {
        app.claim_one("a", &format!("host:{pid}")).await;
    }
    let answer = reset_all(&app, "?stale_for=0&dry_run=true").await;
    assert_eq!(answer["reset"], 130);
    let workers = answer["workers"].as_array().expect("workers");
    assert_eq!(workers.len(), 100);
    assert_eq!((&workers[0]["worker_id"], &workers[0]["events"]), (&"host:100".into(), &3.into()));
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
    let answer = reset_all(&app, "").await;
    assert_eq!((&answer["reset"], &answer["more"]), (&1200.into(), &false.into()));
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
    let (answer, ()) = tokio::join!(reset_all(&app, "?stale_for=30"), sign_of_life);
    assert_eq!(answer["reset"], 0);
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
    let (answer, ()) = tokio::join!(reset_all(&app, ""), extension);
    assert_eq!(answer["reset"], 0);
    app.settle(&claim, "heartbeat", Naming::Lease).await.expect(200);
}
