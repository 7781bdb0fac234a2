//! Memory is bounded in bytes: for the events that one claim returns, and for the bodies in
//! progress.

use std::io::Write;
use std::net::TcpStream;

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::process::{Process, waybill};
use crate::support::{App, Options, database, http_client, until};

const MIB: usize = 1024 * 1024;

/// The number of events of the maximum size that one claim can return.
const CLAIMED_AT_ONCE: usize = 16;

fn large_event(tag: &str) -> Value {
    json!({"title": "t", "tags": tag, "payload": "x".repeat(MIB - 2)})
}

async fn publish_large(app: &App, events: usize) {
    for _ in 0..events {
        app.publish(large_event("a")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_returns_at_most_sixteen_megabytes_of_payloads() {
    let app = App::start().await;
    publish_large(&app, CLAIMED_AT_ONCE + 3).await;
    app.publish_tagged("a").await;
    assert_eq!(app.claim_batch("a", "w:1", 1000).await.len(), CLAIMED_AT_ONCE);
    assert_eq!(app.claim_batch("a", "w:1", 1000).await.len(), 4, "the remaining events come next");
    assert!(app.claim_batch("a", "w:1", 1000).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_of_small_payloads_is_limited_only_by_their_number() {
    let app = App::start().await;
    let events: Vec<Value> = (0..1_000).map(|n| json!({"title": "t", "tags": "a", "payload": n})).collect();
    app.post("/events/batch", &json!({"events": events})).await.expect(201);
    assert_eq!(app.claim_batch("a", "w:1", 1000).await.len(), 1_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_workers_that_claim_at_once_get_a_large_event_each() {
    let app = App::start().await;
    let workers = CLAIMED_AT_ONCE + 4;
    publish_large(&app, workers).await;
    let claims = join_all((1..=workers).map(async |n| app.claim("a", &format!("w:{n}")).await)).await;
    assert_eq!(claims.iter().flatten().count(), workers);
}

/// Two requests of 8 MiB that send only their beginning take all the memory for large bodies.
/// Requests that send nothing take none.
#[tokio::test(flavor = "multi_thread")]
async fn while_large_bodies_arrive_slowly_further_large_ones_are_refused_and_small_ones_accepted() {
    let flags = vec!["--request-memory-mb=32".to_owned()];
    let app = App::start_with(Options { flags, ..Options::default() }).await;
    let address = app.base.trim_start_matches("http://");
    let _silent: Vec<TcpStream> = (0..300).map(|_| announce_body(address, 64 * 1024, 1)).collect();
    let slow: Vec<TcpStream> = (0..2).map(|_| announce_body(address, 8 * MIB, 2 * 64 * 1024)).collect();
    let mut refused = None;
    until("the slow bodies hold all the memory", async || {
        refused = Some(app.post("/events", &large_event("a")).await).filter(|reply| reply.status == 429);
        refused.is_some()
    })
    .await;
    let problem = refused.expect("a refusal").problem(429, "overloaded");
    assert!(problem["detail"].as_str().expect("a text").contains("--request-memory-mb"), "{problem}");
    app.publish_tagged("a").await;
    drop(slow);
    app.publish(large_event("a")).await;
}

/// Announces a body of `bytes` bytes, and sends only the first `sent` of them.
fn announce_body(address: &str, bytes: usize, sent: usize) -> TcpStream {
    let mut socket = TcpStream::connect(address).expect("the server listens");
    let head = format!(
        "POST /events/batch HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {bytes}\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).expect("the server reads");
    socket.write_all(&vec![b'['; sent]).expect("the server reads");
    socket
}

/// Returns the memory that a process uses, or used at most, in kilobytes. `RssAnon` excludes the
/// pages of the program itself, which are many in a debug build.
pub(crate) fn memory(server: &Process, name: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("its size");
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Publishes many large events at once, claims them, and asserts that the memory is released.
#[tokio::test(flavor = "multi_thread")]
async fn large_publishes_and_claims_use_bounded_memory_and_release_it() {
    let url = database::migrated().await;
    let server = Process::start(waybill(&["serve", "--bind=127.0.0.1:0", "--database-url", &url]));
    let batch = json!({"events": vec![large_event("b"); 15]}).to_string();
    let one = large_event("a").to_string();
    let one_by_one = join_all((0..80).map(|_| status_of(&server.app, "/events", &one)));
    let in_batches = join_all((0..6).map(|_| status_of(&server.app, "/events/batch", &batch)));
    let (ones, batches) = tokio::join!(one_by_one, in_batches);
    assert!(ones.iter().chain(&batches).all(|status| [201, 429, 503].contains(status)), "{ones:?} {batches:?}");
    assert!(ones.contains(&201), "{ones:?}");
    let claimed = server.app.claim_batch("a", "w:1", 1000).await.len();
    assert!((count(&ones).min(CLAIMED_AT_ONCE)..=CLAIMED_AT_ONCE).contains(&claimed), "{claimed}");
    let highest = memory(&server, "VmHWM");
    eprintln!("{highest} KB at most; {} of 80 and {} of 6 were stored", count(&ones), count(&batches));
    assert!(highest <= 300 * 1024, "{highest} KB");
    until("memory is released", async || memory(&server, "RssAnon") <= 80 * 1024).await;
    server.stop().await;
}

/// Posts on a new connection. Returns the status.
async fn status_of(app: &App, path: &str, body: &str) -> u16 {
    let request = http_client().post(format!("{}{path}", app.base)).header("content-type", "application/json");
    request.body(body.to_owned()).send().await.expect("a response").status().as_u16()
}

fn count(statuses: &[u16]) -> usize {
    statuses.iter().filter(|status| **status == 201).count()
}
