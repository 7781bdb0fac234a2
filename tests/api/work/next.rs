//! `complete?next=true` and `fail?next=true`: settle and claim in one round trip.

use serde_json::json;

use crate::support::work::{Claim, Naming, W1, W2, repeated};
use crate::support::{App, Reply, ledger};

async fn settle_and_claim_next(app: &App, claim: &Claim, verb: &str, query: &str) -> Reply {
    let path = format!("/events/{}/{verb}?next=true{query}", claim.event_id);
    app.post(&path, &claim.body(Naming::Lease)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_completion_with_next_hands_out_the_next_event() {
    let app = App::with_fixed_clock().await;
    let first = app.publish_tagged("a").await;
    let second = app.publish_tagged("a").await;
    let claim = app.claim_one("a", W1).await;
    let reply = settle_and_claim_next(&app, &claim, "complete", "&tags=a,b&lease=20").await.expect(200);
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    let answer = reply.json();
    assert_eq!((&answer["settled"]["event_id"], &answer["settled"]["action"]), (&first.into(), &"COMPLETED".into()));
    let next = &answer["next"];
    assert_eq!((&next["id"], &next["status"], &next["worker_id"]), (&second.into(), &"PROCESSING".into(), &W1.into()));
    assert!(Claim::of(next).lease_id > claim.lease_id);
    assert_eq!(app.seconds_ahead(&next["lease_expires_at"]), 20);
    assert_eq!(app.actions(second).await, ["PICKED"]);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn next_is_null_if_there_is_no_event() {
    let app = App::start().await;
    app.publish_tagged("a").await;
    let claim = app.claim_one("a", W1).await;
    let answer = settle_and_claim_next(&app, &claim, "complete", "&tags=a").await.expect(200).json();
    assert_eq!(answer["settled"]["action"], "COMPLETED");
    assert!(answer.as_object().expect("an object")["next"].is_null());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_with_next_shows_when_it_is_retried() {
    let app = App::with_fixed_clock().await;
    app.publish_tagged("a").await;
    let second = app.publish_tagged("a").await;
    let claim = app.claim_one("a", W1).await;
    let answer = settle_and_claim_next(&app, &claim, "fail", "&tags=a").await.expect(200).json();
    assert_eq!(answer["settled"]["retry_scheduled"], true);
    assert_eq!(app.seconds_ahead(&answer["settled"]["next_retry_at"]), 300);
    assert_eq!(answer["next"]["id"], second);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_final_failure_with_next_is_a_200_that_shows_it() {
    let app = App::start().await;
    let first = app.publish(json!({"title": "a job", "tags": "a", "max_retries": 1})).await;
    let second = app.publish_tagged("a").await;
    let claim = app.claim_one("a", W1).await;
    let answer = settle_and_claim_next(&app, &claim, "fail", "&tags=a").await.expect(200).json();
    let settled = &answer["settled"];
    assert_eq!((&settled["action"], &settled["retry_scheduled"]), (&"FAILED".into(), &false.into()));
    assert_eq!((&settled["code"], &settled["error"]), (&"max_retries_exceeded".into(), &"Max retries exceeded".into()));
    assert_eq!((&settled["retry_count"], &settled["max_retries"]), (&1.into(), &1.into()));
    assert_eq!(answer["next"]["id"], second);
    assert_eq!(app.status(first).await, "FAILED");
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_settlement_with_next_claims_nothing() {
    let app = App::start().await;
    let first = app.publish_tagged("a").await;
    let second = app.publish_tagged("a").await;
    let claim = app.claim_one("a", W1).await;
    app.operate(first, "reset").await.expect(200);
    app.claim_one("a", W2).await;
    app.claim_one("a", W2).await;
    let third = app.publish_tagged("a").await;
    settle_and_claim_next(&app, &claim, "complete", "&tags=a").await.problem(409, "lease_lost");
    assert_eq!(app.status(second).await, "PROCESSING");
    assert_eq!(app.status(third).await, "PENDING");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_claim_parameters_settle_nothing() {
    let app = App::start().await;
    let id = app.publish_tagged("a").await;
    let claim = app.claim_one("a", W1).await;
    settle_and_claim_next(&app, &claim, "complete", "").await.names(&["tags"]);
    settle_and_claim_next(&app, &claim, "complete", "&tags=a&lease=0").await.names(&["lease"]);
    settle_and_claim_next(&app, &claim, "complete", "&tags=a&wait=61").await.names(&["wait"]);
    settle_and_claim_next(&app, &claim, "release", "&tags=a").await.names(&["next", "tags"]);
    assert_eq!(app.status(id).await, "PROCESSING");
}

#[tokio::test(flavor = "multi_thread")]
async fn next_false_is_accepted_together_with_the_parameters_of_next() {
    let app = App::start().await;
    for query in ["next=false", "next=false&tags=a", "next=false&tags=a&wait=30&lease=60"] {
        let id = app.publish_tagged("a").await;
        let second = app.publish_tagged("a").await;
        let claim = app.claim_one("a", W1).await;
        let answer = app.post(&format!("/events/{id}/complete?{query}"), &claim.body(Naming::Lease)).await;
        assert_eq!(answer.expect(200).json()["action"], "COMPLETED");
        assert_eq!(app.status(second).await, "PENDING");
        app.complete(app.claim_one("a", W1).await.event_id, W1).await.expect(200);
    }
    let claim = {
        app.publish_tagged("a").await;
        app.claim_one("a", W1).await
    };
    let path = format!("/events/{}/complete", claim.event_id);
    for (query, field) in [("next=false&lease=0", "lease"), ("next=false&tags=", "tags"), ("tags=a", "tags")] {
        app.post(&format!("{path}?{query}"), &claim.body(Naming::Lease)).await.names(&[field]);
    }
    assert_eq!(app.status(claim.event_id).await, "PROCESSING");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_settlement_with_next_settles_once_and_claims_another_event() {
    let app = App::start().await;
    let ids = [app.publish_tagged("a").await, app.publish_tagged("a").await, app.publish_tagged("a").await];
    let claim = app.claim_one("a", W1).await;
    let one = settle_and_claim_next(&app, &claim, "complete", "&tags=a").await.expect(200).json();
    let two = settle_and_claim_next(&app, &claim, "complete", "&tags=a").await.expect(200).json();
    assert_eq!(repeated(&one["settled"]), two["settled"]);
    assert_eq!((&one["next"]["id"], &two["next"]["id"]), (&ids[1].into(), &ids[2].into()));
    ledger::check(&app).await;
}
