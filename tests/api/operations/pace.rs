//! Operations keep to their rate.

use chrono::TimeDelta;
use serde_json::{Value, json};

use super::{assert_counts, waiting};
use crate::support::{App, Options};

async fn start(app: &App, per_second: f64) -> Value {
    app.start_operation("/events/cancel", &json!({"filter": {}, "per_second": per_second})).await
}

/// Returns how many rows are dealt with in each tenth of a second.
async fn tenths(app: &App, count: usize) -> Vec<usize> {
    let mut dealt_with = Vec::new();
    for _ in 0..count {
        dealt_with.push(app.run_steps().await);
        app.engine().clock().advance(TimeDelta::milliseconds(100));
    }
    dealt_with
}

#[tokio::test(flavor = "multi_thread")]
async fn work_is_spread_evenly_over_each_second() {
    let app = App::with_fixed_clock().await;
    waiting(&app, 100).await;
    let started = start(&app, 40.0).await;
    assert_eq!(tenths(&app, 10).await, [4; 10]);
    assert_counts(&app.operation(&started).await, 40, 0, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_low_rate_is_kept_too() {
    let app = App::with_fixed_clock().await;
    waiting(&app, 100).await;
    start(&app, 2.5).await;
    assert_eq!(tenths(&app, 12).await, [1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0]);
    let app = App::with_fixed_clock().await;
    waiting(&app, 10).await;
    start(&app, 0.1).await;
    assert_eq!(app.run_steps().await, 1);
    app.engine().clock().advance(TimeDelta::milliseconds(9_900));
    assert_eq!(app.run_steps().await, 0);
    app.engine().clock().advance(TimeDelta::milliseconds(100));
    assert_eq!(app.run_steps().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_step_catches_up_by_at_most_a_second() {
    let app = App::with_fixed_clock().await;
    waiting(&app, 100).await;
    start(&app, 10.0).await;
    assert_eq!(app.run_steps().await, 1);
    app.advance(60);
    assert_eq!(app.run_steps().await, 11, "those of one second, and the next");
    assert_eq!(tenths(&app, 5).await, [0, 1, 1, 1, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pushes_of_an_event_count_towards_the_rate() {
    let app =
        App::start_with(Options { flags: vec!["--dispatch=false".into()], fixed_clock: true, ..Options::default() })
            .await;
    app.subscribe_many(10, "http://127.0.0.1:9/hook", json!({})).await;
    app.publish_typed("order.paid", json!(1)).await;
    app.publish_typed("order.paid", json!(2)).await;
    let started = start(&app, 30.0).await;
    assert_eq!(tenths(&app, 8).await, [3, 3, 3, 1, 3, 3, 3, 1]);
    assert_counts(&app.operation(&started).await, 2, 0, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn operations_do_not_slow_each_other_down() {
    let app = App::with_fixed_clock().await;
    waiting(&app, 1_000).await;
    let slow = start(&app, 1.0).await;
    let fast = start(&app, 1_000.0).await;
    for _ in 0..10 {
        app.run_steps().await;
        app.engine().clock().advance(TimeDelta::milliseconds(100));
    }
    assert_eq!(app.operation(&slow).await["done"], 1);
    assert_eq!(app.operation(&fast).await["done"], 999);
}

/// No step reads more than the rows it may, so many of them may find nothing.
#[tokio::test(flavor = "multi_thread")]
async fn an_operation_with_few_matches_reads_on_to_the_end_without_waiting() {
    let flags = vec!["--list-scan-rows=500".to_owned()];
    let app = App::start_with(Options { flags, fixed_clock: true, ..Options::default() }).await;
    waiting(&app, 700).await;
    let rare = app.publish_tagged("rare").await;
    waiting(&app, 700).await;
    let order = json!({"filter": {"tags": ["rare"]}});
    let started = app.start_operation("/events/cancel", &order).await;
    assert_eq!((&started["matched"], &started["matched_is_exact"]), (&json!(0), &json!(false)));
    assert_eq!(app.run_steps().await, 1);
    assert_eq!(app.status(rare).await, "CANCELLED");
    assert_counts(&app.until_complete(&started).await, 1, 0, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn matches_are_counted_up_to_a_limit() {
    let flags = vec!["--list-scan-rows=500".to_owned(), "--dispatch=false".to_owned()];
    let app = App::start_with(Options { flags, ..Options::default() }).await;
    waiting(&app, 500).await;
    let counted = async || {
        let dry = app.dry_run("/events/cancel", json!({})).await;
        (dry["matched"].clone(), dry["matched_is_exact"].clone())
    };
    assert_eq!(counted().await, (json!(500), json!(true)));
    waiting(&app, 1).await;
    assert_eq!(counted().await, (json!(500), json!(false)));
}
