//! `GET /events`.

use serde_json::{Value, json};

use crate::support::records::app_that_sends_nothing;
use crate::support::work::W1;
use crate::support::{App, database};

/// Returns one page of events.
pub(super) async fn list(app: &App, query: &str) -> Value {
    app.get(&format!("/events{query}")).await.expect(200).json()
}

pub(super) fn ids(page: &Value) -> Vec<i64> {
    page["events"].as_array().expect("events").iter().map(|event| event["id"].as_i64().expect("an id")).collect()
}

/// Follows cursors to the end; `query` starts with `?`. Returns the ids of each page.
pub(super) async fn walk(app: &App, query: &str) -> Vec<Vec<i64>> {
    app.walk_ids(&format!("/events{query}")).await
}

/// Publishes `count` events under one tag. Returns their ids.
pub(super) async fn publish_many(app: &App, count: usize, tag: &str) -> Vec<i64> {
    let jobs: Vec<Value> = (0..count).map(|n| json!({"title": format!("job {n}"), "tags": tag})).collect();
    let mut published = Vec::new();
    for events in jobs.chunks(1_000) {
        published.extend(ids(&app.post("/events/batch", &json!({"events": events})).await.expect(201).json()));
    }
    published
}

/// One event in each state, and one without tags.
struct Zoo {
    app: App,
    pending: i64,
    processing: i64,
    completed: i64,
    failed: i64,
    cancelled: i64,
    pushed: i64,
}

impl Zoo {
    async fn new() -> Self {
        let app = App::with_fixed_clock().await;
        let job = |tags: &str, event_type: &str, story: &str| json!({"title": "a job", "tags": tags, "event_type": event_type, "correlation_id": story, "payload": [1]});
        let failed = app.publish(job("sms,eu", "order.paid", "one")).await;
        app.claim("sms", "fay:1").await.expect("an event");
        let body = json!({"worker_id": "fay:1", "retryable": false});
        app.post(&format!("/events/{failed}/fail"), &body).await.expect(400);
        app.advance(10);
        let completed = app.publish(job("sms", "order.created", "two")).await;
        app.claim("sms", "cid:1").await.expect("an event");
        app.complete(completed, "cid:1").await.expect(200);
        app.advance(10);
        let processing = app.publish(job("email,eu", "order.created", "one")).await;
        app.claim("email", "cid:1").await.expect("an event");
        app.advance(10);
        let cancelled = app.publish(job("email", "order.paid", "two")).await;
        app.post_empty(&format!("/events/{cancelled}/cancel")).await.expect(200);
        app.advance(10);
        let pushed = app.publish(json!({"event_type": "order.paid"})).await;
        app.advance(10);
        let pending = app.publish(job("email", "order.created", "one")).await;
        Zoo { app, pending, processing, completed, failed, cancelled, pushed }
    }

