//! `waybill publish`.

use std::fs;

use serde_json::{Value, json};

use super::{json as run_json, run, run_with, start};
use crate::support::process::{Process, waybill};
use crate::support::{App, database};

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_published_with_all_its_fields() {
    let app = start().await;
    let arguments = [
        "publish",
        "--title",
        "Resize",
        "--tags",
        "images,faces",
        "--type",
        "photo.uploaded",
        "--label",
        "team=core",
        "--label",
        "env=a=b",
        "--priority",
        "-7",
        "--delay",
        "60",
        "--ordering-key",
        "k",
        "--correlation-id",
        "c",
        "--max-retries",
        "5",
        "--idempotency-key",
        "once",
        "--description",
        "long",
        "--payload",
        "[1]",
    ];
    let first = run(&app, &arguments).await.expect_success();
    assert_eq!(first, "event 1 is PENDING\n");
    assert_eq!(run(&app, &arguments).await.expect_success(), "event 1 is PENDING, and was published before\n");
    let event = app.event(1).await;
    for (field, value) in [
        ("title", json!("Resize")),
        ("tags", json!("images,faces")),
        ("event_type", json!("photo.uploaded")),
        ("labels", json!({"team": "core", "env": "a=b"})),
        ("priority", json!(-7)),
        ("ordering_key", json!("k")),
        ("correlation_id", json!("c")),
        ("max_retries", json!(5)),
        ("idempotency_key", json!("once")),
        ("description", json!("long")),
        ("payload", json!([1])),
    ] {
        assert_eq!(event[field], value, "{field}");
    }
    assert!(!event["run_at"].is_null());
}

