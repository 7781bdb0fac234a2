//! `GET /events/subscribe`.

use serde_json::json;

use crate::support::work::{Claim, W1, W2, ids};
use crate::support::{App, ledger};

#[tokio::test(flavor = "multi_thread")]
async fn an_event_matches_if_it_has_any_of_the_tags() {
    let app = App::start().await;
    let id = app.publish_tagged("email,notification").await;
    assert!(app.claim("sms,payment", W1).await.is_none());
    assert_eq!(app.claim("sms,notification", W1).await.expect("a match")["id"], id);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_with_several_tags_is_handed_out_once() {
    let app = App::start().await;
    app.publish_tagged("a,b,c").await;
    app.claim_one("b", W1).await;
    for tags in ["a", "b", "c", "a,b,c"] {
        assert!(app.claim(tags, W2).await.is_none(), "{tags}");
    }
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_matches_as_a_whole_and_is_case_sensitive() {
    let app = App::start().await;
    app.publish_tagged("email").await;
    for tag in ["mail", "emai", "email2", "Email"] {
        assert!(app.claim(tag, W1).await.is_none(), "{tag}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn when_nothing_matches_the_response_is_an_empty_204() {
    let app = App::start().await;
    let reply = app.get(&format!("/events/subscribe?tags=none&worker_id={W1}")).await.expect(204);
    assert_eq!(reply.text, "");
    assert_eq!(reply.header("cache-control"), Some("no-store"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claimed_event_shows_its_worker_its_lease_and_the_end_of_the_lease() {
    let app = App::with_fixed_clock().await;
    let id = app.publish_tagged("a").await;
    let reply = app.get(&format!("/events/subscribe?tags=a&worker_id={W1}")).await.expect(200);
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    let event = reply.json();
    assert_eq!(event["id"], id);
    assert_eq!(event["status"], "PROCESSING");
    assert_eq!(event["worker_id"], W1);
    assert!(event["lease_id"].as_i64().is_some_and(|lease_id| lease_id > 0), "{event}");
    assert_eq!(event["attempt"], 1);
    assert_eq!(app.seconds_ahead(&event["lease_expires_at"]), 300);
    assert_eq!(app.status(id).await, "PROCESSING");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_logged() {
    let app = App::start().await;
    let id = app.publish_tagged("a").await;
    assert!(app.actions(id).await.is_empty());
    let claim = app.claim_one("a", W1).await;
    let log = app.event(id).await["logs"].clone();
    assert_eq!(log.as_array().map(Vec::len), Some(1));
    assert_eq!(log[0]["action"], "PICKED");
    assert_eq!(log[0]["worker_id"], W1);
    assert_eq!(log[0]["lease_id"], claim.lease_id);
    assert_eq!(log[0]["attempt"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lease_id_grows_with_every_claim_and_the_attempt_with_every_failure() {
    let app = App::with_fixed_clock().await;
    app.publish_tagged("a").await;
    let first = app.claim_one("a", W1).await;
    app.operate(first.event_id, "reset").await.expect(200);
    let second = app.claim("a", W1).await.expect("it came back");
    assert_eq!(second["attempt"], 1);
    assert!(Claim::of(&second).lease_id > first.lease_id);
    app.fail(first.event_id, W1).await.expect(200);
    app.advance_and_promote(300).await;
    let third = app.claim("a", W1).await.expect("the retry is due");
    assert_eq!(third["attempt"], 2);
    assert!(Claim::of(&third).lease_id > Claim::of(&second).lease_id);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_claimed_by_priority_and_then_by_age() {
    let app = App::start().await;
    let mut published = Vec::new();
    for priority in [0, 5, -100, 5, 100, 0, -100] {
        let id = app.publish(json!({"title": "a job", "tags": "a", "priority": priority})).await;
        published.push((-priority, id));
    }
    published.sort_unstable();
    let wanted: Vec<i64> = published.into_iter().map(|(_, id)| id).collect();
    assert_eq!(app.drain("a", W1).await, wanted);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_several_tags_are_claimed_by_priority_and_age() {
    let app = App::start().await;
    let mut wanted = Vec::new();
    for tags in ["a", "b", "a,c", "b", "c", "a,b,c"] {
        wanted.push(app.publish_tagged(tags).await);
    }
    wanted.push(app.publish(json!({"title": "late but urgent", "tags": "c", "priority": 1})).await);
    wanted.rotate_right(1);
    assert_eq!(app.drain("c,b,a", W1).await, wanted);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_was_reset_queues_behind_those_that_were_waiting() {
    let app = App::start().await;
    let first = app.publish_tagged("a").await;
    let second = app.publish_tagged("a").await;
    app.claim_one("a", W1).await;
    app.operate(first, "reset").await.expect(200);
    assert_eq!(app.drain("a", W1).await, [second, first]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_in_claim_order_and_does_not_wait_to_be_full() {
    let app = App::start().await;
    let low = app.publish_tagged("a").await;
    let high = app.publish(json!({"title": "a job", "tags": "a", "priority": 9})).await;
    let last = app.publish_tagged("a").await;
    let batch = app.claim_batch("a", W1, 2).await;
    assert_eq!(ids(&batch), [high, low]);
    assert!(batch.iter().all(|event| event["status"] == "PROCESSING"));
    assert_eq!(ids(&app.claim_batch("a", W1, 1000).await), [last]);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn subscribe_claims_one_event_and_takes_no_max() {
    let app = App::start().await;
    let id = app.publish_tagged("a").await;
    app.get(&format!("/events/subscribe?tags=a&worker_id={W1}&max=1")).await.names(&["max"]);
    assert_eq!(app.status(id).await, "PENDING");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_can_hold_a_thousand_events_and_each_claim_is_logged() {
    let app = App::start().await;
    for _ in 0..2 {
        let events: Vec<_> = (0..600).map(|_| json!({"title": "a job", "tags": "a,b"})).collect();
        app.post("/events/batch", &json!({"events": events})).await.expect(201);
    }
    assert_eq!(app.claim_batch("a,b", W1, 1000).await.len(), 1000);
    assert_eq!(app.claim_batch("b", W2, 1000).await.len(), 200);
    assert_eq!(app.count("SELECT count(*) FROM waybill.event_log WHERE action = 'PICKED'").await, 1200);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lease_is_as_long_as_requested() {
    let app = App::with_fixed_clock().await;
    for lease in [1, 43_200] {
        app.publish_tagged("a").await;
        let path = format!("/events/subscribe?tags=a&worker_id={W1}&lease_seconds={lease}");
        let event = app.get(&path).await.expect(200).json();
        assert_eq!(app.seconds_ahead(&event["lease_expires_at"]), lease);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_may_be_a_fraction_of_a_second_longer_down_to_the_microsecond() {
    let app = App::with_fixed_clock().await;
    for (lease, microseconds) in [("1.5", 1_500_000), ("2.000001", 2_000_001), ("1e1", 10_000_000)] {
        app.publish_tagged("a").await;
        let path = format!("/events/subscribe?tags=a&worker_id={W1}&lease_seconds={lease}");
        let event = app.get(&path).await.expect(200).json();
        assert_eq!(app.microseconds_ahead(&event["lease_expires_at"]), microseconds, "{lease}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_out_of_bounds_are_refused_and_claim_nothing() {
    let app = App::start().await;
    let id = app.publish_tagged("a").await;
    let bad = [
        ("lease_seconds", ["0", "0.999", "43200.5", "-1", "x", ""]),
        ("wait_seconds", ["60.001", "-0.5", "x", "", "NaN", "99999999999"]),
    ];
    for (name, values) in bad {
        for value in values {
            app.get(&format!("/events/subscribe?tags=a&worker_id={W1}&{name}={value}")).await.names(&[name]);
        }
    }
    assert_eq!(app.status(id).await, "PENDING");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_id_is_a_host_and_a_pid() {
    let app = App::start().await;
    for worker_id in ["worker", "worker:", ":12", "worker:x", "wor%20ker:1", "worker:-1", "", "w%00:1"] {
        app.get(&format!("/events/subscribe?tags=a&worker_id={worker_id}")).await.names(&["worker_id"]);
    }
    app.get("/events/subscribe?tags=a").await.names(&["worker_id"]);
    app.get(&format!("/events/subscribe?worker_id={W1}")).await.names(&["tags"]);
    app.get(&format!("/events/subscribe?tags=&worker_id={W1}")).await.names(&["tags"]);
    app.get(&format!("/events/subscribe?tags=a&worker_id={W1}&limit=3")).await.names(&["limit"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_without_tags_is_not_handed_out() {
    let app = App::start().await;
    app.publish(json!({"event_type": "order.paid"})).await;
    assert!(app.claim("order.paid", W1).await.is_none());
    assert_eq!(app.count("SELECT count(*) FROM waybill.ready").await, 0);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claimed_event_carries_its_payload_and_the_progress_and_error_of_the_last_attempt() {
    let app = App::with_fixed_clock().await;
    app.publish(json!({"title": "a job", "tags": "a", "payload": {"n": [1, 2]}})).await;
    let claim = app.claim_one("a", W1).await;
    app.settle_with(&claim, "heartbeat", json!({"progress": {"done": 7}})).await.expect(200);
    app.settle_with(&claim, "fail", json!({"error_message": "disk full"})).await.expect(200);
    app.advance_and_promote(300).await;
    let event = app.claim("a", W2).await.expect("the retry is due");
    assert_eq!(event["payload"], json!({"n": [1, 2]}));
    assert_eq!(event["progress"], json!({"done": 7}));
    assert_eq!(event["last_error"], "disk full");
    assert_eq!(event["retry_count"], 1);
    assert!(Claim::of(&event).lease_id > claim.lease_id);
}
