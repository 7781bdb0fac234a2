//! `GET /stats/history`: points, percentiles and what is kept.

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};

use waybill::background::stats_recorder;

use super::{history, publish_completed, record, servers, sum, total, values};
use crate::support::retention::DAY;
use crate::support::work::{W1, time};
use crate::support::{App, database};

#[tokio::test(flavor = "multi_thread")]
async fn there_is_a_value_for_every_minute() {
    let [app] = servers().await;
    app.publish_tagged("a").await;
    app.advance(120);
    app.publish_tagged("a").await;
    app.publish_tagged("a").await;
    record([&app]).await;
    app.advance(60);
    let history = history(&app, "metric=published&from=5m&step=1m").await;
    assert_eq!(values(&history, "published"), [0, 0, 1, 0, 2, 0]);
    assert_eq!((&history["step_seconds"], &history["tag"]), (&json!(60), &Value::Null));
    let times: Vec<DateTime<Utc>> = history["times"].as_array().expect("times").iter().map(time).collect();
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] == TimeDelta::minutes(1)), "{times:?}");
    assert!(times.iter().all(|time| time.timestamp() % 60 == 0), "{times:?}");
    assert_eq!((times[0], times[5] + TimeDelta::minutes(1)), (time(&history["from"]), time(&history["to"])));
    assert!(time(&history["from"]) <= app.now() - TimeDelta::minutes(5) && time(&history["to"]) > app.now());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_hour_day_and_week_and_year_show_the_same_events() {
    let [app] = servers().await;
    publish_completed(&app, "a").await;
    app.advance(600);
    publish_completed(&app, "a").await;
    record([&app]).await;
    let metrics = "metric=published,completed,latency_p50_ms";
    for (query, points) in [
        ("from=1h", 61),
        ("from=1h&step=1m", 61),
        ("from=24h&step=10m", 145),
        ("from=7d&step=1h", 169),
        ("from=365d", 366),
    ] {
        let history = history(&app, &format!("{metrics}&{query}")).await;
        assert_eq!(history["times"].as_array().map(Vec::len), Some(points), "{query}");
        for metric in ["published", "completed"] {
            assert_eq!(values(&history, metric).len(), points, "{query}");
            assert_eq!(total(&history, metric), 2, "{query}");
        }
        let known = values(&history, "latency_p50_ms").iter().filter(|value| !value.is_null()).count();
        assert!(known == 1 || known == 2, "{query}: {history}");
    }
}