/// What is published is what is stored, and what is printed, to the last digit.
#[tokio::test(flavor = "multi_thread")]
async fn a_payload_goes_there_and_back_byte_for_byte() {
    let app = start().await;
    let payload = r#"{"b": 1.10,  "a":9007199254740993, "e": 1e400, "u": "\u00e4ä"}"#;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("payload.json");
    fs::write(&file, format!("\n {payload}\n")).expect("a file");
    let from_file = format!("@{}", file.display());
    for (argument, stdin) in [(payload, ""), (from_file.as_str(), ""), ("-", payload)] {
        let publish = ["publish", "--title", "t", "--tags", "a", "--payload", argument, "--json"];
        let published = run_with(&app.base, &[], &publish, stdin.into()).await.expect_success();
        let id = serde_json::from_str::<Value>(&published.replace("1e400", "0")).expect("JSON")["id"].to_string();
        assert!(published.contains(payload), "{published}");
        let shown = run(&app, &["events", "show", &id, "--payload"]).await.expect_success();
        assert_eq!(shown, format!("{payload}\n"));
        assert!(run(&app, &["events", "show", &id, "--json"]).await.expect_success().contains(payload));
        let pretty = run(&app, &["events", "show", &id]).await.expect_success();
        assert!(pretty.contains("\n  \"b\": 1.10,\n  \"a\": 9007199254740993,\n  \"e\": 1e400,"), "{pretty}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_that_is_no_json_is_wrong_usage_and_a_missing_file_a_failure() {
    let app = start().await;
    let publish = async |payload| run(&app, &["publish", "--title", "t", "--tags", "a", "--payload", payload]).await;
    let text = publish("{oops").await.expect_code(2);
    assert!(text.starts_with("waybill: the payload is not JSON: "), "{text}");
    assert!(publish("@/nowhere/x.json").await.expect_code(1).starts_with("waybill: /nowhere/x.json: "));
    run(&app, &["publish", "--tags", "a"]).await.expect_code(2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_events_is_published_in_order_and_in_parts() {
    let app = start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("events.ndjson");
    let line =
        |number: u32| format!("{{\"title\": \"e{number}\", \"tags\": \"a\", \"idempotency_key\": \"k{number}\"}}\n");
    let text: String = (1..=1_200).map(|number| line(number) + if number % 7 == 0 { "\n" } else { "" }).collect();
    fs::write(&file, &text).expect("a file");
    let path = file.to_str().expect("text");
    assert_eq!(run(&app, &["publish", "--batch", path]).await.expect_success(), "published 1200 events\n");
    assert_eq!(app.event(1_200).await["title"], "e1200");
    let again = run_with(&app.base, &[], &["publish", "--batch", "-"], text.into_bytes()).await.expect_success();
    assert_eq!(again, "published 1200 events, 1200 of them were published before\n");
    let receipts = run(&app, &["publish", "--batch", path, "--json"]).await.expect_success();
    let receipts: Vec<Value> = receipts.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((receipts.len(), &receipts[7]["id"], &receipts[7]["repeated"]), (1_200, &json!(8), &json!(true)));
    assert_eq!(app.count("SELECT count(*) FROM waybill.events").await, 1_200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_is_wrong_is_named_and_what_comes_before_is_published() {
    let app = start().await;
    let good = "{\"title\": \"t\", \"tags\": \"a\"}\n";
    let batch = async |text: String| run_with(&app.base, &[], &["publish", "--batch", "-"], text.into_bytes()).await;
    let text = batch(good.repeat(500) + good + "{\"titel\": 1}\n").await.expect_code(1);
    assert_eq!(
        text,
        "waybill: lines 501 to 502 are not published; the lines before are published: Invalid request (400)\n  \
         line 502: tags is required, unless there is an event_type\n  \
         line 502: title is required, unless there is an event_type\n  line 502: titel is not a known field\n"
    );
    assert_eq!(app.count("SELECT count(*) FROM waybill.events").await, 500);
    let text = batch(format!("{good}no json\n")).await.expect_code(1);
    assert!(text.starts_with("waybill: line 2 is not an event: "), "{text}");
    assert_eq!(app.count("SELECT count(*) FROM waybill.events").await, 500);
}

/// The answer is lost, but not the events: sent again under their keys, they are stored once.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_with_keys_survives_a_restart_of_the_server() {
    let url = database::migrated().await;
    let first = Process::start(serve(&url, "127.0.0.1:0"));
    let address = first.app.base.trim_start_matches("http://").to_owned();
    let base = first.app.base.clone();
    first.kill_9().await;
    let line = |number: u32| format!("{{\"title\": \"t\", \"tags\": \"a\", \"idempotency_key\": \"k{number}\"}}\n");
    let text: String = (1..=600).map(line).collect();
    let publishing = tokio::spawn(async move {
        let arguments = ["publish", "--batch", "-", "--retry-seconds", "60"];
        run_with(&base, &[], &arguments, text.into_bytes()).await.expect_success()
    });
    let second = Process::start(serve(&url, &address));
    assert_eq!(publishing.await.expect("it ran"), "published 600 events\n");
    assert_eq!(database::count(&url, "SELECT count(*) FROM waybill.events").await, 600);
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_patience_of_any_length_is_taken() {
    let app = start().await;
    let arguments = ["publish", "--batch", "-", "--retry-seconds", "18446744073709551615"];
    let line = "{\"title\": \"t\", \"tags\": \"a\"}\n";
    let ran = run_with(&app.base, &[], &arguments, line.into()).await;
    assert_eq!(ran.expect_success(), "published 1 event\n");
}

/// A proxy that swallows the answer of the first request.
#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_outcome_is_repeated_with_keys_and_only_said_without() {
    let app = App::start().await;
    let publish = async |line: &str| {
        let proxy = super::forgetful_proxy(&app.base).await;
        run_with(&proxy, &[], &["publish", "--batch", "-"], line.as_bytes().to_vec()).await
    };
    let text = publish("{\"title\": \"t\", \"tags\": \"a\"}\n").await.expect_code(5);
    assert!(text.contains("nobody knows whether lines 1 to 1 are published"), "{text}");
    assert_eq!(app.count("SELECT count(*) FROM waybill.events").await, 1);
    let repeated = publish("{\"title\": \"t\", \"tags\": \"a\", \"event_id\": \"k\"}\n").await.expect_success();
    assert_eq!(repeated, "published 1 event, 1 of them were published before\n");
    let proxy = super::forgetful_proxy(&app.base).await;
    let single = run_with(&proxy, &[], &["publish", "--title", "t", "--tags", "a"], Vec::new()).await.expect_success();
    assert!(single.ends_with("is PENDING, and was published before\n"), "{single}");
    assert_eq!(app.count("SELECT count(*) FROM waybill.events").await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_administrator_publishes_to_another_namespace() {
    let app = start().await;
    app.post("/namespaces", &json!({"name": "photos"})).await.expect(201);
    let publish = ["publish", "--title", "t", "--tags", "a", "--namespace", "photos"];
    run(&app, &publish).await.expect_success();
    assert_eq!(run_json(&app, &["events", "list"]).await["events"], json!([]));
    let listed =
        run_with(&app.base, &[("WAYBILL_NAMESPACE", "photos")], &["events", "list", "--json"], Vec::new()).await;
    assert!(listed.expect_success().contains("\"title\":\"t\""));
}

fn serve(url: &str, address: &str) -> std::process::Command {
    let mut command = waybill(&["serve", "--bind", address]);
    command.env("DATABASE_URL", url);
    command
}
