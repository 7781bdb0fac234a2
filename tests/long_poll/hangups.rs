//! A worker that hangs up does not keep its claim. The tests use real sockets, closed at every
//! stage.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use actix_web::test::TestRequest;
use serde_json::{Value, json};
use tokio::net::TcpSocket;
use waybill::domain::ids::NamespaceId;
use waybill::domain::tags::Tags;
use waybill::engine::claim::ClaimRequest;
use waybill::http::claim_body;

use super::{Waiter, flags, publish_with_key, quiet, quiet_app, until_asleep};
use crate::support::{App, HeldTable, Options, until, within_patience};

pub(super) const UNDONE: &str = "SELECT count(*) FROM waybill.event_log WHERE reason = 'client_gone'";

/// A worker that hangs up when it is dropped.
pub(super) struct RawWorker(TcpStream);

impl RawWorker {
    fn send(app: &App, request: &str) -> Self {
        let mut socket = TcpStream::connect(app.base.trim_start_matches("http://")).expect("the server listens");
        socket.write_all(request.as_bytes()).expect("the server reads");
        Self(socket)
    }

    fn subscribe(app: &App, query: &str) -> Self {
        Self::send(app, &format!("GET /events/subscribe?{query} HTTP/1.1\r\nhost: localhost\r\n\r\n"))
    }

    fn post(app: &App, path: &str, body: &Value) -> Self {
        let body = body.to_string();
        let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n");
        Self::send(app, &format!("{head}content-length: {}\r\n\r\n{body}", body.len()))
    }

    pub(super) async fn waiting(app: &App, worker_id: &str) -> Self {
        let before = app.engine().hub().len();
        let worker = Self::subscribe(app, &format!("tags=a&worker_id={worker_id}&wait_seconds=60"));
        until_asleep(app, before + 1).await;
        worker
    }

    /// Closes the socket, and waits until the server has noticed.
    pub(super) async fn hang_up(self, app: &App) {
        let before = app.engine().hub().len();
        drop(self);
        until("the server notices", async || app.engine().hub().len() < before).await;
    }
}

