//! The server resets events whose lease has expired. An event whose leases expire several times in
//! a row is poison and fails.

use serde_json::json;
use waybill::background::lease_reaper;

use crate::support::work::{Naming, W1, W2};
use crate::support::{App, Options, ledger};

/// Claims the event and lets the lease expire.
async fn lose_lease(app: &App) {
    app.claim_one("a", W1).await;
    app.advance(300);
    assert_eq!(app.reap().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_lease_is_reset_and_not_a_second_before() {
    let app = App::with_fixed_clock().await;
    let id = app.publish_tagged("a").await;
    app.claim_one("a", W1).await;
    app.advance(299);
    assert_eq!(app.reap().await, 0);
    app.advance(1);
    assert_eq!(app.reap().await, 1);
    let event = app.event(id).await;
    assert_eq!((&event["status"], &event["retry_count"]), (&"PENDING".into(), &0.into()));
    let line = &event["logs"][1];
    assert_eq!(
        (&line["action"], &line["reason"], &line["worker_id"]),
        (&"RESET".into(), &"lease_expired".into(), &W1.into())
    );
    assert_eq!(app.claim_one("a", W2).await.event_id, id);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_server_resets_expired_leases_without_a_call() {
    let app = App::start().await;
    let id = app.publish_tagged("a").await;
    app.get(&format!("/events/subscribe?tags=a&worker_id={W1}&lease_seconds=1")).await.expect(200);
    let event = app.get(&format!("/events/subscribe?tags=a&worker_id={W2}&wait_seconds=60")).await.expect(200).json();
    assert_eq!(event["id"], id);
    assert_eq!(app.actions(id).await, ["PICKED", "RESET", "PICKED"]);
    assert_eq!(app.event(id).await["logs"][1]["reason"], "lease_expired");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_expired_leases_are_all_reset() {
    let app = App::with_fixed_clock().await;
    for _ in 0..2 {
        let events: Vec<_> = (0..600).map(|_| json!({"title": "a job", "tags": "a"})).collect();
        app.post("/events/batch", &json!({"events": events})).await.expect(201);
        app.claim_batch("a", W1, 1000).await;
    }
    app.advance(300);
    assert_eq!(app.reap().await, 1200);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_shortened_by_a_heartbeat_is_reset_at_its_new_end() {
    let app = App::with_fixed_clock().await;
    app.publish_tagged("a").await;
    let claim = app.claim_one("a", W1).await;
    app.settle_with(&claim, "heartbeat", json!({"lease_seconds": 2})).await.expect(200);
    ledger::check(&app).await;
    app.advance(1);
    assert_eq!(app.reap().await, 0);
    app.advance(1);
    assert_eq!(app.reap().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_extended_by_heartbeats_is_reset_at_its_new_end() {
    let app = App::with_fixed_clock().await;
    app.publish_tagged("a").await;
    let claim = app.claim_one("a", W1).await;
    for _ in 0..5 {
        app.advance(250);
        app.settle_with(&claim, "heartbeat", json!({"lease_seconds": 300})).await.expect(200);
        assert_eq!(app.reap().await, 0);
        ledger::check(&app).await;
    }
    app.advance(300);
    assert_eq!(app.reap().await, 1);
}

/// Returns the number of rows in the lease watch list.
async fn watched(app: &App) -> i64 {
    app.count("SELECT coalesce(sum(cardinality(delivery_ids)), 0) FROM waybill.lease_watch").await
}

#[tokio::test(flavor = "multi_thread")]
async fn settled_leases_leave_the_lease_watch_within_seconds() {
    let app = App::with_fixed_clock().await;
    for _ in 0..3 {
        app.publish_tagged("a").await;
        let claim = app.claim_one("a", W1).await;
        app.settle(&claim, "complete", Naming::Lease).await.expect(200);
    }
    assert_eq!(watched(&app).await, 3);
    app.advance(10);
    assert_eq!(app.reap().await, 0);
    assert_eq!(watched(&app).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_resets_nothing_still_removes_settled_leases_from_the_lease_watch() {
    let app = App::with_fixed_clock().await;
    for settled in [true, false, true] {
        app.publish_tagged("a").await;
        let claim = app.claim_one("a", W1).await;
        if settled {
            app.settle(&claim, "complete", Naming::Lease).await.expect(200);
        }
    }
    app.advance(60);
    lease_reaper::tidy_once(app.engine()).await.expect("a round");
    assert_eq!(watched(&app).await, 3, "another server might be about to check them");
    app.advance(1_000);
    lease_reaper::tidy_once(app.engine()).await.expect("a round");
    assert_eq!(watched(&app).await, 1, "a held lease stays on the list");
    assert_eq!(app.count("SELECT count(*) FROM waybill.deliveries WHERE status = 'PROCESSING'").await, 1);
    app.advance(10);
    assert_eq!(app.reap().await, 1, "a server that does reset finds it there");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_poison_at_the_fifth_expired_lease_in_a_row() {
    let app = App::with_fixed_clock().await;
    let id = app.publish_tagged("a").await;
    for _ in 0..4 {
        lose_lease(&app).await;
        assert_eq!(app.status(id).await, "PENDING");
    }
    lose_lease(&app).await;
    let event = app.event(id).await;
    assert_eq!((&event["status"], &event["retry_count"]), (&"FAILED".into(), &0.into()));
    assert!(event["last_error"].as_str().expect("an error").contains("poison"));
    let last = event["logs"].as_array().expect("logs").last().expect("a line").clone();
    assert_eq!((&last["action"], &last["reason"]), (&"FAILED".into(), &"poison".into()));
    assert_eq!(app.actions(id).await.iter().filter(|action| *action == "RESET").count(), 5);
    assert!(app.claim("a", W1).await.is_none());
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_or_heartbeat_resets_the_count_of_expired_leases() {
    let app = App::with_fixed_clock().await;
    for verb in ["start", "heartbeat"] {
        let id = app.publish_tagged("a").await;
        for _ in 0..4 {
            lose_lease(&app).await;
        }
        let claim = app.claim_one("a", W1).await;
        app.settle(&claim, verb, Naming::Lease).await.expect(200);
        app.advance(300);
        assert_eq!(app.reap().await, 1);
        for _ in 0..3 {
            lose_lease(&app).await;
        }
        assert_eq!(app.status(id).await, "PENDING", "{verb}");
        lose_lease(&app).await;
        assert_eq!(app.status(id).await, "FAILED", "{verb}");
    }
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operators_reset_does_not_count_as_an_expired_lease() {
    let app = App::with_fixed_clock().await;
    let id = app.publish_tagged("a").await;
    for _ in 0..8 {
        app.claim_one("a", W1).await;
        app.operate(id, "reset").await.expect(200);
    }
    assert_eq!(app.status(id).await, "PENDING");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_expired_leases_that_makes_an_event_poison_is_a_setting() {
    let flags = vec!["--poison-after".into(), "2".into()];
    let app = App::start_with(Options { flags, fixed_clock: true, ..Options::default() }).await;
    let id = app.publish_tagged("a").await;
    lose_lease(&app).await;
    assert_eq!(app.status(id).await, "PENDING");
    lose_lease(&app).await;
    assert_eq!(app.status(id).await, "FAILED");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_of_a_poison_event_resets_the_count_of_expired_leases() {
    let app = App::with_fixed_clock().await;
    let id = app.publish_tagged("a").await;
    for _ in 0..5 {
        lose_lease(&app).await;
    }
    app.operate(id, "retry").await.expect(200);
    for _ in 0..4 {
        lose_lease(&app).await;
    }
    assert_eq!(app.status(id).await, "PENDING");
    ledger::check(&app).await;
}
