//! A connection is lost at a chosen statement. What was refused for sure was not done; what may
//! have been done says so.

use serde_json::{Value, json};

use crate::support::wire::{Cut, DatabaseProxy};
use crate::support::work::{Claim, Naming};
use crate::support::{App, Options, Reply, database, ledger};

/// Parts of statements, by which to tell them.
const PUBLISH: &str = "INSERT INTO waybill.events";
const COMPLETE: &str = "-- complete_deliveries";
const CLAIM: &str = "-- claim_deliveries";
const SAVE: &str = "-- save_deliveries";

/// A server behind a wire. Nothing but calls has transactions of several statements: sweeps stand
/// still.
async fn app_behind_a_wire() -> (App, DatabaseProxy) {
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

/// The answer to a call that may have been carried out: it says so, and when to come back.
#[track_caller]
fn unknown(reply: Reply, says: &str) {
    assert_eq!(reply.header("retry-after"), Some("1"));
    let detail = reply.problem(503, "outcome_unknown")["detail"].as_str().expect("a text").to_owned();
    assert!(detail.contains(says), "{says} in {detail}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_whose_answer_is_lost_has_an_unknown_outcome_and_says_to_look() {
    let (app, proxy) = app_behind_a_wire().await;
    app.publish(event("before")).await;
    proxy.cut_at(PUBLISH, Cut::After);
    unknown(app.post("/events", &event("lost")).await, "may or may not");
    assert!(proxy.was_cut());
    assert_eq!(stored(&app, "lost").await, 1, "once, and never again by itself");
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_that_is_lost_before_its_transaction_is_committed_is_not_stored_for_sure() {
    let (app, proxy) = app_behind_a_wire().await;
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
async fn a_commit_whose_answer_is_lost_has_an_unknown_outcome() {
    let (app, proxy) = app_behind_a_wire().await;
    app.publish(keyed("before")).await;
    proxy.cut_at("COMMIT", Cut::After);
    unknown(app.post("/events", &keyed("lost")).await, "may or may not");
    assert_eq!(stored(&app, "lost").await, 1);
    proxy.cut_at("COMMIT", Cut::Before);
    unknown(app.post("/events", &keyed("never arrived")).await, "may or may not");
    assert_eq!(stored(&app, "never arrived").await, 0);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_completion_whose_answer_is_lost_can_simply_be_said_again() {
    let (app, proxy) = app_behind_a_wire().await;
    app.publish(event("a job")).await;
    let claim = Claim::of(&app.claim("a", "w:1").await.expect("an event"));
    proxy.cut_at(COMPLETE, Cut::After);
    unknown(app.settle(&claim, "complete", Naming::Lease).await, "settle it again");
    app.settle(&claim, "complete", Naming::Lease).await.expect(200);
    assert_eq!(app.actions(claim.event_id).await, ["PICKED", "COMPLETED"]);
}

/// Of one request a part goes the short way, and is on record when the rest is lost.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_on_record_is_answered_although_the_rest_of_the_batch_is_lost() {
    let (app, proxy) = app_behind_a_wire().await;
    app.publish(event("one")).await;
    app.publish(event("other")).await;
    let claims: Vec<Claim> = app.claim_batch("a", "w:1", 2).await.iter().map(Claim::of).collect();
    let results = json!({"worker_id": "w:1", "results": [
        {"event_id": claims[0].event_id, "lease_id": claims[0].lease_id, "action": "complete"},
        {"event_id": claims[1].event_id, "lease_id": claims[1].lease_id, "action": "fail"},
    ]});
    proxy.cut_at("COMMIT", Cut::Before);
    let outcomes = app.post("/events/settle", &results).await.expect(200).json()["results"].clone();
    assert_eq!(outcomes[0]["status"], 200, "{outcomes}");
    assert_eq!((&outcomes[1]["status"], &outcomes[1]["code"]), (&json!(503), &json!("outcome_unknown")));
    assert_eq!(app.actions(claims[0].event_id).await, ["PICKED", "COMPLETED"]);
    assert_eq!(app.actions(claims[1].event_id).await, ["PICKED"]);
    // On record already, both are judged now.
    proxy.cut_at("COMMIT", Cut::After);
    unknown(app.post("/events/settle", &results).await, "settle it again");
    let outcomes = app.post("/events/settle", &results).await.expect(200).json()["results"].clone();
    assert_eq!((&outcomes[0]["status"], &outcomes[1]["status"]), (&json!(200), &json!(200)), "{outcomes}");
    assert_eq!(app.actions(claims[0].event_id).await, ["PICKED", "COMPLETED"]);
    assert_eq!(app.actions(claims[1].event_id).await, ["PICKED", "FAILED"]);
    ledger::check(&app).await;
}

/// The short way is lost; what would have been judged next is not sent. The request as a whole is
/// undecided.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_lost_answer_nothing_more_of_the_batch_is_sent() {
    let (app, proxy) = app_behind_a_wire().await;
    app.publish(event("one")).await;
    app.publish(event("other")).await;
    let claims: Vec<Claim> = app.claim_batch("a", "w:1", 2).await.iter().map(Claim::of).collect();
    let [completed, failed] = [claims[0].event_id, claims[1].event_id];
    let (complete, fail) = (json!({"worker_id": "w:1"}), json!({"worker_id": "w:1", "error_message": "x"}));
    let results = json!({"worker_id": "w:1", "results": [
        {"event_id": completed, "action": "complete"}, {"event_id": failed, "action": "fail"},
    ]});
    proxy.cut_at(COMPLETE, Cut::After);
    unknown(app.post("/events/settle", &results).await, "settle it again");
    assert_eq!(app.actions(completed).await, ["PICKED", "COMPLETED"]);
    assert_eq!(app.actions(failed).await, ["PICKED"], "it was not sent");
    app.post(&format!("/events/{completed}/complete"), &complete).await.expect(200);
    app.post(&format!("/events/{failed}/fail"), &fail).await.expect(200);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_whose_answer_is_lost_has_an_unknown_outcome() {
    let (app, proxy) = app_behind_a_wire().await;
    let id = app.publish(event("a job")).await;
    proxy.cut_at(CLAIM, Cut::After);
    unknown(app.get("/events/subscribe?tags=a&worker_id=w:1").await, "lease");
    assert_eq!(app.event(id).await["worker_id"], "w:1", "for as long as the lease runs");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operators_word_is_refused_for_sure_before_the_commit_and_unknown_after_it() {
    let (app, proxy) = app_behind_a_wire().await;
    let id = app.publish(event("a job")).await;
    proxy.cut_at(SAVE, Cut::After);
    app.post_empty(&format!("/events/{id}/cancel")).await.problem(503, "database_unavailable");
    assert!(proxy.was_cut());
    assert_eq!(app.event(id).await["status"], "PENDING");
    proxy.cut_at("COMMIT", Cut::After);
    unknown(app.post_empty(&format!("/events/{id}/cancel")).await, "may or may not");
    assert_eq!(app.event(id).await["status"], "CANCELLED");
}

/// Bulk operations work in steps; what the first ones did is not denied when a later one fails.
#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_operation_that_is_lost_halfway_does_not_deny_what_it_has_done() {
    const EVENTS: i64 = 700;
    let (app, proxy) = app_behind_a_wire().await;
    let events: Vec<Value> = (0..EVENTS).map(|_| event("a job")).collect();
    app.post("/events/batch", &json!({"events": events})).await.expect(201);
    let failed = app.claim_batch("a", "w:1", EVENTS as usize).await;
    let failed = failed.iter().map(|event| json!({"event_id": event["id"], "action": "fail", "retryable": false}));
    let results = json!({"worker_id": "w:1", "results": failed.collect::<Vec<_>>()});
    app.post("/events/settle", &results).await.expect(200);
    let retried = async || app.count("SELECT count(*) FROM waybill.deliveries WHERE status = 'PENDING'").await;
    proxy.cut_at("BEGIN", Cut::Before);
    app.post_empty("/events/retry").await.problem(503, "database_unavailable");
    assert_eq!(retried().await, 0);
    proxy.cut_after(1, "BEGIN", Cut::Before);
    unknown(app.post_empty("/events/retry").await, "may or may not");
    assert_eq!(retried().await, 500, "the first step is done");
    app.post_empty("/events/retry").await.expect(200);
    assert_eq!(retried().await, EVENTS);
}
