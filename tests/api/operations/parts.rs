//! Events with more pushes than one step may change.

use serde_json::json;

use super::{assert_counts, lines};
use crate::support::{App, Options, ledger};

/// Starts a server with an event that is only pushed, to ten subscriptions.
async fn with_pushes() -> (App, i64) {
    let flags = vec!["--dispatch=false".to_owned()];
    let app = App::start_with(Options { flags, fixed_clock: true, ..Options::default() }).await;
    app.subscribe_many(10, "http://127.0.0.1:9/hook", json!({})).await;
    let id = app.publish_typed("order.paid", json!(1)).await;
    (app, id)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_whose_first_pushes_cannot_be_retried_is_retried_with_the_others() {
    let (app, id) = with_pushes().await;
    app.operate(id, "cancel").await.expect(200);
    for push in &app.deliveries_of(id).await[..4] {
        app.delete(&format!("/subscriptions/{}", push["subscription_id"])).await.expect(204);
    }
    let started = app.start_operation("/events/retry", &json!({"filter": {}, "per_second": 30})).await;
    assert_counts(&app.until_complete(&started).await, 1, 0, 0);
    assert_eq!(lines(&app, "RETRIED").await, 6);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_at_which_an_operation_is_cancelled_is_counted() {
    let (app, _) = with_pushes().await;
    let started = app.start_operation("/events/cancel", &json!({"filter": {}, "per_second": 30})).await;
    assert_eq!(app.run_steps().await, 3);
    assert_counts(&app.operation(&started).await, 0, 0, 0);
    let cancelled = app.post_empty(&format!("/operations/{}/cancel", started["id"])).await.expect(200).json();
    assert_counts(&cancelled, 1, 0, 0);
    assert_eq!(lines(&app, "CANCELLED").await, 3);
    ledger::check(&app).await;
}