/// As after a failover to a machine whose clock was wrong.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_was_ahead_for_a_while_does_not_hide_the_present() {
    let [app] = servers().await;
    app.publish_tagged("a").await;
    record([&app]).await;
    app.advance(3 * 3_600);
    app.publish_tagged("a").await;
    record([&app]).await;
    app.advance(-3 * 3_600);
    // The first call after that shows that the clock was set back.
    app.publish_tagged("a").await;
    record([&app]).await;
    for _ in 0..2 {
        app.publish_tagged("a").await;
        record([&app]).await;
    }
    let history = history(&app, "metric=published&from=5m&step=1m").await;
    assert_eq!(total(&history, "published"), 3, "the first one, and the last two");
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_outlast_a_failure_to_store_them_when_the_clock_was_set_back() {
    let [app] = servers().await;
    app.advance(3 * 3_600);
    app.publish_tagged("a").await;
    app.advance(-3 * 3_600);
    // The first call after that shows that the clock was set back.
    app.publish_tagged("a").await;
    database::execute(&app.url, "ALTER TABLE waybill.stats_minutes RENAME TO gone").await;
    stats_recorder::run_once(app.engine()).await.expect_err("the table is missing");
    database::execute(&app.url, "ALTER TABLE waybill.gone RENAME TO stats_minutes").await;
    record([&app]).await;
    let ahead = "SELECT coalesce(sum(published), 0)::bigint FROM waybill.stats_minutes WHERE tag = '' AND minute > now() + interval '1 hour'";
    assert!(app.count(ahead).await >= 1, "what was counted before the clock was set back");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_metrics_all_are_returned() {
    let [app] = servers().await;
    let history = history(&app, "").await;
    let series = history["series"].as_object().expect("series");
    assert_eq!(series.len(), 14);
    for (name, values) in series {
        let nothing = if name.starts_with("latency") { Value::Null } else { json!(0) };
        assert!(values.as_array().expect("values").iter().all(|value| *value == nothing), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn percentiles_are_within_ten_percent_of_the_latencies_of_events() {
    let [one, two] = servers().await;
    // Latencies of 10, 20, … 200 seconds. Half of the events are completed at the server that did not claim them.
    for _ in 0..20 {
        one.publish_tagged("a").await;
    }
    let claims = one.claim_batch("a", W1, 20).await;
    for (number, claimed) in claims.iter().enumerate() {
        [&one, &two].iter().for_each(|server| server.advance(10));
        let server = if number % 2 == 0 { &one } else { &two };
        server.complete(claimed["id"].as_i64().expect("an id"), W1).await.expect(200);
    }
    record([&one, &two]).await;
    let history = history(&one, "metric=latency_p50_ms,latency_p95_ms&from=1h&step=1h&tag=a").await;
    for (metric, exact) in [("latency_p50_ms", 100_000.0), ("latency_p95_ms", 190_000.0)] {
        let values = values(&history, metric);
        let known: Vec<f64> = values.iter().filter_map(Value::as_f64).collect();
        assert_eq!(known.len(), 1, "{values:?}");
        assert!((known[0] / exact - 1.0).abs() < 0.1, "{metric}: {} for {exact}", known[0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_with_several_tags_counts_once_in_the_namespace() {
    let [app] = servers().await;
    publish_completed(&app, "a,b,c").await;
    record([&app]).await;
    for tag in [None, Some("a"), Some("b"), Some("c")] {
        assert_eq!((sum(&app, tag, "published").await, sum(&app, tag, "completed").await), (1, 1), "{tag:?}");
    }
}

async fn rows(app: &App, table: &str) -> i64 {
    app.count(&format!("SELECT count(*) FROM waybill.{table}")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn minutes_are_kept_for_a_week_and_hours_for_a_year() {
    let [app] = servers().await;
    app.publish_tagged("a").await;
    record([&app]).await;
    assert_eq!((rows(&app, "stats_minutes").await, rows(&app, "stats_hours").await), (2, 2));
    app.advance(7 * DAY - 60);
    assert_eq!(app.remove_old().await["stats_minutes"], 0);
    app.advance(60);
    assert_eq!(app.remove_old().await["stats_minutes"], 2);
    assert_eq!(rows(&app, "stats_minutes").await, 0);
    assert_eq!(total(&history(&app, "metric=published&from=8d&step=1h").await, "published"), 1);
    app.advance(358 * DAY - 3_600);
    assert_eq!(app.remove_old().await["stats_hours"], 0);
    app.advance(3_600);
    assert_eq!(app.remove_old().await["stats_hours"], 2);
    assert_eq!(rows(&app, "stats_hours").await, 0);
    let removed = app.get("/metrics").await.expect(200).text;
    for table in ["stats_minutes", "stats_hours"] {
        assert!(removed.contains(&format!("waybill_removed_rows_total{{table=\"{table}\"}} 2\n")), "{removed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn minutes_and_hours_are_those_of_the_event() {
    let [app] = servers().await;
    // The clock stands at half past; the second event is of the next hour.
    app.publish_tagged("a").await;
    app.advance(1_800);
    app.publish_tagged("a").await;
    record([&app]).await;
    let history = history(&app, "metric=published&from=1h&step=1h").await;
    assert_eq!(values(&history, "published"), [1, 1]);
}
