//! What is said when something fails, and the exit codes.

use std::io::Read;
use std::process::Stdio;

use serde_json::json;

use super::{run, run_as, run_with, start};
use crate::support::App;
use crate::support::process::waybill;

#[tokio::test(flavor = "multi_thread")]
async fn the_exit_code_says_what_went_wrong() {
    let app = App::with_keys().await;
    let reader = app.make_key(json!({"scopes": ["read"]})).await.key;
    let publish = ["publish", "--title", "t", "--tags", "a"];
    // 1: refused.
    let text = run_as(&app, &reader, &["events", "list", "--status", "NONE"]).await.expect_code(1);
    assert!(text.starts_with("waybill: Invalid request: status "), "{text}");
    // 2: wrong usage.
    run_as(&app, &reader, &["events", "list", "--nonsense"]).await.expect_code(2);
    run_as(&app, &reader, &["top"]).await.expect_code(2);
    // 3: not found.
    let text = run_as(&app, &reader, &["events", "show", "99"]).await.expect_code(3);
    assert_eq!(text, "waybill: No such event: there is no event 99 (404)\n");
    // 4: no key, and a key that does not allow it.
    assert!(run(&app, &["events", "list"]).await.expect_code(4).contains("WAYBILL_KEY"));
    run_as(&app, &reader, &publish).await.expect_code(4);
    // 5: nobody is there.
    let nobody = "http://127.0.0.1:1";
    let text = run_with(nobody, &[], &["events", "list"], Vec::new()).await.expect_code(5);
    assert!(text.starts_with("waybill: http://127.0.0.1:1 does not answer: "), "{text}");
    let publish = [&publish[..], &["--retry-seconds", "0"]].concat();
    run_with(nobody, &[], &publish, Vec::new()).await.expect_code(5);
    run_with(nobody, &[], &["events", "tail"], Vec::new()).await.expect_code(5);
}

/// `waybill events list | head -n 1`
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_has_enough_is_no_failure() {
    let app = start().await;
    let event = json!({"title": "x".repeat(200), "tags": "a"});
    app.post("/events/batch", &json!({"events": vec![event; 1_000]})).await.expect(201);
    let mut command = waybill(&["events", "list", "--all"]);
    command.env("WAYBILL_URL", &app.base).stdout(Stdio::piped()).stderr(Stdio::piped());
    let ended = tokio::task::spawn_blocking(move || {
        let mut child = command.spawn().expect("it runs");
        let mut first = [0; 10];
        child.stdout.take().expect("a pipe").read_exact(&mut first).expect("a line");
        child.wait_with_output().expect("it ends")
    });
    let ended = ended.await.expect("no panic");
    assert_eq!((ended.status.code(), String::from_utf8_lossy(&ended.stderr).as_ref()), (Some(0), ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn colours_are_printed_only_where_they_are_wanted() {
    let app = start().await;
    app.publish_tagged("a").await;
    let list = async |flags: &[&str], variables: &[(&str, &str)]| {
        run_with(&app.base, variables, &[&["events", "list"], flags].concat(), Vec::new()).await.expect_success()
    };
    assert!(!list(&[], &[]).await.contains('\u{1b}'));
    assert!(!list(&["--color", "never"], &[]).await.contains('\u{1b}'));
    assert!(list(&["--color", "always"], &[("NO_COLOR", "1")]).await.contains("\u{1b}[33mPENDING"));
}
