//! `GET /stats`.

use serde_json::{Value, json};

use super::{publish_completed, record, servers, stats};
use crate::support::receiver::{Receiver, Reply};
use crate::support::work::{W1, W2};
use crate::support::{App, Options};

#[tokio::test(flavor = "multi_thread")]
async fn nothing_waits_in_a_new_namespace() {
    let [app] = servers().await;
    let mut stats = stats(&app).await;
    assert!(stats.as_object_mut().expect("an object").remove("at").is_some());
    let nothing = json!({
        "waiting": 0, "waiting_is_exact": true, "delayed": 0, "retrying": 0, "blocked": 0, "delayed_is_exact": true,
        "running": 0, "running_is_exact": true, "failed": 0, "failed_is_exact": true, "oldest_event": null,
        "workers": 0, "stale_workers": 0, "unserved_tags": 0, "pushes_pending": 0, "pushes_pending_is_exact": true,
        "breakers_open": 0, "dead_letters": 0, "dead_letters_is_exact": true,
        "per_minute": {
            "published": 0.0, "claimed": 0.0, "completed": 0.0, "failed": 0.0, "pushes_succeeded": 0.0, "pushes_failed": 0.0,
        },
        "tags_are_complete": true, "tags": [],
    });
    assert_eq!(stats, nothing);
}

