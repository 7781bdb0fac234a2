//! The workers in `examples`, as processes of their own, against a real server.

use std::process::{Child, Command, Stdio};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::relay::Relay;
use crate::support::process::send;
use crate::support::{App, HeldTable, ledger, until};

const PYTHON: &[&str] = &["python3", "examples/worker.py"];
const NODE: &[&str] = &["node", "examples/worker.mjs"];

/// A running worker. Killed, if it still runs, when it is dropped.
struct Worker(Child);

impl Worker {
    fn start(program: &[&str], url: &str, lease: &str) -> Self {
        let mut command = Command::new(program[0]);
        command.args(&program[1..]).current_dir(env!("CARGO_MANIFEST_DIR")).env("WAYBILL_URL", url).env("LEASE", lease);
        Worker(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("it runs"))
    }

    /// Asks it to stop, and insists that it does so in order.
    async fn stop(mut self) {
        send(self.0.id(), Signal::SIGTERM);
        until("the worker ends", async || self.0.try_wait().expect("our child").is_some()).await;
        assert_eq!(self.0.wait().expect("our child").code(), Some(0));
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn publish(app: &App, payload: Value) -> i64 {
    app.publish(json!({"title": "Resize", "tags": "images", "payload": payload, "max_retries": 1})).await
}

async fn until_status(app: &App, id: i64, status: &str) {
    until("the event is settled", async || app.status(id).await == status).await;
}

/// Completes what can be done with its result, fails the rest, and keeps its connections.
async fn works(program: &[&str]) {
    let app = App::start().await;
    let relay = Relay::to(&app.base).await;
    let worker = Worker::start(program, &relay.url, "60");
    let mut ids = Vec::new();
    for photo in 0..20 {
        ids.push(publish(&app, json!({"photo": photo})).await);
    }
    let hopeless = publish(&app, json!({"album": 1})).await;
    until_status(&app, hopeless, "FAILED").await;
    assert!(app.event(hopeless).await["last_error"].as_str().expect("an error").contains("photo"));
    for (photo, id) in ids.into_iter().enumerate() {
        until_status(&app, id, "COMPLETED").await;
        let event = app.event(id).await;
        assert_eq!(event["result"], json!({"resized": photo}));
        let worker_id = event["logs"][0]["worker_id"].as_str().expect("a worker");
        assert!(worker_id.ends_with(&format!(":{}", worker.0.id())), "{worker_id}");
    }
    assert!(relay.connections() <= 2, "{} connections for 43 calls", relay.connections());
    worker.stop().await;
    ledger::check(&app).await;
}

/// Goes on after lost connections, and after a database that was away.
async fn survives(program: &[&str]) {
    let app = App::start().await;
    let relay = Relay::to(&app.base).await;
    let worker = Worker::start(program, &relay.url, "60");
    until("the worker waits", async || app.engine().hub().len() == 1).await;
    relay.cut();
    let id = publish(&app, json!({"photo": 1})).await;
    until_status(&app, id, "COMPLETED").await;
    assert!(relay.connections() >= 2);
    let id = publish(&app, json!({"photo": 2, "seconds": 2})).await;
    until_status(&app, id, "PROCESSING").await;
    let held = HeldTable::lock(&app.url, "waybill.event_log").await;
    until("the worker is told to come back", async || relay.count("503") > 0).await;
    held.unlock().await;
    until_status(&app, id, "COMPLETED").await;
    worker.stop().await;
}

/// Extends its lease while the work takes longer.
async fn holds_on(program: &[&str]) {
    let app = App::start().await;
    let worker = Worker::start(program, &app.base, "2");
    let id = publish(&app, json!({"photo": 1, "seconds": 5})).await;
    until_status(&app, id, "COMPLETED").await;
    assert_eq!(app.actions(id).await, ["PICKED", "COMPLETED"]);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_worker_completes_and_fails_events_and_keeps_its_connection() {
    works(PYTHON).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_worker_completes_and_fails_events_and_keeps_its_connection() {
    works(NODE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_worker_survives_lost_connections_and_outages() {
    survives(PYTHON).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_worker_survives_lost_connections_and_outages() {
    survives(NODE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_worker_extends_its_lease() {
    holds_on(PYTHON).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_worker_extends_its_lease() {
    holds_on(NODE).await;
}
