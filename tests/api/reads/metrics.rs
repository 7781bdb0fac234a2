//! `GET /metrics`.

use std::collections::BTreeMap;

use serde_json::json;

use crate::support::receiver::{Gate, Receiver, Reply};
use crate::support::{App, Options, Reply as Answer, until};

/// Starts a server that reads its gauges again for every scrape.
async fn start(flags: &[&str]) -> App {
    start_with(false, flags).await
}

async fn start_with(fixed_clock: bool, flags: &[&str]) -> App {
    let flags = ["--metrics-cache-ms=0"].iter().chain(flags).map(|flag| (*flag).to_owned()).collect();
    App::start_with(Options { flags, fixed_clock, ..Options::default() }).await
}

/// Returns the metrics by name and labels, as they are written.
async fn metrics(app: &App) -> BTreeMap<String, f64> {
    let request = app.client.get(format!("{}/metrics", app.base)).header("accept", "application/openmetrics-text");
    let reply = Answer::of(request.send().await.expect("a response")).await.expect(200);
    let content_type = reply.header("content-type");
    assert_eq!(content_type, Some("application/openmetrics-text; version=1.0.0; charset=utf-8"));
    read(&reply.text)
}

/// Parses OpenMetrics text and asserts that it is valid.
fn read(text: &str) -> BTreeMap<String, f64> {
    let lines = text.strip_suffix("# EOF\n").expect("the end is marked");
    let mut families = BTreeMap::new();
    let mut samples = BTreeMap::new();
    for line in lines.lines() {
        match line.splitn(4, ' ').collect::<Vec<_>>()[..] {
            ["#", "HELP", name, help] => assert!(!name.is_empty() && !help.is_empty(), "{line}"),
            ["#", "TYPE", name, kind] => {
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                assert_eq!(families.insert(name, kind), None, "{name} is described twice");
            }
            _ => {
                let (series, value) = line.rsplit_once(' ').expect(line);
                let name = series.split('{').next().unwrap_or_default();
                assert!(is_of_a_family(name, &families), "{line}");
                check_labels(series);
                assert_eq!(samples.insert(series.to_owned(), value.parse().expect(line)), None, "{series} twice");
            }
        }
    }
    samples
}

fn is_of_a_family(name: &str, families: &BTreeMap<&str, &str>) -> bool {
    let kind_of = |suffix: &str| name.strip_suffix(suffix).and_then(|family| families.get(family).copied());
    families.get(name).is_some_and(|kind| *kind == "gauge")
        || kind_of("_total") == Some("counter")
        || ["_bucket", "_sum", "_count"].iter().any(|suffix| kind_of(suffix) == Some("histogram"))
}

