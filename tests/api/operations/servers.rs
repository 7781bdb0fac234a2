//! Operations outlive their servers, and servers share them.

use serde_json::{Value, json};

use super::{assert_counts, lines, waiting};
use crate::push::{in_own_process, second_server};
use crate::support::{App, Options, database, ledger, until};

/// Returns how many deliveries have more than one line with this action.
async fn twice(app: &App, action: &str) -> i64 {
    let by_delivery = format!(
        "SELECT event_id FROM waybill.event_log WHERE action = '{action}' GROUP BY event_id, delivery_id HAVING count(*) > 1"
    );
    app.count(&format!("SELECT count(*) FROM ({by_delivery}) twice")).await
}

/// A server whose clock stands still runs no steps on its own.
async fn idle_server() -> App {
    App::with_fixed_clock().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_neither_loses_nor_repeats_a_count() {
    const EVENTS: usize = 600;
    let front = idle_server().await;
    waiting(&front, EVENTS).await;
    let started = front.start_operation("/events/cancel", &json!({"filter": {}, "per_second": 1_000})).await;
    let done = async || front.operation(&started).await["done"].as_i64().expect("a number");
    for kill_after in [100, 300] {
        let server = in_own_process(&front, &[]);
        until("it is under way", async || done().await >= kill_after).await;
        server.kill_9().await;
        assert_eq!(done().await, lines(&front, "CANCELLED").await, "what is counted is what was done");
    }
    let last = in_own_process(&front, &[]);
    until("it is over", async || front.operation(&started).await["status"] == "COMPLETED").await;
    assert_counts(&front.operation(&started).await, EVENTS as i64, 0, 0);
    assert_eq!((lines(&front, "CANCELLED").await, twice(&front, "CANCELLED").await), (EVENTS as i64, 0));
    last.stop().await;
    ledger::check(&front).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_in_many_parts_is_finished_by_the_next_server() {
    const PUSHES: i64 = 400;
    let flags = || vec!["--dispatch=false".to_owned()];
    let front = App::start_with(Options { flags: flags(), fixed_clock: true, ..Options::default() }).await;
    front.subscribe_many(PUSHES as usize, "http://127.0.0.1:9/hook", json!({})).await;
    let id = front.publish_typed("order.paid", json!(1)).await;
    front.operate(id, "cancel").await.expect(200);
    let started = front.start_operation("/events/retry", &json!({"filter": {}, "per_second": 500})).await;
    let server = in_own_process(&front, &["--dispatch=false"]);
    until("it is under way", async || lines(&front, "RETRIED").await >= 100).await;
    server.kill_9().await;
    let _next = in_own_process(&front, &["--dispatch=false"]);
    until("it is over", async || front.operation(&started).await["status"] == "COMPLETED").await;
    assert_counts(&front.operation(&started).await, 1, 0, 0);
    assert_eq!((lines(&front, "RETRIED").await, twice(&front, "RETRIED").await), (PUSHES, 0));
    ledger::check(&front).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_servers_share_operations_without_doing_anything_twice() {
    const EVENTS: usize = 400;
    let app = App::start().await;
    let other = second_server(&app, &[]).await;
    waiting(&app, EVENTS).await;
    let mut started: Vec<Value> = Vec::new();
    for server in [&app, &other, &app] {
        started.push(server.start_operation("/events/cancel", &json!({"filter": {}, "per_second": 1_000})).await);
    }
    let mut sum = 0;
    for operation in &started {
        until("it is over", async || app.operation(operation).await["status"] == "COMPLETED").await;
        let over = app.operation(operation).await;
        assert_eq!(over["failed"], 0, "{over}");
        sum += over["done"].as_i64().expect("a number");
    }
    assert_eq!(sum, EVENTS as i64);
    assert_eq!((lines(&app, "CANCELLED").await, twice(&app, "CANCELLED").await), (EVENTS as i64, 0));
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_that_another_server_works_on_is_left_to_it() {
    let app = idle_server().await;
    waiting(&app, 2).await;
    let started = app.start_operation("/events/cancel", &json!({"filter": {}})).await;
    let lock = format!("SELECT 1 FROM waybill.operations WHERE id = {} FOR UPDATE", started["id"]);
    let held = crate::support::locks::HeldRow::with_uncommitted(&app, &lock).await;
    assert_eq!(app.run_steps().await, 0);
    held.unlock().await;
    assert_eq!(app.run_steps().await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_acts_for_the_one_who_started_it() {
    let app = idle_server().await;
    waiting(&app, 1).await;
    let started = app.start_operation("/events/cancel", &json!({"filter": {}})).await;
    assert_eq!(started["actor"], json!(null));
    database::execute(&app.url, "UPDATE waybill.operations SET actor = 'night shift'").await;
    assert_eq!(app.until_complete(&started).await["actor"], "night shift");
}
