//! How the workers in `examples` take problems, which a scripted server sends them.

use std::time::Duration;

use serde_json::{Value, json};

use super::workers::{NODE, PYTHON, Worker};
use crate::support::receiver::{Receiver, Recorded, Reply};

/// Starts a worker and a server that gives these answers, and then none. Returns the requests up to
/// the first one without an answer.
async fn requests_after(program: &[&str], answers: &[Reply]) -> Vec<Recorded> {
    let server = Receiver::start().await;
    server.always(Reply::never());
    answers.iter().for_each(|answer| server.next(answer.clone()));
    let _worker = Worker::start(program, &server.url(""), "60");
    let requests = server.received(answers.len() + 1).await;
    assert!(requests.iter().all(|request| request.path == "/events/settle"), "{requests:?}");
    requests
}

fn problem(retryable: bool) -> Value {
    json!({"code": "a_code_of_a_later_version", "retryable": retryable})
}

/// A response with results, and with events whose lease is ten times their id.
fn answer(results: &Value, event_ids: &[i64]) -> Reply {
    let event = |id: &i64| json!({"id": id, "lease_id": 10 * id, "payload": {"photo": id}});
    let events: Vec<Value> = event_ids.iter().map(event).collect();
    Reply::ok().body(json!({"results": results, "events": events}).to_string())
}

fn claim_problem(retryable: bool) -> Reply {
    let body = json!({"results": [], "events": [], "claim_problem": problem(retryable)});
    Reply::ok().body(body.to_string())
}

fn completion(id: i64) -> Value {
    json!({"event_id": id, "lease_id": 10 * id, "action": "complete", "result": {"resized": id}})
}

fn claim_key(request: &Recorded) -> String {
    request.json()["claim"]["idempotency_key"].as_str().expect("a key").to_owned()
}

/// Asserts that a settlement is sent again, with those of the next events, exactly if it may be.
async fn assert_settles_again(program: &[&str]) {
    let refused = json!([
        {"event_id": 1, "accepted": false, "problem": problem(true)},
        {"event_id": 2, "accepted": false, "problem": problem(false)},
        {"event_id": 3, "accepted": true, "entry": {}},
    ]);
    let accepted = json!([
        {"event_id": 1, "accepted": true, "entry": {}},
        {"event_id": 4, "accepted": true, "entry": {}},
    ]);
    let answers = [answer(&json!([]), &[1, 2, 3]), answer(&refused, &[4]), answer(&accepted, &[])];
    let requests = requests_after(program, &answers).await;
    let settlements: Vec<Value> = requests.iter().map(|request| request.json()["settlements"].clone()).collect();
    let wanted = [
        json!([]),
        json!([completion(1), completion(2), completion(3)]),
        json!([completion(1), completion(4)]),
        json!([]),
    ];
    assert_eq!(settlements, wanted);
}

/// Asserts that a claim that could not be served is repeated with its key, after longer and longer
/// pauses.
async fn assert_claims_again(program: &[&str]) {
    let mut answers = vec![claim_problem(true); 4];
    answers.push(answer(&json!([]), &[]));
    let requests = requests_after(program, &answers).await;
    let keys: Vec<String> = requests.iter().map(claim_key).collect();
    assert!(keys[..5].iter().all(|key| *key == keys[0]), "{keys:?}");
    assert_ne!(keys[5], keys[0]);
    let pause = |number: usize| requests[number + 1].at - requests[number].at;
    assert!(pause(0) >= Duration::from_millis(50), "{:?}", pause(0));
    assert!(pause(3) >= Duration::from_millis(400), "{:?}", pause(3));
}

/// Asserts that `retryable` decides whether a call is repeated, whatever its status, and that
/// `Retry-After` is respected.
async fn assert_goes_by_retryable(program: &[&str]) {
    let conflict = Reply::status(409).header("retry-after", "1").body(problem(true).to_string());
    let requests = requests_after(program, &[answer(&json!([]), &[1]), conflict]).await;
    assert_eq!(requests[1].json(), requests[2].json());
    assert!(requests[2].at - requests[1].at >= Duration::from_secs(1));
    let refusal = Reply::status(503).body(problem(false).to_string());
    for answer in [refusal, claim_problem(false)] {
        let server = Receiver::start().await;
        server.always(answer);
        assert_eq!(Worker::start(program, &server.url(""), "60").exit_code().await, Some(1));
        assert_eq!(server.count(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_worker_sends_a_settlement_again_exactly_if_it_may() {
    assert_settles_again(PYTHON).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_worker_sends_a_settlement_again_exactly_if_it_may() {
    assert_settles_again(NODE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_worker_repeats_a_claim_with_its_key_and_growing_pauses() {
    assert_claims_again(PYTHON).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_worker_repeats_a_claim_with_its_key_and_growing_pauses() {
    assert_claims_again(NODE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_worker_goes_by_retryable_and_not_by_the_status() {
    assert_goes_by_retryable(PYTHON).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_worker_goes_by_retryable_and_not_by_the_status() {
    assert_goes_by_retryable(NODE).await;
}
