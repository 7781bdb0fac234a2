//! `GET /dead-letters`.

use chrono::TimeDelta;
use serde_json::{Value, json};
use waybill::domain::ids::{EventId, NamespaceId, SubscriptionId};
use waybill::domain::scope::Scope;
use waybill::store::lists::dead_letters::{DeadLetterFilter, list_dead_letters};
use waybill::store::lists::pages::Page;

use crate::support::receiver::{Receiver, Reply};
use crate::support::records::{app_that_sends_nothing, one_attempt};
use crate::support::work::ids;
use crate::support::{App, Options, database, ledger};

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_filtered_by_event_subscription_reason_time_and_replay() {
    let (app, receiver) = (App::with_fixed_clock().await, Receiver::start().await);
    let orders = app.subscribe(&receiver.url("/orders"), json!({"event_types": ["order.*"], "max_attempts": 1})).await;
    let users = app.subscribe(&receiver.url("/users"), json!({"event_types": ["user.*"], "max_attempts": 2})).await;
    let first = app.publish_and_fail(&receiver, "order.paid", json!(1)).await;
    app.advance(60);
    receiver.next(Reply::status(404));
    let second = app.publish_typed("user.created", json!(2)).await;
    app.until_delivery(app.only_delivery(second).await, "FAILED").await;
    let found = async |query: String| {
        let letters = app.dead_letters(&query).await;
        letters.iter().map(|letter| letter["event_id"].as_i64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(found(String::new()).await, [first, second]);
    assert_eq!(found(format!("event_id={second}")).await, [second]);
    assert_eq!(found(format!("subscription_id={}", orders["id"])).await, [first]);
    assert_eq!(found(format!("subscription_id={}&reason=exhausted", users["id"])).await, [0; 0]);
    assert_eq!(found("reason=exhausted".into()).await, [first]);
    assert_eq!(found("reason=terminal".into()).await, [second]);
    let since = app.now().format("%Y-%m-%dT%H:%M:%SZ");
    let later = (app.now() + TimeDelta::hours(1)).format("%Y-%m-%dT%H:%M:%SZ");
    assert_eq!(found(format!("since={since}")).await, [second]);
    assert_eq!(found(format!("until={since}")).await, [first]);
    assert_eq!(found(format!("since={since}&until={later}&event_id={first}")).await, [0; 0]);
    let letter = app.open_dead_letter(first).await;
    app.replay(&letter["id"], json!({})).await.expect(200);
    assert_eq!(found("replayed=true".into()).await, [first]);
    assert_eq!(found("replayed=false".into()).await, [second]);
    app.until_delivery(app.only_delivery(first).await, "COMPLETED").await;
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_dead_letters_is_paged_and_leaves_out_events_and_attempts() {
    let app = app_that_sends_nothing().await;
    app.subscribe("http://127.0.0.1:9/hook", one_attempt()).await;
    for n in 0..5 {
        give_up(&app, n).await;
    }
    let page = app.get("/dead-letters?limit=2").await.expect(200).json();
    let letters = page["dead_letters"].as_array().unwrap();
    assert!(letters.iter().all(|letter| letter.get("event").is_none() && letter.get("attempts").is_none()));
    let all = ids(&app.dead_letters("").await);
    assert_eq!(all.len(), 5);
    assert!(all.is_sorted(), "{all:?}");
    let backwards: Vec<i64> = all.iter().rev().copied().collect();
    for filter in ["", "&reason=manual"] {
        let list = format!("/dead-letters?limit=2{filter}");
        assert_eq!(app.walk_ids(&list).await.concat(), all, "{filter}");
        assert_eq!(app.walk_ids(&format!("{list}&order=desc")).await.concat(), backwards, "{filter}");
    }
}

async fn give_up(app: &App, n: i64) -> i64 {
    let event = app.publish_typed("order.paid", json!(n)).await;
    let id = app.only_delivery(event).await;
    app.dead_letter(id, "a_test").await.expect(200);
    event
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_filter_without_an_index_reads_a_bounded_number_of_rows() {
    let flags = ["--dispatch=false", "--list-scan-rows=500"].map(str::to_owned).to_vec();
    let app = App::start_with(Options { flags, ..Options::default() }).await;
    app.subscribe("http://127.0.0.1:9/hook", one_attempt()).await;
    let event = give_up(&app, 1).await;
    let others = "INSERT INTO waybill.dead_letters (id, delivery_id, event_id, subscription_id, subscription_version, \
                  reason, event, subscription, attempts, created_at) \
                  SELECT -n, -n, -n, -1, 1, 'poison', '{}', '{}', '[]', now() FROM generate_series(1, 600) n";
    database::execute(&app.url, &others.replace("-n, -n, -n", "n, n, n").replace("1, 600", "100000, 100599")).await;
    let page = app.get("/dead-letters?reason=poison&limit=500").await.expect(200).json();
    assert_eq!(page["dead_letters"].as_array().unwrap().len(), 499, "the manual one was read, too");
    assert!(page["next"].is_string());
    let page = app.get("/dead-letters?reason=manual").await.expect(200).json();
    assert_eq!(page["dead_letters"][0]["event_id"], event);
    let end = page["next"].as_str().expect("there may be more");
    let page = app.get_after("/dead-letters?reason=manual", end).await.expect(200).json();
    assert_eq!((&page["dead_letters"], &page["next"]), (&json!([]), &Value::Null));
    let newest_first = app.walk("/dead-letters?reason=manual&order=desc", "event_id").await;
    assert_eq!(newest_first, [vec![], vec![json!(event)]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_filters_of_dead_letters_are_named() {
    let app = App::start().await;
    app.get("/dead-letters?reason=bored&since=yesterday&until=today&replayed=maybe&order=up&colour=red")
        .await
        .names(&["reason", "since", "until", "replayed", "order", "colour"]);
}

/// The planner's statistics over two subscriptions do not tell it that one of them is quiet.
#[tokio::test(flavor = "multi_thread")]
async fn a_few_dead_letters_of_a_quiet_subscription_are_found_cheaply_beside_a_busy_one() {
    let app = app_that_sends_nothing().await;
    let history = "ALTER TABLE waybill.dead_letters SET (autovacuum_enabled = off); \
         INSERT INTO waybill.dead_letters (delivery_id, event_id, subscription_id, subscription_version, reason, \
                                           event, subscription, attempts, created_at) \
             SELECT n, n % 2, CASE WHEN n % 10000 = 0 THEN 7 ELSE 8 END, 1, 'exhausted', '{}', '{}', '[]', now() \
             FROM generate_series(1, 50000) AS n; \
         UPDATE waybill.dead_letters SET event_id = 2 WHERE delivery_id % 10000 = 0; \
         ANALYZE waybill.dead_letters";
    database::execute(&app.url, history).await;
    let any = DeadLetterFilter::default;
    for (filter, expected) in [
        (DeadLetterFilter { subscription_id: Some(SubscriptionId(7)), ..any() }, 5),
        (DeadLetterFilter { subscription_id: Some(SubscriptionId(8)), ..any() }, 20),
        (DeadLetterFilter { event_id: Some(EventId(2)), ..any() }, 5),
        (DeadLetterFilter { event_id: Some(EventId(2)), subscription_id: Some(SubscriptionId(7)), ..any() }, 5),
    ] {
        for descending in [false, true] {
            let page = Page { descending, after: None, limit: 20, scan: 500 };
            let scope = Scope::new(NamespaceId::DEFAULT, None);
            let list = async |conn: &mut _| list_dead_letters(conn, &scope, &filter, page).await;
            let ((rows, _), buffers) = app.buffers_of(list).await;
            assert_eq!(rows.len(), expected, "{filter:?}");
            assert!(buffers < 60, "{buffers} buffers for {filter:?}, descending: {descending}");
        }
    }
}
