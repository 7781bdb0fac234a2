//! Clients that read their whole response keep their claim, however they close their connection and
//! however busy the machine is.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command};

use serde_json::{Value, json};

use super::hangups::{UNDONE, reset_unread};
use super::quiet_app;
use crate::support::{App, until};

/// How a client treats its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Client {
    /// Keeps it and sends further requests.
    KeepAlive,
    /// Closes it after the response, without announcing it.
    OneShot,
    /// Announces `connection: close` and closes it after the response.
    ConnectionClose,
    /// Reads until the server closes it.
    Http10,
}

impl Client {
    fn request(self, query: &str) -> String {
        let (version, connection) = match self {
            Client::KeepAlive | Client::OneShot => ("1.1", ""),
            Client::ConnectionClose => ("1.1", "connection: close\r\n"),
            Client::Http10 => ("1.0", ""),
        };
        format!("GET /events/subscribe?{query} HTTP/{version}\r\nhost: 127.0.0.1\r\n{connection}\r\n")
    }

    /// Claims `claims` events one after the other, and returns their ids.
    fn claim(self, address: &str, query: &str, claims: usize) -> Vec<i64> {
        let request = self.request(query);
        let mut kept: Option<TcpStream> = None;
        (0..claims)
            .map(|_| {
                let mut socket =
                    kept.take().unwrap_or_else(|| TcpStream::connect(address).expect("the server listens"));
                socket.write_all(request.as_bytes()).expect("the server reads");
                let event = if self == Client::Http10 { read_to_end(&mut socket) } else { read_response(&mut socket) };
                kept = Some(socket).filter(|_| self == Client::KeepAlive);
                event["id"].as_i64().expect("an id")
            })
            .collect()
    }
}

/// Reads as many bytes as the response announces, and not one more.
fn read_response(socket: &mut TcpStream) -> Value {
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 65_536];
    loop {
        let read = socket.read(&mut buffer).expect("a response");
        assert_ne!(read, 0, "the response is cut off");
        bytes.extend_from_slice(&buffer[..read]);
        let Some(head) = end_of_head(&bytes) else { continue };
        let length: usize = header(&bytes[..head], "content-length").expect("a length").parse().expect("a number");
        if bytes.len() >= head + length {
            return parse(&bytes, head);
        }
    }
}

fn read_to_end(socket: &mut TcpStream) -> Value {
    let mut bytes = Vec::new();
    socket.read_to_end(&mut bytes).expect("a response");
    let head = end_of_head(&bytes).expect("a head");
    parse(&bytes, head)
}

fn end_of_head(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|window| window == b"\r\n\r\n").map(|position| position + 4)
}

fn header(head: &[u8], name: &str) -> Option<String> {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ").map(str::to_owned))
}

fn parse(bytes: &[u8], head: usize) -> Value {
    assert!(bytes.starts_with(b"HTTP/1.1 200") || bytes.starts_with(b"HTTP/1.0 200"));
    serde_json::from_slice(&bytes[head..]).expect("an event")
}

/// Processes that keep both cores of a small machine busy.
struct Busy(Vec<Child>);

impl Busy {
    fn start() -> Self {
        let spin = || Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("a shell");
        Self((0..2).map(|_| spin()).collect())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// What is claimed, by how many workers, and whether they wait for it.
#[derive(Debug, Clone, Copy)]
struct Case {
    payload_bytes: usize,
    claims: usize,
    workers: usize,
    waiting: bool,
}

impl Case {
    /// Small and large payloads, one worker and many, from a backlog and after a wake-up.
    fn all() -> Vec<Self> {
        let mut cases = Vec::new();
        for (payload_bytes, claims) in [(10, 48), (300_000, 16)] {
            for workers in [1, 16] {
                cases.extend([true, false].map(|waiting| Case { payload_bytes, claims, workers, waiting }));
            }
        }
        cases
    }
}

/// Workers claim as many events as are published. Returns the ids that they got.
async fn claim_all(app: &App, client: Client, case: Case) -> Vec<i64> {
    let address = app.base.trim_start_matches("http://").to_owned();
    let event = json!({"title": "t", "tags": "a", "payload": "x".repeat(case.payload_bytes)});
    if !case.waiting {
        app.post("/events/batch", &json!({"events": vec![&event; case.claims]})).await.expect(201);
    }
    let wait = if case.waiting { "&wait_seconds=60" } else { "" };
    let workers: Vec<_> = (0..case.workers)
        .map(|worker| {
            let (address, query) = (address.clone(), format!("tags=a&worker_id=w:{worker}{wait}"));
            tokio::task::spawn_blocking(move || client.claim(&address, &query, case.claims / case.workers))
        })
        .collect();
    if case.waiting {
        for _ in 0..case.claims {
            app.publish(event.clone()).await;
        }
    }
    let mut ids = Vec::new();
    for worker in workers {
        ids.extend(worker.await.expect("the worker was answered"));
    }
    ids
}

/// A client that loses its response comes last: when its claim is undone, the server has decided
/// about all the others.
#[tokio::test(flavor = "multi_thread")]
async fn clients_that_read_their_response_keep_their_claim_however_they_close() {
    let app = quiet_app().await;
    let _busy = Busy::start();
    let clients = [Client::KeepAlive, Client::OneShot, Client::ConnectionClose, Client::Http10];
    for (lost, client) in (1..).zip(clients) {
        for case in Case::all() {
            let ids = claim_all(&app, client, case).await;
            let distinct = ids.iter().collect::<BTreeSet<_>>().len();
            assert_eq!(distinct, case.claims, "each is claimed once: {client:?} {case:?}");
        }
        let id = reset_unread(&app, &format!("lost{lost}")).await;
        until("the lost claim is undone", async || app.actions(id).await == ["PICKED", "RELEASED"]).await;
        assert_eq!(app.count(UNDONE).await, lost, "only the lost ones are undone: {client:?}");
    }
}
