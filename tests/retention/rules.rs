//! The small tables: each has its bound.

use serde_json::json;
use waybill::background::retention::{RetentionSettings, event_log, run_once};
use waybill::background::subscription_drainer;
use waybill::domain::retention::Retention;

use crate::support::locks::HeldRow;
use crate::support::receiver::Receiver;
use crate::support::retention::{DAY, by_default};
use crate::support::{App, database};

async fn count(app: &App, table: &str) -> i64 {
    app.count(&format!("SELECT count(*) FROM waybill.{table}")).await
}

async fn delete(app: &App, subscription: &serde_json::Value) {
    app.delete(&format!("/subscriptions/{}", subscription["id"])).await.expect(204);
    subscription_drainer::run_once(app.engine()).await.expect("a round");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_state_of_an_endpoint_is_deleted_a_month_after_nobody_needs_it() {
    let app = App::with_fixed_clock().await;
    app.subscribe("http://127.0.0.1:9/named", json!({})).await;
    let long_ago = app.now() - chrono::TimeDelta::days(31);
    let endpoint = |url: &str, opened: &str, paused: &str| {
        format!(
            "INSERT INTO waybill.endpoints (url, opened_at, paused_until, updated_at) \
             VALUES ('http://127.0.0.1:9/{url}', {opened}, {paused}, '{long_ago}');"
        )
    };
    let past = "now() - interval '20 days'";
    let sql = [
        endpoint("named", "NULL", "NULL"),
        endpoint("left", "NULL", "NULL"),
        endpoint("was_paused", "NULL", past),
        endpoint("open", past, past),
        endpoint("paused", "NULL", "now() + interval '1 day'"),
        endpoint("recent", "NULL", "NULL"),
        "UPDATE waybill.endpoints SET updated_at = updated_at + interval '2 days' WHERE url ~ '/recent$'".to_owned(),
    ];
    database::execute(&app.url, &sql.concat()).await;
    assert_eq!(app.remove_old().await["endpoints"], 3);
    let kept = "SELECT count(*) FROM waybill.endpoints WHERE url ~ '/(named|paused|recent)$'";
    assert_eq!(app.count(kept).await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_that_is_in_use_does_not_keep_the_others() {
    let app = App::with_fixed_clock().await;
    let long_ago = app.now() - chrono::TimeDelta::days(31);
    let letters = format!(
        "INSERT INTO waybill.dead_letters
             (delivery_id, event_id, subscription_id, subscription_version, reason, created_at, event, subscription, attempts)
         SELECT n, n, 1, 1, 'manual', timestamptz '{long_ago}' + n * interval '1 millisecond', '{{}}', '{{}}', '[]'
         FROM generate_series(1, 2000) n"
    );
    database::execute(&app.url, &letters).await;
    let oldest = "SELECT FROM waybill.dead_letters WHERE delivery_id = 1 FOR UPDATE";
    let held = HeldRow::with_uncommitted(&app, oldest).await;
    assert_eq!(app.remove_old().await["dead_letters"], 1_999);
    held.unlock().await;
    assert_eq!(app.remove_old().await["dead_letters"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_subscription_leaves_with_its_secrets_after_the_retention_of_the_log() {
    let app = App::with_fixed_clock().await;
    let deleted = app.subscribe("http://127.0.0.1:9/a", json!({})).await;
    let kept = app.subscribe("http://127.0.0.1:9/b", json!({})).await;
    for table in [
        "subscription_rates (subscription_id, used_until)",
        "filter_overruns (subscription_id, last_at, events, last_event_id)",
    ] {
        let more = if table.starts_with("filter") { ", 1, 1" } else { "" };
        let sql = format!("INSERT INTO waybill.{table} VALUES ({}, now(){more}) ON CONFLICT DO NOTHING", deleted["id"]);
        database::execute(&app.url, &sql).await;
    }
    delete(&app, &deleted).await;
    app.advance(90 * DAY);
    assert_eq!(app.remove_old().await["subscriptions"], 0);
    app.advance(1);
    assert_eq!(app.remove_old().await["subscriptions"], 1);
    assert_eq!((count(&app, "subscriptions").await, count(&app, "subscription_secrets").await), (1, 1));
    assert_eq!((count(&app, "subscription_rates").await, count(&app, "filter_overruns").await), (0, 0));
    app.get(&format!("/subscriptions/{}", kept["id"])).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_subscription_stays_while_a_delivery_or_a_dead_letter_names_it() {
    let (app, receiver) = (App::with_fixed_clock().await, Receiver::start().await);
    let pushed = app.subscribe(&receiver.url("/a"), json!({"event_types": ["a"]})).await;
    let failed = app.subscribe(&receiver.url("/b"), json!({"event_types": ["b"], "max_attempts": 1})).await;
    let event = app.publish_typed("a", json!(1)).await;
    app.until_delivery(app.only_delivery(event).await, "COMPLETED").await;
    app.publish_and_fail(&receiver, "b", json!(1)).await;
    for subscription in [&pushed, &failed] {
        delete(&app, subscription).await;
    }
    app.advance(91 * DAY);
    // A round removes events first, then dead letters, then subscriptions.
    let round = async |events, dead_letters| {
        let settings = RetentionSettings { events, dead_letters, ..by_default() };
        run_once(app.engine(), &settings).await.expect("a round")["subscriptions"]
    };
    let (month, forever) = (Retention::days(30), Retention::Forever);
    assert_eq!(round(forever, forever).await, 0);
    assert_eq!(round(month, forever).await, 1, "its deliveries have left");
    assert_eq!(round(month, month).await, 1, "its dead letter has left");
    assert_eq!(count(&app, "subscriptions").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_kept_for_ever_stays() {
    let app = App::with_fixed_clock().await;
    super::publish_completed(&app, "a").await;
    app.advance(10_000 * DAY);
    let forever = Retention::Forever;
    let settings =
        RetentionSettings { events: forever, log: forever, dead_letters: forever, audit: forever, archive_dir: None };
    assert_eq!(run_once(app.engine(), &settings).await.expect("a round").get("events"), None);
    assert_eq!(event_log::run_once(app.engine(), &settings).await.expect("a round"), 0);
    assert_eq!((count(&app, "events").await, count(&app, "event_log").await), (1, 2));
}
