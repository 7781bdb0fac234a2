//! Programs that are stopped, and workers that are asked to stop.

use nix::sys::signal::Signal;
use serde_json::json;

use super::{Working, exists, publish, until_status};
use crate::support::{App, ledger, until};

/// A script that starts another program, writes the pids of both, and hangs.
const HANG: &str = r#"sleep 1000 & echo "$$ $!" > "$FOLDER/pids"; wait"#;

/// Waits until both processes of [`HANG`] are gone.
async fn until_gone(pids: &str) {
    until("the processes are gone", async || !pids.split(' ').any(exists)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_an_event_kills_its_program_and_what_that_has_started() {
    let app = App::start().await;
    let working = Working::start(&app.base, &["--heartbeat-seconds", "0.2"], HANG);
    let id = publish(&app, json!(1)).await;
    let pids = working.written("pids").await;
    app.post(&format!("/events/{id}/cancel"), &json!({})).await.expect(200);
    until_status(&app, id, "CANCELLED").await;
    until_gone(&pids).await;
    assert!(working.stderr().contains("cancelled: its handler is stopped"), "{}", working.stderr());
    working.stop().await;
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_ignores_sigterm_is_killed() {
    let app = App::start().await;
    let script = r#"trap "" TERM; echo $$ > "$FOLDER/pid"; while :; do sleep 0.1; done"#;
    let flags = ["--heartbeat-seconds", "0.2", "--kill-after-seconds", "0.3"];
    let working = Working::start(&app.base, &flags, script);
    let id = publish(&app, json!(1)).await;
    let pid = working.written("pid").await;
    app.post(&format!("/events/{id}/cancel"), &json!({})).await.expect(200);
    until_status(&app, id, "CANCELLED").await;
    until("it is gone", async || !exists(&pid)).await;
    let error = app.event(id).await["last_error"].as_str().expect("an error").to_owned();
    assert_eq!(error, "cancelled: killed by signal 9");
    working.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_whose_event_was_reset_is_stopped_and_does_not_settle_it() {
    let app = App::start().await;
    let working = Working::start(&app.base, &["--heartbeat-seconds", "0.2", "--concurrency", "1"], HANG);
    let id = publish(&app, json!(1)).await;
    let pids = working.written("pids").await;
    app.post_empty(&format!("/events/{id}/reset?reason=worker_timeout")).await.expect(200);
    until_gone(&pids).await;
    working.until_logged("the lease is lost").await;
    assert!(!app.actions(id).await.contains(&"FAILED".to_owned()));
    // The same worker claims it again, as anybody may.
    until("it is claimed again", async || app.actions(id).await.ends_with(&["RESET".into(), "PICKED".into()])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_lets_what_runs_finish_and_claims_no_more() {
    let app = App::start().await;
    let script = r#"echo $$ > "$FOLDER/pid"; while [ ! -e "$FOLDER/go" ]; do sleep 0.05; done; echo 17"#;
    let mut working = Working::start(&app.base, &[], script);
    let running = publish(&app, json!(1)).await;
    working.written("pid").await;
    working.send(Signal::SIGTERM);
    working.until_logged("draining").await;
    let later = publish(&app, json!(2)).await;
    working.allow("go");
    assert_eq!(working.exit_code().await, Some(0), "{}", working.stderr());
    assert_eq!(app.event(running).await["result"], 17);
    assert_eq!(app.actions(running).await, ["PICKED", "COMPLETED"]);
    assert_eq!(app.actions(later).await, [""; 0]);
    ledger::check(&app).await;
}

/// A closed terminal sends SIGHUP. A worker that it killed would leave its program running, without a lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_closed_terminal_lets_what_runs_finish_too() {
    let app = App::start().await;
    let script = r#"echo $$ > "$FOLDER/pid"; while [ ! -e "$FOLDER/go" ]; do sleep 0.05; done; echo 17"#;
    for signal in [Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGINT] {
        let mut working = Working::start(&app.base, &[], script);
        let id = publish(&app, json!(1)).await;
        let pid = working.written("pid").await;
        working.send(signal);
        until("it says so, or has ended", async || {
            working.stderr().contains("draining") || working.child.try_wait().expect("our child").is_some()
        })
        .await;
        working.allow("go");
        assert_eq!(working.exit_code().await, Some(0), "{signal}: {}", working.stderr());
        until("the program is gone", async || !exists(&pid)).await;
        assert_eq!(app.actions(id).await, ["PICKED", "COMPLETED"], "{signal}");
    }
    ledger::check(&app).await;
}

/// `timeout 60 waybill work …` signals the worker, and then its process group.
#[tokio::test(flavor = "multi_thread")]
async fn signals_that_arrive_at_once_count_as_one() {
    let app = App::start().await;
    let script = r#"echo $$ > "$FOLDER/pid"; while [ ! -e "$FOLDER/go" ]; do sleep 0.05; done; echo 17"#;
    let mut working = Working::start(&app.base, &[], script);
    let id = publish(&app, json!(1)).await;
    working.written("pid").await;
    // Of different kinds: the kernel makes one of two that are the same.
    working.send(Signal::SIGTERM);
    working.send(Signal::SIGINT);
    until("it says so, or has ended", async || {
        working.stderr().contains("another signal aborts") || working.child.try_wait().expect("our child").is_some()
    })
    .await;
    working.allow("go");
    assert_eq!(working.exit_code().await, Some(0), "{}", working.stderr());
    assert_eq!(app.actions(id).await, ["PICKED", "COMPLETED"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_waits_for_events_ends_at_once_and_holds_nothing() {
    let app = App::start().await;
    let working = Working::start(&app.base, &["--concurrency", "4"], "cat");
    working.until_logged("working").await;
    until("it waits", async || app.get("/workers").await.expect(200).text.contains("\"worker_id\"")).await;
    working.stop().await;
    let id = publish(&app, json!(1)).await;
    assert!(app.claim("a", "another:1").await.is_some_and(|event| event["id"] == id));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_sigterm_kills_what_runs_and_releases_it() {
    let app = App::start().await;
    let mut working = Working::start(&app.base, &[], HANG);
    let id = publish(&app, json!(1)).await;
    let pids = working.written("pids").await;
    working.send(Signal::SIGTERM);
    working.until_logged("another signal aborts").await;
    working.send(Signal::SIGTERM);
    assert_eq!(working.exit_code().await, Some(1));
    assert!(working.stderr().contains("aborted"), "{}", working.stderr());
    until_gone(&pids).await;
    assert_eq!(app.actions(id).await, ["PICKED", "RELEASED"]);
    assert_eq!(app.event(id).await["retry_count"], 0);
    ledger::check(&app).await;
}

/// Many programs end in good order when they are asked to stop, with their work half done.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_ends_well_because_it_was_asked_to_has_not_done_its_work() {
    let app = App::start().await;
    let script = r#"trap "exit 0" TERM; echo $$ > "$FOLDER/pid"; while :; do sleep 0.05; done"#;
    let mut working = Working::start(&app.base, &["--heartbeat-seconds", "0.5"], script);
    let cancelled = publish(&app, json!(1)).await;
    working.written("pid").await;
    app.post(&format!("/events/{cancelled}/cancel"), &json!({})).await.expect(200);
    until_status(&app, cancelled, "CANCELLED").await;
    std::fs::remove_file(working.file("pid")).expect("a file");
    let aborted = publish(&app, json!(2)).await;
    working.written("pid").await;
    working.send(Signal::SIGTERM);
    working.until_logged("another signal aborts").await;
    working.send(Signal::SIGTERM);
    assert_eq!(working.exit_code().await, Some(1));
    assert_eq!(app.actions(aborted).await, ["PICKED", "RELEASED"]);
    ledger::check(&app).await;
}
