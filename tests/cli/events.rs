//! `waybill events list`, `show`, `retry`, `cancel` and `reset`.

use serde_json::{Value, json};

use super::{json as run_json, run, start};
use crate::support::receiver::{Receiver, Reply};
use crate::support::work::W1;
use crate::support::{App, until};

/// Publishes three events, the first of which has failed.
async fn some_events(app: &App) {
    app.publish(json!({"title": "Thumbnails for photo 7041", "tags": "thumbnails", "max_retries": 1})).await;
    let claimed = app.claim_one("thumbnails", W1).await;
    app.settle_with(&claimed, "fail", json!({"error_message": "the disk is full, and nobody has noticed"})).await;
    let labels = json!({"team": "core & co"});
    app.publish(json!({"title": "Share album +1", "tags": ["albums", "mail"], "labels": labels, "payload": {"n": 17}}))
        .await;
    app.publish(json!({"title": "a\u{1b}[2J\u{7}b\u{9b}31m\n日本語", "tags": "x", "event_type": "test"})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_listed_in_a_table_that_fits_80_columns() {
    let app = start().await;
    some_events(&app).await;
    let table = run(&app, &["events", "list"]).await.expect_success();
    assert_eq!(
        table,
        "\
ID  STATUS   TAGS         TITLE              ATTEMPTS  CREATED  ERROR
 3  PENDING  x            a�[2J�b�31m 日本…  0/3       3h ago
 2  PENDING  albums,mail  Share album +1     0/3       3h ago
 1  FAILED   thumbnails   Thumbnails for p…  1/1       3h ago   the disk is ful…
"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_found_by_every_condition() {
    let app = start().await;
    some_events(&app).await;
    let found = async |arguments: &[&str]| {
        let listed = run_json(&app, &[&["events", "list"], arguments].concat()).await;
        let ids: Vec<i64> = listed["events"]
            .as_array()
            .expect("events")
            .iter()
            .map(|event| event["id"].as_i64().expect("an id"))
            .collect();
        ids
    };
    for (arguments, ids) in [
        (&["--status", "failed"][..], &[1][..]),
        (&["--tags", "mail,x"], &[3, 2]),
        (&["--type", "test"], &[3]),
        (&["--text", "DISK FULL"], &[]),
        (&["--text", "disk is full"], &[1]),
        (&["--text", "album +1"], &[2]),
        (&["--label", "team=core & co"], &[2]),
        (&["--payload", "n=17"], &[2]),
        (&["--not", "status=FAILED", "--not", "type=test"], &[2]),
        (&["--not", "labels.team=core & co", "--order", "asc"], &[1, 3]),
        (&["--not", "payload.n=17"], &[3, 1]),
        (&["--since", "4h", "--until", "1h"], &[3, 2, 1]),
        (&["--since", "1h"], &[]),
        (&["--since", "2026-01-01T00:00:00+01:00", "--limit", "1"], &[3]),
        (&["--worker", W1, "--status", "FAILED"], &[1]),
    ] {
        assert_eq!(found(arguments).await, ids, "{arguments:?}");
    }
    run(&app, &["events", "list", "--since", "yesterday"]).await.expect_code(2);
    run(&app, &["events", "list", "--label", "team"]).await.expect_code(2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_goes_on_over_pages_and_says_if_there_is_more() {
    let app = start().await;
    let event = json!({"title": "t", "tags": "a"});
    app.post("/events/batch", &json!({"events": vec![event.clone(); 600]})).await.expect(201);
    app.post("/events/batch", &json!({"events": vec![event; 10]})).await.expect(201);
    let all = run_json(&app, &["events", "list", "--all"]).await;
    assert_eq!((all["events"].as_array().map(Vec::len), &all["next"]), (Some(610), &Value::Null));
    let some = run(&app, &["events", "list", "--limit", "2"]).await;
    assert!(some.stderr.starts_with("there may be more: --limit, --all or --after "), "{}", some.stderr);
    let next = some.stderr.trim().rsplit(' ').next().expect("a cursor");
    let rest = run_json(&app, &["events", "list", "--limit", "505", "--after", next]).await;
    let ids: Vec<&Value> = rest["events"].as_array().expect("events").iter().map(|event| &event["id"]).collect();
    assert_eq!((ids.len(), ids[0], ids[504]), (505, &json!(608), &json!(104)));
    assert!(rest["next"].is_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_that_stops_says_how_far_it_came() {
    let flags = ["--list-scan-rows", "500"].map(str::to_owned).to_vec();
    let app = App::start_with(crate::support::Options { flags, ..Default::default() }).await;
    let event = json!({"title": "t", "tags": "a"});
    for _ in 0..11 {
        app.post("/events/batch", &json!({"events": vec![event.clone(); 1_000]})).await.expect(201);
    }
    let ran = run(&app, &["events", "list", "--text", "nowhere"]).await;
    assert!(ran.stderr.starts_with("searched back to 20"), "{}", ran.stderr);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, ""));
    let listed = run_json(&app, &["events", "list", "--text", "nowhere"]).await;
    assert!(listed["searched_to"].is_string() && listed["next"].is_string(), "{listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_shown_with_its_payload_and_its_trail() {
    let app = start().await;
    some_events(&app).await;
    let at = app.now().format("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
    let time = app.now().format("%Y-%m-%d %H:%M:%S").to_string();
    let shown = run(&app, &["events", "show", "1"]).await.expect_success();
    assert_eq!(
        shown,
        format!(
            "\
event:           1
title:           Thumbnails for photo 7041
status:          FAILED
tags:            thumbnails
priority:        0
attempts:        1 of 1 failed
last error:      the disk is full, and nobody has noticed
worker:          {W1}
published from:  127.0.0.1
created:         {at} (3h ago)
updated:         {at} (3h ago)

trail
TIME                 ACTION  ATTEMPT  BY              TOOK  DETAIL
{time}  PICKED        1  {W1}
{time}  FAILED        1  {W1}        the disk is full, a…
"
        )
    );
    let second = run(&app, &["events", "show", "2"]).await.expect_success();
    assert!(second.contains("labels:          team=core & co\n"), "{second}");
    assert!(second.ends_with("\npayload\n{\n  \"n\": 17\n}\n"), "{second}");
    let third = run(&app, &["events", "show", "3", "--color", "always"]).await.expect_success();
    assert!(third.contains("a\u{fffd}[2J\u{fffd}b\u{fffd}31m 日本語"), "{third:?}");
    assert!(third.contains("\u{1b}[33mPENDING\u{1b}[0m"), "{third:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_of_several_lines_is_shown_line_by_line_and_cut_in_tables() {
    let app = start().await;
    app.publish(json!({"title": "t", "tags": "a", "max_retries": 1})).await;
    let claimed = app.claim_one("a", W1).await;
    let message = "thread panicked\n  at main.rs:7\n\u{1b}[31mred\n";
    app.settle_with(&claimed, "fail", json!({"error_message": message})).await;
    let shown = run(&app, &["events", "show", "1"]).await.expect_success();
    let lines =
        "\nlast error:      thread panicked\n                   at main.rs:7\n                 \u{fffd}[31mred\n";
    assert!(shown.contains(lines), "{shown}");
    assert!(shown.ends_with("thread panicked …\n"), "{shown}");
    let listed = run(&app, &["events", "list"]).await.expect_success();
    assert!(listed.ends_with("thread panicked …\n"), "{listed}");
    let trail = run(&app, &["events", "tail", "--since", "4h", "--limit", "2"]).await.expect_success();
    assert!(trail.ends_with("…\n") && !trail.contains("main.rs"), "{trail}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_shown_with_the_attempts_of_its_pushes() {
    let app = App::start().await;
    let receiver = Receiver::start().await;
    receiver.always(Reply::status(500));
    let backoff = json!({"strategy": "fixed", "seconds": 86_400});
    let fields = json!({"event_types": ["t"], "max_attempts": 5, "backoff": backoff});
    app.subscribe(&receiver.url("/hook"), fields).await;
    let id = app.publish_typed("t", json!({})).await;
    let delivery = app.only_delivery(id).await;
    until("it is tried", async || app.delivery(delivery).await["attempts_made"] == 1).await;
    let shown = run(&app, &["events", "show", &id.to_string()]).await.expect_success();
    let section = shown.split("\ndeliveries\n").nth(1).unwrap_or_else(|| panic!("{shown}"));
    let line = section.lines().nth(1).unwrap_or_else(|| panic!("{shown}"));
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!((words[1], words[3], words[4]), ("PENDING", "1/5", "in"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_changed_one_by_one_and_a_refusal_does_not_stop_the_others() {
    let app = start().await;
    some_events(&app).await;
    let ran = run(&app, &["events", "cancel", "2", "1", "99", "3", "--reason", "a & b"]).await;
    assert_eq!(ran.stdout, "event 2 is CANCELLED\nevent 3 is CANCELLED\n");
    assert_eq!(ran.stderr.lines().count(), 2, "{}", ran.stderr);
    assert_eq!(ran.code, 3);
    assert_eq!(app.event(2).await["logs"][0]["reason"], "a & b");
    let retried = run(&app, &["events", "retry", "1", "2"]).await.expect_success();
    assert_eq!(retried, "event 1 is PENDING\nevent 2 is PENDING\n");
    app.claim_one("thumbnails", W1).await;
    let cancelled = run(&app, &["events", "cancel", "1"]).await.expect_success();
    assert_eq!(cancelled, "event 1 is PROCESSING; its worker is asked to cancel it\n");
    let reset = run_json(&app, &["events", "reset", "1", "--reason", "gone"]).await;
    assert_eq!(reset["status"], "CANCELLED");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_on_many_is_counted_confirmed_and_followed_to_its_end() {
    let app = App::start().await;
    let event = json!({"title": "t", "tags": "a"});
    app.post("/events/batch", &json!({"events": vec![event; 700]})).await.expect(201);
    app.publish_tagged("b").await;
    let counted = run(&app, &["events", "cancel", "--tags", "a", "--dry-run"]).await.expect_success();
    assert!(counted.starts_with("700 events would be cancelled\n"), "{counted}");
    assert_eq!(counted.lines().count(), 12, "{counted}");
    // Nobody can be asked, and nothing is selected.
    assert!(run(&app, &["events", "cancel", "--tags", "a"]).await.expect_code(2).contains("--yes"));
    assert!(run(&app, &["events", "cancel"]).await.expect_code(2).contains("--all"));
    run(&app, &["events", "cancel", "1", "--tags", "a"]).await.expect_code(2);
    assert_eq!(app.count("SELECT count(*) FROM waybill.operations").await, 0);
    let cancel = ["events", "cancel", "--tags", "a", "--yes", "--reason", "why", "--per-second", "10000"];
    let done = run(&app, &cancel).await.expect_success();
    assert!(
        done.starts_with("operation ") && done.ends_with(" is COMPLETED: 700 done, 0 skipped, 0 failed\n"),
        "{done}"
    );
    let retried = run_json(&app, &["events", "retry", "--all", "--yes", "--per-second", "10000"]).await;
    assert_eq!(
        (&retried["status"], &retried["done"], &retried["kind"]),
        (&json!("COMPLETED"), &json!(700), &json!("retry_events"))
    );
    let started = run_json(&app, &["events", "cancel", "--all", "--yes", "--no-wait"]).await;
    assert_eq!(started["status"], "RUNNING");
    let complete = app.until_complete(&started).await;
    assert_eq!(complete["done"], 701);
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_workers_lose_their_events() {
    let app = App::start().await;
    app.publish_tagged("a").await;
    app.claim_one("a", W1).await;
    let none = run(&app, &["events", "reset", "--tags", "a", "--dry-run"]).await.expect_success();
    assert_eq!(none, "no event would be reset\n");
    let done = run(&app, &["events", "reset", "--stale-for-seconds", "0", "--yes"]).await.expect_success();
    assert!(done.ends_with(": 1 done, 0 skipped, 0 failed\n"), "{done}");
    assert_eq!(app.status(1).await, "PENDING");
}
