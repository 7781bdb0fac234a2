//! The workers in `examples`, as separate processes against a real server.

use std::process::{Child, Command, Stdio};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::relay::Relay;
use crate::support::process::send;
use crate::support::work::W1;
use crate::support::{App, HeldTable, ledger, until};

pub(super) const PYTHON: &[&str] = &["python3", "examples/worker.py"];
pub(super) const NODE: &[&str] = &["node", "examples/worker.mjs"];

/// A running worker. It is killed when it is dropped.
pub(super) struct Worker(Child);

impl Worker {
    pub(super) fn start(program: &[&str], url: &str, lease: &str) -> Self {
        let mut command = Command::new(program[0]);
        command.args(&program[1..]).current_dir(env!("CARGO_MANIFEST_DIR")).env("WAYBILL_URL", url).env("LEASE", lease);
        Worker(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("it runs"))
    }

    /// Asks the worker to stop, and asserts that it does so in order.
    async fn stop(mut self) {
        send(self.0.id(), Signal::SIGTERM);
        assert_eq!(self.exit_code().await, Some(0));
    }

    /// Waits until the worker ends by itself.
    pub(super) async fn exit_code(&mut self) -> Option<i32> {
        until("the worker ends", async || self.0.try_wait().expect("our child").is_some()).await;
        self.0.wait().expect("our child").code()
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

/// Asserts that the worker completes events with their results, fails those that cannot be done,
/// and keeps its connections.
async fn assert_works(program: &[&str]) {
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

/// Asserts that the worker continues after lost connections and after a database outage.
async fn assert_survives(program: &[&str]) {
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
    until("the worker got a 503", async || relay.count("503") > 0).await;
    held.unlock().await;
    until_status(&app, id, "COMPLETED").await;
    worker.stop().await;
}

/// Asserts that the worker extends its lease while the work takes longer.
async fn assert_extends_its_lease(program: &[&str]) {
    let app = App::start().await;
    let worker = Worker::start(program, &app.base, "2");
    let id = publish(&app, json!({"photo": 1, "seconds": 5})).await;
    until_status(&app, id, "COMPLETED").await;
    assert_eq!(app.actions(id).await, ["PICKED", "COMPLETED"]);
    worker.stop().await;
}

/// Asserts that the worker ends its work on an event that is cancelled meanwhile.
async fn assert_heeds_a_cancel(program: &[&str]) {
    let app = App::start().await;
    let worker = Worker::start(program, &app.base, "2");
    let id = publish(&app, json!({"photo": 1, "seconds": 600})).await;
    until_status(&app, id, "PROCESSING").await;
    app.post_empty(&format!("/events/{id}/cancel")).await.expect(200);
    until_status(&app, id, "CANCELLED").await;
    assert_eq!(app.actions(id).await, ["PICKED", "FAILED", "CANCELLED"]);
    worker.stop().await;
}

/// Asserts that the worker drops an event that another worker has claimed since, and continues with
/// the next one.
async fn assert_drops_what_it_lost(program: &[&str]) {
    let app = App::start().await;
    let worker = Worker::start(program, &app.base, "2");
    let lost = publish(&app, json!({"photo": 1, "seconds": 600})).await;
    until_status(&app, lost, "PROCESSING").await;
    app.post_empty(&format!("/events/{lost}/reset")).await.expect(200);
    assert_eq!(app.claim_one("images", W1).await.event_id, lost);
    let next = publish(&app, json!({"photo": 2})).await;
    until_status(&app, next, "COMPLETED").await;
    assert_eq!(app.actions(lost).await, ["PICKED", "RESET", "PICKED"]);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_worker_completes_and_fails_events_and_keeps_its_connection() {
    assert_works(PYTHON).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_worker_completes_and_fails_events_and_keeps_its_connection() {
    assert_works(NODE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_worker_survives_lost_connections_and_outages() {
    assert_survives(PYTHON).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_worker_survives_lost_connections_and_outages() {
    assert_survives(NODE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_worker_extends_its_lease() {
    assert_extends_its_lease(PYTHON).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_worker_extends_its_lease() {
    assert_extends_its_lease(NODE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_worker_heeds_a_cancel() {
    assert_heeds_a_cancel(PYTHON).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_worker_heeds_a_cancel() {
    assert_heeds_a_cancel(NODE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_worker_drops_an_event_that_it_lost() {
    assert_drops_what_it_lost(PYTHON).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_worker_drops_an_event_that_it_lost() {
    assert_drops_what_it_lost(NODE).await;
}