/// Asserts that there are few labels, and none whose values clients choose.
#[track_caller]
fn check_labels(series: &str) {
    let Some((_, labels)) = series.split_once('{') else { return };
    let labels = labels.strip_suffix('}').expect(series);
    for label in labels.split(',') {
        let (name, value) = label.split_once('=').expect(series);
        let value = value.trim_matches('"');
        let is_known = match name {
            "subscription" => value == "other" || value.parse::<i64>().is_ok(),
            "action" => value.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_'),
            "state" => ["in_use", "idle"].contains(&value),
            "lane" | "reason" => value.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'),
            "method" => value == "other" || value.bytes().all(|byte| byte.is_ascii_uppercase()),
            "route" => value == "other" || value.starts_with('/'),
            "status" => ["2xx", "3xx", "4xx", "5xx"].contains(&value),
            "version" | "rustc" => value.starts_with(|first: char| first.is_ascii_digit()),
            // Those of tags are bounded otherwise: see `tests/metrics/queues.rs`.
            "namespace" | "tag" => true,
            "table" => value.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'),
            "le" => value == "+Inf" || value.parse::<f64>().is_ok(),
            _ => false,
        };
        assert!(is_known, "{series}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_server_has_counted_nothing() {
    let app = App::start().await;
    let mut metrics = metrics(&app).await;
    // The partitions of this week and the next, and the default partition.
    assert!(metrics.remove("waybill_event_log_partitions").is_some_and(|partitions| partitions == 3.0));
    // What is not counted, and what the server does on its own.
    metrics.retain(|series, _| {
        let others = ["process_", "waybill_build_info", "waybill_database_", "waybill_queues_complete"];
        !others.iter().any(|start| series.starts_with(start))
    });
    assert!(metrics.values().all(|value| *value == 0.0), "{metrics:?}");
    for name in [
        "waybill_events_received_total",
        "waybill_pushes_pending",
        "waybill_oldest_push_seconds",
        "waybill_breakers_open",
        "waybill_push_seconds_count",
    ] {
        assert!(metrics.contains_key(name), "{name} in {metrics:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pushes_are_counted_by_their_outcome() {
    let (app, receiver) = (start(&[]).await, Receiver::start().await);
    let fields = json!({"event_types": ["t"], "backoff": {"strategy": "fixed", "seconds": 0}, "max_attempts": 2});
    let id = app.subscribe(&receiver.url("/hook"), fields).await["id"].clone();
    receiver.next(Reply::ok());
    app.publish_and_wait("COMPLETED").await;
    receiver.next(Reply::status(500));
    receiver.next(Reply::ok());
    app.publish_and_wait("COMPLETED").await;
    receiver.next(Reply::status(400));
    app.publish_and_wait("FAILED").await;
    app.publish(json!({"event_type": "nobody.cares"})).await;
    app.publish_tagged("work").await;
    app.claim("work", "w:1").await.expect("an event");

    let of = |name: &str| format!("waybill_{name}_total{{subscription=\"{id}\"}}");
    let first = "waybill_first_push_seconds_count";
    until("the last attempt is counted", async || metrics(&app).await[first] == 3.0).await;
    let metrics = metrics(&app).await;
    let counted = |name: &str| metrics.get(name).copied().unwrap_or_else(|| panic!("{name} in {metrics:?}"));
    assert_eq!(counted(&of("deliveries_enqueued")), 3.0);
    assert_eq!(counted(&of("pushes_sent")), 4.0);
    assert_eq!(counted(&of("pushes_succeeded")), 2.0);
    assert_eq!(counted(&of("pushes_retried")), 1.0);
    assert_eq!(counted(&of("pushes_dead_lettered")), 1.0);
    assert_eq!(counted("waybill_events_received_total"), 5.0);
    assert_eq!(counted("waybill_events_without_subscriber_total"), 1.0);
    assert_eq!(counted("waybill_events_claimed_total"), 1.0);
    assert_eq!(counted("waybill_settlements_total{action=\"COMPLETED\"}"), 2.0);
    assert_eq!(counted("waybill_settlements_total{action=\"FAILED\"}"), 2.0);
    assert_eq!(counted("waybill_push_seconds_count"), 4.0);
    assert_eq!(counted("waybill_pushes_pending"), 0.0);
}

impl App {
    /// Publishes an event of the type `t`, and waits until it has this status.
    async fn publish_and_wait(&self, status: &str) {
        let id = self.publish_typed("t", json!({})).await;
        until(status, async || self.event(id).await["status"] == status).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_pushes_are_counted_and_the_oldest_has_an_age() {
    let (app, receiver) = (start_with(true, &[]).await, Receiver::start().await);
    receiver.always(Reply::status(500));
    app.subscribe(&receiver.url("/hook"), json!({"event_types": ["t"]})).await;
    for _ in 0..3 {
        app.publish_typed("t", json!({})).await;
    }
    until("all wait for a retry", async || metrics(&app).await["waybill_pushes_pending"] == 3.0).await;
    assert_eq!(metrics(&app).await["waybill_oldest_push_seconds"], 0.0, "a push that is not due is not late");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_age_of_overdue_pushes_is_shown() {
    let app = start_with(true, &["--dispatch=false"]).await;
    app.subscribe("http://127.0.0.1:9/hook", json!({"event_types": ["t"]})).await;
    app.publish_typed("t", json!({})).await;
    app.advance(100);
    app.publish_typed("t", json!({})).await;
    let metrics = metrics(&app).await;
    assert_eq!((metrics["waybill_pushes_pending"], metrics["waybill_oldest_push_seconds"]), (2.0, 100.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_in_flight_and_open_breakers_are_shown() {
    let app = start(&["--breaker-failures=1"]).await;
    let (receiver, gate) = (Receiver::start().await, Gate::closed());
    receiver.always(Reply::status(500).held_by(&gate));
    app.subscribe(&receiver.url("/hook"), json!({"event_types": ["t"], "timeout_ms": 60_000})).await;
    app.publish_typed("t", json!({})).await;
    receiver.until_in_flight(1).await;
    let before = metrics(&app).await;
    assert_eq!((before["waybill_pushes_in_flight"], before["waybill_breakers_open"]), (1.0, 0.0));
    gate.open();
    until("the breaker is open", async || metrics(&app).await["waybill_breakers_open"] == 1.0).await;
    until("nothing is in flight", async || metrics(&app).await["waybill_pushes_in_flight"] == 0.0).await;
}
