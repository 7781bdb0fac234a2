//! `GET /deliveries`.

use chrono::{DateTime, SecondsFormat};
use serde_json::json;
use waybill::domain::ids::{NamespaceId, SubscriptionId};
use waybill::domain::scope::Scope;
use waybill::domain::status::Status;
use waybill::store::lists::pages::Page;
use waybill::store::lists::pushes::{PushFilter, list_pushes};

use crate::support::receiver::Receiver;
use crate::support::records::app_that_sends_nothing;
use crate::support::work::ids;
use crate::support::{App, Options, database};

/// A URL that is never called in these tests.
const NOWHERE: &str = "http://127.0.0.1:9/hook";

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_are_filtered_by_event_subscription_and_status() {
    let app = app_that_sends_nothing().await;
    let mut subscriptions = Vec::new();
    for _ in 0..3 {
        subscriptions.push(app.subscribe(NOWHERE, json!({})).await["id"].clone());
    }
    let first = app.publish_typed("order.paid", json!(1)).await;
    let second = app.publish_typed("order.paid", json!(2)).await;
    let of_first = app.deliveries_of(first).await;
    assert_eq!(of_first.len(), 3);
    assert!(of_first.iter().all(|delivery| delivery["event_id"] == first && delivery["status"] == "PENDING"));
    app.operate_on_delivery(of_first[0]["id"].as_i64().unwrap(), "cancel").await.expect(200);
    let found = async |query: String| {
        let page = app.get(&format!("/deliveries?{query}")).await.expect(200).json();
        assert_eq!(page["next"], json!(null));
        ids(page["deliveries"].as_array().unwrap())
    };
    let (one, two) = (ids(&of_first), ids(&app.deliveries_of(second).await));
    assert_eq!(found(String::new()).await, [&one[..], &two[..]].concat());
    assert_eq!(found(format!("subscription_id={}", subscriptions[1])).await, [one[1], two[1]]);
    assert_eq!(found(format!("subscription_id={}&event_id={second}", subscriptions[1])).await, [two[1]]);
    assert_eq!(found("status=CANCELLED".into()).await, [one[0]]);
    assert_eq!(found(format!("status=PENDING&event_id={first}")).await, [one[1], one[2]]);
    assert_eq!(found(format!("status=PENDING&subscription_id={}", subscriptions[0])).await, [two[0]]);
    assert_eq!(found("status=COMPLETED".into()).await, [0; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_deliveries_follow_one_another_under_every_filter() {
    let app = app_that_sends_nothing().await;
    let subscription = app.subscribe(NOWHERE, json!({})).await["id"].clone();
    app.subscribe(NOWHERE, json!({})).await;
    for n in 0..4 {
        app.publish_typed("order.paid", json!(n)).await;
    }
    for (filter, count) in [("", 8), (&format!("&subscription_id={subscription}"), 4), ("&status=PENDING", 8)] {
        let list = format!("/deliveries?limit=3{filter}");
        let mut seen = app.walk_ids(&list).await.concat();
        assert_eq!(seen.len(), count, "{filter}: {seen:?}");
        assert!(seen.is_sorted(), "{seen:?}");
        seen.reverse();
        assert_eq!(app.walk_ids(&format!("{list}&order=desc")).await.concat(), seen, "{filter}, newest first");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_are_found_by_when_their_event_was_published() {
    let flags = vec!["--dispatch=false".into()];
    let app = App::start_with(Options { flags, fixed_clock: true, ..Options::default() }).await;
    let subscription = app.subscribe(NOWHERE, json!({})).await["id"].clone();
    let (mut times, mut deliveries) = (Vec::new(), Vec::new());
    for n in 0..3 {
        times.push(app.now().to_rfc3339_opts(SecondsFormat::Micros, true));
        let event = app.publish_typed("order.paid", json!(n)).await;
        deliveries.push(app.only_delivery(event).await);
        app.advance(60);
    }
    app.operate_on_delivery(deliveries[1], "cancel").await.expect(200);
    let found = async |query: String| app.walk_ids(&format!("/deliveries?{query}")).await.concat();
    assert_eq!(found(format!("since={}", times[1])).await, deliveries[1..]);
    assert_eq!(found(format!("until={}", times[1])).await, deliveries[..1]);
    assert_eq!(found(format!("since={}&until={}", times[0], times[2])).await, deliveries[..2]);
    assert_eq!(found(format!("since={}&status=CANCELLED", times[1])).await, deliveries[1..2]);
    assert_eq!(found(format!("since={}&status=CANCELLED", times[2])).await, [0; 0]);
    assert_eq!(found(format!("until={}&subscription_id={subscription}", times[2])).await, deliveries[..2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_filter_without_an_index_reads_a_bounded_number_of_rows() {
    let flags = ["--dispatch=false", "--list-scan-rows=500"].map(str::to_owned).to_vec();
    let app = App::start_with(Options { flags, ..Options::default() }).await;
    let pulled: Vec<_> = (0..600).map(|_| json!({"title": "a job", "tags": "pulled"})).collect();
    app.post("/events/batch", &json!({"events": pulled})).await.expect(201);
    app.subscribe(NOWHERE, json!({"event_types": ["order.paid"]})).await;
    let event = app.publish_typed("order.paid", json!(1)).await;
    let page = app.get("/deliveries").await.expect(200).json();
    assert_eq!(page["deliveries"], json!([]), "the first rows are the events' own deliveries");
    let next = page["next"].as_str().expect("there may be more");
    let page = app.get_after("/deliveries", next).await.expect(200).json();
    assert_eq!(page["deliveries"][0]["event_id"], event);
    assert_eq!(page["next"], json!(null));
    let newest_first = app.walk("/deliveries?since=2020-01-01T00:00:00Z&order=desc", "event_id").await;
    assert_eq!(newest_first, [vec![json!(event)], vec![]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_is_pulled_and_pushed_lists_only_its_pushes() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    app.subscribe(&receiver.url("/hook"), json!({})).await;
    let event = app.publish(json!({"event_type": "order.paid", "tags": "billing"})).await;
    let delivery = app.only_delivery(event).await;
    assert_ne!(delivery, event);
    app.until_delivery(delivery, "COMPLETED").await;
    assert_eq!(app.status(event).await, "PENDING", "its own work is not claimed");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_filters_of_deliveries_are_named() {
    let app = App::start().await;
    app.get("/deliveries?status=DONE&event_id=0&limit=501&since=now&order=up&colour=red")
        .await
        .names(&["status", "event_id", "limit", "since", "order", "colour"]);
}

/// The index of failed pushes is partial, and a time range has no index.
#[tokio::test(flavor = "multi_thread")]
async fn failed_deliveries_of_a_time_range_are_read_from_their_index() {
    let app = app_that_sends_nothing().await;
    let history = "ALTER TABLE waybill.deliveries SET (autovacuum_enabled = off); \
         INSERT INTO waybill.deliveries (id, event_id, subscription_id, status, listed_status, priority, max_retries, lease_id) \
             SELECT CASE WHEN n % 2 = 0 THEN nextval('waybill.ids') ELSE -n END, -n, CASE WHEN n % 2 = 0 THEN 7 END, \
                    CASE WHEN n % 100 = 0 THEN 'FAILED' ELSE 'COMPLETED' END::waybill.status, \
                    CASE WHEN n % 100 = 0 THEN 'FAILED'::waybill.status END, 0, 1, 1 \
             FROM generate_series(1, 50000) AS n; \
         INSERT INTO waybill.events (id, title, tags) SELECT -n, 'a job', 'a' FROM generate_series(1, 50000) AS n; \
         ANALYZE waybill.deliveries";
    database::execute(&app.url, history).await;
    let since = Some(DateTime::UNIX_EPOCH);
    let filter = PushFilter { status: Some(Status::Failed), since, ..PushFilter::default() };
    for descending in [false, true] {
        let page = Page { descending, after: None, limit: 20, scan: 100 };
        let scope = Scope::new(NamespaceId::DEFAULT, None);
        let list = async |conn: &mut _| list_pushes(conn, &scope, &filter, page).await;
        let ((rows, _), buffers) = app.buffers_of(list).await;
        assert_eq!(rows.len(), 20);
        assert!(buffers < 400, "{buffers} buffers, descending: {descending}");
    }
}

/// The planner's statistics over two subscriptions do not tell it that one of them is quiet.
#[tokio::test(flavor = "multi_thread")]
async fn a_few_deliveries_of_a_quiet_subscription_are_found_cheaply_beside_a_busy_one() {
    let app = app_that_sends_nothing().await;
    let history = "ALTER TABLE waybill.deliveries SET (autovacuum_enabled = off); \
         INSERT INTO waybill.deliveries (id, event_id, subscription_id, status, priority, max_retries, lease_id) \
             SELECT nextval('waybill.ids'), -n, CASE WHEN n % 10000 = 0 THEN 7 ELSE 8 END, 'COMPLETED', 0, 1, 1 \
             FROM generate_series(1, 50000) AS n; \
         INSERT INTO waybill.events (id, title, tags) SELECT -n, 'a job', 'a' FROM generate_series(1, 50000) AS n; \
         ANALYZE waybill.deliveries";
    database::execute(&app.url, history).await;
    for (subscription_id, expected) in [(7, 5), (8, 20)] {
        let filter = PushFilter { subscription_id: Some(SubscriptionId(subscription_id)), ..PushFilter::default() };
        for descending in [false, true] {
            let page = Page { descending, after: None, limit: 20, scan: 500 };
            let scope = Scope::new(NamespaceId::DEFAULT, None);
            let list = async |conn: &mut _| list_pushes(conn, &scope, &filter, page).await;
            let ((rows, _), buffers) = app.buffers_of(list).await;
            assert_eq!(rows.len(), expected);
            assert!(buffers < 150, "{buffers} buffers for the pushes of {subscription_id}, descending: {descending}");
        }
    }
}
