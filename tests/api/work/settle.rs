//! `POST /events/settle`: many settlements at once, with one outcome each.

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

async fn settle(app: &App, results: Vec<Value>) -> Vec<Value> {
    let body = json!({"worker_id": W1, "results": results});
    app.post("/events/settle", &body).await.expect(200).json()["results"].as_array().expect("results").clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_item_gets_the_outcome_of_a_single_call() {
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
    let statuses: Vec<(u64, &str)> = outcomes
        .iter()
        .map(|outcome| {
            let verb = outcome["code"].as_str().or(outcome["action"].as_str());
            (outcome["status"].as_u64().expect("a status"), verb.expect("a code or an action"))
        })
        .collect();
    assert_eq!(
        statuses,
        [
            (200, "COMPLETED"),
            (200, "FAILED"),
            (200, "RELEASED"),
            (409, "lease_lost"),
            (200, "COMPLETED"),
            (409, "lease_lost"),
            (400, "max_retries_exceeded"),
            (409, "not_claimed"),
            (404, "event_not_found"),
        ]
    );
    let named: Vec<i64> = outcomes.iter().map(|outcome| outcome["event_id"].as_i64().expect("an id")).collect();
    assert_eq!(named, [claimed.clone(), vec![unclaimed, 4_711]].concat());
    assert_eq!(outcomes[1]["retry_scheduled"], true);
    assert_eq!((&outcomes[6]["retry_count"], &outcomes[6]["max_retries"]), (&1.into(), &1.into()));
    assert_eq!(outcomes[6]["error"], "Max retries exceeded");
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
    let statuses: Vec<u64> = outcomes.iter().map(|outcome| outcome["status"].as_u64().expect("a status")).collect();
    assert_eq!(statuses, [200, 200, 200, 409, 200, 200, 400, 200]);
    assert_eq!(repeated(&outcomes[0]), outcomes[1]);
    assert_eq!(outcomes[3]["code"], "already_settled");
    assert_eq!(repeated(&outcomes[4]), outcomes[5]);
    assert_eq!(outcomes[6]["id"], outcomes[7]["id"]);
    assert_eq!(outcomes[7]["retry_scheduled"], false);
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
    assert_eq!(settle(&app, results).await, first.iter().map(repeated).collect::<Vec<_>>());
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
    assert!(outcomes.iter().all(|outcome| outcome["status"] == 200));
    assert_eq!(app.count("SELECT count(*) FROM waybill.deliveries WHERE status = 'COMPLETED'").await, 1000);
    let one_more = [results, vec![json!({"event_id": 1, "action": "complete"})]].concat();
    app.post("/events/settle", &json!({"worker_id": W1, "results": one_more})).await.names(&["results"]);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_invalid_item_is_named_and_nothing_is_settled() {
    let app = App::start().await;
    publish_many(&app, 2).await;
    let claimed = ids(&app.claim_batch("a", W1, 2).await);
    let good = json!({"event_id": claimed[0], "action": "complete"});
    for (bad, field) in [
        (json!({"event_id": claimed[1], "action": "explode"}), "results[1].action"),
        (json!({"event_id": claimed[1]}), "results[1].action"),
        (json!({"action": "complete"}), "results[1].event_id"),
        (json!({"event_id": 0, "action": "complete"}), "results[1].event_id"),
        (json!({"event_id": "1", "action": "complete"}), "results[1].event_id"),
        (json!({"event_id": 1, "action": "complete", "lease_id": -1}), "results[1].lease_id"),
        (json!({"event_id": 1, "action": "complete", "worker_id": W1}), "results[1].worker_id"),
        (json!({"event_id": 1, "action": "complete", "error_message": "x"}), "results[1].error_message"),
        (json!({"event_id": 1, "action": "fail", "retryable": 1}), "results[1].retryable"),
        (json!({"event_id": 1, "action": "release", "delay_seconds": -1}), "results[1].delay_seconds"),
        (json!(7), "results[1]"),
    ] {
        let body = json!({"worker_id": W1, "results": [good, bad]});
        app.post("/events/settle", &body).await.names(&[field]);
    }
    app.post("/events/settle", &json!({"worker_id": W1, "results": []})).await.names(&["results"]);
    app.post("/events/settle", &json!({"results": [good]})).await.names(&["worker_id"]);
    assert_eq!(app.status(claimed[0]).await, "PROCESSING");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_bad_item_is_named() {
    let app = App::start().await;
    let body = json!({"worker_id": W1, "results": [{"event_id": 1}, {"event_id": 1, "action": "fail"}, {"action": "fail", "x": 1}]});
    app.post("/events/settle", &body).await.names(&["results[0].action", "results[2].event_id", "results[2].x"]);
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
        assert!(one.iter().chain(&other).all(|outcome| outcome["status"] == 200));
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
    assert_eq!(outcome["id"], entry["id"]);
    assert_eq!(outcome["status"], 200);
}
