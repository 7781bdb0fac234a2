//! Settlements that are refused are recorded for the readers of the event, and change nothing.

use serde_json::{Value, json};

use crate::support::work::{Claim, Naming, W1, W2};
use crate::support::{App, Options, database, until};

const DAY: i64 = 24 * 60 * 60;

/// Publishes an event that the first worker loses and the second one holds. Returns both claims.
async fn lost_and_held(app: &App) -> (Claim, Claim) {
    let id = app.publish_tagged("a").await;
    let lost = app.claim_one("a", W1).await;
    app.operate(id, "reset").await.expect(200);
    (lost, app.claim_one("a", W2).await)
}

async fn record(app: &App) -> usize {
    app.engine().record_refused_settlements().await.expect("a round")
}

async fn refused(app: &App, id: i64) -> Vec<Value> {
    app.event(id).await["refused_settlements"].as_array().expect("a list").clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_completion_is_recorded_with_who_wanted_what_and_why_not() {
    let app = App::with_fixed_clock().await;
    let (lost, held) = lost_and_held(&app).await;
    app.settle(&lost, "complete", Naming::Lease).await.problem(409, "lease_lost");
    assert_eq!(refused(&app, lost.event_id).await, [json!(null); 0], "nothing is written for a call");
    let first = app.now();
    app.advance(7);
    app.settle(&lost, "complete", Naming::Lease).await.problem(409, "lease_lost");
    app.settle(&lost, "fail", Naming::Worker).await.problem(409, "lease_lost");
    app.settle(&held, "complete", Naming::Lease).await.expect(200);
    app.settle(&lost, "heartbeat", Naming::Lease).await.problem(409, "already_finished");
    assert_eq!(record(&app).await, 3);
    let rows = refused(&app, lost.event_id).await;
    assert_eq!(rows.len(), 3, "{rows:?}");
    let late = &rows[0];
    assert_eq!((&late["action"], &late["code"]), (&json!("complete"), &json!("lease_lost")));
    assert_eq!((&late["worker_id"], &late["lease_id"]), (&json!(W1), &json!(lost.lease_id)));
    assert_eq!(late["calls"], 2);
    assert_eq!(app.microseconds_ahead(&late["first_at"]), first.timestamp_micros() - app.now().timestamp_micros());
    assert_eq!(app.seconds_ahead(&late["last_at"]), 0);
    assert!(rows.iter().any(|row| row["action"] == "fail" && row.get("lease_id").is_none()), "{rows:?}");
    assert!(rows.iter().any(|row| row["action"] == "heartbeat" && row["code"] == "already_finished"), "{rows:?}");
    assert_eq!(
        app.actions(lost.event_id).await,
        ["PICKED", "RESET", "PICKED", "COMPLETED"],
        "the log has changes only"
    );
    assert_eq!(record(&app).await, 0, "they were recorded");
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_settlements_of_a_batch_are_recorded_with_the_name_of_the_key() {
    let app = App::start_with(Options { fixed_clock: true, ..Options::default() }).await.with_admin_key().await;
    let (lost, held) = lost_and_held(&app).await;
    let worker = app.holding(&app.make_key(json!({"name": "a worker", "scopes": ["work"]})).await);
    let results = worker.settle_batch(W1, &[lost.settlement("complete", json!({}))]).await;
    assert_eq!(results[0]["problem"]["code"], "lease_lost");
    worker.settle_batch(W2, &[held.settlement("complete", json!({}))]).await;
    worker.post("/events/999999/complete", &json!({"worker_id": W1})).await.problem(404, "event_not_found");
    assert_eq!(record(&app).await, 1, "what is accepted, and events that do not exist, leave nothing");
    assert_eq!(refused(&app, lost.event_id).await[0]["actor"], "a worker");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_added_up_and_an_event_has_a_limited_number_of_rows() {
    let app = App::with_fixed_clock().await;
    let (lost, _) = lost_and_held(&app).await;
    for round in 1..=3 {
        for number in 0..30 {
            let stranger = lost.as_worker(&format!("host:{number}"));
            app.settle(&stranger, "complete", Naming::Lease).await.problem(409, "lease_lost");
        }
        assert_eq!(record(&app).await, 30);
        let rows = refused(&app, lost.event_id).await;
        assert_eq!(rows.len(), 20, "round {round}");
        assert!(rows.iter().all(|row| row["calls"] == round), "{rows:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn they_are_kept_for_a_week_after_the_last_call() {
    let app = App::with_fixed_clock().await;
    let (lost, _) = lost_and_held(&app).await;
    app.settle(&lost, "complete", Naming::Lease).await.problem(409, "lease_lost");
    record(&app).await;
    app.advance(6 * DAY);
    app.settle(&lost, "complete", Naming::Lease).await.problem(409, "lease_lost");
    record(&app).await;
    app.advance(6 * DAY);
    app.remove_old().await;
    assert_eq!(app.count("SELECT count(*) FROM waybill.refused_settlements").await, 1);
    app.advance(2 * DAY);
    let removed = app.remove_old().await;
    assert!(format!("{removed:?}").contains("refused_settlements"), "{removed:?}");
    assert_eq!(app.count("SELECT count(*) FROM waybill.refused_settlements").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_records_them_by_itself_and_loses_those_that_cannot_be_written() {
    let app = App::start().await;
    let (lost, _) = lost_and_held(&app).await;
    database::execute(&app.url, "ALTER TABLE waybill.refused_settlements RENAME TO hidden").await;
    app.settle(&lost, "complete", Naming::Lease).await.problem(409, "lease_lost");
    // Either this round fails or that of the server has.
    let _ = app.engine().record_refused_settlements().await;
    database::execute(&app.url, "ALTER TABLE waybill.hidden RENAME TO refused_settlements").await;
    app.settle(&lost, "fail", Naming::Lease).await.problem(409, "lease_lost");
    until("it is recorded", async || !refused(&app, lost.event_id).await.is_empty()).await;
    let rows = refused(&app, lost.event_id).await;
    assert!(rows.iter().all(|row| row["action"] == "fail"), "{rows:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_says_how_long_a_lease_is_unless_it_is_the_default() {
    let app = App::start().await;
    app.publish_tagged("a").await;
    app.publish_tagged("a").await;
    let body = |seconds: f64| json!({"tags": ["a"], "worker_id": W1, "max": 1, "lease_seconds": seconds});
    let mut lengths = Vec::new();
    for seconds in [300.0, 12.5] {
        let id = app.claim_by(&body(seconds)).await[0]["id"].as_i64().expect("an id");
        lengths.push(app.event(id).await["logs"][0]["lease_seconds"].clone());
    }
    // An event that is handed to the worker that waits for it.
    let waiting =
        async { app.get(&format!("/events/subscribe?tags=b&worker_id={W2}&lease_seconds=60&wait_seconds=10")).await };
    let publishing = async {
        until("the worker waits", async || app.engine().hub().asleep() == 1).await;
        app.publish_tagged("b").await
    };
    let (claimed, id) = tokio::join!(waiting, publishing);
    claimed.expect(200);
    lengths.push(app.event(id).await["logs"][0]["lease_seconds"].clone());
    assert_eq!(lengths, [json!(null), json!(12.5), json!(60.0)]);
}