/// Asserts that the claim is undone, that another worker gets the event in its first attempt, and
/// that the log shows what happened.
pub(super) async fn assert_handed_to_another(app: &App, id: i64) {
    until("the claim is undone", async || app.count(UNDONE).await == 1).await;
    let event = app.claim("a", "w:9").await.expect("an event");
    assert_eq!((&event["id"], &event["attempt"]), (&json!(id), &json!(1)));
    assert_eq!(app.actions(id).await, ["PICKED", "RELEASED", "PICKED"]);
    let released = &app.event(id).await["logs"][1];
    assert_eq!((&released["reason"], &released["worker_id"]), (&json!("client_gone"), &json!("w:1")));
    assert_eq!(released["actor"], "server:claim_undo");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_hangs_up_while_waiting_claims_nothing() {
    let app = quiet_app().await;
    RawWorker::waiting(&app, "w:1").await.hang_up(&app).await;
    let id = app.publish_tagged("a").await;
    assert_eq!(app.event(id).await["status"], "PENDING");
    assert_eq!(app.actions(id).await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_goes_to_the_next_waiter_if_the_first_one_hung_up() {
    let app = quiet_app().await;
    let gone = RawWorker::waiting(&app, "w:1").await;
    let waiter = Waiter::enter(&app, "a", "w:2").await;
    gone.hang_up(&app).await;
    let id = app.publish_tagged("a").await;
    assert_eq!(waiter.event().await["worker_id"], "w:2");
    assert_eq!(app.actions(id).await, ["PICKED"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_claim_of_a_worker_that_hangs_up_while_it_is_made_is_undone_at_once() {
    let app = quiet_app().await;
    let worker = RawWorker::waiting(&app, "w:1").await;
    let mut held = HeldTable::lock(&app.url, "waybill.event_log").await;
    let id = publish_with_key(&app, "k").await;
    held.until_blocked().await;
    worker.hang_up(&app).await;
    held.unlock().await;
    assert_handed_to_another(&app, id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_hung_up_and_repeats_its_idempotency_key_holds_the_events_it_gets() {
    let app = quiet_app().await;
    let id = app.publish_tagged("a").await;
    let body = json!({"tags": ["a"], "worker_id": "w:1", "idempotency_key": "r1", "wait_seconds": 60});
    let mut held = HeldTable::lock(&app.url, "waybill.event_log").await;
    let worker = RawWorker::post(&app, "/events/claim", &body);
    held.until_blocked().await;
    worker.hang_up(&app).await;
    held.unlock().await;
    let again = app.post("/events/claim", &body).await.expect(200).json();
    assert_eq!(again["events"][0]["id"], id);
    // The claim was either undone before, or is kept for the repeated request.
    let body = json!({"worker_id": "w:1", "lease_id": again["events"][0]["lease_id"]});
    app.post(&format!("/events/{id}/complete"), &body).await.expect(200);
}

/// A call that completes an event and then waits for the next.
async fn settling_and_waiting(app: &App) -> (i64, Value) {
    let settled = app.publish_tagged("a").await;
    app.claim("a", "w:1").await.expect("an event");
    let settlements = json!([{"event_id": settled, "action": "complete"}]);
    let claim = json!({"tags": ["a"], "wait_seconds": 60});
    (settled, json!({"worker_id": "w:1", "settlements": settlements, "claim": claim}))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_settles_and_hangs_up_while_waiting_has_settled_and_claims_nothing() {
    let app = quiet_app().await;
    let (settled, body) = settling_and_waiting(&app).await;
    let worker = RawWorker::post(&app, "/events/settle", &body);
    until_asleep(&app, 1).await;
    worker.hang_up(&app).await;
    let id = app.publish_tagged("a").await;
    assert_eq!(app.event(settled).await["status"], "COMPLETED");
    assert_eq!(app.event(id).await["status"], "PENDING");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_claim_of_a_worker_that_settled_and_hangs_up_while_it_is_made_is_undone_at_once() {
    let app = quiet_app().await;
    let (settled, body) = settling_and_waiting(&app).await;
    let worker = RawWorker::post(&app, "/events/settle", &body);
    until_asleep(&app, 1).await;
    let mut held = HeldTable::lock(&app.url, "waybill.event_log").await;
    let id = publish_with_key(&app, "k").await;
    held.until_blocked().await;
    worker.hang_up(&app).await;
    held.unlock().await;
    assert_handed_to_another(&app, id).await;
    assert_eq!(app.actions(settled).await, ["PICKED", "COMPLETED"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_settled_and_resets_its_connection_unread_keeps_no_claim() {
    let app = quiet_app().await;
    let (settled, body) = settling_and_waiting(&app).await;
    let id = publish_half_a_megabyte(&app, "a").await;
    let worker = RawWorker::post(&app, "/events/settle", &body);
    worker.0.peek(&mut [0]).expect("the response begins");
    // A socket that is closed with unread bytes in its buffer resets the connection.
    drop(worker);
    assert_handed_to_another(&app, id).await;
    assert_eq!(app.actions(settled).await, ["PICKED", "COMPLETED"]);
}

/// A batch that takes long to read, and is refused in the end.
fn long_request() -> String {
    let payload = "[".repeat(100) + &"]".repeat(100) + ",";
    let payload = format!("[{}0]", payload.repeat(70));
    let event = format!("{{\"title\": \"t\", \"tags\": \"z\", \"payload\": {payload}}},");
    let body = format!("{{\"events\": [{}{{}}]}}", event.repeat(500));
    let head = "POST /events/batch HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length:";
    format!("{head} {}\r\n\r\n{body}", body.len())
}

/// Waits until the server is too busy to answer a small request, or was too fast for the test to
/// see it.
async fn until_busy(app: &App) {
    let answers = async || tokio::time::timeout(Duration::from_millis(20), app.get("/health")).await.is_ok();
    let mut trials = 100;
    while answers().await && trials > 0 {
        trials -= 1;
    }
}

/// The only HTTP thread is busy while the claim is committed and the worker hangs up, so it learns
/// of both at the same time.
#[tokio::test(flavor = "multi_thread")]
async fn the_claim_of_a_worker_found_gone_when_its_response_is_ready_is_undone_at_once() {
    let app = App::start_with(Options { flags: [quiet(), flags("--http-workers 1")].concat(), ..Options::default() });
    let app = app.await;
    let worker = RawWorker::waiting(&app, "w:1").await;
    let request = long_request();
    let mut held = HeldTable::lock(&app.url, "waybill.event_log").await;
    let id = publish_with_key(&app, "k").await;
    held.until_blocked().await;
    let _busy = RawWorker::send(&app, &request);
    until_busy(&app).await;
    drop(worker);
    held.unlock().await;
    assert_handed_to_another(&app, id).await;
}

/// More bytes than the kernel buffers for a peer that does not read.
#[tokio::test(flavor = "multi_thread")]
async fn the_claims_of_a_worker_that_hangs_up_in_the_middle_of_its_response_are_all_undone() {
    const EVENTS: usize = 16;
    let app = quiet_app().await;
    let payload = "x".repeat(1_000_000);
    for _ in 0..EVENTS {
        app.publish(json!({"title": "t", "tags": "a", "payload": payload})).await;
    }
    let mut claim = json!({"tags": ["a"], "worker_id": "w:1", "max": EVENTS, "wait_seconds": 60});
    let mut worker = RawWorker::post(&app, "/events/claim", &claim);
    worker.0.read_exact(&mut [0; 12]).expect("the response begins");
    assert_eq!(app.claim("a", "w:2").await, None);
    drop(worker);
    claim["worker_id"] = json!("w:9");
    assert_eq!(within_patience(app.claim_by(&claim)).await.len(), EVENTS);
    assert_eq!(app.count(UNDONE).await, EVENTS as i64);
}

/// The server drops a body unasked if it finds the connection closed.
#[tokio::test(flavor = "multi_thread")]
async fn a_response_that_is_dropped_before_it_is_sent_undoes_the_claim() {
    let app = quiet_app().await;
    let id = app.publish_tagged("a").await;
    let request = ClaimRequest {
        tags: Tags::from_comma_separated("a").expect("a tag"),
        worker_id: "w:1".into(),
        max: 1,
        wait: Duration::ZERO,
        lease_seconds: 300.0,
        idempotency_key: None,
        tag_patterns: None,
    };
    let claimed = app.engine().claim_deliveries(NamespaceId::DEFAULT, request).await.expect("a claim");
    let response = claim_body::respond(&TestRequest::default().to_http_request(), claimed, |_| Ok(b"{}".to_vec()))
        .expect("a response");
    drop(response);
    assert_handed_to_another(&app, id).await;
}

/// Half a megabyte: more than a client's kernel buffers by default, unless the client reads.
const HALF_A_MEGABYTE: usize = 500_000;

/// A receive buffer that holds all of it.
const LARGE_BUFFER: u32 = 2_000_000;

/// A client claims an event of half a megabyte and resets its connection when the response has
/// begun to arrive. Returns the id of the event.
pub(super) async fn reset_unread(app: &App, tag: &str) -> i64 {
    let id = publish_half_a_megabyte(app, tag).await;
    let worker = RawWorker::subscribe(app, &format!("tags={tag}&worker_id=w:1"));
    worker.0.peek(&mut [0]).expect("the response begins");
    // A socket that is closed with unread bytes in its buffer resets the connection.
    drop(worker);
    id
}

async fn publish_half_a_megabyte(app: &App, tag: &str) -> i64 {
    app.publish(json!({"title": "t", "tags": tag, "payload": "x".repeat(HALF_A_MEGABYTE)})).await
}

/// Waits until the claim is undone, and fails if that takes longer than a second.
async fn assert_undone_within_a_second(app: &App, id: i64) {
    let since = std::time::Instant::now();
    until("the claim is undone", async || app.count(UNDONE).await == 1).await;
    assert!(since.elapsed() < Duration::from_secs(1), "undone only after {:?}", since.elapsed());
    assert_eq!(app.actions(id).await, ["PICKED", "RELEASED"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_resets_before_its_kernel_has_the_whole_response_loses_its_claim() {
    let app = quiet_app().await;
    let id = reset_unread(&app, "a").await;
    assert_undone_within_a_second(&app, id).await;
}

/// A client whose kernel buffers everything that is sent, read or not.
async fn with_large_buffer(app: &App, request: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(LARGE_BUFFER).expect("a buffer");
    let address = app.base.trim_start_matches("http://").parse().expect("an address");
    let socket = socket.connect(address).await.expect("the server listens").into_std().expect("a socket");
    socket.set_nonblocking(false).expect("a socket");
    (&socket).write_all(request.as_bytes()).expect("the server reads");
    socket
}

/// Waits until the client's kernel has more of the response than its payload.
async fn until_received(socket: &TcpStream) {
    let mut buffer = vec![0; 2 * HALF_A_MEGABYTE];
    until("the response has arrived", async || socket.peek(&mut buffer).expect("bytes") > HALF_A_MEGABYTE + 300).await;
}

const SUBSCRIBE: &str = "GET /events/subscribe?tags=a&worker_id=w:1";

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_resets_with_the_whole_response_unread_loses_its_claim() {
    for head in ["HTTP/1.1\r\n", "HTTP/1.1\r\nconnection: close\r\n", "HTTP/1.0\r\n"] {
        let app = quiet_app().await;
        let id = publish_half_a_megabyte(&app, "a").await;
        let socket = with_large_buffer(&app, &format!("{SUBSCRIBE} {head}host: 127.0.0.1\r\n\r\n")).await;
        until_received(&socket).await;
        drop(socket);
        assert_undone_within_a_second(&app, id).await;
    }
}

/// The next request shows that the response before it was read.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_has_sent_another_request_since_keeps_its_claim_when_it_resets() {
    let app = quiet_app().await;
    let id = publish_half_a_megabyte(&app, "a").await;
    let mut socket = with_large_buffer(&app, &format!("{SUBSCRIBE} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")).await;
    until_received(&socket).await;
    socket.write_all(b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").expect("the server reads");
    let mut buffer = vec![0; 2 * HALF_A_MEGABYTE];
    until("both responses have arrived", async || {
        let arrived = socket.peek(&mut buffer).expect("bytes");
        buffer[..arrived].windows(15).filter(|window| window == b"HTTP/1.1 200 OK").count() == 2
    })
    .await;
    drop(socket);
    reset_unread(&app, "lost").await;
    until("the claim of another is undone", async || app.count(UNDONE).await > 0).await;
    assert_eq!(app.actions(id).await, ["PICKED"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_half_closes_while_it_waits_counts_as_gone() {
    let app = quiet_app().await;
    let worker = RawWorker::waiting(&app, "w:1").await;
    worker.0.shutdown(Shutdown::Write).expect("a connection");
    until("the server notices", async || app.engine().hub().is_empty()).await;
    let id = app.publish_tagged("a").await;
    assert_eq!(app.event(id).await["status"], "PENDING");
}

/// A client that closes its sending side once its response has begun still gets all of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_half_closes_while_it_reads_keeps_its_claim() {
    let app = quiet_app().await;
    let id = publish_half_a_megabyte(&app, "a").await;
    let mut worker = RawWorker::subscribe(&app, "tags=a&worker_id=w:1");
    worker.0.peek(&mut [0]).expect("the response begins");
    worker.0.shutdown(Shutdown::Write).expect("a connection");
    let mut response = Vec::new();
    worker.0.read_to_end(&mut response).expect("a response");
    assert!(response.len() > HALF_A_MEGABYTE);
    reset_unread(&app, "lost").await;
    until("the claim of another is undone", async || app.count(UNDONE).await > 0).await;
    assert_eq!(app.actions(id).await, ["PICKED"]);
}

/// The server has closed its side, and waits for a client that reads slowly.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_slowly_keeps_its_claim_while_it_reads() {
    const EVENTS: usize = 4;
    let app = quiet_app().await;
    let mut ids = Vec::new();
    for _ in 0..EVENTS {
        ids.push(publish_half_a_megabyte(&app, "a").await);
    }
    let body = json!({"tags": ["a"], "worker_id": "w:1", "max": EVENTS}).to_string();
    let head = "POST /events/claim HTTP/1.0\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n";
    let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    let mut worker = RawWorker::send(&app, &request);
    let mut response = Vec::new();
    let mut buffer = vec![0; 100_000];
    loop {
        let read = worker.0.read(&mut buffer).expect("a response");
        response.extend_from_slice(&buffer[..read]);
        // Another client is served between two reads.
        app.get("/ready").await.expect(200);
        if read == 0 {
            break;
        }
    }
    assert!(response.len() > EVENTS * HALF_A_MEGABYTE);
    drop(worker);
    reset_unread(&app, "lost").await;
    until("the claim of another is undone", async || app.count(UNDONE).await > 0).await;
    for id in ids {
        assert_eq!(app.actions(id).await, ["PICKED"]);
    }
}

/// A client dies in the middle of a response after which the server closes the connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_resets_while_the_server_waits_for_its_end_loses_its_claim() {
    let app = quiet_app().await;
    let id = publish_half_a_megabyte(&app, "a").await;
    let mut worker = RawWorker::send(&app, &format!("{SUBSCRIBE} HTTP/1.0\r\nhost: 127.0.0.1\r\n\r\n"));
    worker.0.read_exact(&mut vec![0; 100_000]).expect("a part of the response");
    drop(worker);
    assert_undone_within_a_second(&app, id).await;
}
