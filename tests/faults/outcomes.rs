//! A connection is lost at a chosen statement. A call that is refused had no effect; a call that
//! may have had one is reported as `outcome_unknown`.

use serde_json::{Value, json};
use waybill::background::operation_runner;

use crate::support::operations::all_that_match;
use crate::support::wire::{Cut, DatabaseProxy};
use crate::support::work::{Claim, Naming};
use crate::support::{App, Options, Reply, database, ledger};

/// Parts of statements, by which the proxy recognises them.
const PUBLISH: &str = "INSERT INTO waybill.events";
const COMPLETE: &str = "-- complete_deliveries";
const CLAIM: &str = "-- claim_deliveries";
const SAVE: &str = "-- save_deliveries";

/// Starts a server behind a proxy. The clock is fixed, so no sweep runs and only calls have
/// transactions of several statements.
async fn app_behind_a_proxy() -> (App, DatabaseProxy) {
    let direct = database::migrated().await;
    let proxy = DatabaseProxy::to(&direct).await;
    let mut app = App::start_with(Options { url: Some(proxy.url()), fixed_clock: true, ..Options::default() }).await;
    app.url = direct;
    (app, proxy)
}

fn event(title: &str) -> Value {
    json!({"title": title, "tags": "a"})
}

fn keyed(title: &str) -> Value {
    json!({"title": title, "tags": "a", "ordering_key": "k"})
}

async fn stored(app: &App, title: &str) -> i64 {
    app.count(&format!("SELECT count(*) FROM waybill.events WHERE title = '{title}'")).await
}

/// Asserts a response that reports an unknown outcome and when to retry.
#[track_caller]
fn assert_outcome_unknown(reply: Reply, request: Repeat) {
    assert_eq!(reply.header("retry-after"), Some("1"));
    let problem = reply.problem(503, "outcome_unknown");
    assert_eq!((&problem["effect"], &problem["retryable"]), (&json!("unknown"), &json!(request == Repeat::Safe)));
}

