//! `examples/a-realistic-day`: a server full of data, for demonstrations and for tests of pages.

use serde_json::{Value, json};

use crate::support::{App, ledger, realistic_day};

/// Returns the rows of a list.
async fn list(app: &App, path: &str, rows: &str) -> Vec<Value> {
    app.get(path).await.expect(200).json()[rows].as_array().expect("rows").clone()
}

/// Returns the event whose title begins like this.
async fn event_titled(app: &App, start: &str) -> Value {
    let exports = list(app, "/events?tags=exports&limit=500", "events").await;
    let found = exports.iter().find(|event| event["title"].as_str().expect("a title").starts_with(start));
    app.event(found.unwrap_or_else(|| panic!("no {start}"))["id"].as_i64().expect("an id")).await
}

/// Fills a server that requires keys. Returns it as an administrator sees it, and what was printed.
async fn filled(open: &App) -> (App, String) {
    let key = open.make_key(json!({"name": "the admin", "scopes": ["admin"]})).await;
    let app = open.holding(&key);
    let printed = realistic_day::fill(&app, Some(&key.key)).await;
    (app, printed)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_realistic_day_leaves_something_of_everything() {
    let (open, other) = (App::start().await, App::start().await);
    let ((app, printed), again) = tokio::join!(filled(&open), realistic_day::fill(&other, None));
    // Keys take ids, so those of the events differ.
    let counts = |printed: &str| {
        let (_, counts) = printed.split_once(" s: ").expect("counts");
        counts.lines().filter(|line| !line.starts_with("  event")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(counts(&printed), counts(&again), "the same day again, without keys");
    assert!(printed.contains("loyalty-points: 320 waiting, 0 workers, unserved"), "{printed}");
    assert_eq!(list(&app, "/tags?limit=500", "tags").await.len(), 14, "{printed}");
    assert_work(&app).await;
    assert_operators(&app).await;
    assert_webhooks(&app).await;
    assert_odd_events(&app).await;
    ledger::check(&app).await;
}

async fn assert_work(app: &App) {
    let declined = list(app, "/events?status=FAILED&tags=payments&limit=500", "events").await;
    let errors =
        declined.iter().filter(|event| event["last_error"].as_str().is_some_and(|e| e.contains("card_declined")));
    assert!(errors.count() > 10, "{declined:?}");
    let retrying = list(app, "/events?status=PENDING&tags=warehouse-sync", "events").await;
    assert!(retrying.iter().all(|event| event["next_retry_at"].is_string() && event["retry_count"] == 1));
    let of_one_order = list(app, "/events?correlation_id=order-10210", "events").await;
    assert_eq!(of_one_order.len(), 6);
    let behind = list(app, "/events?ordering_key=sku-4711&status=PENDING", "events").await;
    assert_eq!(behind.len(), 10);
    assert!(behind[0]["last_error"].is_string() && behind[1]["last_error"].is_null());
    assert_eq!(list(app, "/events?ordering_key=sku-4712&status=COMPLETED", "events").await.len(), 10);
    let workers = list(app, "/workers", "workers").await;
    let silent = workers.iter().find(|worker| worker["worker_id"] == "render-3:4127").expect("a worker");
    assert_eq!(silent["holding"], 2);
}

async fn assert_operators(app: &App) {
    let reset = list(app, "/logs?action=RESET", "logs").await;
    assert_eq!((&reset[0]["actor"], &reset[0]["reason"]), (&json!("anna (on call)"), &json!("worker_timeout")));
    let cancelled = list(app, "/logs?action=CANCELLED&limit=500", "logs").await;
    assert_eq!(cancelled.len(), 35);
    assert!(cancelled.iter().all(|entry| entry["actor"] == "anna (on call)"), "{cancelled:?}");
    let operations = list(app, "/operations", "operations").await;
    assert_eq!((&operations[0]["status"], &operations[0]["done"]), (&json!("COMPLETED"), &json!(30)));
    assert_eq!(list(app, "/logs?action=RETRIED", "logs").await.len(), 2);
    let keys = list(app, "/keys", "keys").await;
    assert!(keys.iter().any(|key| key["name"] == "anna (on call)" && !key["revoked_at"].is_null()), "{keys:?}");
}

async fn assert_webhooks(app: &App) {
    let subscriptions = list(app, "/subscriptions", "subscriptions").await;
    let breakers: Vec<&Value> = subscriptions.iter().map(|one| &one["endpoint"]["breaker"]).collect();
    assert_eq!(breakers, ["closed", "open"]);
    let dead = list(app, "/dead-letters", "dead_letters").await;
    assert_eq!(dead.len(), 10, "20 failures, 2 for each delivery, and then nothing is sent");
    assert_eq!(dead.iter().filter(|letter| !letter["replay"].is_null()).count(), 1);
    let path = format!("/deliveries?subscription_id={}&limit=500", subscriptions[0]["id"]);
    let delivered = list(app, &path, "deliveries").await;
    assert!(delivered.len() == 120 && delivered.iter().all(|delivery| delivery["status"] == "COMPLETED"));
    let sources = list(app, "/sources", "sources").await;
    assert_eq!(sources[0]["refused"]["webhooks"], 1, "{sources:?}");
    assert_eq!(list(app, "/events?tags=ci", "events").await.len(), 7);
    let types = list(app, "/event-types", "event_types").await;
    assert!(types.iter().any(|declared| declared["name"] == "order.paid"), "{types:?}");
}

async fn assert_odd_events(app: &App) {
    let hostile = event_titled(app, "<script>").await;
    assert_eq!((&hostile["title"], &hostile["status"]), (&json!("<script>alert(1)</script>"), &json!("FAILED")));
    assert_eq!(event_titled(app, "Reconcile").await["payload"]["account"], 9_007_199_254_740_993_i64);
    assert!(event_titled(app, "Import").await["payload"].to_string().len() > 190_000);
    let long = event_titled(app, "Convert").await;
    assert_eq!(long["last_error"].as_str().expect("an error").lines().count(), 5_000);
    let title = event_titled(app, "Donau").await["title"].as_str().expect("a title").to_owned();
    assert_eq!(title.chars().count(), 255);
    for start in ["شحنة", "🎉"] {
        event_titled(app, start).await;
    }
}
