//! Workers against a server that answers as a test wants it to.

use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// A request: its path and its body.
type Request = (String, Value);

/// A server with an answer to each request: a status and a body, or none if the connection breaks.
struct Server {
    url: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    async fn start(answer: impl Fn(&str, usize) -> Option<(u16, Value)> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests: Arc<Mutex<Vec<Request>>> = Arc::default();
        let seen = Arc::clone(&requests);
        tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                let Some((path, body)) = read(&mut connection).await else { continue };
                let number = count(&seen.lock().unwrap(), &path);
                seen.lock().unwrap().push((path.clone(), body));
                if let Some((status, body)) = answer(&path, number) {
                    let body = body.to_string();
                    let head =
                        format!("HTTP/1.1 {status} x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
                    let _ = connection.write_all(format!("{head}{body}").as_bytes()).await;
                }
            }
        });
        Server { url, requests }
    }

    fn worker(&self) -> Worker {
        Worker::new(Client::new(&self.url, None).unwrap(), WorkerOptions::new(["a"]))
    }

    /// Returns the bodies of the requests to a path.
    fn bodies(&self, path: &str) -> Vec<Value> {
        let requests = self.requests.lock().unwrap();
        requests.iter().filter(|(other, _)| other == path).map(|(_, body)| body.clone()).collect()
    }
}

/// Returns how many requests went to a path.
fn count(requests: &[Request], path: &str) -> usize {
    requests.iter().filter(|(other, _)| other == path).count()
}

async fn read(connection: &mut TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(connection);
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first).await.ok()?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).await.ok()?;
        match line.trim().to_lowercase().strip_prefix("content-length:") {
            Some(number) => length = number.trim().parse().ok()?,
            None if line.trim().is_empty() => break,
            None => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).await.ok()?;
    Some((first.split(' ').nth(1)?.to_owned(), serde_json::from_slice(&body).ok()?))
}

/// An answer to a claim: one event.
fn claimed() -> Value {
    let event = json!({"id": 7, "title": "t", "tags": "a", "payload": 17, "priority": 0, "retry_count": 0, "attempt": 1,
        "max_retries": 3, "lease_id": 70, "lease_expires_at": "", "created_at": "2026-03-09T12:00:00Z", "labels": {}});
    json!({"events": [event]})
}

/// Ends the worker after it has done this, and counts how often it ran.
struct Once<F>(Worker, Arc<AtomicUsize>, F);

impl<F: Fn() -> Outcome + Send + Sync + 'static> Handler for Once<F> {
    async fn handle(&self, _event: Arc<ClaimedEvent>, _job: Job) -> Outcome {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.drain();
        (self.2)()
    }
}

#[tokio::test]
async fn a_handler_that_panics_fails_its_event() {
    let server = Server::start(|path, _| match path {
        "/events/claim" => Some((200, claimed())),
        _ => Some((200, json!({}))),
    })
    .await;
    let worker = server.worker();
    worker.run(Once(worker.clone(), Arc::default(), || panic!("on purpose"))).await.unwrap();
    let failed = server.bodies("/events/7/fail");
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert_eq!(
        (&failed[0]["error_message"], &failed[0]["retryable"], &failed[0]["lease_id"]),
        (&json!("the handler panicked"), &json!(true), &json!(70))
    );
}

/// The answer to a claim was lost. When it is repeated, somebody else may have the event.
#[tokio::test]
async fn an_event_that_is_not_held_any_more_is_not_worked_on() {
    let server = Server::start(|path, number| match (path, number) {
        ("/events/claim", 0) => None,
        ("/events/claim", 1) => Some((200, claimed())),
        ("/events/7/heartbeat", _) => Some((409, json!({"code": "lease_lost", "retryable": false, "effect": "none"}))),
        _ => Some((401, json!({}))),
    })
    .await;
    let worker = server.worker();
    let ran = Arc::new(AtomicUsize::new(0));
    // The third claim is refused, which ends the worker.
    let handler = Once(worker.clone(), Arc::clone(&ran), || Outcome::Complete { result: None });
    assert!(worker.run(handler).await.is_err());
    assert_eq!(ran.load(Ordering::Relaxed), 0);
    let claims = server.bodies("/events/claim");
    assert_eq!(claims[0]["idempotency_key"], claims[1]["idempotency_key"]);
    assert_ne!(claims[0]["idempotency_key"], claims[2]["idempotency_key"]);
    assert_eq!((server.bodies("/events/7/heartbeat").len(), server.bodies("/events/7/complete").len()), (1, 0));
}

#[tokio::test]
async fn a_settlement_is_sent_until_it_is_answered() {
    let server = Server::start(|path, number| match (path, number) {
        ("/events/claim", _) => Some((200, claimed())),
        (_, 0) => None,
        (_, 1) => Some((503, json!({"retryable": true}))),
        _ => Some((200, json!({}))),
    })
    .await;
    let worker = server.worker();
    worker.run(Once(worker.clone(), Arc::default(), || Outcome::Complete { result: None })).await.unwrap();
    assert_eq!((server.bodies("/events/7/complete").len(), worker.unsettled()), (3, 0));
}

#[tokio::test]
async fn a_settlement_that_is_refused_is_not_sent_again() {
    let server = Server::start(|path, _| match path {
        "/events/claim" => Some((200, claimed())),
        _ => Some((409, json!({"code": "lease_lost", "retryable": false, "effect": "none"}))),
    })
    .await;
    let worker = server.worker();
    worker.run(Once(worker.clone(), Arc::default(), || Outcome::Complete { result: None })).await.unwrap();
    assert_eq!(server.bodies("/events/7/complete").len(), 1);
}