    /// Asserts that a filter finds exactly these events, oldest first, and counts them.
    async fn finds(&self, query: &str, wanted: &[i64]) {
        let page = list(&self.app, query).await;
        assert_eq!(ids(&page), wanted, "{query}");
        assert_eq!(page["total"], wanted.len(), "{query}");
        assert_eq!(page["total_is_exact"], true, "{query}");
        let backwards = list(&self.app, &format!("{query}&order=desc")).await;
        assert_eq!(ids(&backwards), wanted.iter().rev().copied().collect::<Vec<_>>(), "{query}, newest first");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_list_has_no_next_cursor() {
    let app = App::start().await;
    let nothing = json!({"events": [], "total": 0, "total_is_exact": true, "limit": 20, "offset": 0, "next": null, "searched_to": null});
    assert_eq!(list(&app, "").await, nothing);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_listed_oldest_first_or_newest_first() {
    let app = App::start().await;
    let mut published = publish_many(&app, 5, "email").await;
    assert_eq!(ids(&list(&app, "").await), published);
    assert_eq!(ids(&list(&app, "?order=asc").await), published);
    published.reverse();
    assert_eq!(ids(&list(&app, "?order=desc").await), published);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listed_event_has_all_fields_but_payload_result_and_progress() {
    let app = App::start().await;
    let id =
        app.publish(json!({"title": "a job", "tags": "email", "payload": {"secret": 1}, "labels": {"a": "b"}})).await;
    let claim = app.claim_one("email", W1).await;
    let report = json!({"worker_id": W1, "progress": {"secret": 2}});
    app.post(&format!("/events/{id}/heartbeat"), &report).await.expect(200);
    let result = json!({"worker_id": W1, "lease_id": claim.lease_id, "result": {"secret": 3}});
    app.post(&format!("/events/{id}/complete"), &result).await.expect(200);
    let mut event = app.get(&format!("/events/{id}")).await.expect(200).json();
    for (field, secret) in [("payload", 1), ("progress", 2), ("result", 3)] {
        assert_eq!(event[field], json!({"secret": secret}));
        event.as_object_mut().expect("an object").remove(field);
    }
    for field in ["cancel_reason", "idempotency_key", "published_by", "client_address"] {
        event.as_object_mut().expect("an object").remove(field);
    }
    let reply = app.get("/events").await.expect(200);
    assert_eq!(reply.json()["events"], json!([event]));
    assert!(!reply.text.contains("secret"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_has_twenty_events_by_default() {
    let app = App::start().await;
    let published = publish_many(&app, 501, "email").await;
    assert_eq!(ids(&list(&app, "").await), published[..20]);
    let page = list(&app, "?limit=500").await;
    assert_eq!(ids(&page), published[..500]);
    assert_eq!((&page["limit"], &page["total"]), (&json!(500), &json!(501)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_offset_skips_the_first_events() {
    let app = App::start().await;
    let published = publish_many(&app, 10, "email").await;
    let page = list(&app, "?limit=3&offset=4").await;
    assert_eq!(ids(&page), published[4..7]);
    assert_eq!((&page["limit"], &page["offset"], &page["total"]), (&json!(3), &json!(4), &json!(10)));
    assert_eq!(ids(&list(&app, "?limit=3&offset=4&order=desc").await), [published[5], published[4], published[3]]);
    assert_eq!(ids(&list(&app, "?offset=10").await), [0; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_offset_cannot_be_combined_with_a_cursor() {
    let app = App::start().await;
    publish_many(&app, 3, "email").await;
    let next = app.next_of("/events?limit=1&offset=1").await;
    app.get_after("/events?limit=1&offset=1", &next).await.names(&["offset"]);
    app.get_after("/events?limit=1&offset=0", &next).await.names(&["offset"]);
    assert_eq!(ids(&app.get_after("/events", &next).await.expect(200).json()).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_found_by_status() {
    let zoo = Zoo::new().await;
    zoo.finds("?status=PENDING", &[zoo.pending]).await;
    zoo.finds("?status=PROCESSING", &[zoo.processing]).await;
    zoo.finds("?status=COMPLETED", &[zoo.completed, zoo.pushed]).await;
    zoo.finds("?status=FAILED", &[zoo.failed]).await;
    zoo.finds("?status=CANCELLED", &[zoo.cancelled]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_found_by_any_of_the_tags() {
    let zoo = Zoo::new().await;
    zoo.finds("?tags=sms", &[zoo.failed, zoo.completed]).await;
    zoo.finds("?tags=eu,email", &[zoo.failed, zoo.processing, zoo.cancelled, zoo.pending]).await;
    zoo.finds("?tags=%20eu%20", &[zoo.failed, zoo.processing]).await;
    zoo.finds("?tags=e", &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_found_by_type_worker_and_correlation() {
    let zoo = Zoo::new().await;
    zoo.finds("?event_type=order.paid", &[zoo.failed, zoo.cancelled, zoo.pushed]).await;
    // What the worker holds now, and in another state, what it claimed last.
    zoo.finds("?worker_id=cid:1", &[zoo.processing]).await;
    zoo.finds("?worker_id=cid:1&status=PROCESSING", &[zoo.processing]).await;
    zoo.finds("?worker_id=cid:1&status=COMPLETED", &[zoo.completed]).await;
    zoo.finds("?worker_id=fay:1", &[]).await;
    zoo.finds("?worker_id=nobody:1", &[]).await;
    zoo.finds("?correlation_id=one", &[zoo.failed, zoo.processing, zoo.pending]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_found_by_ordering_key_whether_they_wait_or_not() {
    let app = App::start().await;
    let mut mine = Vec::new();
    for key in ["mine", "other", "mine", "mine"] {
        let id = app.publish(json!({"title": "a job", "tags": "email", "ordering_key": key})).await;
        mine.extend((key == "mine").then_some(id));
    }
    app.claim("email", W1).await.expect("an event");
    app.complete(mine[0], W1).await.expect(200);
    assert_eq!(ids(&list(&app, "?ordering_key=mine").await), mine);
    assert_eq!(ids(&list(&app, "?ordering_key=mine&status=PENDING").await), mine[1..]);
    assert_eq!(ids(&list(&app, "?ordering_key=mine&status=PENDING&order=desc").await), [mine[2], mine[1]]);
    assert_eq!(ids(&list(&app, "?ordering_key=nobody").await), [0; 0]);
}

/// PENDING events are in three places: ready, waiting for their time or their turn, and rolled up.
#[tokio::test(flavor = "multi_thread")]
async fn pending_events_are_listed_once_whatever_they_wait_for() {
    let app = app_that_sends_nothing().await;
    app.subscribe("http://127.0.0.1:9/hook", json!({"event_types": ["order.paid"]})).await;
    let job = |fields: Value| {
        let mut job = json!({"title": "a job"});
        job.as_object_mut().expect("an object").extend(fields.as_object().cloned().expect("an object"));
        job
    };
    let mut wanted = Vec::new();
    for fields in [
        json!({"tags": "a,b,c"}),
        json!({"tags": "a,b", "delay_seconds": 600}),
        json!({"tags": "d", "ordering_key": "k"}),
        json!({"tags": "d,e", "ordering_key": "k"}),
        json!({"event_type": "order.paid"}),
        json!({"tags": "a", "event_type": "order.paid"}),
    ] {
        wanted.push(app.publish(job(fields)).await);
    }
    for limit in [1, 2, 20] {
        assert_eq!(walk(&app, &format!("?status=PENDING&limit={limit}")).await.concat(), wanted, "limit {limit}");
    }
    // The head of the key is held: it still has its turn, but is not pending.
    app.claim("d", W1).await.expect("an event");
    let head = wanted.remove(2);
    for limit in [1, 2, 20] {
        let backwards: Vec<i64> = wanted.iter().rev().copied().collect();
        let found = walk(&app, &format!("?status=PENDING&limit={limit}&order=desc")).await.concat();
        assert_eq!(found, backwards, "limit {limit}");
    }
    let page = list(&app, "?status=PENDING&limit=2").await;
    assert_eq!((&page["total"], &page["total_is_exact"]), (&json!(5), &json!(true)));
    assert_eq!(ids(&list(&app, "?status=PROCESSING").await), [head]);
}

#[tokio::test(flavor = "multi_thread")]
async fn completed_events_are_found_although_the_log_has_completions_of_removed_events() {
    let app = App::start().await;
    let published = publish_many(&app, 40, "email").await;
    for id in &published {
        app.claim("email", W1).await.expect("an event");
        app.complete(*id, W1).await.expect(200);
    }
    let (removed, kept) =
        (format!("{} AND {}", published[5], published[34]), [&published[..5], &published[35..]].concat());
    let sql = format!(
        "DELETE FROM waybill.deliveries WHERE id BETWEEN {removed}; DELETE FROM waybill.events WHERE id BETWEEN {removed}"
    );
    database::execute(&app.url, &sql).await;
    let backwards: Vec<i64> = kept.iter().rev().copied().collect();
    for limit in [1, 3, 20] {
        assert_eq!(walk(&app, &format!("?status=COMPLETED&limit={limit}")).await.concat(), kept, "limit {limit}");
        let found = walk(&app, &format!("?status=COMPLETED&limit={limit}&order=desc")).await.concat();
        assert_eq!(found, backwards, "limit {limit}");
    }
    let page = list(&app, "?status=COMPLETED&limit=3").await;
    assert_eq!((&page["total"], &page["total_is_exact"]), (&json!(10), &json!(true)));
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_found_by_when_they_were_created() {
    let zoo = Zoo::new().await;
    let created = zoo.app.event(zoo.processing).await["created_at"].as_str().expect("a time").to_owned();
    let from_then_on = [zoo.processing, zoo.cancelled, zoo.pushed, zoo.pending];
    zoo.finds(&format!("?since={created}"), &from_then_on).await;
    zoo.finds(&format!("?until={created}"), &[zoo.failed, zoo.completed]).await;
    let with_offset = created.replace('Z', "+00:00");
    zoo.finds(&format!("?until={with_offset}"), &[zoo.failed, zoo.completed]).await;
    let first = zoo.app.event(zoo.failed).await["created_at"].as_str().expect("a time").to_owned();
    zoo.finds(&format!("?since={first}&until={created}"), &[zoo.failed, zoo.completed]).await;
    zoo.finds(&format!("?since={created}&until={created}"), &[]).await;
    zoo.finds(&format!("?since={created}&until={first}"), &[]).await;
}

/// Ids are assigned up to a few seconds after the start of a transaction, which is the time of its events.
/// Every 64th event leads from times to ids.
#[tokio::test(flavor = "multi_thread")]
async fn events_of_a_slow_transaction_are_found_by_their_time() {
    let app = App::start().await;
    let begin = app.count("SELECT extract(epoch FROM now())::bigint").await - 1_000;
    let sql = format!(
        "INSERT INTO waybill.events (id, title, tags, created_at) \
             SELECT n, 'a job', 'email', to_timestamp({begin}) + (CASE WHEN n % 64 = 1 THEN n - 6 ELSE n END) * interval '1 second' \
             FROM generate_series(1, 400) AS n; \
         INSERT INTO waybill.deliveries (id, event_id, status, listed_status, priority, max_retries) \
             SELECT n, n, 'COMPLETED', 'COMPLETED', 0, 3 FROM generate_series(1, 400) AS n"
    );
    database::execute(&app.url, &sql).await;
    let time = |second: i64| {
        let time = chrono::DateTime::from_timestamp(begin + second, 0).expect("a time");
        time.to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
    };
    // 193 has the time of 187, although it comes after the sample 192; 129 that of 123.
    let late = list(&app, &format!("?since={}&until={}", time(187), time(189))).await;
    assert_eq!(ids(&late), [187, 188, 193]);
    let since = list(&app, &format!("?since={}&until={}&order=desc", time(123), time(124))).await;
    assert_eq!(ids(&since), [129, 123]);
    let both = list(&app, &format!("?since={}&until={}&tags=email&status=COMPLETED", time(187), time(188))).await;
    assert_eq!(ids(&both), [187, 193]);
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_can_be_combined() {
    let zoo = Zoo::new().await;
    zoo.finds("?correlation_id=one&status=FAILED", &[zoo.failed]).await;
    zoo.finds("?correlation_id=two&status=FAILED", &[]).await;
    zoo.finds("?correlation_id=one&event_type=order.created&tags=eu", &[zoo.processing]).await;
    zoo.finds("?status=COMPLETED&worker_id=cid:1", &[zoo.completed]).await;
    zoo.finds("?status=CANCELLED&tags=email&event_type=order.paid", &[zoo.cancelled]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cursors_lead_through_all_pages_with_nothing_skipped_or_repeated() {
    let app = App::start().await;
    let published = publish_many(&app, 60, "email").await;
    let backwards: Vec<i64> = published.iter().rev().copied().collect();
    for limit in [1, 7, 20, 59, 60, 61, 500] {
        assert_eq!(walk(&app, &format!("?limit={limit}")).await.concat(), published, "limit {limit}");
        assert_eq!(walk(&app, &format!("?limit={limit}&order=desc")).await.concat(), backwards, "limit {limit}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cursors_work_with_filters() {
    let app = App::start().await;
    let mut wanted = Vec::new();
    for n in 0..30 {
        let story = if n % 3 == 0 { "mine" } else { "other" };
        let id = app.publish(json!({"title": "a job", "tags": story, "correlation_id": story})).await;
        if n % 3 == 0 {
            app.post_empty(&format!("/events/{id}/cancel")).await.expect(200);
            wanted.push(id);
        }
    }
    let backwards: Vec<i64> = wanted.iter().rev().copied().collect();
    for filter in ["tags=mine", "correlation_id=mine", "status=CANCELLED", "status=CANCELLED&tags=mine"] {
        assert_eq!(walk(&app, &format!("?{filter}&limit=3")).await.concat(), wanted, "{filter}");
        assert_eq!(walk(&app, &format!("?{filter}&limit=3&order=desc")).await.concat(), backwards, "{filter}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_published_meanwhile_do_not_disturb_a_client_that_follows_cursors() {
    let app = App::start().await;
    let published = publish_many(&app, 6, "email").await;
    let newest = list(&app, "?limit=3&order=desc").await;
    let oldest = list(&app, "?limit=3").await;
    let late = publish_many(&app, 2, "email").await;
    let after = |page: &Value| page["next"].as_str().expect("a cursor").to_owned();
    let rest = list(&app, &format!("?limit=3&order=desc&after={}", after(&newest))).await;
    assert_eq!(ids(&rest), [published[2], published[1], published[0]]);
    let rest = list(&app, &format!("?after={}", after(&oldest))).await;
    assert_eq!(ids(&rest), [&published[3..], &late[..]].concat());
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_other_namespaces_are_not_listed() {
    let app = App::start().await;
    let mine = app.publish_tagged("email").await;
    let other = app.publish_tagged("email").await;
    database::execute(&app.url, &format!("UPDATE waybill.events SET namespace_id = 2 WHERE id = {other}")).await;
    assert_eq!(ids(&list(&app, "").await), [mine]);
    app.get(&format!("/events/{other}")).await.problem(404, "event_not_found");
}
