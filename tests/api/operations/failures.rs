//! Rows that cannot be changed, and locks that steps meet.

use serde_json::json;

use super::{assert_counts, lines, waiting};
use crate::support::locks::HeldRow;
use crate::support::{App, Options, database, ledger};

/// Makes the database refuse every change of these deliveries.
async fn poison(app: &App, ids: &[i64]) {
    let ids = ids.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
    let sql = format!(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             RAISE check_violation USING MESSAGE = 'not this one'; END $$; \
         CREATE TRIGGER poison BEFORE UPDATE ON waybill.deliveries \
             FOR EACH ROW WHEN (OLD.id IN ({ids})) EXECUTE FUNCTION refuse()"
    );
    database::execute(&app.url, &sql).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_cannot_be_changed_is_counted_as_failed_and_the_rest_proceeds() {
    let app = App::with_fixed_clock().await;
    let ids = waiting(&app, 30).await;
    poison(&app, &[ids[0], ids[17], ids[29]]).await;
    let started = app.start_operation("/events/cancel", &json!({"filter": {}, "per_second": 100})).await;
    let over = app.until_complete(&started).await;
    assert_counts(&over, 27, 0, 3);
    assert_eq!(lines(&app, "CANCELLED").await, 27);
    assert_eq!((app.status(ids[17]).await, app.status(ids[18]).await), ("PENDING".into(), "CANCELLED".into()));
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_that_cannot_be_changed_makes_its_event_fail_and_not_the_next() {
    let flags = vec!["--dispatch=false".to_owned()];
    let app = App::start_with(Options { flags, fixed_clock: true, ..Options::default() }).await;
    app.subscribe_many(5, "http://127.0.0.1:9/hook", json!({})).await;
    let events = [app.publish_typed("a.b", json!(1)).await, app.publish_typed("a.b", json!(2)).await];
    let third = app.deliveries_of(events[0]).await[2]["id"].as_i64().expect("an id");
    poison(&app, &[third]).await;
    let started = app.start_operation("/events/cancel", &json!({"filter": {}})).await;
    assert_counts(&app.until_complete(&started).await, 1, 0, 1);
    assert_eq!(lines(&app, "CANCELLED").await, 9, "the other pushes of the event are not left behind");
    assert_eq!((app.status(events[0]).await, app.status(events[1]).await), ("PENDING".into(), "CANCELLED".into()));
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_that_meets_a_lock_waits_and_the_others_go_on() {
    let app = App::with_fixed_clock().await;
    let ids = waiting(&app, 2).await;
    let blocked = app.start_operation("/events/cancel", &json!({"filter": {}})).await;
    let row = HeldRow::lock(&app, ids[1]).await;
    let other = app.publish_tagged("b").await;
    let free = app.start_operation("/events/cancel", &json!({"filter": {"tags": ["b"]}})).await;
    assert_eq!(app.run_steps().await, 1, "in the same round");
    assert_counts(&app.operation(&free).await, 1, 0, 0);
    assert_eq!(app.status(other).await, "CANCELLED");
    assert_counts(&app.operation(&blocked).await, 0, 0, 0);
    row.unlock().await;
    assert_counts(&app.until_complete(&blocked).await, 2, 0, 0);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_that_cannot_be_read_does_not_stop_the_others() {
    let app = App::with_fixed_clock().await;
    waiting(&app, 1).await;
    let broken = app.start_operation("/events/cancel", &json!({"filter": {}})).await;
    database::execute(&app.url, "UPDATE waybill.operations SET filter = '{\"tags\": 5}'").await;
    let whole = app.start_operation("/events/cancel", &json!({"filter": {}})).await;
    assert_eq!(app.run_steps().await, 1, "in the same round");
    assert_eq!(app.operation(&whole).await["status"], "COMPLETED");
    assert_eq!(app.operation(&broken).await["status"], "RUNNING");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_that_can_never_continue_is_given_up_in_the_end() {
    let app = App::with_fixed_clock().await;
    waiting(&app, 1).await;
    let broken = app.start_operation("/events/cancel", &json!({"filter": {}})).await;
    database::execute(&app.url, "UPDATE waybill.operations SET filter = '{\"tags\": 5}'").await;
    let mut rounds = 0;
    while app.operation(&broken).await["status"] == "RUNNING" {
        rounds += 1;
        assert!(rounds <= 20, "it is given up");
        app.run_steps().await;
        app.advance(1);
    }
    let over = app.operation(&broken).await;
    assert_eq!((&over["status"], rounds), (&json!("FAILED"), 17));
    assert!(over["finished_at"].is_string());
    let list = app.get("/operations?status=FAILED").await.expect(200).json();
    assert_eq!(list["operations"][0]["id"], broken["id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_failed_is_tried_again_with_half_its_rows() {
    let app = App::with_fixed_clock().await;
    let ids = waiting(&app, 8).await;
    let started = app.start_operation("/events/cancel", &json!({"filter": {}, "per_second": 40})).await;
    let row = HeldRow::lock(&app, ids[0]).await;
    assert_eq!(app.run_steps().await, 0);
    row.unlock().await;
    app.advance(1);
    assert_eq!(app.run_steps().await, 2);
    app.advance(1);
    assert_eq!(app.run_steps().await, 6, "whole steps again");
    assert_counts(&app.until_complete(&started).await, 8, 0, 0);
}