#[track_caller]
fn assert_counts(stats: &Value, expected: &[(&str, i64)]) {
    for (name, count) in expected {
        assert_eq!(stats[name], *count, "{name} in {stats}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn work_in_every_state_is_counted() {
    let [app] = servers().await;
    let oldest = app.publish_tagged("email").await;
    app.advance(100);
    app.publish_tagged("email,eu").await;
    app.publish(json!({"title": "later", "tags": "email", "delay_seconds": 3600})).await;
    for _ in 0..3 {
        app.publish(json!({"title": "in order", "tags": "keyed", "ordering_key": "k"})).await;
    }
    for _ in 0..3 {
        app.publish_tagged("work").await;
    }
    let running = app.claim_one("work", W1).await;
    let failing = app.claim_one("work", W1).await;
    app.fail(failing.event_id, W1).await.expect(200);
    let hopeless = app.claim_one("work", W2).await;
    let body = json!({"worker_id": W2, "retryable": false});
    app.post(&format!("/events/{}/fail", hopeless.event_id), &body).await.problem(400, "not_retryable");
    let stats = stats(&app).await;
    assert_counts(
        &stats,
        &[
            ("waiting", 3),
            ("delayed", 2),
            ("retrying", 1),
            ("blocked", 2),
            ("running", 1),
            ("failed", 1),
            ("workers", 2),
            ("stale_workers", 0),
            ("unserved_tags", 3),
        ],
    );
    assert_eq!((&stats["oldest_event"]["id"], &stats["oldest_event"]["age_seconds"]), (&json!(oldest), &json!(100.0)));
    app.complete(running.event_id, W1).await.expect(200);
    assert_counts(&super::stats(&app).await, &[("running", 0)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn tags_have_their_depth_age_rates_and_workers() {
    let [app] = servers().await;
    publish_completed(&app, "email").await;
    app.publish_tagged("email").await;
    app.publish_tagged("sms").await;
    record([&app]).await;
    // What the worker has asked for is stored under the present time.
    stats(&app).await;
    app.advance(90);
    app.claim("email,fax", W1).await.expect("an event");
    app.publish_tagged("email").await;
    record([&app]).await;
    let stats = stats(&app).await;
    let tags = stats["tags"].as_array().expect("tags");
    let names: Vec<&str> = tags.iter().map(|tag| tag["tag"].as_str().expect("a name")).collect();
    assert_eq!(names, ["email", "fax", "sms"]);
    let of = |tag: &Value| {
        (tag["waiting"].clone(), tag["oldest_age_seconds"].clone(), tag["workers"].clone(), tag["unserved"].clone())
    };
    assert_eq!(of(&tags[0]), (json!(1), json!(0.0), json!(1), json!(false)));
    assert_eq!(of(&tags[1]), (json!(0), Value::Null, json!(1), json!(false)));
    assert_eq!(of(&tags[2]), (json!(1), json!(90.0), json!(0), json!(true)));
    assert_eq!((&stats["unserved_tags"], &stats["tags_are_complete"]), (&json!(1), &json!(true)));
    // The clock stands at the beginning of a minute: exactly five minutes.
    assert_eq!(tags[0]["per_minute"], json!({"published": 0.6, "completed": 0.2}));
    assert_eq!(tags[2]["per_minute"], json!({"published": 0.2, "completed": 0.0}));
    assert_eq!((&stats["per_minute"]["published"], &stats["per_minute"]["claimed"]), (&json!(0.8), &json!(0.4)));
    app.advance(600);
    assert_eq!(super::stats(&app).await["per_minute"]["published"], 0.0, "rates are about the last minutes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_holds_work_without_a_sign_of_life_is_stale() {
    let [app] = servers().await;
    for _ in 0..3 {
        app.publish_tagged("a").await;
    }
    app.claim_one("a", W1).await;
    app.claim_one("a", W1).await;
    let alive = app.claim_one("a", W2).await;
    app.advance(30);
    let heartbeat = json!({"worker_id": W2});
    app.post(&format!("/events/{}/heartbeat", alive.event_id), &heartbeat).await.expect(200);
    assert_counts(&stats(&app).await, &[("running", 3), ("stale_workers", 1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn pushes_breakers_and_dead_letters_are_counted() {
    let flags = vec!["--breaker-failures=1".to_owned()];
    let app = App::start_with(Options { fixed_clock: true, flags, ..Options::default() }).await;
    let receiver = Receiver::start().await;
    app.subscribe(&receiver.url("/gone"), json!({"event_types": ["gone"], "max_attempts": 1})).await;
    app.subscribe(&receiver.url("/down"), json!({"event_types": ["down"]})).await;
    app.publish_and_fail(&receiver, "gone", json!(1)).await;
    receiver.next(Reply::status(500));
    let id = app.publish_typed("down", json!(1)).await;
    app.until_breaker_open().await;
    app.publish_typed("down", json!(2)).await;
    let stats = stats(&app).await;
    assert!(stats["breakers_open"].as_i64() >= Some(1), "{stats}");
    assert_counts(&stats, &[("pushes_pending", 2), ("dead_letters", 1), ("waiting", 0), ("failed", 1)]);
    assert_eq!(app.event(id).await["status"], "PENDING");
    let other = app.namespace("other").await;
    assert_counts(&super::stats(&other).await, &[("pushes_pending", 0), ("dead_letters", 0), ("breakers_open", 0)]);
}

impl App {
    /// Waits until the endpoint `/down` has an open breaker.
    async fn until_breaker_open(&self) {
        let open = "SELECT count(*) FROM waybill.endpoints WHERE opened_at IS NOT NULL AND url LIKE '%/down'";
        crate::support::until("the breaker is open", async || self.count(open).await == 1).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_stop_at_their_limits_and_say_so() {
    let [app] = servers().await;
    let jobs = vec![json!({"title": "a job", "tags": "many"}); 1_000];
    for _ in 0..10 {
        app.post("/events/batch", &json!({"events": jobs})).await.expect(201);
    }
    let at_limit = stats(&app).await;
    assert_eq!((&at_limit["waiting"], &at_limit["waiting_is_exact"]), (&json!(10_000), &json!(true)));
    let tag = &at_limit["tags"][0];
    assert_eq!((&tag["waiting"], &tag["waiting_is_exact"]), (&json!(1_000), &json!(false)));
    let of_tag = app.get("/stats?tag=many").await.expect(200).json();
    assert_eq!((&of_tag["waiting"], &of_tag["waiting_is_exact"]), (&json!(10_000), &json!(true)));
    app.publish_tagged("many").await;
    for path in ["/stats", "/stats?tag=many"] {
        let beyond = app.get(path).await.expect(200).json();
        assert_eq!((&beyond["waiting"], &beyond["waiting_is_exact"]), (&json!(10_000), &json!(false)), "{path}");
    }
    let claimed = app.claim_batch("many", W1, 1_000).await.len();
    let held = stats(&app).await;
    assert_eq!((&held["running"], &held["running_is_exact"]), (&json!(claimed), &json!(true)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_autoscaler_reads_what_waits_for_one_tag() {
    let [app] = servers().await;
    for tags in ["reports", "reports,eu.west", "other"] {
        app.publish_tagged(tags).await;
    }
    app.advance(7);
    for (tag, waiting) in [("reports", 2), ("eu.west", 1), ("nobody-knows", 0)] {
        let stats = app.get(&format!("/stats?tag={tag}")).await.expect(200).json();
        assert_eq!((&stats["waiting"], &stats["waiting_is_exact"]), (&json!(waiting), &json!(true)), "{tag}");
        let mut fields: Vec<&str> = stats.as_object().expect("an object").keys().map(String::as_str).collect();
        fields.sort_unstable();
        assert_eq!(fields, ["at", "tags", "waiting", "waiting_is_exact"]);
        let of_tag = &stats["tags"][0];
        assert_eq!((&of_tag["tag"], &of_tag["unserved"]), (&json!(tag), &json!(waiting > 0)));
        assert_eq!(of_tag["oldest_age_seconds"], if waiting > 0 { json!(7.0) } else { Value::Null });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn more_tags_than_fit_are_reported_as_such() {
    let [app] = servers().await;
    let event = |number: usize| json!({"title": "a job", "tags": format!("t{number:03}")});
    let events: Vec<Value> = (0..101).map(event).collect();
    app.post("/events/batch", &json!({"events": events[..100]})).await.expect(201);
    let all = stats(&app).await;
    assert_eq!((all["tags"].as_array().map(Vec::len), &all["tags_are_complete"]), (Some(100), &json!(true)));
    app.post("/events/batch", &json!({"events": events[100..]})).await.expect(201);
    let cut = stats(&app).await;
    assert_eq!((cut["tags"].as_array().map(Vec::len), &cut["tags_are_complete"]), (Some(100), &json!(false)));
    assert_eq!(cut["waiting"], 101);
}
