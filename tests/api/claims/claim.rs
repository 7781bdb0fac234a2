//! `POST /events/claim`: claims of batches, which may be repeated by their `idempotency_key`.

use serde_json::{Value, json};

use crate::support::work::{Claim, Naming, W1, W2, ids};
use crate::support::{App, database, ledger};

async fn publish_some(app: &App, count: usize) {
    for _ in 0..count {
        app.publish_tagged("a").await;
    }
}

async fn claim_with_key(app: &App, worker_id: &str, key: &str, max: usize) -> Vec<Value> {
    app.claim_by(&json!({"tags": ["a"], "worker_id": worker_id, "max": max, "idempotency_key": key})).await
}

fn claims(events: &[Value]) -> Vec<Claim> {
    events.iter().map(Claim::of).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_always_returns_a_list_which_may_be_empty() {
    let app = App::with_fixed_clock().await;
    publish_some(&app, 3).await;
    let one = app.post("/events/claim", &json!({"tags": ["b", "a"], "worker_id": W1})).await.expect(200);
    assert_eq!(one.header("cache-control"), Some("no-store"));
    assert_eq!(one.json()["events"].as_array().map(Vec::len), Some(1));
    let body = json!({"tags": ["a"], "worker_id": W1, "max": 5, "lease_seconds": 10, "wait_seconds": 0});
    let rest = app.post("/events/claim", &body).await.expect(200).json();
    assert_eq!(rest["events"].as_array().map(Vec::len), Some(2));
    assert_eq!(app.seconds_ahead(&rest["events"][0]["lease_expires_at"]), 10);
    let none = app.post("/events/claim", &body).await.expect(200);
    assert_eq!(none.json(), json!({"events": []}));
    assert_eq!(none.header("cache-control"), Some("no-store"));
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_has_the_same_limits_as_subscribe() {
    let app = App::start().await;
    let bad = [
        ("lease_seconds", json!(0)),
        ("lease_seconds", json!(43_201)),
        ("max", json!(0)),
        ("max", json!(1001)),
        ("wait_seconds", json!(61)),
        ("wait_seconds", json!(-1)),
        ("tags", json!("a")),
        ("tags", json!("a,b")),
        ("tags", json!(["a,b"])),
        ("tags", json!([""])),
        ("tags", json!([])),
        ("worker_id", json!("worker")),
        ("idempotency_key", json!("")),
        ("idempotency_key", json!("x".repeat(256))),
        ("limit", json!(1)),
    ];
    for (name, value) in bad {
        let mut body = json!({"tags": ["a"], "worker_id": W1});
        body[name] = value;
        app.post("/events/claim", &body).await.names(&[name]);
    }
    app.post("/events/claim", &json!({})).await.names(&["tags", "worker_id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_request_gets_the_same_events_under_the_same_leases() {
    let app = App::start().await;
    publish_some(&app, 5).await;
    let first = claim_with_key(&app, W1, "r1", 2).await;
    assert_eq!(first.len(), 2);
    assert_eq!(claim_with_key(&app, W1, "r1", 2).await, first);
    assert_eq!(app.count("SELECT count(*) FROM waybill.event_log").await, 2);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_key_every_call_gets_new_events() {
    let app = App::start().await;
    publish_some(&app, 2).await;
    let body = json!({"tags": ["a"], "worker_id": W1});
    let first = app.post("/events/claim", &body).await.expect(200).json();
    let second = app.post("/events/claim", &body).await.expect(200).json();
    assert_ne!(first["events"][0]["id"], second["events"][0]["id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_key_of_two_workers_means_two_requests() {
    let app = App::start().await;
    publish_some(&app, 3).await;
    let mut given = Vec::new();
    for (worker_id, key) in [(W1, "r1"), (W2, "r1"), (W1, "r2")] {
        given.extend(ids(&claim_with_key(&app, worker_id, key, 1).await));
    }
    given.dedup();
    assert_eq!(given.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_request_whose_events_are_all_settled_gets_new_ones() {
    let app = App::start().await;
    publish_some(&app, 4).await;
    let first = claims(&claim_with_key(&app, W1, "r1", 2).await);
    app.settle(&first[0], "complete", Naming::Lease).await.expect(200);
    app.settle(&first[1], "fail", Naming::Lease).await.expect(200);
    let second = claims(&claim_with_key(&app, W1, "r1", 2).await);
    assert_eq!(second.len(), 2);
    assert!(second.iter().all(|claim| !first.contains(claim)));
    assert_eq!(claims(&claim_with_key(&app, W1, "r1", 2).await), second);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_request_gets_only_the_events_that_are_not_settled() {
    let app = App::start().await;
    publish_some(&app, 6).await;
    let first = claims(&claim_with_key(&app, W1, "r1", 3).await);
    app.settle(&first[1], "complete", Naming::Lease).await.expect(200);
    let again = claims(&claim_with_key(&app, W1, "r1", 3).await);
    assert_eq!(again, [first[0].clone(), first[2].clone()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_request_whose_event_was_reset_gets_it_under_a_new_lease() {
    let app = App::start().await;
    publish_some(&app, 1).await;
    let first = claims(&claim_with_key(&app, W1, "r1", 1).await);
    app.operate(first[0].event_id, "reset").await.expect(200);
    let second = claims(&claim_with_key(&app, W1, "r1", 1).await);
    assert_eq!(second[0].event_id, first[0].event_id);
    assert!(second[0].lease_id > first[0].lease_id);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_request_does_not_get_an_event_that_another_worker_claimed_since() {
    let app = App::start().await;
    publish_some(&app, 1).await;
    let first = claims(&claim_with_key(&app, W1, "r1", 1).await);
    app.operate(first[0].event_id, "reset").await.expect(200);
    app.claim_one("a", W2).await;
    assert!(claim_with_key(&app, W1, "r1", 1).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_request_does_not_get_an_expired_lease_again() {
    let app = App::with_fixed_clock().await;
    publish_some(&app, 2).await;
    let first = claims(&claim_with_key(&app, W1, "r1", 1).await);
    app.advance(299);
    assert_eq!(claims(&claim_with_key(&app, W1, "r1", 1).await), first);
    app.advance(1);
    assert_ne!(claims(&claim_with_key(&app, W1, "r1", 1).await), first);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_request_that_found_nothing_may_find_an_event_later() {
    let app = App::start().await;
    assert!(claim_with_key(&app, W1, "r1", 1).await.is_empty());
    publish_some(&app, 1).await;
    let found = claim_with_key(&app, W1, "r1", 1).await;
    assert_eq!(found.len(), 1);
    assert_eq!(claim_with_key(&app, W1, "r1", 1).await, found);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_found_nothing_stores_nothing() {
    let app = App::start().await;
    for number in 0..3 {
        assert!(claim_with_key(&app, W1, &format!("r{number}"), 1).await.is_empty());
    }
    assert_eq!(app.count("SELECT count(*) FROM waybill.claim_requests").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_deleted_after_a_day_however_many_there_are() {
    let app = App::start().await;
    let remembered = "INSERT INTO waybill.claim_requests (worker_id, idempotency_key, claimed_at)
                      SELECT 'worker:1', n::text, now() - make_interval(hours => n / 150) FROM generate_series(0, 4799) n";
    database::execute(&app.url, remembered).await;
    app.remove_old().await;
    assert_eq!(app.count("SELECT count(*) FROM waybill.claim_requests").await, 24 * 150);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_simultaneous_calls_of_one_request_get_the_same_events() {
    let app = App::start().await;
    publish_some(&app, 60).await;
    for round in 0..15 {
        let key = format!("r{round}");
        let (one, other) = tokio::join!(claim_with_key(&app, W1, &key, 2), claim_with_key(&app, W1, &key, 2));
        assert_eq!(one.len(), 2);
        assert_eq!(one, other);
    }
    assert_eq!(app.count("SELECT count(*) FROM waybill.event_log").await, 30);
    ledger::check(&app).await;
}
