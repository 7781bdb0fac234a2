//! `POST /events/settle` with a `claim`: settle a batch and claim the next in one round trip.

use serde_json::{Value, json};

use crate::support::work::{Claim, Naming, W1, W2, ids, repeated};
use crate::support::{App, Reply, ledger};

async fn settle_and_claim(app: &App, settlements: &[Value], claim: Value) -> Reply {
    let body = json!({"worker_id": W1, "settlements": settlements, "claim": claim});
    app.post("/events/settle", &body).await
}

/// Publishes and claims events with the tag `a`.
async fn held(app: &App, count: usize) -> Vec<Claim> {
    for _ in 0..count {
        app.publish_tagged("a").await;
    }
    app.claim_batch("a", W1, count).await.iter().map(Claim::of).collect()
}

fn completed(claims: &[Claim]) -> Vec<Value> {
    claims.iter().map(|claim| claim.settlement("complete", json!({}))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_settled_and_the_next_is_claimed_in_one_call() {
    let app = App::with_fixed_clock().await;
    let claims = held(&app, 2).await;
    let next = [app.publish_tagged("b").await, app.publish_tagged("a").await];
    app.publish_tagged("c").await;
    let claim = json!({"tags": ["a", "b"], "max": 10, "lease_seconds": 20});
    let reply = settle_and_claim(&app, &completed(&claims), claim).await.expect(200);
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    let answer = reply.json();
    assert_eq!(answer.as_object().expect("an object").keys().collect::<Vec<_>>(), ["events", "results"]);
    for (claim, result) in claims.iter().zip(answer["results"].as_array().expect("results")) {
        assert_eq!((&result["event_id"], &result["accepted"]), (&claim.event_id.into(), &true.into()));
        assert_eq!(app.status(claim.event_id).await, "COMPLETED");
    }
    let events = answer["events"].as_array().expect("events");
    assert_eq!(ids(events), next);
    for event in events {
        assert_eq!((&event["status"], &event["worker_id"]), (&"PROCESSING".into(), &W1.into()));
        assert_eq!(app.seconds_ahead(&event["lease_expires_at"]), 20);
        app.settle(&Claim::of(event), "complete", Naming::Lease).await.expect(200);
    }
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_claim_no_event_is_claimed_and_the_list_is_empty() {
    let app = App::start().await;
    let claims = held(&app, 1).await;
    let waiting = app.publish_tagged("a").await;
    let body = json!({"worker_id": W1, "settlements": completed(&claims)});
    let reply = app.post("/events/settle", &body).await.expect(200);
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    assert_eq!(reply.json()["events"], json!([]));
    assert_eq!(app.status(waiting).await, "PENDING");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_needs_no_settlements() {
    let app = App::start().await;
    let id = app.publish_tagged("a").await;
    let answer = settle_and_claim(&app, &[], json!({"tags": ["a"]})).await.expect(200).json();
    assert_eq!((&answer["results"], &answer["events"][0]["id"]), (&json!([]), &id.into()));
    let answer = settle_and_claim(&app, &[], json!({"tags": ["a"]})).await.expect(200).json();
    assert_eq!(answer, json!({"results": [], "events": []}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_with_neither_settlements_nor_a_claim_is_refused() {
    let app = App::start().await;
    for claim in [json!({}), json!({"claim": null})] {
        let mut body = json!({"worker_id": W1, "settlements": []});
        body.as_object_mut().expect("an object").extend(claim.as_object().expect("an object").clone());
        app.post("/events/settle", &body).await.names(&["settlements"]);
    }
    app.post("/events/settle", &json!({"worker_id": W1})).await.names(&["settlements"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_claim_settles_nothing_and_an_invalid_settlement_claims_nothing() {
    let app = App::start().await;
    let claims = held(&app, 1).await;
    let waiting = app.publish_tagged("a").await;
    for (claim, field) in [
        (json!({}), "claim.tags"),
        (json!({"tags": []}), "claim.tags"),
        (json!({"tags": "a"}), "claim.tags"),
        (json!({"tags": ["a"], "lease_seconds": 0.5}), "claim.lease_seconds"),
        (json!({"tags": ["a"], "wait_seconds": 61}), "claim.wait_seconds"),
        (json!({"tags": ["a"], "max": 1001}), "claim.max"),
        (json!({"tags": ["a"], "idempotency_key": ""}), "claim.idempotency_key"),
        (json!({"tags": ["a"], "next": true}), "claim.next"),
        (json!(["a"]), "claim"),
    ] {
        settle_and_claim(&app, &completed(&claims), claim).await.names(&[field]);
    }
    let bad = [claims[0].settlement("explode", json!({}))];
    settle_and_claim(&app, &bad, json!({"tags": ["a"]})).await.names(&["settlements[0].action"]);
    assert_eq!(app.status(claims[0].event_id).await, "PROCESSING");
    assert_eq!(app.status(waiting).await, "PENDING");
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_settlements_beside_accepted_ones_do_not_keep_the_claim_from_being_made() {
    let app = App::start().await;
    let claims = held(&app, 2).await;
    app.operate(claims[0].event_id, "reset").await.expect(200);
    app.claim_one("a", W2).await;
    let next = app.publish_tagged("a").await;
    let answer = settle_and_claim(&app, &completed(&claims), json!({"tags": ["a"]})).await.expect(200).json();
    assert_eq!(answer["results"][0]["problem"]["code"], "lease_lost");
    assert_eq!(answer["results"][1]["accepted"], true);
    assert_eq!(answer["events"][0]["id"], next);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_final_failure_is_accepted_and_says_that_no_retry_is_scheduled() {
    let app = App::with_fixed_clock().await;
    let last = app.publish(json!({"title": "a job", "tags": "a", "max_retries": 1})).await;
    let first = app.publish_tagged("a").await;
    let hopeless = app.publish_tagged("a").await;
    let claims: Vec<Claim> = app.claim_batch("a", W1, 3).await.iter().map(Claim::of).collect();
    let settlements = [
        claims[0].settlement("fail", json!({})),
        claims[1].settlement("fail", json!({})),
        claims[2].settlement("fail", json!({"retryable": false})),
    ];
    let results = app.settle_batch(W1, &settlements).await;
    let scheduled: Vec<&Value> = results.iter().map(|result| &result["entry"]["retry_scheduled"]).collect();
    assert_eq!(scheduled, [false, true, false]);
    assert!(results.iter().all(|result| result["accepted"] == true), "{results:?}");
    assert_eq!(app.seconds_ahead(&results[1]["entry"]["next_retry_at"]), 300);
    let statuses = [app.status(last).await, app.status(first).await, app.status(hopeless).await];
    assert_eq!(statuses, ["FAILED", "PENDING", "FAILED"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_call_with_an_idempotency_key_gets_the_same_entries_and_the_same_events() {
    let app = App::start().await;
    let claims = held(&app, 2).await;
    let next = [app.publish_tagged("a").await, app.publish_tagged("a").await];
    let untouched = app.publish_tagged("a").await;
    let claim = json!({"tags": ["a"], "max": 2, "idempotency_key": "batch-1"});
    let first = settle_and_claim(&app, &completed(&claims), claim.clone()).await.expect(200).json();
    let again = settle_and_claim(&app, &completed(&claims), claim).await.expect(200).json();
    for index in 0..2 {
        assert_eq!(again["results"][index]["entry"], repeated(&first["results"][index]["entry"]));
    }
    assert_eq!(ids(first["events"].as_array().expect("events")), next);
    assert_eq!(again["events"], first["events"]);
    assert_eq!(app.status(untouched).await, "PENDING");
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_call_without_a_key_settles_once_and_claims_another_event() {
    let app = App::start().await;
    let claims = held(&app, 1).await;
    let next = [app.publish_tagged("a").await, app.publish_tagged("a").await];
    let one = settle_and_claim(&app, &completed(&claims), json!({"tags": ["a"]})).await.expect(200).json();
    let two = settle_and_claim(&app, &completed(&claims), json!({"tags": ["a"]})).await.expect(200).json();
    assert_eq!(two["results"][0]["entry"], repeated(&one["results"][0]["entry"]));
    assert_eq!([&one["events"][0]["id"], &two["events"][0]["id"]], next);
    assert_eq!(app.actions(claims[0].event_id).await, ["PICKED", "COMPLETED"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_event_that_is_retried_at_once_may_be_claimed_by_the_same_call() {
    let app = App::start().await;
    let claims = held(&app, 1).await;
    let settlements = [claims[0].settlement("fail", json!({"retry_after_seconds": 0}))];
    let answer = settle_and_claim(&app, &settlements, json!({"tags": ["a"]})).await.expect(200).json();
    assert_eq!(answer["results"][0]["entry"]["retry_scheduled"], true);
    assert_eq!((&answer["events"][0]["id"], &answer["events"][0]["attempt"]), (&claims[0].event_id.into(), &2.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lease_of_the_claim_may_be_a_fraction() {
    let app = App::with_fixed_clock().await;
    app.publish_tagged("a").await;
    let answer = settle_and_claim(&app, &[], json!({"tags": ["a"], "lease_seconds": 2.25})).await.expect(200).json();
    assert_eq!(app.microseconds_ahead(&answer["events"][0]["lease_expires_at"]), 2_250_000);
}
