//! The generation of the subscription catalog goes back while servers still have a later snapshot.

use serde_json::json;

use crate::push::{publish, second_server};
use crate::support::receiver::Receiver;
use crate::support::{App, database};

/// Publishes an event that two subscriptions match, and waits for both pushes.
async fn both_get_their_push(app: &App, receiver: &Receiver) {
    let before = receiver.count();
    assert_eq!(publish(app, "order.paid", json!({})).await["enqueued"], 2);
    let requests = receiver.received(before + 2).await;
    let mut paths: Vec<&str> = requests[before..].iter().map(|request| request.path.as_str()).collect();
    paths.sort_unstable();
    assert_eq!(paths, ["/one", "/two"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_catalog_generation_lower_than_the_snapshots_does_not_stop_publishing() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    for path in ["/one", "/two"] {
        app.subscribe(&receiver.url(path), json!({"event_types": ["order.*"]})).await;
    }
    both_get_their_push(&app, &receiver).await;
    database::execute(&app.url, "UPDATE waybill.subscription_catalog SET generation = generation - 1").await;
    both_get_their_push(&app, &receiver).await;
}

/// As many changes after the restore as were lost: a mere counter would reach the same value again.
#[tokio::test(flavor = "multi_thread")]
async fn a_catalog_that_was_restored_and_changed_again_is_not_taken_for_the_earlier_one() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    app.subscribe(&receiver.url("/one"), json!({"event_types": ["order.*"]})).await;
    let saved = "CREATE TABLE saved AS SELECT generation FROM waybill.subscription_catalog";
    database::execute(&app.url, saved).await;
    let lost = app.subscribe(&receiver.url("/lost"), json!({"event_types": ["bill.*"]})).await;
    assert_eq!(publish(&app, "order.paid", json!({})).await["enqueued"], 1);

    let restore = format!(
        "BEGIN; DELETE FROM waybill.subscription_secrets WHERE subscription_id = {id}; \
         DELETE FROM waybill.subscriptions WHERE id = {id}; \
         UPDATE waybill.subscription_catalog SET generation = (SELECT generation FROM saved); COMMIT",
        id = lost["id"]
    );
    database::execute(&app.url, &restore).await;
    let other = second_server(&app, &["--dispatch=false"]).await;
    other.subscribe(&receiver.url("/two"), json!({"event_types": ["order.*"]})).await;
    receiver.received(1).await;
    both_get_their_push(&app, &receiver).await;
}
