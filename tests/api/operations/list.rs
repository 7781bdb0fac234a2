//! `GET /operations`, `GET /operations/{id}`, `POST /operations/{id}/cancel`, and for how long they are kept.

use serde_json::{Value, json};

use super::{assert_counts, lines, waiting};
use crate::support::App;
use crate::support::work::{ids, time};

/// One day, in seconds.
const DAY: i64 = 24 * 60 * 60;

async fn list(app: &App, query: &str) -> Vec<i64> {
    ids(app.get(&format!("/operations?{query}")).await.expect(200).json()["operations"].as_array().expect("a list"))
}

async fn cancel(app: &App, operation: &Value) -> Value {
    app.post_empty(&format!("/operations/{}/cancel", operation["id"])).await.expect(200).json()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_shows_what_it_does_and_how_far_it_is() {
    let app = App::with_fixed_clock().await;
    waiting(&app, 3).await;
    let filter = json!({"tags": ["a"], "status": "PENDING", "since": "2020-01-01T00:00:00Z"});
    let order = json!({"filter": filter, "reason": "obsolete", "per_second": 0.5});
    let started = app.start_operation("/events/cancel", &order).await;
    let expected = json!({
        "id": started["id"], "kind": "cancel_events", "status": "RUNNING", "filter": filter, "reason": "obsolete",
        "config": null,
        "per_second": 0.5, "matched": 3, "matched_is_exact": true, "done": 0, "skipped": 0, "failed": 0, "actor": null,
        "created_at": started["created_at"], "started_at": null, "finished_at": null,
    });
    assert_eq!(started, expected);
    assert_eq!(time(&started["created_at"]).timestamp(), app.now().timestamp());
    app.advance(5);
    app.run_steps().await;
    let running = app.operation(&started).await;
    assert_eq!(
        (&running["status"], &running["done"], &running["finished_at"]),
        (&json!("RUNNING"), &json!(1), &json!(null))
    );
    assert_eq!(time(&running["started_at"]).timestamp(), app.now().timestamp());
    assert_eq!(app.until_complete(&started).await["done"], 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_operation_stops_and_one_that_is_over_stays_as_it_is() {
    let app = App::with_fixed_clock().await;
    waiting(&app, 3).await;
    let started = app.start_operation("/events/cancel", &json!({"filter": {}, "per_second": 1})).await;
    assert_eq!(app.run_steps().await, 1);
    let cancelled = cancel(&app, &started).await;
    assert_eq!((&cancelled["status"], &cancelled["done"]), (&json!("CANCELLED"), &json!(1)));
    assert_eq!(time(&cancelled["finished_at"]).timestamp(), app.now().timestamp());
    app.advance(60);
    assert_eq!((app.run_steps().await, lines(&app, "CANCELLED").await), (0, 1));
    assert_eq!(cancel(&app, &started).await, cancelled);
    let second = app.start_operation("/events/cancel", &json!({"filter": {}})).await;
    let complete = app.until_complete(&second).await;
    assert_counts(&complete, 2, 0, 0);
    assert_eq!(cancel(&app, &second).await, complete);
}

#[tokio::test(flavor = "multi_thread")]
async fn operations_are_listed_by_status_and_kind_in_both_orders() {
    let app = App::with_fixed_clock().await;
    let mut started = Vec::new();
    for path in ["/events/retry", "/events/cancel", "/events/retry"] {
        started.push(app.start_operation(path, &json!({"filter": {}})).await);
    }
    let all = ids(&started);
    cancel(&app, &started[0]).await;
    assert_eq!(list(&app, "").await, all);
    assert_eq!(list(&app, "order=desc").await, [all[2], all[1], all[0]]);
    assert_eq!(list(&app, "status=RUNNING").await, all[1..]);
    assert_eq!(list(&app, "status=CANCELLED").await, all[..1]);
    assert_eq!(list(&app, "status=COMPLETED").await, [0; 0]);
    assert_eq!(list(&app, "kind=retry_events").await, [all[0], all[2]]);
    assert_eq!(list(&app, "kind=retry_events&status=RUNNING&order=desc").await, all[2..]);
    for (order, expected) in [("asc", [all[0], all[1], all[2]]), ("desc", [all[2], all[1], all[0]])] {
        let mut seen = Vec::new();
        let mut after = String::new();
        loop {
            let page = app.get(&format!("/operations?limit=2&order={order}{after}")).await.expect(200).json();
            seen.extend(ids(page["operations"].as_array().expect("a list")));
            let Some(next) = page["next"].as_str() else { break };
            after = format!("&after={next}");
        }
        assert_eq!(seen, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_operations_and_parameters_are_refused() {
    let app = App::start().await;
    app.get("/operations/4711").await.problem(404, "operation_not_found");
    app.post_empty("/operations/4711/cancel").await.problem(404, "operation_not_found");
    for (query, field) in [("status=DONE", "status"), ("kind=eat", "kind"), ("order=up", "order"), ("limit=0", "limit")]
    {
        app.get(&format!("/operations?{query}")).await.names(&[field]);
    }
    app.get("/operations?colour=red").await.names(&["colour"]);
    app.post("/operations/1/cancel", &json!({"reason": "x"})).await.names(&["reason"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_than_a_hundred_operations_run_at_once() {
    let app = App::with_fixed_clock().await;
    let start = async || app.post("/events/retry", &json!({"filter": {}})).await;
    for _ in 0..95 {
        start().await.expect(202);
    }
    let replies = futures_util::future::join_all((0..10).map(|_| start())).await;
    let started = replies.iter().filter(|reply| reply.status == 202).count();
    assert_eq!(started, 5);
    for refused in replies.into_iter().filter(|reply| reply.status != 202) {
        refused.problem(409, "too_many_operations");
    }
    app.dry_run("/events/retry", json!({})).await;
    app.run_steps().await;
    start().await.expect(202);
}

#[tokio::test(flavor = "multi_thread")]
async fn operations_are_deleted_thirty_days_after_their_end() {
    let app = App::with_fixed_clock().await;
    waiting(&app, 100).await;
    let slow = app.start_operation("/events/cancel", &json!({"filter": {}, "per_second": 0.1})).await;
    let over = app.start_operation("/events/retry", &json!({"filter": {}})).await;
    app.run_steps().await;
    assert_eq!(app.operation(&over).await["status"], "COMPLETED");
    app.advance(30 * DAY);
    assert_eq!(app.remove_old().await["operations"], 0);
    app.advance(1);
    assert_eq!(app.remove_old().await["operations"], 1);
    assert_eq!(list(&app, "").await, ids(&[slow]));
}
