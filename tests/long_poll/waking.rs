//! Work that becomes claimable wakes one waiter, and no more.

use serde_json::json;
use waybill::background::{lease_reaper, promoter};

use super::{Waiter, quiet_app, quiet_app_with_fixed_clock};
use crate::support::App;

/// Claims the only event there is.
async fn claim_one(app: &App, worker_id: &str) -> i64 {
    app.claim("a", worker_id).await.expect("an event")["id"].as_i64().expect("an id")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_reaches_a_waiting_worker_at_once() {
    let app = quiet_app().await;
    let waiter = Waiter::enter(&app, "a,b", "w:1").await;
    let id = app.publish_tagged("b,c").await;
    let event = waiter.event().await;
    assert_eq!(event["id"], id);
    assert_eq!(event["status"], "PROCESSING");
    assert_eq!(app.actions(id).await, ["PICKED"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_of_other_tags_wakes_no_waiter() {
    let app = quiet_app().await;
    let waiter = Waiter::enter(&app, "a", "w:1").await;
    app.publish_tagged("b").await;
    assert!(waiter.is_still_waiting());
    let id = app.publish_tagged("a").await;
    assert_eq!(waiter.event().await["id"], id);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_wakes_the_waiter_that_has_waited_longest() {
    let app = quiet_app().await;
    let first = Waiter::enter(&app, "a", "w:1").await;
    let second = Waiter::enter(&app, "a", "w:2").await;
    let third = Waiter::enter(&app, "a", "w:3").await;
    app.publish_tagged("a").await;
    assert_eq!(first.event().await["worker_id"], "w:1");
    assert!(second.is_still_waiting() && third.is_still_waiting());
    app.publish_tagged("a").await;
    assert_eq!(second.event().await["worker_id"], "w:2");
    assert!(third.is_still_waiting());
    app.publish_tagged("a").await;
    assert_eq!(third.event().await["worker_id"], "w:3");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_wakes_a_waiter_for_each_of_its_events() {
    let app = quiet_app().await;
    let mut waiters = Vec::new();
    for worker_id in ["w:1", "w:2", "w:3"] {
        waiters.push(Waiter::enter(&app, "a", worker_id).await);
    }
    app.post(
        "/events/batch",
        &json!({"events": [{"title": "t", "tags": "a"}, {"title": "t", "tags": "a"}, {"title": "t", "tags": "a"}]}),
    )
    .await
    .expect(201);
    for waiter in waiters {
        waiter.event().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_that_falls_due_wakes_a_waiter() {
    let app = quiet_app_with_fixed_clock().await;
    app.publish_tagged("a").await;
    let id = claim_one(&app, "w:1").await;
    app.fail(id, "w:1").await.expect(200);
    let waiter = Waiter::enter(&app, "a", "w:2").await;
    app.advance(300);
    assert_eq!(promoter::run_once(app.engine()).await.expect("a round"), 1);
    let event = waiter.event().await;
    assert_eq!((&event["id"], &event["attempt"]), (&json!(id), &json!(2)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delayed_event_that_falls_due_wakes_a_waiter() {
    let app = quiet_app_with_fixed_clock().await;
    let waiter = Waiter::enter(&app, "a", "w:1").await;
    let id = app.publish(json!({"title": "t", "tags": "a", "delay_seconds": 60})).await;
    app.advance(59);
    assert_eq!(promoter::run_once(app.engine()).await.expect("a round"), 0);
    assert!(waiter.is_still_waiting());
    app.advance(1);
    assert_eq!(promoter::run_once(app.engine()).await.expect("a round"), 1);
    assert_eq!(waiter.event().await["id"], id);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_wakes_a_waiter() {
    let app = quiet_app().await;
    app.publish_tagged("a").await;
    let id = claim_one(&app, "w:1").await;
    let waiter = Waiter::enter(&app, "a", "w:2").await;
    app.post_empty(&format!("/events/{id}/reset?reason=worker_timeout")).await.expect(200);
    assert_eq!(waiter.event().await["id"], id);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_runs_out_wakes_a_waiter() {
    let app = quiet_app_with_fixed_clock().await;
    app.publish_tagged("a").await;
    let id = claim_one(&app, "w:1").await;
    let waiter = Waiter::enter(&app, "a", "w:2").await;
    app.advance(300);
    assert_eq!(lease_reaper::run_once(app.engine()).await.expect("a round"), 1);
    assert_eq!(waiter.event().await["id"], id);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_wakes_a_waiter() {
    let app = quiet_app().await;
    app.publish_tagged("a").await;
    let id = claim_one(&app, "w:1").await;
    let waiter = Waiter::enter(&app, "a", "w:2").await;
    app.post(&format!("/events/{id}/release"), &json!({"worker_id": "w:1"})).await.expect(200);
    assert_eq!(waiter.event().await["id"], id);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operators_retry_wakes_a_waiter() {
    let app = quiet_app().await;
    app.publish(json!({"title": "t", "tags": "a", "max_retries": 1})).await;
    let id = claim_one(&app, "w:1").await;
    app.fail(id, "w:1").await.expect(400);
    let waiter = Waiter::enter(&app, "a", "w:2").await;
    app.post_empty(&format!("/events/{id}/retry")).await.expect(200);
    assert_eq!(waiter.event().await["id"], id);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_an_event_wakes_a_waiter_for_the_next_of_its_ordering_key() {
    let app = quiet_app().await;
    let head = app.publish(json!({"title": "t", "tags": "a", "ordering_key": "k"})).await;
    let next = app.publish(json!({"title": "t", "tags": "a", "ordering_key": "k"})).await;
    assert_eq!(claim_one(&app, "w:1").await, head);
    let waiter = Waiter::enter(&app, "a", "w:2").await;
    app.complete(head, "w:1").await.expect(200);
    assert_eq!(waiter.event().await["id"], next);
}
