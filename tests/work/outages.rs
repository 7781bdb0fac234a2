//! Workers whose server or database goes away, or whose key ends.

use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::json;

use super::{Working, exists, publish, until_status};
use crate::support::process::{Process, waybill};
use crate::support::{App, HeldTable, database, ledger, until};

fn serve(url: &str, address: &str) -> Command {
    let mut command = waybill(&["serve", "--bind", address]);
    command.env("DATABASE_URL", url);
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_outlives_restarts_of_its_server_and_loses_nothing() {
    let url = database::migrated().await;
    let first = Process::start(serve(&url, "127.0.0.1:0"));
    let base = first.app.base.clone();
    let address = base.trim_start_matches("http://").to_owned();
    let script = r#"echo $$ > "$FOLDER/pid"; while [ ! -e "$FOLDER/go" ]; do sleep 0.05; done; cat"#;
    let working = Working::start(&base, &["--heartbeat-seconds", "0.2", "--log", "debug"], script);
    let running = publish(&first.app, json!(1)).await;
    working.written("pid").await;
    first.kill_9().await;
    // The program ends while there is no server. Its settlement waits for the next one.
    working.allow("go");
    working.until_logged("cannot complete yet").await;
    let second = Process::start(serve(&url, &address));
    until_status(&second.app, running, "COMPLETED").await;
    let next = publish(&second.app, json!(2)).await;
    until_status(&second.app, next, "COMPLETED").await;
    working.stop().await;
    assert_eq!(second.app.actions(running).await, ["PICKED", "COMPLETED"]);
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_settlement_waits_for_a_database_that_does_not_answer() {
    let app = App::start().await;
    let script = r#"echo $$ > "$FOLDER/pid"; while [ ! -e "$FOLDER/go" ]; do sleep 0.05; done; cat"#;
    let working = Working::start(&app.base, &["--log", "debug"], script);
    let id = publish(&app, json!(1)).await;
    working.written("pid").await;
    let held = HeldTable::lock(&app.url, "waybill.event_log").await;
    working.allow("go");
    working.until_logged("cannot complete yet").await;
    held.unlock().await;
    until_status(&app, id, "COMPLETED").await;
    working.stop().await;
    assert_eq!(app.actions(id).await, ["PICKED", "COMPLETED"]);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_is_logged_when_it_begins_and_when_it_ends() {
    let url = database::migrated().await;
    let first = Process::start(serve(&url, "127.0.0.1:0"));
    let base = first.app.base.clone();
    let address = base.trim_start_matches("http://").to_owned();
    let script = r#"echo $$ > "$FOLDER/$(cat)"; while [ ! -e "$FOLDER/go" ]; do sleep 0.05; done"#;
    let flags = ["--concurrency", "4", "--log", "info,waybill::client=debug"];
    let working = Working::start(&base, &flags, script);
    for payload in 1..=4 {
        publish(&first.app, json!(payload)).await;
    }
    for payload in 1..=4 {
        working.written(&payload.to_string()).await;
    }
    assert!(working.stderr().contains(&base) && working.stderr().contains("concurrency=4"), "{}", working.stderr());
    first.kill_9().await;
    working.allow("go");
    until("all have tried twice", async || working.stderr().matches("cannot complete yet").count() >= 8).await;
    let second = Process::start(serve(&url, &address));
    working.until_logged("the server is back").await;
    for id in 1..=4 {
        until_status(&second.app, id, "COMPLETED").await;
    }
    let count = |text: &str| working.stderr().matches(text).count();
    assert_eq!((count("the server is away"), count("the server is back")), (1, 1), "{}", working.stderr());
    assert_eq!(count("WARN"), 1, "{}", working.stderr());
    working.stop().await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_aborted_worker_says_what_it_could_not_release() {
    let server = Process::start(serve(&database::migrated().await, "127.0.0.1:0"));
    let script = r#"echo $$ > "$FOLDER/pid"; exec sleep 1000"#;
    let mut working = Working::start(&server.app.base, &[], script);
    publish(&server.app, json!(1)).await;
    let pid = working.written("pid").await;
    server.kill_9().await;
    working.send(Signal::SIGTERM);
    working.until_logged("another signal aborts").await;
    working.send(Signal::SIGTERM);
    assert_eq!(working.exit_code().await, Some(1));
    assert!(!exists(&pid));
    let text = "waybill: aborted: what ran was stopped; the server did not answer, and 1 event comes back when its lease \
                ends\n";
    assert!(working.stderr().ends_with(text), "{}", working.stderr());
}

/// However long it may take after SIGTERM: that is cut so that it fits into the lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_ends_before_another_worker_may_get_its_event() {
    let url = database::migrated().await;
    let server = Process::start(serve(&url, "127.0.0.1:0"));
    let flags = ["--lease-seconds", "3", "--heartbeat-seconds", "0.5", "--kill-after-seconds", "60"];
    let script = r#"trap "" TERM; echo $$ > "$FOLDER/pid"; while :; do sleep 0.05; done"#;
    let working = Working::start(&server.app.base, &flags, script);
    let id = publish(&server.app, json!(1)).await;
    let pid = working.written("pid").await;
    server.kill_9().await;
    until("the program is stopped", async || !exists(&pid)).await;
    let held = "SELECT count(*) FROM waybill.deliveries WHERE lease_expires_at > clock_timestamp()";
    assert_eq!(database::count(&url, held).await, 1, "it was stopped before its lease has ended");
    let other = Process::start(serve(&url, "127.0.0.1:0"));
    until_status(&other.app, id, "PENDING").await;
    assert_eq!(other.app.actions(id).await, ["PICKED", "RESET"]);
    other.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_key_is_revoked_stops_its_program_and_says_why() {
    let app = App::with_keys().await;
    let key = app.make_key(json!({"scopes": ["work"]})).await;
    let flags = ["--heartbeat-seconds", "0.2", "--concurrency", "2"];
    let script = r#"echo $$ > "$FOLDER/pid"; exec sleep 1000"#;
    let mut working = Working::with_key(&app.base, Some(&key.key), &flags, script);
    publish(&app, json!(1)).await;
    let pid = working.written("pid").await;
    app.post_empty(&format!("/keys/{}/revoke", key.id)).await.expect(200);
    assert_eq!(working.exit_code().await, Some(4));
    assert!(!exists(&pid));
    assert!(working.stderr().contains("Set WAYBILL_KEY"), "{}", working.stderr());
}
