//! Cursors: bound to their list, its filters and its order, and opaque.

use serde_json::{Value, json};

use crate::support::App;
use crate::support::pages::{LISTS, app_with_rows};

/// Asserts that a list refuses a cursor as one of another list, other filters or another order.
async fn refuses(app: &App, list: &str, cursor: &str) {
    let problem = app.get_after(list, cursor).await.problem(400, "cursor_mismatch");
    let reason = "belongs to another list, namespace, filter or order";
    assert_eq!(problem["errors"], json!([{"field": "after", "reason": reason}]), "{list}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_list_can_be_read_page_by_page_in_both_orders() {
    let app = app_with_rows().await;
    for (list, key) in LISTS {
        let mut all = app.walk(list, key).await.concat();
        assert!(all.len() >= 3, "{list}: {all:?}");
        assert_eq!(app.walk(&format!("{list}?limit=2&order=asc"), key).await.concat(), all, "{list}");
        all.reverse();
        assert_eq!(app.walk(&format!("{list}?limit=2&order=desc"), key).await.concat(), all, "{list}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_of_another_list_is_refused() {
    let app = app_with_rows().await;
    for (list, _) in LISTS {
        let cursor = app.next_of(&format!("{list}?limit=1")).await;
        assert!(cursor.len() <= 512, "{cursor}");
        for (other, _) in LISTS.iter().filter(|(other, _)| *other != list) {
            refuses(&app, other, &cursor).await;
        }
        app.get_after(list, &cursor).await.expect(200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_of_another_order_is_refused() {
    let app = app_with_rows().await;
    for (list, _) in LISTS {
        let ascending = app.next_of(&format!("{list}?limit=1")).await;
        let descending = app.next_of(&format!("{list}?limit=1&order=desc")).await;
        refuses(&app, &format!("{list}?order=desc"), &ascending).await;
        refuses(&app, list, &descending).await;
        app.get_after(&format!("{list}?order=asc"), &ascending).await.expect(200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_of_other_filters_is_refused() {
    let app = app_with_rows().await;
    let filters = [
        ("/events", vec!["tags=tag-0", "tags=tag-1", "status=COMPLETED", "event_type=order.0", "worker_id=w:1"]),
        ("/events", vec!["correlation_id=c", "since=2020-01-01T00:00:00Z", "until=2999-01-01T00:00:00Z"]),
        ("/logs", vec!["event_id=1", "worker_id=w:0", "action=PICKED", "since=2020-01-01T00:00:00Z"]),
        ("/logs", vec!["until=2999-01-01T00:00:00Z"]),
        ("/subscriptions", vec!["is_active=true", "is_active=false"]),
        ("/deliveries", vec!["event_id=1", "subscription_id=1", "status=FAILED", "since=2020-01-01T00:00:00Z"]),
        ("/deliveries", vec!["until=2999-01-01T00:00:00Z"]),
        ("/operations", vec!["status=RUNNING", "kind=cancel_events"]),
        ("/dead-letters", vec!["event_id=1", "subscription_id=1", "reason=manual", "replayed=false"]),
        ("/dead-letters", vec!["since=2020-01-01T00:00:00Z", "until=2999-01-01T00:00:00Z"]),
        ("/audit", vec!["action=subscription.created", "actor=ann", "since=2020-01-01T00:00:00Z"]),
        ("/audit", vec!["until=2999-01-01T00:00:00Z"]),
    ];
    for (list, filters) in filters {
        let cursor = app.next_of(&format!("{list}?limit=1")).await;
        for filter in filters {
            refuses(&app, &format!("{list}?{filter}"), &cursor).await;
        }
    }
    let filtered = app.next_of("/events?status=PROCESSING&limit=1").await;
    refuses(&app, "/events", &filtered).await;
    refuses(&app, "/events?status=PENDING", &filtered).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limit_may_change_from_page_to_page_and_filters_may_be_spelled_differently() {
    let app = app_with_rows().await;
    let cursor = app.next_of("/events?tags=tag-2,tag-1,tag-0&since=2020-01-01T00:00:00Z&limit=1").await;
    let same = "/events?limit=7&since=2020-01-01T01:00:00.0%2B01:00&order=asc&tags=tag-0,tag-1,%20tag-2";
    let page = app.get_after(same, &cursor).await.expect(200).json();
    let tags: Vec<&Value> = page["events"].as_array().expect("events").iter().map(|event| &event["tags"]).collect();
    assert_eq!(tags, ["tag-1", "tag-2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_cursor_is_refused_by_every_list() {
    let app = app_with_rows().await;
    for (list, _) in LISTS {
        let cursor = app.next_of(&format!("{list}?limit=1")).await;
        let (head, tail) = cursor.split_at(cursor.len() / 2);
        for damaged in
            [head, tail, &format!("{tail}{head}"), &cursor[1..], &format!("{cursor}AAAA"), &format!("{cursor}=")]
        {
            app.get_after(list, damaged).await.names(&["after"]);
        }
    }
}
