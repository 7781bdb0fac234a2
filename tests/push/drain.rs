//! Open pushes of a subscription that is deleted.

use serde_json::json;

use crate::support::receiver::{Gate, Receiver, Reply};
use crate::support::records::app_that_sends_nothing;
use crate::support::{App, database, ledger, until};

#[tokio::test(flavor = "multi_thread")]
async fn pending_pushes_of_deleted_subscriptions_are_cancelled() {
    let app = app_that_sends_nothing().await;
    let mut gone = Vec::new();
    for ordering in ["none", "by_key"] {
        gone.push(app.subscribe("http://127.0.0.1:9/hook", json!({"ordering": ordering})).await["id"].clone());
    }
    let stays = app.subscribe("http://127.0.0.1:9/hook", json!({})).await["id"].clone();
    let mut events = Vec::new();
    for n in 0..3 {
        let event = json!({"event_type": "order.paid", "ordering_key": "k", "payload": n});
        events.push(app.publish(event).await);
    }
    for id in &gone {
        app.delete(&format!("/subscriptions/{id}")).await.expect(204);
    }
    let drained = "SELECT count(*) FROM waybill.subscriptions WHERE drained_at IS NOT NULL";
    until("all pushes are cancelled", async || app.count(drained).await == 2).await;
    for event in events {
        for delivery in app.deliveries_of(event).await {
            let expected = if delivery["subscription_id"] == stays { "PENDING" } else { "CANCELLED" };
            assert_eq!(delivery["status"], expected, "{delivery}");
        }
    }
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_in_flight_of_a_deleted_subscription_ends_with_its_current_attempt() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    let gate = Gate::closed();
    receiver.next(Reply::status(500).held_by(&gate));
    let subscription = app.subscribe(&receiver.url("/hook"), json!({})).await;
    let event = app.publish_typed("order.paid", json!(1)).await;
    let id = app.only_delivery(event).await;
    receiver.until_in_flight(1).await;
    app.delete(&format!("/subscriptions/{}", subscription["id"])).await.expect(204);
    until("its cancellation was requested", async || app.delivery(id).await["cancel_requested"] == true).await;
    gate.open();
    app.until_delivery(id, "CANCELLED").await;
    assert_eq!(receiver.count(), 1);
    ledger::check(&app).await;
}

/// Finished deliveries are read once, however many open ones follow them.
#[tokio::test(flavor = "multi_thread")]
async fn draining_a_subscription_reads_its_finished_deliveries_once() {
    let app = app_that_sends_nothing().await;
    let id = app.subscribe("http://127.0.0.1:9/hook", json!({})).await["id"].clone();
    let history = format!(
        "INSERT INTO waybill.deliveries (id, event_id, subscription_id, status, priority, max_retries, lease_id) \
         SELECT nextval('waybill.ids'), -n, {id}, 'COMPLETED', 0, 1, 1 FROM generate_series(1, 11000) AS n"
    );
    // All rows belong to one subscription, which tempts the planner to scan the table by its
    // primary key.
    database::execute(&app.url, &format!("{history}; ANALYZE waybill.deliveries")).await;
    for _ in 0..2 {
        let events: Vec<_> = (0..600).map(|n| json!({"event_type": "order.paid", "payload": n})).collect();
        app.post("/events/batch", &json!({"events": events})).await.expect(201);
    }
    app.delete(&format!("/subscriptions/{id}")).await.expect(204);
    let drained = "SELECT count(*) FROM waybill.subscriptions WHERE drained_at IS NOT NULL";
    until("all pushes are cancelled", async || app.count(drained).await == 1).await;
    assert_eq!(
        app.count("SELECT count(*) FROM waybill.deliveries WHERE status = 'CANCELLED' AND id <> event_id").await,
        1200
    );
    // Backends publish their read statistics when they end.
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
               WHERE datname = current_database() AND pid <> pg_backend_pid()";
    database::execute(&app.url, end).await;
    let read = "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'deliveries_of_subscription'";
    until("the statistics are published", async || app.count(read).await >= 12_200).await;
    assert!(app.count(read).await < 20_000, "{}", app.count(read).await);
}
