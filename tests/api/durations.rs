//! Durations may be fractions of a second, wherever one is given.

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};

use crate::support::work::{W1, time};
use crate::support::{App, Options};

/// Returns the microseconds from a timestamp to a later one in a response.
fn micros(from: DateTime<Utc>, to: &Value) -> i64 {
    (time(to) - from).num_microseconds().expect("a short time")
}

/// Publishes an event with this backoff and fails it `failures` times. Returns the waits in
/// microseconds.
async fn waits(app: &App, backoff: Value, failures: usize) -> Vec<i64> {
    app.publish(json!({"title": "a job", "tags": "a", "max_retries": 1000, "backoff": backoff})).await;
    let mut waits = Vec::new();
    for _ in 0..failures {
        let claim = app.claim_one("a", W1).await;
        let entry = app.settle_with(&claim, "fail", json!({})).await.expect(200).json();
        let wait = micros(time(&entry["created_at"]), &entry["next_retry_at"]);
        app.engine().clock().advance(TimeDelta::microseconds(wait - 1));
        assert_eq!(app.promote().await, 0, "not a microsecond before");
        app.engine().clock().advance(TimeDelta::microseconds(1));
        assert_eq!(app.promote().await, 1);
        waits.push(wait);
    }
    let claim = app.claim_one("a", W1).await;
    app.settle_with(&claim, "complete", json!({})).await.expect(200);
    waits
}

#[tokio::test(flavor = "multi_thread")]
async fn the_backoff_of_an_event_may_be_a_fraction_in_each_form() {
    let app = App::with_fixed_clock().await;
    let exponential = json!({"strategy": "exponential", "base_seconds": 0.5, "max_seconds": 1.75});
    assert_eq!(waits(&app, exponential, 4).await, [500_000, 1_000_000, 1_750_000, 1_750_000]);
    assert_eq!(waits(&app, json!({"strategy": "fixed", "seconds": 2.5e-1}), 2).await, [250_000, 250_000]);
    let schedule = json!({"strategy": "schedule", "seconds": [0.1, 5, 0.000_001]});
    assert_eq!(waits(&app, schedule, 3).await, [100_000, 5_000_000, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_backoff_of_the_server_may_be_a_fraction() {
    let flags = vec!["--backoff-seconds=0.25".into()];
    let app = App::start_with(Options { flags, fixed_clock: true, ..Options::default() }).await;
    assert_eq!(waits(&app, Value::Null, 1).await, [250_000]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_delays_of_a_failure_and_a_release_may_be_fractions() {
    let app = App::with_fixed_clock().await;
    app.publish_tagged("a").await;
    let claim = app.claim_one("a", W1).await;
    let entry = app.settle_with(&claim, "fail", json!({"retry_after_seconds": 0.5})).await.expect(200).json();
    assert_eq!(micros(time(&entry["created_at"]), &entry["next_retry_at"]), 500_000);
    app.advance_and_promote(1).await;
    let claim = app.claim_one("a", W1).await;
    app.settle_with(&claim, "release", json!({"delay_seconds": 1.5})).await.expect(200);
    assert_eq!(app.advance_and_promote(1).await, 0);
    app.engine().clock().advance(TimeDelta::milliseconds(500));
    assert_eq!(app.promote().await, 1);
    let claim = app.claim_one("a", W1).await;
    app.settle_with(&claim, "release", json!({"delay_seconds": 0.000_000_1})).await.expect(200);
    app.claim_one("a", W1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_delay_of_an_event_may_be_a_fraction() {
    let app = App::with_fixed_clock().await;
    let publish = async |delay: &str| {
        let body = format!(r#"{{"title": "later", "tags": "later", "delay_seconds": {delay}}}"#);
        app.post_text("/events", &body).await.expect(201).json()
    };
    for (delay, wait) in
        [("0.5", 500_000), ("1.0", 1_000_000), ("5e-1", 500_000), ("2591999.999999", 2_591_999_999_999)]
    {
        let event = publish(delay).await;
        assert_eq!(micros(time(&event["created_at"]), &event["run_at"]), wait, "{delay}");
    }
    for none in ["0", "0.0", "-0.0", "0.0000001"] {
        assert_eq!(publish(none).await["run_at"], Value::Null, "{none}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_backoff_of_a_subscription_is_shown_as_it_was_given() {
    let app = App::start().await;
    for backoff in [
        r#"{"strategy":"fixed","seconds":0.5}"#,
        r#"{"strategy":"fixed","seconds":5}"#,
        r#"{"strategy":"schedule","seconds":[0,0.1,2.000001,2592000]}"#,
    ] {
        let body = format!(r#"{{"url": "https://shop.example/hook", "backoff": {backoff}}}"#);
        let created = app.post_text("/subscriptions", &body).await.expect(201);
        let read = app.get(&format!("/subscriptions/{}", created.json()["id"])).await.expect(200);
        for reply in [created, read] {
            let text = backoff.replacen(r#"{"strategy":"fixed","#, "{", 1);
            let text = text.replacen(r#"{"strategy":"schedule","#, "{", 1);
            assert!(reply.text.contains(text.trim_matches(['{', '}'])), "{text} in {}", reply.text);
        }
    }
    let full = json!({"strategy": "exponential", "base_seconds": 0.5, "max_seconds": 60, "jitter": "full"});
    let view = app.subscribe("https://shop.example/hook", json!({"backoff": full})).await;
    assert_eq!(view["backoff"]["floor_seconds"], 0.5, "the floor is not above the base");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_overlap_of_a_secret_rotation_may_be_a_fraction() {
    let app = App::start().await;
    let subscription = app.subscribe("https://shop.example/hook", json!({})).await;
    let path = format!("/subscriptions/{}/rotate-secret", subscription["id"]);
    for overlap in ["0.5", "60"] {
        let reply = app.post_text(&path, &format!(r#"{{"overlap_seconds": {overlap}}}"#)).await.expect(200);
        assert!(reply.text.contains(&format!(r#""overlap_seconds":{overlap},"#)), "{}", reply.text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_duration_is_refused() {
    let app = App::start().await;
    let bad = ["-1", "-0.5", "-1e-9", "2592000.5", "2592001", "1e300", "1e400", "\"5\"", "true", "[5]"];
    for value in bad {
        let body = format!(r#"{{"title": "a job", "tags": "a", "delay_seconds": {value}}}"#);
        app.post_text("/events", &body).await.names(&["delay_seconds"]);
        let body = format!(r#"{{"worker_id": "w:1", "retry_after_seconds": {value}}}"#);
        app.post_text("/events/1/fail", &body).await.names(&["retry_after_seconds"]);
    }
    for value in ["NaN", "Infinity", "-Infinity", ".5", "5.", "+5", "0x5"] {
        let body = format!(r#"{{"title": "a job", "tags": "a", "delay_seconds": {value}}}"#);
        app.post_text("/events", &body).await.problem(400, "malformed_json");
    }
    for value in ["-0.5", "2592000.5", "1e300"] {
        let backoff = format!(r#""strategy": "fixed", "seconds": {value}"#);
        let body = format!(r#"{{"title": "a job", "tags": "a", "backoff": {{{backoff}}}}}"#);
        app.post_text("/events", &body).await.names(&["backoff.seconds"]);
        let body = format!(r#"{{"url": "https://shop.example/hook", "backoff": {{{backoff}}}}}"#);
        app.post_text("/subscriptions", &body).await.names(&["backoff.seconds"]);
    }
}
