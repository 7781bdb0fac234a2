//! `POST /events/{id}/heartbeat`.

use serde_json::json;

use crate::support::App;
use crate::support::work::{Naming, W1, time};

#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_extends_the_lease() {
    let app = App::with_fixed_clock().await;
    let id = app.publish_tagged("a").await;
    let claim = app.claim_one("a", W1).await;
    app.advance(200);
    let answer = app.settle_with(&claim, "heartbeat", json!({"lease_seconds": 400})).await.expect(200).json();
    assert_eq!(app.seconds_ahead(&answer["lease_expires_at"]), 400);
    assert_eq!(answer["cancel_requested"], false);
    app.advance(399);
    assert_eq!(app.reap().await, 0);
    app.advance(1);
    assert_eq!(app.reap().await, 1);
    assert_eq!(app.status(id).await, "PENDING");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_without_a_length_extends_to_five_minutes_and_never_shortens() {
    let app = App::with_fixed_clock().await;
    app.publish_tagged("a").await;
    let event =
        app.get(&format!("/events/subscribe?tags=a&worker_id={W1}&lease_seconds=1000")).await.expect(200).json();
    let claim = crate::support::work::Claim::of(&event);
    let early = app.settle(&claim, "heartbeat", Naming::Worker).await.expect(200).json();
    assert_eq!(app.seconds_ahead(&early["lease_expires_at"]), 1000);
    app.advance(900);
    let late = app.settle(&claim, "heartbeat", Naming::Worker).await.expect(200).json();
    assert_eq!(app.seconds_ahead(&late["lease_expires_at"]), 300);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_may_be_extended_by_a_fraction_of_a_second() {
    let app = App::with_fixed_clock().await;
    app.publish_tagged("a").await;
    let claim = app.claim_one("a", W1).await;
    let answer = app.settle_with(&claim, "heartbeat", json!({"lease_seconds": 1.250_001})).await.expect(200).json();
    assert_eq!(app.microseconds_ahead(&answer["lease_expires_at"]), 1_250_001);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_keeps_the_latest_progress() {
    let app = App::with_fixed_clock().await;
    let id = app.publish_tagged("a").await;
    let claim = app.claim_one("a", W1).await;
    assert!(app.event(id).await["progress"].is_null());
    app.settle_with(&claim, "heartbeat", json!({"progress": {"step": 1}})).await.expect(200);
    app.settle_with(&claim, "heartbeat", json!({"progress": [2, "of", 3]})).await.expect(200);
    app.settle(&claim, "heartbeat", Naming::Lease).await.expect(200);
    assert_eq!(app.event(id).await["progress"], json!([2, "of", 3]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_is_not_logged_but_keeps_the_claim_from_being_stale() {
    let app = App::with_fixed_clock().await;
    let id = app.publish_tagged("a").await;
    let claim = app.claim_one("a", W1).await;
    let before = time(&app.event(id).await["updated_at"]);
    app.advance(20);
    app.settle(&claim, "heartbeat", Naming::Lease).await.expect(200);
    assert_eq!(app.actions(id).await, ["PICKED"]);
    assert_eq!((time(&app.event(id).await["updated_at"]) - before).num_seconds(), 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_response_to_a_heartbeat_shows_a_requested_cancel() {
    let app = App::start().await;
    let id = app.publish_tagged("a").await;
    let claim = app.claim_one("a", W1).await;
    app.operate(id, "cancel").await.expect(200);
    assert_eq!(app.settle(&claim, "heartbeat", Naming::Lease).await.expect(200).json()["cancel_requested"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_lease_that_is_not_yet_reset_can_be_extended() {
    let app = App::with_fixed_clock().await;
    app.publish_tagged("a").await;
    let claim = app.claim_one("a", W1).await;
    app.advance(3_000);
    app.settle(&claim, "heartbeat", Naming::Lease).await.expect(200);
    assert_eq!(app.reap().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fields_of_a_heartbeat_are_checked() {
    let app = App::start().await;
    app.publish_tagged("a").await;
    let claim = app.claim_one("a", W1).await;
    for lease in [json!(0), json!(0.5), json!(43_200.5), json!("60")] {
        app.settle_with(&claim, "heartbeat", json!({"lease_seconds": lease})).await.names(&["lease_seconds"]);
    }
    app.settle_with(&claim, "heartbeat", json!({"note": 1})).await.names(&["note"]);
    app.settle_with(&claim, "heartbeat", json!({"lease_id": 0})).await.names(&["lease_id"]);
}