/// Whether a request whose outcome is unknown may be sent again.
#[derive(PartialEq)]
enum Repeat {
    Safe,
    Unsafe,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_whose_response_is_lost_has_an_unknown_outcome() {
    let (app, proxy) = app_behind_a_proxy().await;
    app.publish(event("before")).await;
    proxy.cut_at(PUBLISH, Cut::After);
    assert_outcome_unknown(app.post("/events", &event("lost")).await, Repeat::Unsafe);
    assert!(proxy.was_cut());
    assert_eq!(stored(&app, "lost").await, 1, "stored once, and not repeated by the server");
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_that_is_lost_before_its_commit_is_refused_and_not_stored() {
    let (app, proxy) = app_behind_a_proxy().await;
    app.publish(keyed("before")).await;
    for cut in [Cut::Before, Cut::After] {
        proxy.cut_at(PUBLISH, cut);
        let problem = app.post("/events", &keyed("lost")).await.problem(503, "database_unavailable");
        assert!(problem["detail"].as_str().expect("a text").contains("Nothing was changed"), "{problem}");
        assert!(proxy.was_cut());
    }
    assert_eq!(stored(&app, "lost").await, 0);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_response_is_lost_has_an_unknown_outcome() {
    let (app, proxy) = app_behind_a_proxy().await;
    app.publish(keyed("before")).await;
    proxy.cut_at("COMMIT", Cut::After);
    assert_outcome_unknown(app.post("/events", &keyed("lost")).await, Repeat::Unsafe);
    assert_eq!(stored(&app, "lost").await, 1);
    proxy.cut_at("COMMIT", Cut::Before);
    assert_outcome_unknown(app.post("/events", &keyed("never arrived")).await, Repeat::Unsafe);
    assert_eq!(stored(&app, "never arrived").await, 0);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_completion_whose_response_is_lost_can_be_repeated() {
    let (app, proxy) = app_behind_a_proxy().await;
    app.publish(event("a job")).await;
    let claim = Claim::of(&app.claim("a", "w:1").await.expect("an event"));
    proxy.cut_at(COMPLETE, Cut::After);
    assert_outcome_unknown(app.settle(&claim, "complete", Naming::Lease).await, Repeat::Safe);
    app.settle(&claim, "complete", Naming::Lease).await.expect(200);
    assert_eq!(app.actions(claim.event_id).await, ["PICKED", "COMPLETED"]);
}

/// Without a lease id, a repeat could be taken for the settlement of a later claim by the same worker.
#[tokio::test(flavor = "multi_thread")]
async fn a_settlement_without_a_lease_id_whose_response_is_lost_must_not_be_repeated_blindly() {
    let (app, proxy) = app_behind_a_proxy().await;
    app.publish(event("a job")).await;
    let claim = Claim::of(&app.claim("a", "w:1").await.expect("an event"));
    proxy.cut_at(COMPLETE, Cut::After);
    assert_outcome_unknown(app.settle(&claim, "complete", Naming::Worker).await, Repeat::Unsafe);
    let settlement = json!({"event_id": claim.event_id, "action": "complete"});
    let batch = json!({"worker_id": "w:1", "settlements": [settlement]});
    proxy.cut_at(COMPLETE, Cut::After);
    assert_outcome_unknown(app.post("/events/settle", &batch).await, Repeat::Unsafe);
}

/// The completions of a request take the fast path and are recorded when the rest is lost.
#[tokio::test(flavor = "multi_thread")]
async fn recorded_completions_are_reported_although_the_rest_of_the_batch_is_lost() {
    let (app, proxy) = app_behind_a_proxy().await;
    app.publish(event("one")).await;
    app.publish(event("other")).await;
    let claims: Vec<Claim> = app.claim_batch("a", "w:1", 2).await.iter().map(Claim::of).collect();
    let results = json!({"worker_id": "w:1", "settlements": [
        {"event_id": claims[0].event_id, "lease_id": claims[0].lease_id, "action": "complete"},
        {"event_id": claims[1].event_id, "lease_id": claims[1].lease_id, "action": "fail"},
    ]});
    proxy.cut_at("COMMIT", Cut::Before);
    let outcomes = app.post("/events/settle", &results).await.expect(200).json()["results"].clone();
    assert_eq!((&outcomes[0]["accepted"], &outcomes[1]["accepted"]), (&json!(true), &json!(false)), "{outcomes}");
    assert_eq!(outcomes[1]["problem"]["code"], "outcome_unknown");
    assert_eq!(app.actions(claims[0].event_id).await, ["PICKED", "COMPLETED"]);
    assert_eq!(app.actions(claims[1].event_id).await, ["PICKED"]);
    // Both are recorded by now, and take the slow path.
    proxy.cut_at("COMMIT", Cut::After);
    assert_outcome_unknown(app.post("/events/settle", &results).await, Repeat::Safe);
    let outcomes = app.post("/events/settle", &results).await.expect(200).json()["results"].clone();
    assert_eq!((&outcomes[0]["accepted"], &outcomes[1]["accepted"]), (&json!(true), &json!(true)), "{outcomes}");
    assert_eq!(app.actions(claims[0].event_id).await, ["PICKED", "COMPLETED"]);
    assert_eq!(app.actions(claims[1].event_id).await, ["PICKED", "FAILED"]);
    ledger::check(&app).await;
}

/// The response of the fast path is lost, so the slow path is not sent. The outcome of the whole
/// request is unknown.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_lost_response_nothing_more_of_the_batch_is_sent() {
    let (app, proxy) = app_behind_a_proxy().await;
    app.publish(event("one")).await;
    app.publish(event("other")).await;
    let claims: Vec<Claim> = app.claim_batch("a", "w:1", 2).await.iter().map(Claim::of).collect();
    let [completed, failed] = [claims[0].event_id, claims[1].event_id];
    let (complete, fail) = (json!({"worker_id": "w:1"}), json!({"worker_id": "w:1", "error_message": "x"}));
    let results = json!({"worker_id": "w:1", "settlements": [
        {"event_id": completed, "lease_id": claims[0].lease_id, "action": "complete"},
        {"event_id": failed, "lease_id": claims[1].lease_id, "action": "fail"},
    ]});
    proxy.cut_at(COMPLETE, Cut::After);
    assert_outcome_unknown(app.post("/events/settle", &results).await, Repeat::Safe);
    assert_eq!(app.actions(completed).await, ["PICKED", "COMPLETED"]);
    assert_eq!(app.actions(failed).await, ["PICKED"], "it was not sent");
    app.post(&format!("/events/{completed}/complete"), &complete).await.expect(200);
    app.post(&format!("/events/{failed}/fail"), &fail).await.expect(200);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_whose_response_is_lost_has_an_unknown_outcome() {
    let (app, proxy) = app_behind_a_proxy().await;
    let id = app.publish(event("a job")).await;
    proxy.cut_at(CLAIM, Cut::After);
    assert_outcome_unknown(app.get("/events/subscribe?tags=a&worker_id=w:1").await, Repeat::Safe);
    assert_eq!(app.event(id).await["worker_id"], "w:1", "for as long as the lease runs");
}

/// Completes an event and claims another in one call, which loses its connection at the claim. Returns
/// the other event and the problem of the claim.
async fn settle_and_lose_the_claim(claim: Value) -> (App, DatabaseProxy, i64, Value) {
    let (app, proxy) = app_behind_a_proxy().await;
    let settled = app.publish(event("one")).await;
    app.claim("a", "w:1").await.expect("an event");
    let next = app.publish(event("other")).await;
    let body = json!({
        "worker_id": "w:1", "settlements": [{"event_id": settled, "action": "complete"}], "claim": claim,
    });
    proxy.cut_at(CLAIM, Cut::After);
    let answer = app.post("/events/settle", &body).await.expect(200).json();
    assert!(proxy.was_cut());
    assert_eq!((&answer["results"][0]["accepted"], &answer["events"]), (&json!(true), &json!([])), "{answer}");
    assert_eq!(app.actions(settled).await, ["PICKED", "COMPLETED"]);
    let problem = answer["claim_problem"].clone();
    assert_eq!(problem.get("status"), None, "{problem}");
    (app, proxy, next, problem)
}

#[tokio::test(flavor = "multi_thread")]
async fn settlements_stand_if_the_response_to_their_claim_is_lost() {
    let (app, _proxy, next, problem) = settle_and_lose_the_claim(json!({"tags": ["a"]})).await;
    assert_eq!(problem["code"], "outcome_unknown");
    assert_eq!(app.event(next).await["worker_id"], "w:1", "for as long as the lease runs");
}

/// A claim with a key has a transaction of its own, which is lost before its commit.
#[tokio::test(flavor = "multi_thread")]
async fn settlements_stand_if_the_database_is_lost_before_their_claim_commits() {
    let (app, _proxy, next, problem) = settle_and_lose_the_claim(json!({"tags": ["a"], "idempotency_key": "k1"})).await;
    assert_eq!(problem["code"], "database_unavailable");
    assert_eq!(app.event(next).await["status"], "PENDING");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operators_call_is_refused_if_lost_before_the_commit_and_unknown_after_it() {
    let (app, proxy) = app_behind_a_proxy().await;
    let id = app.publish(event("a job")).await;
    proxy.cut_at(SAVE, Cut::After);
    app.post_empty(&format!("/events/{id}/cancel")).await.problem(503, "database_unavailable");
    assert!(proxy.was_cut());
    assert_eq!(app.event(id).await["status"], "PENDING");
    proxy.cut_at("COMMIT", Cut::After);
    assert_outcome_unknown(app.post_empty(&format!("/events/{id}/cancel")).await, Repeat::Safe);
    assert_eq!(app.event(id).await["status"], "CANCELLED");
}

/// What a step changes and what it counts are committed together.
#[tokio::test(flavor = "multi_thread")]
async fn a_step_of_an_operation_that_is_lost_is_repeated_and_counted_once() {
    const EVENTS: i64 = 700;
    for (part, cut) in [("BEGIN", Cut::Before), (SAVE, Cut::After), ("COMMIT", Cut::Before), ("COMMIT", Cut::After)] {
        let (app, proxy) = app_behind_a_proxy().await;
        let events: Vec<Value> = (0..EVENTS).map(|_| event("a job")).collect();
        app.post("/events/batch", &json!({"events": events})).await.expect(201);
        let started = app.start_operation("/events/cancel", &all_that_match(&json!({}))).await;
        proxy.cut_at(part, cut);
        // The step is put off. Only if it had not begun, the round fails.
        assert_eq!(operation_runner::run_once(app.engine()).await.is_err(), part == "BEGIN", "{part}");
        assert!(proxy.was_cut(), "{part}");
        let over = app.until_complete(&started).await;
        assert_eq!(
            (&over["done"], &over["skipped"], &over["failed"]),
            (&json!(EVENTS), &json!(0), &json!(0)),
            "{part}"
        );
        let lines = "SELECT count(*) FROM waybill.event_log WHERE action = 'CANCELLED'";
        assert_eq!(app.count(lines).await, EVENTS, "{part}");
        ledger::check(&app).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_whose_start_is_lost_after_the_commit_has_an_unknown_outcome() {
    let (app, proxy) = app_behind_a_proxy().await;
    proxy.cut_at("-- insert_operation", Cut::After);
    app.post("/events/retry", &json!({"filter": {}})).await.problem(503, "database_unavailable");
    proxy.cut_at("COMMIT", Cut::After);
    assert_outcome_unknown(app.post("/events/retry", &json!({"filter": {}})).await, Repeat::Unsafe);
    assert_eq!(app.count("SELECT count(*) FROM waybill.operations").await, 1);
}
