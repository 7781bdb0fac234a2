//! SIGTERM and Ctrl-C: an orderly and quick stop.

use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::json;

use super::{Process, is_alive, send, serve, start};
use crate::support::{ClusterDir, HeldTable, Reply, database, until, within_patience};

/// The documented time within which a server stops.
const STOPPED_WITHIN: Duration = Duration::from_secs(10);

fn in_background(request: reqwest::RequestBuilder) -> tokio::task::JoinHandle<Reply> {
    tokio::spawn(async move { Reply::of(request.send().await.expect("a response")).await })
}

/// Starts a long poll, and returns once the server has seen the worker.
async fn wait_for_work(server: &Process, worker_id: &str) -> tokio::task::JoinHandle<Reply> {
    let path = format!("{}/events/subscribe?tags=a&worker_id={worker_id}&wait_seconds=60", server.app.base);
    let waiter = in_background(server.app.client.get(path));
    until("the worker is seen", async || server.app.get("/workers").await.text.contains(worker_id)).await;
    waiter
}

async fn assert_orderly_stop_on(signal: Signal) {
    let cluster_dir = ClusterDir::with_cluster();
    let mut server = start(&cluster_dir);
    let postmaster = cluster_dir.postmaster().expect("it runs");
    let waiters = [wait_for_work(&server, "w:1").await, wait_for_work(&server, "w:2").await];
    let sent_at = Instant::now();
    send(server.pid(), signal);
    assert_eq!(server.exit().await.code(), Some(0), "{}", server.stderr());
    assert!(sent_at.elapsed() < STOPPED_WITHIN, "{:?}", sent_at.elapsed());
    for waiter in waiters {
        within_patience(waiter).await.expect("no panic").expect(204);
    }
    assert!(!is_alive(postmaster));
    assert_eq!(cluster_dir.postmaster(), None, "PostgreSQL was stopped cleanly");
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_answers_waiting_workers_stops_postgresql_and_exits_with_0() {
    assert_orderly_stop_on(Signal::SIGTERM).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_answers_waiting_workers_stops_postgresql_and_exits_with_0() {
    assert_orderly_stop_on(Signal::SIGINT).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_log_line_of_postgresql_at_a_start_or_stop_is_an_error() {
    let cluster_dir = ClusterDir::new();
    for _ in 0..2 {
        let mut server = start(&cluster_dir);
        server.app.publish_tagged("a").await;
        send(server.pid(), Signal::SIGTERM);
        assert!(server.exit().await.success());
        let log = server.stderr();
        // What a server says that has no keys.
        let is_expected =
            |line: &str| line.contains("no API key has been made") || line.contains("no secret key is set");
        let is_bad = |line: &str| ["ERROR", "WARN", "FATAL"].iter().any(|level| line.contains(level));
        assert!(log.lines().all(|line| is_expected(line) || !is_bad(line)), "{log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_in_flight_are_finished() {
    let cluster_dir = ClusterDir::with_cluster();
    let mut server = start(&cluster_dir);
    let mut held = HeldTable::lock(&cluster_dir.url(), "waybill.events").await;
    let body = json!({"title": "t", "tags": "a"});
    let publish = in_background(server.app.client.post(format!("{}/events", server.app.base)).json(&body));
    held.until_blocked().await;
    send(server.pid(), Signal::SIGTERM);
    let address = server.app.base.trim_start_matches("http://").to_owned();
    until("no new connection is accepted", async || std::net::TcpStream::connect(&address).is_err()).await;
    held.unlock().await;
    let published = within_patience(publish).await.expect("no panic").expect(201).json();
    assert_eq!(server.exit().await.code(), Some(0), "{}", server.stderr());
    let cluster = cluster_dir.start();
    let stored = format!("SELECT count(*) FROM waybill.events WHERE id = {}", published["id"]);
    assert_eq!(database::count(&cluster.url("postgres"), &stored).await, 1);
}

/// Ctrl-C during the first start, while the database is still being created.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_can_be_interrupted() {
    let cluster_dir = ClusterDir::new();
    let mut child = serve(&cluster_dir).stderr(Stdio::null()).spawn().expect("it runs");
    until("the database is being created", async || cluster_dir.data_dir().join("postgres.init").exists()).await;
    send(child.id(), Signal::SIGINT);
    until("it ends", async || child.try_wait().expect("our child").is_some()).await;
    assert_eq!(child.wait().expect("our child").code(), Some(0));
    assert_eq!(cluster_dir.postmaster(), None);
    start(&cluster_dir).app.publish_tagged("a").await;
}
