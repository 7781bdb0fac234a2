//! A lease belongs to one claim and one worker. A worker that names another worker's lease is
//! refused in every state of the event, and changes nothing.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::work::{Claim, Naming, W1, W2};
use crate::support::{App, ledger};

/// A worker that never holds anything.
const OTHER_WORKER: &str = "other:9";

const SETTLING: [&str; 2] = ["complete", "fail"];
const ALL: [&str; 5] = ["start", "heartbeat", "complete", "fail", "release"];

/// Publishes and claims an event without and one with an ordering key, whose completion takes the
/// slow path.
async fn held_by(app: &App, worker_id: &str) -> [Claim; 2] {
    app.publish_tagged("a").await;
    let plain = app.claim_one("a", worker_id).await;
    let key = format!("key of {}", plain.event_id);
    app.publish(json!({"title": "a job", "tags": "a", "ordering_key": key})).await;
    [plain, app.claim_one("a", worker_id).await]
}

/// Sends every settlement with the right `lease_id` under another worker's name, and asserts that
/// it is refused.
async fn refused(app: &App, claim: &Claim, verbs: &[&str], code: &str) {
    let before = app.event(claim.event_id).await;
    for verb in verbs {
        app.settle(&claim.as_worker(OTHER_WORKER), verb, Naming::Lease).await.problem(409, code);
    }
    assert_eq!(app.event(claim.event_id).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn lease_ids_are_unique_and_grow_with_every_claim() {
    let app = App::with_fixed_clock().await;
    for _ in 0..20 {
        app.publish(json!({"title": "a job", "tags": "a,b"})).await;
    }
    let mut seen = BTreeSet::new();
    let mut latest = [0; 21];
    for _ in 0..3 {
        let claimed = app.claim_batch("b", W1, 20).await;
        assert_eq!(claimed.len(), 20);
        for claim in claimed.iter().map(Claim::of) {
            assert!(seen.insert(claim.lease_id), "{} is given out twice", claim.lease_id);
            let before = &mut latest[claim.event_id as usize];
            assert!(claim.lease_id > *before);
            *before = claim.lease_id;
            app.settle(&claim, "release", Naming::Lease).await.expect(200);
        }
    }
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_worker_cannot_settle_a_held_event() {
    let app = App::with_fixed_clock().await;
    for claim in held_by(&app, W1).await {
        refused(&app, &claim, &ALL, "lease_lost").await;
        app.settle_with(&claim, "complete", json!({"result": {"by": "the holder"}})).await.expect(200);
        let event = app.event(claim.event_id).await;
        assert_eq!((&event["worker_id"], &event["result"]), (&W1.into(), &json!({"by": "the holder"})));
    }
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_worker_cannot_settle_an_event_that_was_reset() {
    let app = App::with_fixed_clock().await;
    for claim in held_by(&app, W1).await {
        app.operate(claim.event_id, "reset").await.expect(200);
        refused(&app, &claim, &ALL, "lease_lost").await;
        app.settle(&claim, "complete", Naming::Lease).await.expect(200);
    }
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_worker_cannot_repeat_a_failure() {
    let app = App::with_fixed_clock().await;
    for claim in held_by(&app, W1).await {
        app.settle(&claim, "fail", Naming::Lease).await.expect(200);
        refused(&app, &claim, &ALL, "lease_lost").await;
        assert_eq!(app.advance_and_promote(300).await, 1);
        let second = app.claim_one("a", W2).await;
        refused(&app, &claim, &ALL, "lease_lost").await;
        app.settle(&second, "complete", Naming::Lease).await.expect(200);
        refused(&app, &claim, &ALL, "already_finished").await;
    }
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_worker_cannot_settle_a_released_event() {
    let app = App::with_fixed_clock().await;
    for claim in held_by(&app, W1).await {
        app.settle(&claim, "release", Naming::Lease).await.expect(200);
        refused(&app, &claim, &ALL, "lease_lost").await;
        app.operate(claim.event_id, "cancel").await.expect(200);
    }
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_worker_cannot_repeat_the_settlement_of_a_finished_event() {
    let app = App::with_fixed_clock().await;
    for claim in held_by(&app, W1).await {
        app.settle(&claim, "complete", Naming::Lease).await.expect(200);
        refused(&app, &claim, &ALL, "already_finished").await;
    }
    for claim in held_by(&app, W1).await {
        app.settle_with(&claim, "fail", json!({"retryable": false})).await.expect(400);
        refused(&app, &claim, &ALL, "already_finished").await;
    }
    for claim in held_by(&app, W1).await {
        app.operate(claim.event_id, "reset").await.expect(200);
        app.operate(claim.event_id, "cancel").await.expect(200);
        refused(&app, &claim, &ALL, "already_finished").await;
    }
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_cannot_settle_an_unclaimed_or_unknown_event() {
    let app = App::start().await;
    let event_id = app.publish_tagged("a").await;
    let invented = Claim { event_id, lease_id: 1, worker_id: OTHER_WORKER.into() };
    let unknown = Claim { event_id: 4_711, ..invented.clone() };
    for verb in ALL {
        app.settle(&invented, verb, Naming::Lease).await.problem(409, "not_claimed");
        app.settle(&unknown, verb, Naming::Lease).await.problem(404, "event_not_found");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_swaps_the_leases_of_two_events_is_refused() {
    let app = App::with_fixed_clock().await;
    let [one, other] = held_by(&app, W1).await;
    let mixed_up =
        [Claim { lease_id: other.lease_id, ..one.clone() }, Claim { lease_id: one.lease_id, ..other.clone() }];
    for claim in &mixed_up {
        for verb in ALL {
            app.settle(claim, verb, Naming::Lease).await.problem(409, "lease_lost");
        }
        assert_eq!(app.actions(claim.event_id).await, ["PICKED"]);
    }
    for claim in [&one, &other] {
        app.settle(claim, "complete", Naming::Lease).await.expect(200);
    }
    for claim in &mixed_up {
        for verb in SETTLING {
            app.settle(claim, verb, Naming::Lease).await.problem(409, "already_finished");
        }
    }
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_another_worker_settles_nothing() {
    let app = App::start().await;
    let claims = [held_by(&app, W1).await, held_by(&app, W1).await].concat();
    let settlements: Vec<Value> = claims
        .iter()
        .zip(["complete", "complete", "fail", "release"])
        .map(|(claim, action)| claim.settlement(action, json!({})))
        .chain([claims[3].settlement("complete", json!({}))])
        .collect();
    for result in app.settle_batch(OTHER_WORKER, &settlements).await {
        assert_eq!((&result["accepted"], &result["problem"]["code"]), (&false.into(), &"lease_lost".into()));
    }
    for claim in &claims {
        assert_eq!(app.actions(claim.event_id).await, ["PICKED"]);
    }
}
