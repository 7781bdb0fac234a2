//! `waybill events tail`.

use std::fs;
use std::process::{Child, Stdio};

use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::NamedTempFile;

use crate::support::process::{Process, send, waybill};
use crate::support::work::W1;
use crate::support::{App, database, until};

/// A running `waybill events tail`. It is killed when it is dropped.
struct Tail {
    child: Child,
    stdout: NamedTempFile,
    stderr: NamedTempFile,
}

impl Tail {
    fn start(url: &str, flags: &[&str]) -> Self {
        let (stdout, stderr) = (NamedTempFile::new().expect("a file"), NamedTempFile::new().expect("a file"));
        let mut command = waybill(&[&["events", "tail"], flags].concat());
        command.env("WAYBILL_URL", url).env("COLUMNS", "80").stdin(Stdio::null());
        command.stdout(stdout.reopen().expect("the file")).stderr(stderr.reopen().expect("the file"));
        Tail { child: command.spawn().expect("it runs"), stdout, stderr }
    }

    fn lines(&self) -> Vec<String> {
        let text = fs::read_to_string(self.stdout.path()).expect("text");
        text.lines().map(str::to_owned).collect()
    }

    fn stderr(&self) -> String {
        fs::read_to_string(self.stderr.path()).expect("text")
    }

    async fn exit_code(&mut self) -> Option<i32> {
        until("it ends", async || self.child.try_wait().expect("our child").is_some()).await;
        self.child.wait().expect("our child").code()
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn work_off(app: &App, tag: &str) -> i64 {
    let id = app.publish_tagged(tag).await;
    app.claim(tag, W1).await.expect("an event");
    app.complete(id, W1).await.expect(200);
    id
}

fn id_and_action(line: &str) -> (i64, String) {
    let entry: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    (entry["event_id"].as_i64().expect("an id"), entry["action"].as_str().expect("an action").to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_trail_goes_on_across_restarts_of_the_server_without_gap_or_repeat() {
    let url = database::migrated().await;
    let serve = |address: &str| {
        let mut command = waybill(&["serve", "--bind", address]);
        command.env("DATABASE_URL", &url);
        command
    };
    let first = Process::start(serve("127.0.0.1:0"));
    let base = first.app.base.clone();
    let address = base.trim_start_matches("http://").to_owned();
    let mut expected = vec![work_off(&first.app, "a").await];
    let mut tail = Tail::start(&base, &["--json", "--since", "1h"]);
    until("the first entries are there", async || tail.lines().len() == 2).await;
    expected.push(work_off(&first.app, "a").await);
    first.kill_9().await;
    until("it is said", async || tail.stderr().contains("trying again")).await;
    let second = Process::start(serve(&address));
    expected.push(work_off(&second.app, "a").await);
    until("it goes on", async || tail.stderr().contains("the server is back")).await;
    expected.push(work_off(&second.app, "a").await);
    // In order: the stream ends with a word, not with a broken connection.
    second.stop().await;
    let third = Process::start(serve(&address));
    expected.push(work_off(&third.app, "a").await);
    until("everything is there", async || tail.lines().len() >= 10).await;
    let seen: Vec<(i64, String)> = tail.lines().iter().map(|line| id_and_action(line)).collect();
    let all = expected.iter().flat_map(|id| [(*id, "PICKED".to_owned()), (*id, "COMPLETED".to_owned())]);
    assert_eq!(seen, all.collect::<Vec<_>>());
    send(tail.child.id(), Signal::SIGINT);
    assert_eq!(tail.exit_code().await, Some(0));
    third.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_are_selected_and_printed_on_one_line_each() {
    let app = App::start().await;
    work_off(&app, "a").await;
    let id = work_off(&app, "a").await.to_string();
    let mut tail = Tail::start(&app.base, &["--event", &id, "--action", "completed", "--since", "1h", "--limit", "1"]);
    assert_eq!(tail.exit_code().await, Some(0), "{}", tail.stderr());
    let lines = tail.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(&lines[0][19..], "  event 2        COMPLETED      worker-01:7234", "{lines:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_key_ends_the_trail() {
    let app = App::with_keys().await;
    let key = app.make_key(serde_json::json!({"scopes": ["read"]})).await;
    let mut tail = Tail::start(&app.base, &["--json", "--since", "1h", "--key", &key.key]);
    work_off(&app, "a").await;
    until("it reads", async || !tail.lines().is_empty()).await;
    app.post_empty(&format!("/keys/{}/revoke", key.id)).await.expect(200);
    assert_eq!(tail.exit_code().await, Some(4), "{}", tail.stderr());
}
