//! What streams send.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{add_entry, ids_of};
use crate::support::event_stream::EventStream;
use crate::support::{App, within_patience};

/// Ann fails the event with the tag `one`, bob starts and completes the one with the tag `two`.
async fn work_on_two(app: &App, first: i64, second: i64) {
    app.claim("one", "ann:1").await.expect("an event");
    app.claim("two", "bob:2").await.expect("an event");
    let failure = json!({"worker_id": "ann:1", "error_message": "no route"});
    app.post(&format!("/events/{first}/fail"), &failure).await.expect(200);
    app.post(&format!("/events/{second}/start"), &json!({"worker_id": "bob:2"})).await.expect(200);
    app.complete(second, "bob:2").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_sends_what_the_list_has() {
    let app = App::start().await;
    let (first, second) = (app.publish_tagged("one").await, app.publish_tagged("two").await);
    let mut stream = EventStream::open(&app, "").await;
    assert_eq!(stream.header("content-type"), Some("text/event-stream"));
    assert_eq!(stream.header("cache-control"), Some("no-store"));
    assert_eq!(stream.header("x-accel-buffering"), Some("no"));
    work_on_two(&app, first, second).await;
    let listed = app.get("/logs").await.expect(200).json();
    assert_eq!(ids_of(&listed).len(), 5);
    for entry in listed["logs"].as_array().expect("logs") {
        assert_eq!(stream.entry().await, *entry);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_has_the_filters_of_the_list() {
    let app = App::start().await;
    let (first, second) = (app.publish_tagged("one").await, app.publish_tagged("two").await);
    let filters = [
        format!("?event_id={first}"),
        format!("?event_id={second}&action=STARTED"),
        "?worker_id=bob:2".to_owned(),
        "?action=FAILED".to_owned(),
        "?action=PICKED&worker_id=ann:1".to_owned(),
        "?since=2020-01-01T00:00:00Z".to_owned(),
        "?until=2999-01-01T00:00:00Z&action=COMPLETED".to_owned(),
    ];
    let mut streams = Vec::new();
    for filter in &filters {
        streams.push(EventStream::open(&app, filter).await);
    }
    let mut nothing = EventStream::open(&app, "?until=2020-01-01T00:00:00Z").await;
    work_on_two(&app, first, second).await;
    for (filter, stream) in filters.iter().zip(&mut streams) {
        let listed = ids_of(&app.get(&format!("/logs{filter}")).await.expect(200).json());
        assert!(!listed.is_empty(), "{filter}");
        assert_eq!(stream.ids(listed.len()).await, listed, "{filter}");
        // From the beginning, it is read in pages.
        let filter =
            if filter.contains("since") { filter.clone() } else { format!("{filter}&since=2020-01-01T00:00:00Z") };
        assert_eq!(EventStream::open(&app, &filter).await.ids(listed.len()).await, listed, "{filter}");
    }
    // What does not match is not sent between, or after.
    app.stop().await;
    for stream in streams.iter_mut().chain([&mut nothing]) {
        assert_eq!(stream.rest().await, (Vec::new(), "server_stopping".to_owned()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn namespaces_never_meet_in_a_stream() {
    let app = App::start().await;
    let (north, south) = (app.namespace("north").await, app.namespace("south").await);
    let mut streams = Vec::new();
    for team in [&app, &north, &south] {
        streams.push(EventStream::open(team, "").await);
    }
    for round in 0..5 {
        for team in [&app, &north, &south] {
            team.publish_tagged("a").await;
            team.claim("a", &format!("w:{round}")).await.expect("an event");
        }
    }
    for (team, stream) in [&app, &north, &south].into_iter().zip(&mut streams) {
        let own = ids_of(&team.get("/logs").await.expect(200).json());
        assert_eq!(own.len(), 5);
        assert_eq!(stream.ids(5).await, own);
        // From the beginning, it is read in pages.
        assert_eq!(EventStream::open(team, "?since=2020-01-01T00:00:00Z").await.ids(5).await, own);
    }
    app.stop().await;
    for stream in &mut streams {
        assert_eq!(stream.rest().await, (Vec::new(), "server_stopping".to_owned()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn error_messages_are_hidden_from_keys_without_the_scope_reveal() {
    let app = App::with_keys().await;
    let revealing = app.make_key(json!({"scopes": ["read", "reveal"]})).await;
    let mut hidden = EventStream::open(&app.holder_of("read").await, "?action=FAILED").await;
    let mut shown = EventStream::open(&app.holding(&revealing), "?action=FAILED").await;
    let (first, second) = (app.publish_tagged("one").await, app.publish_tagged("two").await);
    work_on_two(&app, first, second).await;
    let entry = hidden.entry().await;
    assert_eq!((&entry["hidden"], entry.get("error_message")), (&json!(["error_message"]), None));
    assert_eq!(shown.entry().await["error_message"], "no route");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_http_1_0_reads_until_the_connection_ends() {
    let app = App::start().await;
    let mut socket = TcpStream::connect(app.base.trim_start_matches("http://")).await.expect("a connection");
    socket
        .write_all(b"GET /logs/stream HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n")
        .await
        .expect("sent");
    let mut received = Vec::new();
    while !contains(&received, "\nid: ") {
        within_patience(socket.read_buf(&mut received)).await.expect("bytes");
    }
    add_entry(&app, "w:1").await;
    while !contains(&received, "\"w:1\"") {
        within_patience(socket.read_buf(&mut received)).await.expect("bytes");
    }
    app.stop().await;
    within_patience(socket.read_to_end(&mut received)).await.expect("the end");
    let text = String::from_utf8(received).expect("text");
    assert!(text.ends_with("event: end\ndata: {\"reason\":\"server_stopping\"}\n\n"), "{text}");
    assert!(!text.to_lowercase().contains("chunked"), "{text}");
}

fn contains(bytes: &[u8], part: &str) -> bool {
    bytes.windows(part.len()).any(|window| window == part.as_bytes())
}
