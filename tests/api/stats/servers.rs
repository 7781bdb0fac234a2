//! What several servers do adds up.

use serde_json::json;

use super::{history, publish_completed, record, servers, sum, values};
use crate::support::work::W1;
use crate::support::{App, database, until};

#[tokio::test(flavor = "multi_thread")]
async fn what_three_servers_do_adds_up_by_tag_and_in_total() {
    let servers = servers::<3>().await;
    let [one, two, three] = &servers;
    for server in &servers {
        server.publish_tagged("email,eu").await;
        server.publish_tagged("email").await;
        server.publish_tagged("sms").await;
    }
    three.publish(json!({"event_type": "nobody.cares"})).await;
    record(&servers).await;
    // Each event is claimed at one server and settled at another, and some are settled where they were claimed.
    for (number, (claiming, settling)) in [(one, two), (two, three), (three, one), (one, one)].into_iter().enumerate() {
        let worker = format!("w:{number}");
        let email = claiming.claim_one("email", &worker).await;
        settling.advance(2);
        settling.complete(email.event_id, &worker).await.expect(200);
        record(&servers).await;
    }
    let sms = two.claim_one("sms", W1).await;
    three.fail(sms.event_id, W1).await.expect(200);
    let sms = two.claim_one("sms", W1).await;
    let hopeless = json!({"worker_id": W1, "retryable": false});
    one.post(&format!("/events/{}/fail", sms.event_id), &hopeless).await.problem(400, "not_retryable");
    let sms = two.claim_one("sms", W1).await;
    one.post(&format!("/events/{}/release", sms.event_id), &json!({"worker_id": W1})).await.expect(200);
    record(&servers).await;

    for (tag, published, claimed, completed, failed, retried, released) in [
        (None, 10, 7, 4, 2, 1, 1),
        (Some("email"), 6, 4, 4, 0, 0, 0),
        (Some("eu"), 3, 2, 2, 0, 0, 0),
        (Some("sms"), 3, 3, 0, 2, 1, 1),
        (Some("fax"), 0, 0, 0, 0, 0, 0),
    ] {
        let expected = [
            ("published", published),
            ("claimed", claimed),
            ("completed", completed),
            ("failed", failed),
            ("retried", retried),
            ("released", released),
        ];
        for (metric, expected) in expected {
            assert_eq!(sum(three, tag, metric).await, expected, "{metric} of {tag:?}");
        }
    }
    let latencies = "SELECT coalesce(sum(n), 0) FROM waybill.stats_minutes, unnest(latency_counts) AS n WHERE tag = ";
    assert_eq!(one.count(&format!("{latencies}''")).await, 4, "the latency of each completion is known");
    assert_eq!(one.count(&format!("{latencies}'eu'")).await, 2);
    let rows = "SELECT count(*) FROM (SELECT 1 FROM waybill.stats_minutes GROUP BY namespace_id, tag, minute, server \
                HAVING count(*) > 1) t";
    assert_eq!(one.count(rows).await, 0);
    assert_eq!(one.count("SELECT count(DISTINCT server) FROM waybill.stats_minutes").await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_and_refused_calls_do_not_count() {
    let [app] = servers().await;
    let keyed = json!({"title": "a job", "tags": "a", "idempotency_key": "k"});
    app.publish(keyed.clone()).await;
    app.post("/events", &keyed).await.expect(200);
    let claim = app.claim_one("a", W1).await;
    for _ in 0..3 {
        app.complete(claim.event_id, W1).await.expect(200);
    }
    app.fail(claim.event_id, W1).await.problem(409, "already_settled");
    app.complete(claim.event_id, "other:1").await.problem(409, "already_finished");
    record([&app]).await;
    for (metric, count) in [("published", 1), ("claimed", 1), ("completed", 1), ("failed", 0)] {
        assert_eq!(sum(&app, Some("a"), metric).await, count, "{metric}");
        assert_eq!(sum(&app, None, metric).await, count, "{metric} in total");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_leases_expired_events_and_keyed_completions_count() {
    let [app] = servers().await;
    app.publish_tagged("a").await;
    let lost = app.claim_one("a", W1).await;
    let soon = (app.now() + chrono::TimeDelta::seconds(5)).to_rfc3339();
    app.publish(json!({"title": "a job", "tags": "b", "expires_at": soon})).await;
    app.advance(301);
    app.reap().await;
    app.expire().await;
    app.complete(lost.event_id, W1).await.expect(200);
    let keyed = app.publish(json!({"title": "a job", "tags": "c", "ordering_key": "k"})).await;
    app.claim_one("c", W1).await;
    app.complete(keyed, W1).await.expect(200);
    record([&app]).await;
    for (tag, metric, count) in
        [("a", "reset", 1), ("a", "completed", 1), ("b", "expired", 1), ("b", "failed", 0), ("c", "completed", 1)]
    {
        assert_eq!(sum(&app, Some(tag), metric).await, count, "{metric} of {tag}");
    }
    assert_eq!(sum(&app, None, "completed").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_are_handed_over_count_as_claimed() {
    let [app] = servers().await;
    let waiting = app.get("/events/subscribe?tags=a&worker_id=w:1&wait_seconds=30");
    let publishing = async {
        until("the worker waits", async || app.engine().hub().asleep() == 1).await;
        app.publish_tagged("a").await
    };
    let (claimed, id) = tokio::join!(waiting, publishing);
    assert_eq!(claimed.expect(200).json()["id"], id);
    app.complete(id, "w:1").await.expect(200);
    record([&app]).await;
    for metric in ["published", "claimed", "completed"] {
        assert_eq!(sum(&app, Some("a"), metric).await, 1, "{metric}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pushes_count_in_the_namespace_and_under_no_tag() {
    use crate::support::receiver::{Receiver, Reply};
    let ([app], receiver) = (servers().await, Receiver::start().await);
    let fields = json!({"event_types": ["t"], "max_attempts": 1});
    app.subscribe(&receiver.url("/hook"), fields).await;
    for (reply, status) in [(Reply::ok(), "COMPLETED"), (Reply::ok(), "COMPLETED"), (Reply::status(400), "FAILED")] {
        receiver.next(reply);
        let id = app.publish(json!({"event_type": "t", "tags": "a", "title": "a job"})).await;
        app.until_delivery(app.only_delivery(id).await, status).await;
    }
    until("all attempts are counted", async || {
        record([&app]).await;
        sum(&app, None, "pushes_sent").await == 3
    })
    .await;
    for (metric, count) in
        [("pushes_sent", 3), ("pushes_succeeded", 2), ("pushes_failed", 1), ("dead_lettered", 1), ("completed", 0)]
    {
        assert_eq!(sum(&app, None, metric).await, count, "{metric}");
        assert_eq!(sum(&app, Some("a"), metric).await, 0, "{metric}");
    }
    assert_eq!(sum(&app, Some("a"), "published").await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn namespaces_never_meet() {
    let [app] = servers().await;
    let (red, blue) = (app.namespace("red").await, app.namespace("blue").await);
    publish_completed(&red, "a").await;
    publish_completed(&red, "a").await;
    publish_completed(&blue, "a").await;
    record([&app]).await;
    for (namespace, count) in [(&red, 2), (&blue, 1), (&app, 0)] {
        for metric in ["published", "claimed", "completed"] {
            assert_eq!(sum(namespace, Some("a"), metric).await, count, "{metric}");
            assert_eq!(sum(namespace, None, metric).await, count, "{metric} in total");
        }
        let stats = super::stats(namespace).await;
        assert_eq!(stats["per_minute"]["published"].as_f64() > Some(0.0), count > 0, "{stats}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tags_beyond_the_limit_count_in_the_namespace_only() {
    let [app] = servers().await;
    let event = |number: usize| json!({"title": "a job", "tags": format!("t{number}")});
    let events: Vec<_> = (0..150).map(event).collect();
    app.post("/events/batch", &json!({"events": events})).await.expect(201);
    app.post("/events/batch", &json!({"events": events})).await.expect(201);
    record([&app]).await;
    assert_eq!(sum(&app, None, "published").await, 300);
    assert_eq!((sum(&app, Some("t0"), "published").await, sum(&app, Some("t149"), "published").await), (2, 0));
    assert_eq!(app.count("SELECT count(*) FROM waybill.stats_minutes").await, 101);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_completion_whose_event_is_gone_counts_without_a_tag() {
    let [one, two] = servers().await;
    one.publish_tagged("a").await;
    let claim = one.claim_one("a", W1).await;
    two.complete(claim.event_id, W1).await.expect(200);
    database::execute(&one.url, "DELETE FROM waybill.events").await;
    record([&one, &two]).await;
    assert_eq!((sum(&one, None, "completed").await, sum(&one, Some("a"), "completed").await), (1, 0));
    let latencies = history(&one, "metric=latency_p50_ms&from=1h&step=1h").await;
    assert!(values(&latencies, "latency_p50_ms").iter().all(serde_json::Value::is_null));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_stores_what_it_has_counted() {
    // With the clock of the database, the service runs, and once more at the end.
    let app = App::start().await;
    publish_completed(&app, "a").await;
    let url = app.url.clone();
    app.stop().await;
    let counted = "SELECT sum(published) FROM waybill.stats_hours WHERE tag = 'a'";
    assert_eq!(database::count(&url, counted).await, 1);
}
