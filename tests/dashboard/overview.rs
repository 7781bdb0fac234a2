//! `/`: whether all is well.

use serde_json::json;

use crate::support::receiver::Receiver;
use crate::support::{App, database};

async fn page(app: &App) -> String {
    app.get("/").await.expect(200).text
}

/// Asserts that a page has all of these texts.
#[track_caller]
fn has(page: &str, texts: &[&str]) {
    for text in texts {
        assert!(page.contains(text), "{text} in {page}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_server_teaches_with_commands_for_its_own_address() {
    let app = App::start().await;
    has(&page(&app).await, &["First steps", &format!("&#39;{}/events&#39;", app.base).replace("&#39;", "'")]);
    assert!(!page(&app).await.contains("Authorization"));
    let app = app.with_admin_key().await;
    has(&page(&app).await, &["Authorization: Bearer $WAYBILL_KEY"]);
    app.post("/namespaces", &json!({"name": "other"})).await.expect(201);
    app.publish_tagged("reports").await;
    assert!(!page(&app).await.contains("First steps"));
    let other = app.get("/?namespace=other").await.expect(200).text;
    has(&other, &["First steps", "Waybill-Namespace: other"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_are_red_for_an_hour_amber_for_a_day_and_then_history() {
    let app = App::with_fixed_clock().await;
    app.publish_failures(3, "billing", "card declined").await;
    app.publish_failures(1, "email", "no route").await;
    let red = page(&app).await;
    has(&red, &["figure bad", "4 events failed in the last hour", "billing (3)", "email (1)"]);
    has(&red, &["/ui/events?q=status%3AFAILED+since%3A1h+tag%3Abilling"]);
    app.advance(3_700);
    let amber = page(&app).await;
    has(&amber, &["figure warning", "4 events failed in the last 24 hours", "q=status%3AFAILED+since%3A24h"]);
    assert!(!amber.contains("figure bad"));
    app.advance(86_400);
    let calm = page(&app).await;
    has(&calm, &["All is well.", "0 workers", "0 tags", "last failure 25 h ago"]);
    assert!(!calm.contains("figure bad") && !calm.contains("figure warning"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_retried_needs_nobody_any_more() {
    let app = App::with_fixed_clock().await;
    let ids = app.publish_failures(2, "billing", "card declined").await;
    for id in &ids {
        app.operate(*id, "retry").await.expect(200);
    }
    let page = page(&app).await;
    assert!(!page.contains("failed in the last hour") && !page.contains("figure bad"), "{page}");
    has(&page, &["All is well.", "no failed events."]);
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_workers_open_breakers_dead_letters_and_operations_are_named_with_links() {
    let app = App::with_fixed_clock().await;
    let id = app.publish_tagged("thumbnails").await;
    app.claim("thumbnails", "render-3:41").await.expect("an event");
    app.publish_failures(200, "billing", "card declined").await;
    let body = json!({"filter": {"tags": ["billing"]}, "per_second": 1});
    let operation = app.start_operation("/events/retry", &body).await;
    database::execute(
        &app.url,
        "INSERT INTO waybill.endpoints (namespace_id, url, failures_in_row, opened_at, paused_until)
         VALUES (1, 'https://hooks.example/pay?token=secret', 7, now(), now() + interval '12 seconds'),
                (1, 'https://hooks.example/two', 7, now(), now()), (1, 'https://hooks.example/gone', 7, now(), now())",
    )
    .await;
    let settings = json!({"name": "pay"});
    let paid = app.subscribe("https://hooks.example/pay?token=secret", settings.clone()).await;
    for _ in 0..2 {
        app.subscribe("https://hooks.example/two", settings.clone()).await;
    }
    app.advance(95);
    let page = page(&app).await;
    has(&page, &["worker render-3:41 silent for 1.6 min, holds 1", "q=worker%3Arender-3%3A41"]);
    has(&page, &[&format!("/ui/events/{id}"), "endpoint https://hooks.example/pay has failed 7 times in a row"]);
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text} in {page}"));
    assert!(at("has failed 7 times") < at("worker render-3:41 silent"), "what is bad comes first");
    has(&page, &["retry_events: 0 of 200", &format!("href=\"/ui/operations/{}\"", operation["id"])]);
    let of_one = format!("href=\"/ui/subscriptions/{}\">endpoint https://hooks.example/pay", paid["id"]);
    has(
        &page,
        &[
            &of_one,
            "href=\"/ui/subscriptions\">endpoint https://hooks.example/two",
            "href=\"/ui/subscriptions\">endpoint https://hooks.example/gone",
        ],
    );
    assert!(!page.contains("token=secret") && !page.contains("All is well"));
}

/// Inserts what was done in the minutes before this one: 3 publishes, and in one of them a latency.
const HISTORY: &str = "
    INSERT INTO waybill.stats_minutes
    SELECT date_trunc('minute', now()) - n * interval '1 minute', 1, 1, 1, 3, 2, 2, 0, 0, 0, 0, 0, 9, 1, 0, '',
           CASE WHEN n = 7 THEN '{30}'::smallint[] ELSE '{}' END, CASE WHEN n = 7 THEN '{1}'::integer[] ELSE '{}' END
    FROM generate_series(1, 50) n;
    INSERT INTO waybill.stats_hours
    SELECT date_trunc('hour', now()), 1, 1, 1, 3, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0, 'thumbnails', '{60}', '{20}'";

#[tokio::test(flavor = "multi_thread")]
async fn charts_show_rates_latencies_and_their_numbers() {
    let app = App::start().await;
    database::execute(&app.url, HISTORY).await;
    app.publish_tagged("thumbnails").await;
    let hour = page(&app).await;
    // The minute that is not over yet would pull the line to the ground.
    has(
        &hour,
        &[
            "published 3<",
            "pushed 10<",
            "90 %",
            "sent per minute: 10 (500 sent, 50 failed)",
            "published per minute: ",
            "p50 166 ms",
            "The numbers",
        ],
    );
    assert_eq!(hour.matches("class=\"dot ").count(), 2, "a latency alone is a dot of both lines");
    has(&hour, &["href=\"/ui/deliveries?failing=true\"", "class=\"figure \" href=\"/ui/tags\""]);
    has(&hour, &["What is slow", "tag%3Athumbnails", "p95"]);
    for (span, label) in [("24h", "by 10 min"), ("7d", "by 60 min")] {
        let page = app.get(&format!("/?span={span}")).await.expect(200).text;
        has(&page, &[label, &format!("aria-current=\"true\">{span}<")]);
    }
    app.get("/?span=2h").await.expect(400);
}

#[tokio::test(flavor = "multi_thread")]
async fn pushes_that_failed_lead_to_what_is_behind_them() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    app.subscribe(&receiver.url("/hook"), json!({"max_attempts": 1})).await;
    app.publish_and_fail(&receiver, "order.paid", json!({})).await;
    let page = page(&app).await;
    has(
        &page,
        &["href=\"/ui/deliveries?status=FAILED\">without tags (1)<", "href=\"/ui/dead-letters?replayed=false\""],
    );
}
