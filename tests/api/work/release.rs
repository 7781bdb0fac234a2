//! `POST /events/{id}/release`.

use serde_json::json;

use crate::support::work::{Naming, W1, W2};
use crate::support::{App, ledger};

#[tokio::test(flavor = "multi_thread")]
async fn a_released_event_is_pending_and_no_attempt_is_counted() {
    let app = App::with_fixed_clock().await;
    for naming in [Naming::Lease, Naming::Worker] {
        let id = app.publish_tagged("a").await;
        for _ in 0..5 {
            let claim = app.claim_one("a", W1).await;
            let entry = app.settle(&claim, "release", naming).await.expect(200).json();
            assert_eq!(entry["action"], "RELEASED");
            let event = app.event(id).await;
            assert_eq!((&event["status"], &event["retry_count"]), (&"PENDING".into(), &0.into()));
        }
        let claim = app.claim_one("a", W2).await;
        assert_eq!(claim.event_id, id);
        app.settle(&claim, "complete", naming).await.expect(200);
    }
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_with_a_delay_can_be_claimed_after_the_delay() {
    let app = App::with_fixed_clock().await;
    let id = app.publish_tagged("a").await;
    let claim = app.claim_one("a", W1).await;
    app.settle_with(&claim, "release", json!({"delay_seconds": 60})).await.expect(200);
    assert_eq!(app.advance_and_promote(59).await, 0);
    assert!(app.claim("a", W2).await.is_none());
    assert_eq!(app.advance_and_promote(1).await, 1);
    assert_eq!(app.claim_one("a", W2).await.event_id, id);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_release_changes_nothing() {
    let app = App::with_fixed_clock().await;
    let id = app.publish_tagged("a").await;
    let first = app.claim_one("a", W1).await;
    app.settle(&first, "release", Naming::Lease).await.expect(200);
    app.settle(&first, "release", Naming::Lease).await;
    app.claim_one("a", W2).await;
    app.settle(&first, "release", Naming::Lease).await;
    assert_eq!(app.actions(id).await, ["PICKED", "RELEASED", "PICKED"]);
    assert_eq!(app.status(id).await, "PROCESSING");
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_delay_of_a_release_is_bounded() {
    let app = App::start().await;
    app.publish_tagged("a").await;
    let claim = app.claim_one("a", W1).await;
    for delay in [json!(-1), json!(2_592_001), json!(-0.5), json!("1")] {
        app.settle_with(&claim, "release", json!({"delay_seconds": delay})).await.names(&["delay_seconds"]);
    }
    app.settle_with(&claim, "release", json!({"delay_seconds": 2_592_000})).await.expect(200);
}
