//! The list of entries, its filters, and for how long entries are kept.

use serde_json::{Value, json};

use super::audit;
use crate::support::retention::DAY;
use crate::support::{App, Options, database};

/// Stores entries of two actors, one per day from 1 January 2026 on, and one entry of another namespace.
const ENTRIES: &str = "
    INSERT INTO waybill.audit_log (id, created_at, action, actor, subject_kind, subject_id, address, detail)
    SELECT 100 + n, '2026-01-01Z'::timestamptz + n * interval '1 day',
           (ARRAY['key.created', 'key.revoked'])[1 + n % 2], (ARRAY['ann', 'bob', NULL])[1 + n % 3], 'key', n, '192.0.2.7', '{}'
    FROM generate_series(0, 11) n;
    INSERT INTO waybill.audit_log (namespace_id, id, created_at, action, actor, detail)
    VALUES (2, 200, now(), 'key.created', 'ann', '{}')";

async fn app_with_entries(flags: &[&str]) -> App {
    let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
    let app = App::start_with(Options { flags, ..Options::default() }).await;
    database::execute(&app.url, ENTRIES).await;
    app
}

/// Returns the days of the entries that a query finds, over all pages.
async fn days(app: &App, query: &str) -> Vec<i64> {
    app.walk_ids(&format!("/audit?{query}")).await.concat().into_iter().map(|id| id - 100).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_are_found_by_action_actor_and_time_in_both_orders() {
    let app = app_with_entries(&[]).await;
    let cases = [
        ("", (0..12).collect::<Vec<i64>>()),
        ("action=key.revoked", vec![1, 3, 5, 7, 9, 11]),
        ("actor=bob", vec![1, 4, 7, 10]),
        ("actor=bob&action=key.created", vec![4, 10]),
        ("since=2026-01-05T00:00:00Z&until=2026-01-08T00:00:00Z", vec![4, 5, 6]),
        ("actor=ann&since=2026-01-05T00:00:00Z", vec![6, 9]),
        ("action=key.created&until=2026-01-05T00:00:00Z", vec![0, 2]),
        ("actor=nobody", vec![]),
        ("action=namespace.created", vec![]),
    ];
    for (query, mut expected) in cases {
        for limit in [1, 2, 500] {
            assert_eq!(days(&app, &format!("{query}&limit={limit}")).await, expected, "{query}");
        }
        expected.reverse();
        assert_eq!(days(&app, &format!("{query}&limit=2&order=desc")).await, expected, "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_through_too_many_entries_goes_on_on_the_next_page() {
    let app = app_with_entries(&["--list-scan-rows=1000"]).await;
    let many = "INSERT INTO waybill.audit_log (id, created_at, action, actor, detail) \
                SELECT 1000 + n, '2026-02-01Z', 'key.created', 'ann', '{}' FROM generate_series(1, 2500) n; \
                INSERT INTO waybill.audit_log (id, created_at, action, actor, detail) \
                VALUES (9000, '2026-03-01Z', 'key.created', 'ann', '{}')";
    database::execute(&app.url, many).await;
    let pages = app.walk_ids("/audit?since=2026-02-20T00:00:00Z").await;
    assert_eq!(pages.len(), 3, "{pages:?}");
    assert_eq!(pages.concat(), [9000]);
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_of_other_namespaces_are_not_shown() {
    let app = app_with_entries(&[]).await;
    let all: Vec<Value> = audit(&app, "actor=ann").await;
    assert!(all.iter().all(|entry| entry["id"] != json!(200)), "{all:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_actions_are_refused() {
    let app = App::start().await;
    app.get("/audit?action=key.eaten").await.problem(400, "invalid_request");
    app.get("/audit?actor=").await.problem(400, "invalid_request");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_is_kept_for_a_year() {
    let app = App::with_fixed_clock().await;
    app.subscribe("http://127.0.0.1:9/hook", json!({})).await;
    app.advance(365 * DAY);
    assert_eq!(app.remove_old().await["audit_log"], 0);
    app.advance(1);
    assert_eq!(app.remove_old().await["audit_log"], 1);
    assert!(audit(&app, "").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_has_one_entry_for_its_start_and_one_for_its_end_by_hand() {
    let app = App::with_fixed_clock().await;
    app.publish_tagged("a").await;
    let body = json!({"filter": {"tags": ["a"]}, "per_second": 0.1, "reason": "obsolete"});
    app.dry_run("/events/cancel", json!({})).await;
    let operation = app.start_operation("/events/cancel", &body).await;
    for _ in 0..2 {
        app.post_empty(&format!("/operations/{}/cancel", operation["id"])).await.expect(200);
    }
    let started = audit(&app, "action=operation.started").await;
    let detail = json!({"kind": "cancel_events", "filter": {"tags": ["a"]}, "matched": 1, "matched_is_exact": true, "reason": "obsolete", "per_second": 0.1});
    assert_eq!((started.len(), &started[0]["detail"]), (1, &detail));
    let entries = audit(&app, "action=operation.cancelled").await;
    assert_eq!(entries.len(), 1, "{entries:?}");
    for entry in [&started[0], &entries[0]] {
        assert_eq!(entry["subject"], json!({"kind": "operation", "id": operation["id"]}));
    }
    assert_eq!(entries[0]["detail"], json!({"kind": "cancel_events", "started_by": null}));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_operation_searched_for_is_not_in_the_audit_log() {
    let app = App::start().await;
    let filter = json!({"text": "declined", "not": {"payload": {"card": "4242"}}});
    app.start_operation("/events/retry", &json!({"filter": filter})).await;
    let detail = audit(&app, "action=operation.started").await[0]["detail"].to_string();
    assert!(!detail.contains("declined") && !detail.contains("4242") && detail.contains("[redacted]"), "{detail}");
}
