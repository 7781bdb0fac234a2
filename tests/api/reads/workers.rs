//! `GET /workers`.

use chrono::TimeDelta;
use serde_json::{Value, json};
use waybill::background::retention;

use crate::support::retention::by_default;
use crate::support::{App, HeldTable, database};

async fn workers(app: &App) -> Vec<Value> {
    app.get("/workers").await.expect(200).json()["workers"].as_array().expect("workers").clone()
}

async fn worker(app: &App, worker_id: &str) -> Value {
    let found = workers(app).await.into_iter().find(|worker| worker["worker_id"] == worker_id);
    found.unwrap_or_else(|| panic!("{worker_id} is not listed"))
}

/// Returns the seconds from a timestamp in a response to the server's time.
fn seconds_ago(app: &App, time: &Value) -> f64 {
    let time: chrono::DateTime<chrono::Utc> = time.as_str().expect("a time").parse().expect("a time");
    (app.now() - time).as_seconds_f64()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_worker_is_listed_before_one_was_seen() {
    let app = App::start().await;
    assert_eq!(app.get("/workers").await.expect(200).json(), json!({"workers": [], "next": null}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_found_no_work_is_listed() {
    let app = App::with_fixed_clock().await;
    assert!(app.claim("email,sms", "ann:1").await.is_none());
    let ann = worker(&app, "ann:1").await;
    assert_eq!((&ann["tags"], &ann["holding"], &ann["event_ids"]), (&json!(["email", "sms"]), &json!(0), &json!([])));
    assert_eq!((&ann["stale"], &ann["stale_events"]), (&json!(false), &json!(0)));
    // Sightings are written later than they happen, and are then dated back.
    assert!((0.0..600.0).contains(&seconds_ago(&app, &ann["last_seen_at"])), "{ann}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_of_a_worker_counts_as_a_sighting() {
    let app = App::start().await;
    let id = app.publish_tagged("email").await;
    app.post(&format!("/events/{id}/start"), &json!({"worker_id": "bob:2"})).await.expect(409);
    app.post("/events/claim", &json!({"tags": ["sms"], "worker_id": "cid:3"})).await.expect(200);
    let names: Vec<Value> = workers(&app).await.into_iter().map(|worker| worker["worker_id"].clone()).collect();
    assert_eq!(names, ["bob:2", "cid:3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_listed_with_the_tags_of_its_last_poll() {
    let app = App::start().await;
    app.publish_tagged("email").await;
    app.claim("sms", "ann:1").await;
    assert_eq!(worker(&app, "ann:1").await["tags"], json!(["sms"]));
    let event = app.claim("email,push", "ann:1").await.expect("an event");
    app.complete(event["id"].as_i64().expect("an id"), "ann:1").await.expect(200);
    assert_eq!(worker(&app, "ann:1").await["tags"], json!(["email", "push"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_listed_with_the_events_that_it_holds() {
    let app = App::start().await;
    let first = app.publish_tagged("email").await;
    let second = app.publish_tagged("email").await;
    app.claim("email", "ann:1").await.expect("an event");
    app.claim("email", "ann:1").await.expect("an event");
    let ann = worker(&app, "ann:1").await;
    assert_eq!((&ann["holding"], &ann["event_ids"]), (&json!(2), &json!([first, second])));
    app.complete(first, "ann:1").await.expect(200);
    app.fail(second, "ann:1").await.expect(200);
    let ann = worker(&app, "ann:1").await;
    assert_eq!((&ann["holding"], &ann["event_ids"]), (&json!(0), &json!([])));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_with_many_events_is_listed_with_their_count_and_the_oldest_ten() {
    let app = App::start().await;
    let jobs: Vec<Value> = (0..12).map(|_| json!({"title": "a job", "tags": "email"})).collect();
    let published = app.post("/events/batch", &json!({"events": jobs})).await.expect(201).json();
    assert_eq!(app.claim_batch("email", "ann:1", 12).await.len(), 12);
    let ann = worker(&app, "ann:1").await;
    assert_eq!(ann["holding"], 12);
    let ids: Vec<&Value> = (0..10).map(|n| &published["events"][n]["id"]).collect();
    assert_eq!(ann["event_ids"], json!(ids));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_stale_if_it_holds_an_event_for_thirty_seconds_without_a_call() {
    let app = App::with_fixed_clock().await;
    let id = app.publish_tagged("email").await;
    app.publish_tagged("email").await;
    app.claim("email", "ann:1").await.expect("an event");
    app.advance(20);
    app.claim("email", "ann:1").await.expect("another event");
    app.advance(9);
    assert_eq!(worker(&app, "ann:1").await["stale"], false);
    app.advance(2);
    let ann = worker(&app, "ann:1").await;
    assert_eq!((&ann["stale"], &ann["stale_events"], &ann["holding"]), (&json!(true), &json!(1), &json!(2)));

    app.post(&format!("/events/{id}/heartbeat"), &json!({"worker_id": "ann:1"})).await.expect(200);
    assert_eq!(worker(&app, "ann:1").await["stale"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_holds_nothing_is_not_stale_however_long_it_is_away() {
    let app = App::with_fixed_clock().await;
    app.claim("email", "ann:1").await;
    assert_eq!(worker(&app, "ann:1").await["stale"], false);
    app.advance(3_600);
    let ann = worker(&app, "ann:1").await;
    assert_eq!(ann["stale"], false);
    assert!(seconds_ago(&app, &ann["last_seen_at"]) >= 3_600.0, "{ann}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_seen_again_keeps_the_time_of_its_first_sighting() {
    let app = App::with_fixed_clock().await;
    app.claim("email", "ann:1").await;
    let first = worker(&app, "ann:1").await;
    app.advance(3_600);
    app.claim("email", "ann:1").await;
    let again = worker(&app, "ann:1").await;
    assert_eq!(again["first_seen_at"], first["first_seen_at"]);
    assert!(seconds_ago(&app, &again["last_seen_at"]) < 3_600.0, "{again}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_holds_an_event_is_listed_even_if_its_sightings_are_lost() {
    let app = App::start().await;
    let id = app.publish_tagged("email").await;
    app.claim("email", "ann:1").await.expect("an event");
    assert_eq!(worker(&app, "ann:1").await["holding"], 1);
    database::execute(&app.url, "DELETE FROM waybill.workers").await;
    let ann = worker(&app, "ann:1").await;
    assert_eq!((&ann["holding"], &ann["event_ids"], &ann["tags"]), (&json!(1), &json!([id]), &json!([])));
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_are_listed_in_pages_with_none_skipped_or_repeated() {
    let app = App::start().await;
    app.publish_tagged("email").await;
    let names = ["ann:1", "bob:2", "Cid:3", "dan:10", "dan:9", "eve-1.example:7"];
    for name in names {
        app.claim("email", name).await;
    }
    let all = app.walk("/workers", "worker_id").await.concat();
    assert_eq!(all.len(), names.len());
    assert!(names.iter().all(|name| all.contains(&json!(name))), "{all:?}");
    let backwards: Vec<Value> = all.iter().rev().cloned().collect();
    for limit in [1, 2, 6, 500] {
        let list = format!("/workers?limit={limit}");
        assert_eq!(app.walk(&list, "worker_id").await.concat(), all, "limit {limit}");
        assert_eq!(app.walk(&format!("{list}&order=desc"), "worker_id").await.concat(), backwards, "limit {limit}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_with_the_longest_names_are_listed_in_pages() {
    let app = App::start().await;
    let names = ["a", "\u{e9}", "\u{20ac}", "\u{10fffd}", "~&#+%"].map(|text| {
        let host: String = text.chars().cycle().take(253).collect();
        format!("{host}:1")
    });
    for worker_id in &names {
        app.post("/events/claim", &json!({"tags": ["email"], "worker_id": worker_id})).await;
    }
    let pages = app.walk("/workers?limit=1", "worker_id").await;
    let mut listed: Vec<Value> = pages.concat();
    assert_eq!(listed.len(), names.len());
    listed.retain(|name| !names.iter().any(|known| name == known));
    assert_eq!(listed, [Value::Null; 0]);
    for page in [1, 2, 3, 4] {
        let next = app.next_of(&format!("/workers?limit={page}")).await;
        assert!(next.chars().count() <= 512, "{next}");
    }
}

/// Stores workers that were last seen 6 days and 8 days ago.
async fn insert_old_workers(app: &App) {
    for days in [6, 8] {
        let seen = app.now() - TimeDelta::days(days);
        let insert = format!(
            "INSERT INTO waybill.workers (namespace_id, worker_id, tags, first_seen_at, last_seen_at)
             VALUES (1, 'w:{days}', '{{}}', '{seen}', '{seen}')"
        );
        database::execute(&app.url, &insert).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_deleted_a_week_after_its_last_call() {
    let app = App::with_fixed_clock().await;
    insert_old_workers(&app).await;
    app.remove_old().await;
    assert_eq!(app.count("SELECT count(*) FROM waybill.workers WHERE worker_id = 'w:6'").await, 1);
    assert_eq!(app.count("SELECT count(*) FROM waybill.workers WHERE worker_id = 'w:8'").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_table_does_not_keep_the_others_from_being_cleaned_up() {
    let app = App::with_fixed_clock().await;
    insert_old_workers(&app).await;
    let held = HeldTable::lock(&app.url, "waybill.claim_requests").await;
    retention::run_once(app.engine(), &by_default()).await.expect_err("the table is locked");
    assert!(app.retention_lag("claim_requests").await > 0.0);
    assert_eq!(app.retention_lag("workers").await, 0.0);
    held.unlock().await;
    assert_eq!(app.count("SELECT count(*) FROM waybill.workers WHERE worker_id = 'w:8'").await, 0);
    app.remove_old().await;
    assert_eq!(app.retention_lag("claim_requests").await, 0.0);
}
