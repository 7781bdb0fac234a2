//! `POST /events/settle`: many settlements at once, with one result each.

use serde_json::{Value, json};

use crate::support::work::{Claim, Naming, W1, W2, ids, repeated};
use crate::support::{App, ledger};

async fn publish_many(app: &App, count: usize) {
    let events: Vec<Value> = (0..count).map(|_| json!({"title": "a job", "tags": "a"})).collect();
    app.post("/events/batch", &json!({"events": events})).await.expect(201);
}

/// Claims up to ten events. Returns their ids and leases.
async fn claim_ten(app: &App) -> (Vec<i64>, Vec<i64>) {
    let events = app.claim_batch("a", W1, 10).await;
    events.iter().map(Claim::of).map(|claim| (claim.event_id, claim.lease_id)).unzip()
}

async fn settle(app: &App, settlements: Vec<Value>) -> Vec<Value> {
    app.settle_batch(W1, &settlements).await
}

fn are_accepted(results: &[Value]) -> Vec<bool> {
    results.iter().map(|result| result["accepted"].as_bool().expect("a boolean")).collect()
}

/// Returns the log entries of results that are all accepted.
fn entries(results: &[Value]) -> Vec<Value> {
    results.iter().map(|result| result["entry"].clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_item_gets_its_entry_or_the_problem_of_a_single_call() {
    let app = App::with_fixed_clock().await;
    publish_many(&app, 6).await;
    app.publish(json!({"title": "a job", "tags": "a", "max_retries": 1})).await;
    let (claimed, leases) = claim_ten(&app).await;
    app.operate(claimed[3], "reset").await.expect(200);
    app.claim_one("a", W2).await;
    app.operate(claimed[4], "reset").await.expect(200);
    let unclaimed = app.publish_tagged("b").await;
    let outcomes = settle(
        &app,
        vec![
            json!({"event_id": claimed[0], "lease_id": leases[0], "action": "complete", "status_code": 200, "result": {"n": 1}}),
            json!({"event_id": claimed[1], "action": "fail", "error_message": "no", "execution_time_ms": 5}),
            json!({"event_id": claimed[2], "lease_id": leases[2], "action": "release", "delay_seconds": 9}),
            json!({"event_id": claimed[3], "lease_id": leases[3], "action": "complete"}),
            json!({"event_id": claimed[4], "lease_id": leases[4], "action": "complete"}),
            json!({"event_id": claimed[5], "lease_id": leases[6], "action": "fail"}),
            json!({"event_id": claimed[6], "action": "fail"}),
            json!({"event_id": unclaimed, "action": "complete"}),
            json!({"event_id": 4_711, "action": "complete"}),
        ],
    )
    .await;
    let summaries: Vec<(bool, &str)> = outcomes
        .iter()
        .map(|outcome| match outcome["accepted"].as_bool().expect("a boolean") {
            true => (true, outcome["entry"]["action"].as_str().expect("an action")),
            false => (false, outcome["problem"]["code"].as_str().expect("a code")),
        })
        .collect();
    assert_eq!(
        summaries,
        [
            (true, "COMPLETED"),
            (true, "FAILED"),
            (true, "RELEASED"),
            (false, "lease_lost"),
            (true, "COMPLETED"),
            (false, "lease_lost"),
            (true, "FAILED"),
            (false, "not_claimed"),
            (false, "event_not_found"),
        ]
    );
    let named: Vec<i64> = outcomes.iter().map(|outcome| outcome["event_id"].as_i64().expect("an id")).collect();
    assert_eq!(named, [claimed.clone(), vec![unclaimed, 4_711]].concat());
    let retry_scheduled = |index: usize| outcomes[index]["entry"].get("retry_scheduled").cloned();
    assert_eq!([retry_scheduled(0), retry_scheduled(1)], [None, Some(true.into())]);
    assert_eq!(retry_scheduled(6), Some(false.into()), "the last attempt has failed");
    assert_eq!(app.status(claimed[6]).await, "FAILED");
    for outcome in &outcomes {
        let accepted = outcome["accepted"] == true;
        assert_eq!((outcome.get("entry").is_some(), outcome.get("problem").is_some()), (accepted, !accepted));
        assert_eq!((outcome.get("status"), outcome["problem"].get("status")), (None, None), "{outcome}");
    }
    assert_eq!(outcomes[3]["problem"]["type"], "/problems/lease_lost");
    assert_eq!(app.event(claimed[0]).await["result"], json!({"n": 1}));
    assert_eq!(app.status(claimed[5]).await, "PROCESSING");
    assert_eq!(app.advance_and_promote(9).await, 1);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_event_twice_in_one_batch_gets_the_right_outcome_both_times() {
    let app = App::with_fixed_clock().await;
    publish_many(&app, 3).await;
    app.publish(json!({"title": "a job", "tags": "a", "max_retries": 1})).await;
    let (claimed, leases) = claim_ten(&app).await;
    let both = |index: usize, one: &str, other: &str| {
        let (id, lease_id) = (claimed[index], leases[index]);
        vec![json!({"event_id": id, "action": one}), json!({"event_id": id, "lease_id": lease_id, "action": other})]
    };
    let outcomes = settle(
        &app,
        [
            both(0, "complete", "complete"),
            both(1, "fail", "complete"),
            both(2, "fail", "fail"),
            both(3, "fail", "fail"),
        ]
        .concat(),
    )
    .await;
    assert_eq!(are_accepted(&outcomes), [true, true, true, false, true, true, true, true]);
    assert_eq!(outcomes[3]["problem"]["code"], "already_settled");
    for first in [0, 4, 6] {
        assert_eq!(repeated(&outcomes[first]["entry"]), outcomes[first + 1]["entry"]);
    }
    assert_eq!(outcomes[7]["entry"]["retry_scheduled"], false);
    for (id, action) in claimed.iter().zip(["COMPLETED", "FAILED", "FAILED", "FAILED"]) {
        assert_eq!(app.actions(*id).await, ["PICKED", action]);
    }
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_batch_gets_the_same_entries() {
    let app = App::with_fixed_clock().await;
    publish_many(&app, 4).await;
    let (claimed, leases) = claim_ten(&app).await;
    let results: Vec<Value> = claimed
        .iter()
        .zip(leases)
        .zip(["complete", "fail", "release", "complete"])
        .map(|((id, lease_id), action)| json!({"event_id": id, "lease_id": lease_id, "action": action}))
        .collect();
    let first = settle(&app, results.clone()).await;
    app.advance(1);
    let again = settle(&app, results).await;
    assert_eq!(entries(&again), entries(&first).iter().map(repeated).collect::<Vec<_>>());
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_events_are_settled_at_once() {
    let app = App::start().await;
    publish_many(&app, 1000).await;
    let claimed = app.claim_batch("a", W1, 1000).await;
    let results: Vec<Value> = claimed
        .iter()
        .map(|event| json!({"event_id": event["id"], "lease_id": event["lease_id"], "action": "complete"}))
        .collect();
    let outcomes = settle(&app, results.clone()).await;
    assert_eq!(are_accepted(&outcomes), [true; 1000]);
    assert_eq!(app.count("SELECT count(*) FROM waybill.deliveries WHERE status = 'COMPLETED'").await, 1000);
    let one_more = [results, vec![json!({"event_id": 1, "action": "complete"})]].concat();
    app.post("/events/settle", &json!({"worker_id": W1, "settlements": one_more})).await.names(&["settlements"]);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_invalid_item_is_named_and_nothing_is_settled() {
    let app = App::start().await;
    publish_many(&app, 2).await;
    let claimed = ids(&app.claim_batch("a", W1, 2).await);
    let good = json!({"event_id": claimed[0], "action": "complete"});
    for (bad, field) in [
        (json!({"event_id": claimed[1], "action": "explode"}), "settlements[1].action"),
        (json!({"event_id": claimed[1]}), "settlements[1].action"),
        (json!({"action": "complete"}), "settlements[1].event_id"),
        (json!({"event_id": 0, "action": "complete"}), "settlements[1].event_id"),
        (json!({"event_id": "1", "action": "complete"}), "settlements[1].event_id"),
        (json!({"event_id": 1, "action": "complete", "lease_id": -1}), "settlements[1].lease_id"),
        (json!({"event_id": 1, "action": "complete", "worker_id": W1}), "settlements[1].worker_id"),
        (json!({"event_id": 1, "action": "complete", "error_message": "x"}), "settlements[1].error_message"),
        (json!({"event_id": 1, "action": "fail", "retryable": 1}), "settlements[1].retryable"),
        (json!({"event_id": 1, "action": "release", "delay_seconds": -1}), "settlements[1].delay_seconds"),
        (json!(7), "settlements[1]"),
    ] {
        let body = json!({"worker_id": W1, "settlements": [good, bad]});
        app.post("/events/settle", &body).await.names(&[field]);
    }
    app.post("/events/settle", &json!({"worker_id": W1, "settlements": []})).await.names(&["settlements"]);
    app.post("/events/settle", &json!({"settlements": [good]})).await.names(&["worker_id"]);
    assert_eq!(app.status(claimed[0]).await, "PROCESSING");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_mistake_is_named_in_all_items_and_in_the_claim() {
    let app = App::start().await;
    let settlements = json!([{"event_id": 1}, {"event_id": 1, "action": "fail"}, {"action": "fail", "x": 1}]);
    let in_items = ["settlements[0].action", "settlements[2].event_id", "settlements[2].x"];
    app.post("/events/settle", &json!({"worker_id": W1, "settlements": settlements})).await.names(&in_items);
    let claim = json!({"tags": "a", "max": 0, "worker_id": W1});
    let in_claim = ["claim.max", "claim.tags", "claim.worker_id", "worker_id"];
    let body = json!({"worker_id": "nobody", "settlements": settlements, "claim": claim});
    app.post("/events/settle", &body).await.names(&[&in_items[..], &in_claim].concat());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_batches_with_the_same_events_in_opposite_order_do_not_deadlock() {
    let app = App::start().await;
    for _ in 0..5 {
        publish_many(&app, 100).await;
        let claimed = ids(&app.claim_batch("a", W1, 100).await);
        let forth: Vec<Value> = claimed.iter().map(|id| json!({"event_id": id, "action": "complete"})).collect();
        let back: Vec<Value> = forth.iter().rev().cloned().collect();
        let (one, other) = tokio::join!(settle(&app, forth), settle(&app, back));
        assert_eq!((are_accepted(&one), are_accepted(&other)), (vec![true; 100], vec![true; 100]));
    }
    assert_eq!(app.count("SELECT count(*) FROM waybill.event_log WHERE action = 'COMPLETED'").await, 500);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_that_repeats_a_single_call_gets_its_entry() {
    let app = App::start().await;
    publish_many(&app, 1).await;
    let claim = app.claim_one("a", W1).await;
    let entry = app.settle(&claim, "complete", Naming::Lease).await.expect(200).json();
    let outcome = settle(&app, vec![json!({"event_id": claim.event_id, "action": "complete"})]).await.remove(0);
    assert_eq!(outcome["entry"], repeated(&entry));
}
