//! Servers die and the database goes away while requests are in flight.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use waybill::background::dispatcher::attempt::Attempt;
use waybill::background::dispatcher::slots::Slots;
use waybill::domain::ids::{NamespaceId, SubscriptionId};
use waybill::engine::push::PushClaim;

use super::by_hand::{client, idle};
use super::{end_leases, id_of, in_own_process, publish, publish_id, rows, second_server, until_status, with_flags};
use crate::support::receiver::{Gate, Receiver, Reply};
use crate::support::{App, ClusterDir, HeldTable, Options, ledger, until, within_patience};

#[tokio::test(flavor = "multi_thread")]
async fn a_push_in_flight_of_a_killed_server_is_sent_again_by_another() {
    let (front, receiver) = (with_flags(&["--dispatch=false"]).await, Receiver::start().await);
    front.subscribe(&receiver.url("/"), json!({})).await;
    receiver.next(Reply::never());
    let server = in_own_process(&front, &[]);
    let id = id_of(&publish(&front, "a", json!({"n": 1})).await);
    receiver.until_in_flight(1).await;
    server.kill_9().await;
    end_leases(&front).await;
    let other = second_server(&front, &[]).await;
    let requests = receiver.received(2).await;
    assert_eq!(requests[0].header("webhook-id"), requests[1].header("webhook-id"));
    assert_eq!(requests[0].body, requests[1].body);
    until_status(&other, id, "COMPLETED").await;
    assert_eq!(other.actions(id).await, ["PICKED", "RESET", "PICKED", "COMPLETED"]);
    let holders = rows(&other, "SELECT worker_id FROM waybill.event_log WHERE action = 'PICKED' ORDER BY id").await;
    assert_ne!(holders[0], holders[1]);
    assert_eq!(receiver.count(), 2);
    ledger::check(&other).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_that_keeps_killing_servers_becomes_a_dead_letter() {
    let (front, receiver) = (with_flags(&["--dispatch=false", "--poison-after=2"]).await, Receiver::start().await);
    front.subscribe(&receiver.url("/"), json!({})).await;
    receiver.always(Reply::never());
    let id = publish_id(&front, "a").await;
    for killed in 1..=2 {
        let server = in_own_process(&front, &["--poison-after=2"]);
        receiver.received(killed).await;
        server.kill_9().await;
        end_leases(&front).await;
    }
    let _last = second_server(&front, &["--poison-after=2"]).await;
    until_status(&front, id, "FAILED").await;
    assert_eq!(super::dead_letter(&front, id).await["reason"], "poison");
    assert_eq!(receiver.count(), 2);
    ledger::check(&front).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outcome_whose_database_connection_is_cut_is_recorded_and_the_push_not_sent_again() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    let gate = Gate::closed();
    receiver.always(Reply::ok().held_by(&gate));
    app.subscribe(&receiver.url("/"), json!({})).await;
    let id = publish_id(&app, "a").await;
    receiver.until_in_flight(1).await;
    let mut held = HeldTable::lock(&app.url, "waybill.event_log").await;
    gate.open();
    held.terminate_blocked().await;
    held.until_blocked().await;
    held.unlock().await;
    until_status(&app, id, "COMPLETED").await;
    assert_eq!(app.actions(id).await, ["PICKED", "COMPLETED"]);
    assert_eq!(receiver.count(), 1);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outcome_is_recorded_once_the_database_is_back() {
    let cluster_dir = ClusterDir::with_cluster();
    let cluster = tokio::task::block_in_place(|| cluster_dir.start());
    let app = App::start_with(Options { url: Some(cluster.url("postgres")), ..Options::default() }).await;
    let receiver = Receiver::start().await;
    let gate = Gate::closed();
    receiver.next(Reply::ok().held_by(&gate));
    receiver.next(Reply::status(500).held_by(&gate));
    app.subscribe(&receiver.url("/"), json!({"backoff": super::at_once()})).await;
    let ids = [publish_id(&app, "a").await, publish_id(&app, "a").await];
    receiver.until_in_flight(2).await;
    tokio::task::block_in_place(|| cluster.stop()).expect("PostgreSQL stops");
    gate.open();
    receiver.until_in_flight(0).await;
    let _cluster = tokio::task::block_in_place(|| cluster_dir.start());
    until("the server is ready again", async || app.get("/ready").await.status == 200).await;
    for id in ids {
        until_status(&app, id, "COMPLETED").await;
    }
    assert_eq!(receiver.count(), 3, "the failure is repeated, and the success is not");
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_server_records_the_outcomes_of_requests_in_flight() {
    let (front, receiver) = (with_flags(&["--dispatch=false"]).await, Receiver::start().await);
    front.subscribe(&receiver.url("/"), json!({"max_concurrency": 1})).await;
    let gate = Gate::closed();
    receiver.always(Reply::ok().held_by(&gate));
    let sender = second_server(&front, &[]).await;
    let (sent, left) = (publish_id(&front, "a").await, publish_id(&front, "a").await);
    receiver.until_in_flight(1).await;
    let stopping = tokio::spawn(sender.stop());
    gate.open();
    within_patience(stopping).await.expect("no panic");
    assert_eq!(front.status(sent).await, "COMPLETED");
    if receiver.count() == 1 {
        assert_eq!(front.status(left).await, "PENDING");
    }
    let _next = second_server(&front, &[]).await;
    until_status(&front, left, "COMPLETED").await;
    assert_eq!(receiver.count(), 2);
    ledger::check(&front).await;
}

/// The claim is too old to send, for example because the database was slow to return it or the
/// server was suspended. Its lease would end while the request is in flight, and another server
/// would send it a second time.
#[tokio::test(flavor = "multi_thread")]
async fn a_push_claimed_too_long_ago_is_released_unsent() {
    let (app, receiver) = (idle(&[]).await, Receiver::start().await);
    let id = id_of(&app.subscribe(&receiver.url("/"), json!({"ordering": "by_key"})).await);
    let subscription = NamespaceId::DEFAULT.subscription(SubscriptionId(id));
    let event = json!({"event_type": "t", "ordering_key": "k"});
    let id = app.publish(event).await;
    let engine = app.engine();
    let claim = PushClaim { subscription, version: 1, limit: 1, lease_seconds: 25 };
    for (age, actions) in [(11, vec!["PICKED", "RELEASED"]), (9, vec!["PICKED", "RELEASED", "PICKED", "COMPLETED"])] {
        let subscriber = engine.subscription_cache().get(subscription).expect("a subscriber");
        let attempt = Attempt {
            engine: engine.clone(),
            client: client(),
            credentials: Arc::new(engine.credentials_of(&subscriber).expect("plain secrets")),
            subscriber,
            failing: Arc::default(),
            claimed_at: tokio::time::Instant::now() - Duration::from_secs(age),
            has_failed_before: false,
            is_probe: false,
            push: engine.claim_pushes(&[claim]).await.expect("a claim").remove(0),
        };
        attempt.run(Slots::new(1, engine.clone()).take(subscription, 0)).await;
        assert_eq!(app.actions(id).await, actions);
    }
    assert_eq!(receiver.count(), 1);
    ledger::check(&app).await;
}
