//! Memory is bounded by bytes: of what one claim hands out, and of the bodies under way.

use std::io::Write;
use std::net::TcpStream;

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::process::{Process, waybill};
use crate::support::{App, Options, database, http_client, until};

const MIB: usize = 1024 * 1024;

/// Events that one claim can hand out if their payloads are as large as allowed.
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
async fn a_claim_hands_out_no_more_payloads_than_sixteen_megabytes() {
    let app = App::start().await;
    publish_large(&app, CLAIMED_AT_ONCE + 3).await;
    app.publish_tagged("a").await;
    assert_eq!(app.claim_batch("a", "w:1", 1000).await.len(), CLAIMED_AT_ONCE);
    assert_eq!(app.claim_batch("a", "w:1", 1000).await.len(), 4, "what was left comes next");
    assert!(app.claim_batch("a", "w:1", 1000).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn small_payloads_are_bounded_by_their_number_alone() {
    let app = App::start().await;
    let events: Vec<Value> = (0..1_000).map(|n| json!({"title": "t", "tags": "a", "payload": n})).collect();
    app.post("/events/batch", &json!({"events": events})).await.expect(201);
    assert_eq!(app.claim_batch("a", "w:1", 1000).await.len(), 1_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_workers_that_ask_at_once_get_a_large_event_each() {
    let app = App::start().await;
    let workers = CLAIMED_AT_ONCE + 4;
    publish_large(&app, workers).await;
    let claims = join_all((1..=workers).map(async |n| app.claim("a", &format!("w:{n}")).await)).await;
    assert_eq!(claims.iter().flatten().count(), workers);
}

/// Two requests of 8 MiB each of which nothing more comes than the beginning take all the memory for
/// large bodies that there is. Those of which nothing comes at all take none.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_arrive_slowly_refuse_large_ones_and_let_small_ones_through() {
    let flags = vec!["--request-memory-mb=32".to_owned()];
    let app = App::start_with(Options { flags, ..Options::default() }).await;
    let address = app.base.trim_start_matches("http://");
    let _silent: Vec<TcpStream> = (0..300).map(|_| announce_body(address, 64 * 1024, 1)).collect();
    let slow: Vec<TcpStream> = (0..2).map(|_| announce_body(address, 8 * MIB, 2 * 64 * 1024)).collect();
    let problem = app.post("/events", &large_event("a")).await.problem(429, "overloaded");
    assert!(problem["detail"].as_str().expect("a text").contains("--request-memory-mb"), "{problem}");
    app.publish_tagged("a").await;
    drop(slow);
    app.publish(large_event("a")).await;
}

/// Announces a body of so many bytes, and sends only the first of them.
fn announce_body(address: &str, bytes: usize, sent: usize) -> TcpStream {
    let mut socket = TcpStream::connect(address).expect("the server listens");
    let head = format!(
        "POST /events/batch HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {bytes}\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).expect("the server reads");
    socket.write_all(&vec![b'['; sent]).expect("the server reads");
    socket
}

/// Kilobytes of memory that a process has in use, or had at most. `RssAnon` is without the pages of
/// the program itself, of which a debug build has many.
fn memory(server: &Process, name: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("its size");
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Publishes what large clients publish at once, claims it, and gives the memory back.
#[tokio::test(flavor = "multi_thread")]
async fn large_publishes_and_claims_take_bounded_memory_and_give_it_back() {
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
    until("memory is given back", async || memory(&server, "RssAnon") <= 80 * 1024).await;
    server.stop().await;
}

/// Posts by a connection of its own; returns the status.
async fn status_of(app: &App, path: &str, body: &str) -> u16 {
    let request = http_client().post(format!("{}{path}", app.base)).header("content-type", "application/json");
    request.body(body.to_owned()).send().await.expect("an answer").status().as_u16()
}

fn count(statuses: &[u16]) -> usize {
    statuses.iter().filter(|status| **status == 201).count()
}
