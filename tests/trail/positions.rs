//! Where streams begin, and positions that streams and lists exchange.

use reqwest::Response;

use super::{add_entry, all_ids, ids_of};
use crate::support::event_stream::EventStream;
use crate::support::{App, Options, Reply};

async fn open(app: &App, query: &str, last_id: &str) -> Response {
    let request = app.client.get(format!("{}/logs/stream{query}", app.base)).header("Last-Event-ID", last_id);
    request.send().await.expect("a response")
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_as_the_last_event_id_is_refused_by_name() {
    let app = App::start().await;
    for id in ["17", "x", "wb_1", &"A".repeat(600)] {
        Reply::of(open(&app, "", id).await).await.names(&["Last-Event-ID"]);
    }
    Reply::of(open(&app, "?colour=red", "17").await).await.names(&["Last-Event-ID", "colour"]);
    app.get("/logs/stream?after=17").await.names(&["after"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_of_a_stream_with_other_filters_is_refused() {
    let app = App::start().await;
    let stream = EventStream::open(&app, "?action=PICKED").await;
    let problem = Reply::of(open(&app, "", &stream.last_id).await).await.problem(400, "cursor_mismatch");
    assert_eq!(problem["errors"][0]["field"], "Last-Event-ID", "{problem}");
    app.get_after("/logs/stream", &stream.last_id).await.problem(400, "cursor_mismatch");
    app.get_after("/logs/stream?action=PICKED", &stream.last_id).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn cursors_of_the_list_and_ids_of_streams_are_the_same() {
    let app = App::start().await;
    for n in 1..=4 {
        add_entry(&app, &format!("w:{n}")).await;
    }
    let all = all_ids(&app.url).await;
    let next = app.next_of("/logs?limit=1").await;
    let mut stream = EventStream::open_behind(&app, "", &next).await;
    assert_eq!(stream.last_id, next);
    assert_eq!(stream.ids(1).await, [all[1]]);
    assert_eq!(app.next_of("/logs?limit=2").await, stream.last_id);
    assert_eq!(ids_of(&app.get_after("/logs", &stream.last_id).await.expect(200).json()), all[2..]);
    assert_eq!(stream.ids(2).await, all[2..]);
    let end = app.get_after("/logs", &stream.last_id).await.expect(200).json();
    assert_eq!((ids_of(&end), end["tail"].as_str()), (vec![], Some(stream.last_id.as_str())));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tail_of_the_last_page_leads_to_what_comes_later_in_the_list_and_in_a_stream() {
    let app = App::start().await;
    let empty = app.get("/logs").await.expect(200).json();
    let tail = empty["tail"].as_str().expect("a cursor").to_owned();
    add_entry(&app, "first:1").await;
    assert_eq!(app.get_after("/logs", &tail).await.expect(200).json()["logs"][0]["worker_id"], "first:1");
    let mut stream = EventStream::open_behind(&app, "", &tail).await;
    assert_eq!(stream.entry().await["worker_id"], "first:1");
    let descending = app.get("/logs?order=desc").await.expect(200).json();
    assert!(descending["tail"].is_null(), "{descending}");
    let page = app.get("/logs?limit=1").await.expect(200).json();
    assert!(page["tail"].is_null() && page["next"].is_string(), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_header_is_newer_than_the_cursor_in_the_url() {
    let app = App::start().await;
    add_entry(&app, "first:1").await;
    let first = app.next_of("/logs?limit=1").await;
    add_entry(&app, "second:1").await;
    let second = app.next_of("/logs?limit=2").await;
    add_entry(&app, "third:1").await;
    let mut stream = EventStream::open(&app, &format!("?after={first}")).await;
    assert_eq!(stream.entry().await["worker_id"], "second:1");
    let mut again = EventStream::open_behind(&app, &format!("?after={first}"), &second).await;
    assert_eq!(again.entry().await["worker_id"], "third:1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_begins_now_or_at_the_time_that_is_asked_for() {
    let app = App::with_fixed_clock().await;
    for tag in ["a", "b", "c"] {
        app.publish_tagged(tag).await;
        app.claim(tag, "w:1").await.expect("an event");
        app.advance(60);
    }
    let entries = app.get("/logs").await.expect(200).json();
    let (all, time) = (ids_of(&entries), entries["logs"][1]["created_at"].as_str().expect("a time").to_owned());
    let mut since = EventStream::open(&app, &format!("?since={time}")).await;
    assert_eq!(since.ids(2).await, all[1..]);
    let mut now = EventStream::open(&app, "").await;
    app.publish_tagged("d").await;
    app.claim("d", "w:1").await.expect("an event");
    assert_eq!(now.entry().await["id"], since.entry().await["id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_has_the_position_even_if_no_entry_matches() {
    let flags = vec!["--stream-heartbeat-ms=1000".to_owned()];
    let app = App::start_with(Options { flags, ..Options::default() }).await;
    let mut stream = EventStream::open(&app, "?worker_id=nobody:1").await;
    let begun_at = stream.last_id.clone();
    add_entry(&app, "somebody:1").await;
    while stream.last_id == begun_at {
        let block = stream.block().await.expect("a heartbeat");
        assert_eq!((block.event, block.comment.as_deref()), (None, Some("heartbeat")));
    }
    let mut again = EventStream::open_behind(&app, "?worker_id=nobody:1", &stream.last_id).await;
    add_entry(&app, "nobody:1").await;
    assert_eq!(again.entry().await["worker_id"], "nobody:1");
}
