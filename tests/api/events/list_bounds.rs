//! `GET /events`: totals, and searches that are bounded.

use serde_json::{Value, json};

use super::list::{ids, list, publish_many, walk};
use crate::support::work::W1;
use crate::support::{App, Options};

/// Starts a server with the smallest scan limit that can be configured.
async fn with_short_scans() -> App {
    let flags = vec!["--list-scan-rows=500".to_owned()];
    App::start_with(Options { flags, ..Options::default() }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_total_is_exact_up_to_a_thousand_and_says_so_beyond_it() {
    let app = with_short_scans().await;
    publish_many(&app, 1_000, "email").await;
    let queries = ["?limit=1", "?limit=1&order=desc", "?limit=1&offset=400", "?tags=email", "?status=PENDING"];
    for query in queries {
        let page = list(&app, query).await;
        assert_eq!((&page["total"], &page["total_is_exact"]), (&json!(1_000), &json!(true)), "{query}");
    }
    app.publish_tagged("email").await;
    for query in queries {
        let page = list(&app, query).await;
        assert_eq!((&page["total"], &page["total_is_exact"]), (&json!(1_000), &json!(false)), "{query}");
    }
}

/// Of these, the row of each event is looked up.
#[tokio::test(flavor = "multi_thread")]
async fn a_total_of_claimed_or_completed_events_is_exact_up_to_a_hundred_and_says_so_beyond_it() {
    async fn check(app: &App, query: &str, is_exact: bool) {
        let page = list(app, query).await;
        assert_eq!((&page["total"], &page["total_is_exact"]), (&json!(100), &json!(is_exact)), "{query}");
    }
    let app = App::start().await;
    let mut held = Vec::new();
    for (count, is_exact) in [(100, true), (1, false)] {
        publish_many(&app, count, "email").await;
        let claimed = app.claim_batch("email", "w:1", count).await;
        held.extend(claimed.iter().map(|event| json!({"event_id": event["id"], "action": "complete"})));
        check(&app, "?limit=1&status=PROCESSING", is_exact).await;
        check(&app, "?limit=1&worker_id=w:1", is_exact).await;
    }
    for (settlements, is_exact) in [(&held[..100], true), (&held[100..], false)] {
        let results = app.settle_batch("w:1", settlements).await;
        assert!(results.iter().all(|result| result["accepted"] == true), "{results:?}");
        check(&app, "?limit=1&status=COMPLETED", is_exact).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_total_counts_all_pages_whatever_the_cursor() {
    let app = with_short_scans().await;
    let published = publish_many(&app, 30, "email").await;
    let next = app.next_of("/events?limit=10").await;
    let page = app.get_after("/events", &next).await.expect(200).json();
    assert_eq!(ids(&page), published[10..]);
    assert_eq!(page["total"], 30);
    for query in ["?offset=25", "?limit=1"] {
        assert_eq!(list(&app, query).await["total"], 30, "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_found_by_an_index_are_listed_and_counted_beyond_the_cap() {
    let app = with_short_scans().await;
    publish_many(&app, 700, "email").await;
    let odd = app.publish(json!({"title": "a job", "tags": "email", "correlation_id": "story"})).await;
    app.post_empty(&format!("/events/{odd}/cancel")).await.expect(200);
    for query in [
        "?status=CANCELLED",
        "?correlation_id=story",
        "?status=CANCELLED&tags=email",
        "?correlation_id=story&tags=email",
    ] {
        let page = list(&app, query).await;
        assert_eq!(ids(&page), [odd], "{query}");
        assert_eq!((&page["total"], &page["total_is_exact"]), (&json!(1), &json!(true)), "{query}");
        assert_eq!(page["next"], Value::Null, "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_under_two_filters_is_bounded_and_says_how_far_it_got() {
    let app = with_short_scans().await;
    let publish = async |tags: &str, event_type: &str, count: usize| {
        let event = json!({"title": "a job", "tags": tags, "event_type": event_type});
        ids(&app.post("/events/batch", &json!({"events": vec![event; count]})).await.expect(201).json())
    };
    let first_ones = publish("email", "order.created", 700).await;
    let others = publish("sms", "order.paid", 700).await;
    let rare = publish("email", "order.paid", 1).await;

    // Types lead: their first matches lie further back. 500 of them are examined.
    let query = "?tags=email&event_type=order.paid";
    let first = list(&app, query).await;
    assert_eq!(ids(&first), [0; 0]);
    assert!(first["next"].is_string(), "more may follow: {first}");
    assert_eq!(first["searched_to"], app.event(others[499]).await["created_at"]);
    assert_eq!((&first["total"], &first["total_is_exact"]), (&json!(0), &json!(false)));

    let last = app.get_after(&format!("/events{query}"), first["next"].as_str().expect("a cursor")).await;
    let last = last.expect(200).json();
    assert_eq!((ids(&last), &last["next"], &last["searched_to"]), (rare.clone(), &Value::Null, &Value::Null));

    // Backwards, tags lead: behind the match, the last 499 of the first 700 are examined.
    let backwards = format!("{query}&order=desc");
    let first = list(&app, &backwards).await;
    assert_eq!(ids(&first), rare);
    assert_eq!(first["searched_to"], app.event(first_ones[201]).await["created_at"]);
    assert_eq!((&first["total"], &first["total_is_exact"]), (&json!(1), &json!(false)));
    let last = app.get_after(&format!("/events{backwards}"), first["next"].as_str().expect("a cursor")).await;
    let last = last.expect(200).json();
    assert_eq!((ids(&last), &last["next"], &last["searched_to"]), (vec![], &Value::Null, &Value::Null));
}

/// Held events with an ordering key still have their turn, and so they are in the index of what waits.
#[tokio::test(flavor = "multi_thread")]
async fn pending_events_are_found_behind_any_number_of_held_ones_with_an_ordering_key() {
    let app = with_short_scans().await;
    let publish = async |keys: std::ops::Range<usize>, delay_seconds: i64| {
        let event = |key: usize| json!({"title": "a job", "tags": "email", "ordering_key": format!("k{key}"), "delay_seconds": delay_seconds});
        let events: Vec<Value> = keys.map(event).collect();
        ids(&app.post("/events/batch", &json!({"events": events})).await.expect(201).json())
    };
    let first = publish(0..3, 600).await;
    publish(10..710, 0).await;
    let last = publish(1_000..1_003, 600).await;
    assert_eq!(app.claim_batch("email", W1, 700).await.len(), 700);
    let mut wanted = [first, last].concat();
    for order in ["asc", "desc"] {
        for query in ["?status=PENDING", "?status=PENDING&tags=email"] {
            let page = list(&app, &format!("{query}&order={order}")).await;
            assert_eq!(ids(&page), wanted, "{query}, {order}");
            assert_eq!((&page["next"], &page["searched_to"]), (&Value::Null, &Value::Null), "{query}, {order}");
            assert_eq!((&page["total"], &page["total_is_exact"]), (&json!(6), &json!(true)), "{query}, {order}");
        }
        wanted.reverse();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_is_found_behind_any_number_of_other_events() {
    let app = with_short_scans().await;
    publish_many(&app, 1_100, "email").await;
    let rare = app.publish_tagged("rare").await;
    publish_many(&app, 300, "email").await;
    for order in ["asc", "desc"] {
        let page = list(&app, &format!("?tags=rare&order={order}")).await;
        assert_eq!((ids(&page), &page["next"], &page["searched_to"]), (vec![rare], &Value::Null, &Value::Null));
        assert_eq!((&page["total"], &page["total_is_exact"]), (&json!(1), &json!(true)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn short_scans_and_short_pages_together_skip_and_repeat_nothing() {
    let app = with_short_scans().await;
    let mut wanted = Vec::new();
    for _ in 0..4 {
        publish_many(&app, 333, "email").await;
        wanted.extend(publish_many(&app, 13, "rare").await);
    }
    let backwards: Vec<i64> = wanted.iter().rev().copied().collect();
    for limit in [1, 5, 13, 500] {
        assert_eq!(walk(&app, &format!("?tags=rare&limit={limit}")).await.concat(), wanted, "limit {limit}");
        assert_eq!(
            walk(&app, &format!("?tags=rare&limit={limit}&order=desc")).await.concat(),
            backwards,
            "limit {limit}"
        );
    }
}
