//! What operations accept.

use serde_json::{Value, json};

use crate::support::App;

const EVENTS: [&str; 3] = ["/events/retry", "/events/cancel", "/events/reset"];
const DELIVERIES: [&str; 2] = ["/deliveries/retry", "/deliveries/cancel"];
const DEAD_LETTERS: &str = "/dead-letters/replay";

fn all_paths() -> impl Iterator<Item = &'static str> {
    EVENTS.into_iter().chain(DELIVERIES).chain([DEAD_LETTERS])
}

async fn refuses(app: &App, path: &str, filter: Value, field: &str) {
    let field = format!("filter.{field}");
    for dry_run in [false, true] {
        app.post(path, &json!({"filter": filter, "dry_run": dry_run})).await.names(&[&field]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_is_required_and_an_empty_one_means_all() {
    let app = App::with_fixed_clock().await;
    for path in all_paths() {
        app.post(path, &json!({})).await.names(&["filter"]);
        app.post(path, &json!({"filter": null})).await.names(&["filter"]);
        app.post(path, &json!({"filter": [], "dry_run": true})).await.names(&["filter"]);
        app.post_empty(path).await.problem(415, "unsupported_media_type");
        assert_eq!(app.dry_run(path, json!({})).await, json!({"matched": 0, "matched_is_exact": true, "sample": []}));
        let started = app.start_operation(path, &json!({"filter": {}})).await;
        assert_eq!((&started["filter"], &started["per_second"]), (&json!({}), &json!(500.0)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_fields_of_an_operation_are_named_all_at_once() {
    let app = App::start().await;
    for path in EVENTS.into_iter().chain(DELIVERIES) {
        let wrong = json!({
            "filter": {"colour": "red"}, "reason": "x".repeat(256), "dry_run": "yes", "per_second": 0, "config": "current", "by": "me",
        });
        let fields = ["filter.colour", "reason", "dry_run", "per_second", "config", "by"];
        app.post(path, &wrong).await.names(&fields);
        app.post(path, &json!({"filter": {}, "per_second": 10_001})).await.names(&["per_second"]);
        app.post(&format!("{path}?dry_run=true"), &json!({"filter": {}})).await.names(&["dry_run"]);
    }
    assert_eq!(app.count("SELECT count(*) FROM waybill.operations").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_of_filters_are_checked() {
    let app = App::start().await;
    for path in EVENTS {
        for tags in [json!("a"), json!([]), json!(["a,b"]), json!([1])] {
            refuses(&app, path, json!({"tags": tags}), "tags").await;
        }
        refuses(&app, path, json!({"event_type": ""}), "event_type").await;
        refuses(&app, path, json!({"worker_id": "nobody"}), "worker_id").await;
        refuses(&app, path, json!({"correlation_id": "a\u{0}"}), "correlation_id").await;
        refuses(&app, path, json!({"ordering_key": ""}), "ordering_key").await;
        refuses(&app, path, json!({"event_id": 1}), "event_id").await;
    }
    for path in DELIVERIES.into_iter().chain([DEAD_LETTERS]) {
        refuses(&app, path, json!({"event_id": 0}), "event_id").await;
        refuses(&app, path, json!({"subscription_id": "1"}), "subscription_id").await;
        refuses(&app, path, json!({"tags": ["a"]}), "tags").await;
    }
    for path in all_paths() {
        refuses(&app, path, json!({"since": "yesterday"}), "since").await;
        refuses(&app, path, json!({"until": 5}), "until").await;
    }
    for seconds in [json!(-1), json!(2_592_001), json!("1")] {
        refuses(&app, "/events/reset", json!({"stale_for_seconds": seconds}), "stale_for_seconds").await;
    }
    refuses(&app, "/events/retry", json!({"stale_for_seconds": 1}), "stale_for_seconds").await;
    refuses(&app, DEAD_LETTERS, json!({"status": "FAILED"}), "status").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_the_action_does_not_apply_to_is_refused() {
    let app = App::start().await;
    for (path, allowed) in [
        ("/events/retry", &["FAILED", "CANCELLED"][..]),
        ("/events/cancel", &["PENDING", "PROCESSING"]),
        ("/events/reset", &["PROCESSING"]),
        ("/deliveries/retry", &["FAILED", "CANCELLED"]),
        ("/deliveries/cancel", &["PENDING", "PROCESSING", "FAILED"]),
    ] {
        for status in ["PENDING", "PROCESSING", "COMPLETED", "FAILED", "CANCELLED"] {
            if allowed.contains(&status) {
                app.dry_run(path, json!({"status": status})).await;
            } else {
                refuses(&app, path, json!({"status": status}), "status").await;
            }
        }
        refuses(&app, path, json!({"status": allowed[0].to_lowercase()}), "status").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_of_a_filter_are_checked() {
    let app = App::start().await;
    let many: Vec<i64> = (1..=501).collect();
    for path in all_paths() {
        for ids in [json!([]), json!([0]), json!(["1"]), json!(1), json!([1.5]), json!(many)] {
            refuses(&app, path, json!({"ids": ids}), "ids").await;
        }
        let most = app.dry_run(path, json!({"ids": &many[..500]})).await;
        assert_eq!((&most["matched"], &most["matched_is_exact"]), (&json!(0), &json!(true)));
    }
    let refused = app.post("/events/retry", &json!({"filter": {"ids": many}})).await;
    assert!(refused.text.contains("must hold 1 to 500 ids"), "{}", refused.text);
}
