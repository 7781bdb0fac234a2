//! Clients that do not read.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

use crate::support::event_stream::EventStream;
use crate::support::{App, database, within_patience};

/// Entries of about 10 KB that are added at a time, and how often. Together they are twice what the server keeps.
const STEP: usize = 450;
const STEPS: usize = 14;

/// A client that reads as late as possible is told that it was too slow. What the kernels keep for it is not the
/// server's.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_is_cut_off_with_a_reason_and_harms_nobody() {
    let app = App::start().await;
    let mut reading = EventStream::open(&app, "").await;
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a small buffer");
    let address = app.base.trim_start_matches("http://").parse().expect("an address");
    let mut stuck = socket.connect(address).await.expect("a connection");
    stuck.write_all(b"GET /logs/stream HTTP/1.0\r\nHost: localhost\r\n\r\n").await.expect("sent");
    let mut received = vec![0; 17];
    within_patience(stuck.read_exact(&mut received)).await.expect("the status");
    assert!(received.starts_with(b"HTTP/1.0 200"), "{received:?}");

    let add = format!(
        "INSERT INTO waybill.event_log (event_id, action, lease_id, attempt, error_message) \
         SELECT 1, 'FAILED', 1, 1, repeat('x', 10000) FROM generate_series(1, {STEP})"
    );
    let mut ids = Vec::new();
    for _ in 0..STEPS {
        database::execute(&app.url, &add).await;
        ids.extend(reading.ids(STEP).await);
    }
    assert!(ids.is_sorted_by(|one, next| one < next));

    within_patience(stuck.read_to_end(&mut received)).await.expect("an orderly end");
    let text = String::from_utf8(received).expect("text");
    assert!(text.ends_with("event: end\ndata: {\"reason\":\"slow_reader\"}\n\n"), "{}", &text[text.len() - 200..]);
    let sent = text.matches("event: log\n").count();
    assert!(sent < STEP * STEPS / 2, "{sent} entries were sent");

    // It may come back with its last id, and gets the rest.
    let last_id = text.rsplit_once("\nid: ").expect("an id").1.lines().next().expect("a line");
    let mut again = EventStream::open_behind(&app, "", last_id).await;
    assert_eq!(again.ids(ids.len() - sent).await, ids[sent..]);
}
