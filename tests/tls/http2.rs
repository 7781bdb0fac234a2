//! HTTP/2 over TLS.

use bytes::Bytes;
use h2::client::SendRequest;
use http::{Method, Request, Response};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::{TlsApp, connect};
use crate::support::{until, within_patience};
#[cfg(feature = "otlp")]
use crate::traces::Collector;

/// A connection of HTTP/2. It is closed when it is dropped.
struct Connection {
    requests: SendRequest<Bytes>,
    driver: JoinHandle<Result<(), h2::Error>>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Connection {
    async fn to(app: &TlsApp) -> Self {
        Connection::with(app, &h2::client::Builder::new()).await
    }

    async fn with(app: &TlsApp, builder: &h2::client::Builder) -> Self {
        let stream = app.connect("h2").await;
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let (requests, connection) = builder.handshake(stream).await.expect("HTTP/2");
        Connection { requests, driver: tokio::spawn(connection) }
    }

    /// Sends a request. Returns its response, with the body.
    async fn send(&mut self, method: Method, path: &str, body: Option<Value>) -> Response<Bytes> {
        let (response, _) = self.begin(method, path, body);
        read(within_patience(response).await.expect("a response")).await
    }

    /// Sends a request, and returns at once.
    fn begin(
        &mut self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> (h2::client::ResponseFuture, h2::SendStream<Bytes>) {
        let mut request = Request::builder().method(method).uri(format!("https://localhost{path}"));
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let request = request.body(()).expect("a request");
        let (response, mut sending) = self.requests.send_request(request, body.is_none()).expect("a connection");
        if let Some(body) = body {
            sending.send_data(Bytes::from(body.to_string()), true).expect("a connection");
        }
        (response, sending)
    }
}

async fn read(response: Response<h2::RecvStream>) -> Response<Bytes> {
    let (head, mut body) = response.into_parts();
    let mut bytes = Vec::new();
    while let Some(chunk) = within_patience(body.data()).await {
        let chunk = chunk.expect("a body");
        body.flow_control().release_capacity(chunk.len()).expect("a stream");
        bytes.extend_from_slice(&chunk);
    }
    Response::from_parts(head, bytes.into())
}

fn json_of(response: &Response<Bytes>) -> Value {
    serde_json::from_slice(response.body()).expect("JSON")
}

const SUBSCRIBE: &str = "/events/subscribe?tags=a&worker_id=w:1";

#[tokio::test(flavor = "multi_thread")]
async fn http2_is_offered_and_serves_the_same_routes() {
    let app = TlsApp::start().await;
    let mut connection = Connection::to(&app).await;
    let event = json!({"title": "t", "tags": "a", "payload": "x".repeat(300_000)});
    let published = connection.send(Method::POST, "/events", Some(event)).await;
    assert_eq!(published.status(), 201, "{published:?}");
    assert!(published.headers().contains_key("x-request-id"));
    let id = json_of(&published)["id"].clone();
    let claimed = connection.send(Method::GET, SUBSCRIBE, None).await;
    assert_eq!((claimed.status().as_u16(), &json_of(&claimed)["id"]), (200, &id));
    let body = json!({"worker_id": "w:1"});
    let completed = connection.send(Method::POST, &format!("/events/{id}/complete"), Some(body)).await;
    assert_eq!(completed.status(), 200);
    assert_eq!(connection.send(Method::GET, SUBSCRIBE, None).await.status(), 204);
    let missing = connection.send(Method::GET, "/nowhere", None).await;
    assert_eq!((missing.status().as_u16(), &json_of(&missing)["code"]), (404, &json!("route_not_found")));
    let head = connection.send(Method::HEAD, "/docs", None).await;
    assert_eq!((head.status().as_u16(), head.body().len()), (200, 0));
    assert!(head.headers()["content-length"].to_str().expect("text").parse::<usize>().expect("a number") > 100);
}

/// Bodies without a declared length take their share of the memory for bodies, and have the same limit.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_too_large_is_refused_without_a_declared_length() {
    let app = TlsApp::start().await;
    let mut connection = Connection::to(&app).await;
    let event = json!({"title": "t", "tags": "a", "payload": "x".repeat(3_000_000)});
    let refused = connection.send(Method::POST, "/events", Some(event)).await;
    assert_eq!(
        (refused.status().as_u16(), &json_of(&refused)["code"]),
        (413, &json!("payload_too_large")),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_for_a_foreign_host_is_refused() {
    let app = TlsApp::start().await;
    let mut connection = Connection::to(&app).await;
    let request = Request::get("https://evil.example/events").body(()).expect("a request");
    let (response, _) = connection.requests.send_request(request, true).expect("a connection");
    assert_eq!(within_patience(response).await.expect("a response").status(), 421);
}

#[tokio::test(flavor = "multi_thread")]
async fn long_polls_wait_side_by_side_on_one_connection() {
    let app = TlsApp::start().await;
    let mut connection = Connection::to(&app).await;
    let waiting: Vec<_> = (0..10)
        .map(|worker| {
            let path = format!("/events/subscribe?tags=a&worker_id=w:{worker}&wait_seconds=60");
            connection.begin(Method::GET, &path, None).0
        })
        .collect();
    let hub = app.engine().hub();
    until("they wait", async || hub.len() == 10 && hub.asleep() == 10).await;
    assert_eq!(connection.send(Method::GET, "/health", None).await.status(), 200);
    for _ in 0..10 {
        app.publish_tagged("a").await;
    }
    let mut ids = std::collections::BTreeSet::new();
    for response in waiting {
        let event = read(within_patience(response).await.expect("a response")).await;
        ids.insert(json_of(&event)["id"].as_i64().expect("an id"));
    }
    assert_eq!(ids.len(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_resets_its_request_or_hangs_up_while_it_waits_claims_nothing() {
    let app = TlsApp::start().await;
    let hub = app.engine().hub();
    let mut connection = Connection::to(&app).await;
    let (response, mut sending) = connection.begin(Method::GET, &format!("{SUBSCRIBE}&wait_seconds=60"), None);
    until("it waits", async || hub.len() == 1 && hub.asleep() == 1).await;
    sending.send_reset(h2::Reason::CANCEL);
    drop(response);
    until("the server notices the reset", async || hub.is_empty()).await;
    assert_eq!(connection.send(Method::GET, "/health", None).await.status(), 200);

    let (_response, _sending) = connection.begin(Method::GET, &format!("{SUBSCRIBE}&wait_seconds=60"), None);
    until("it waits", async || hub.len() == 1 && hub.asleep() == 1).await;
    drop(connection);
    until("the server notices the hang-up", async || hub.is_empty()).await;
    let id = app.publish_tagged("a").await;
    assert_eq!(app.event(id).await["status"], "PENDING");
    assert_eq!(app.actions(id).await, [""; 0]);
}

/// A client that stops reading in the middle of its response cannot have all of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_hangs_up_while_most_of_its_response_is_unsent_loses_its_claim() {
    let app = TlsApp::start().await;
    let id = app.publish(json!({"title": "t", "tags": "a", "payload": "x".repeat(900_000)})).await;
    let mut connection = Connection::to(&app).await;
    let (response, _sending) = connection.begin(Method::GET, SUBSCRIBE, None);
    let response = within_patience(response).await.expect("a response");
    // The window of the stream is full, because the client does not read.
    drop(connection);
    until("the claim is undone", async || app.actions(id).await == ["PICKED", "RELEASED"]).await;
    drop(response);
}

/// The acknowledgements of the kernel say nothing about one of many requests, so a response that has left
/// the server counts as delivered. If the client never got it, the lease ends.
/// The server has the whole response ready, and the client lets it send nothing of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_accepts_no_bytes_of_its_response_and_hangs_up_loses_its_claim() {
    let app = TlsApp::start().await;
    let id = app.publish(json!({"title": "t", "tags": "a"})).await;
    let mut connection = Connection::with(&app, h2::client::Builder::new().initial_window_size(0)).await;
    let (response, _sending) = connection.begin(Method::GET, SUBSCRIBE, None);
    let response = within_patience(response).await.expect("a head");
    assert_eq!(response.status(), 200);
    assert_eq!(app.actions(id).await, ["PICKED"]);
    drop((response, connection));
    until("the claim is undone", async || app.actions(id).await == ["PICKED", "RELEASED"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_vanishes_with_a_sent_response_holds_its_claim_until_the_lease_ends() {
    let app = TlsApp::start().await;
    let id = app.publish_tagged("a").await;
    let mut connection = Connection::to(&app).await;
    let (response, _sending) = connection.begin(Method::GET, &format!("{SUBSCRIBE}&lease_seconds=1"), None);
    within_patience(response).await.expect("a head");
    drop(connection);
    until("the lease ends", async || app.actions(id).await == ["PICKED", "RESET"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_has_at_most_a_hundred_requests_at_once() {
    let app = TlsApp::start().await;
    let mut connection = Connection::to(&app).await;
    // The limit is known with the first response.
    assert_eq!(connection.send(Method::GET, "/health", None).await.status(), 200);
    assert_eq!(connection.requests.current_max_send_streams(), 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_answers_waiting_workers_and_closes_the_connection() {
    let app = TlsApp::start().await;
    let mut connection = Connection::to(&app).await;
    let (response, _sending) = connection.begin(Method::GET, &format!("{SUBSCRIBE}&wait_seconds=60"), None);
    let hub = app.engine().hub().clone();
    until("it waits", async || hub.len() == 1 && hub.asleep() == 1).await;
    within_patience(app.app.stop()).await;
    assert_eq!(within_patience(response).await.expect("a response").status(), 204);
    let _ = within_patience(&mut connection.driver).await.expect("no panic");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_offers_no_known_protocol_is_refused() {
    let app = TlsApp::start().await;
    assert!(connect(app.address(), &[&app.identity], "spdy/3").await.is_err());
    let _: TcpStream = TcpStream::connect(app.address()).await.expect("a connection");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_the_event_log_is_sent_as_it_comes_beside_other_requests() {
    let app = TlsApp::start().await;
    let mut connection = Connection::to(&app).await;
    let response = connection.begin(Method::GET, "/logs/stream", None).0;
    let (head, mut body) = within_patience(response).await.expect("a response").into_parts();
    assert_eq!(
        (head.status.as_u16(), &head.headers["content-type"]),
        (200, &"text/event-stream".parse().expect("a value"))
    );
    let mut text = String::new();
    while !text.contains("\nid: ") {
        text += &next_text(&mut body).await.expect("the position");
    }
    let id = app.publish_tagged("a").await;
    assert_eq!(connection.send(Method::GET, SUBSCRIBE, None).await.status(), 200);
    while !text.contains(&format!("\"event_id\":{id}")) {
        text += &next_text(&mut body).await.expect("an entry");
    }
    let TlsApp { app, .. } = app;
    let ((), end) = tokio::join!(app.stop(), async {
        while let Some(more) = next_text(&mut body).await {
            text += &more;
        }
        text
    });
    assert!(end.ends_with("event: end\ndata: {\"reason\":\"server_stopping\"}\n\n"), "{end}");
}

/// Returns the next bytes of a body, or `None` at its end.
async fn next_text(body: &mut h2::RecvStream) -> Option<String> {
    let bytes = within_patience(body.data()).await?.expect("a body");
    body.flow_control().release_capacity(bytes.len()).expect("a stream");
    Some(String::from_utf8(bytes.to_vec()).expect("text"))
}

#[cfg(feature = "otlp")]
#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_traced_as_those_of_http_1() {
    let collector = Collector::start().await;
    let app = TlsApp::start_with(&[&collector.flag()]).await;
    let mut connection = Connection::to(&app).await;
    let event = json!({"title": "a job", "tags": "a"});
    assert_eq!(connection.send(Method::POST, "/events", Some(event)).await.status(), 201);
    let spans = collector.until_named("POST /events").await;
    let named = |name: &str| spans.iter().find(|span| span.name == name).expect("a span");
    assert_eq!(
        (&named("publish").trace, &named("publish").parent),
        (&named("POST /events").trace, &named("POST /events").id)
    );
    assert_eq!(named("POST /events").attributes["url.path"], "/events");
}
