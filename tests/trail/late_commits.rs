//! Entries that are committed after others with higher ids.

use serde_json::Value;

use super::{Writers, add_entry, all_ids, entry_of, ids_of};
use crate::support::event_stream::EventStream;
use crate::support::locks::HeldRow;
use crate::support::{App, Options, within_patience};

fn workers_of(page: &Value) -> Vec<&str> {
    page["logs"].as_array().expect("logs").iter().map(|entry| entry["worker_id"].as_str().expect("a worker")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_waits_for_an_entry_that_is_committed_late_and_sends_it_first() {
    let app = App::start().await;
    let mut stream = EventStream::open(&app, "").await;
    let late = HeldRow::with_uncommitted(&app, &entry_of("late:1")).await;
    add_entry(&app, "early:1").await;
    let mut other = EventStream::open(&app, "").await;
    late.unlock().await;
    for stream in [&mut stream, &mut other] {
        assert_eq!(stream.entry().await["worker_id"], "late:1");
        assert_eq!(stream.entry().await["worker_id"], "early:1");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_is_never_committed_holds_nobody_back() {
    let app = App::start().await;
    let mut stream = EventStream::open(&app, "").await;
    let mut late = HeldRow::with_uncommitted(&app, &entry_of("late:1")).await;
    add_entry(&app, "early:1").await;
    late.execute("ROLLBACK").await;
    assert_eq!(stream.entry().await["worker_id"], "early:1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_ends_before_an_entry_that_may_come_and_the_next_page_has_it() {
    let app = App::start().await;
    add_entry(&app, "first:1").await;
    let late = HeldRow::with_uncommitted(&app, &entry_of("late:1")).await;
    add_entry(&app, "early:1").await;
    for query in ["/logs", "/logs?limit=1", "/logs?event_id=1", "/logs?action=PICKED"] {
        let page = app.get(query).await.expect(200).json();
        assert!(["[]", "[\"first:1\"]"].contains(&format!("{:?}", workers_of(&page)).as_str()), "{query}: {page}");
        assert!(page["next"].is_string() && page["tail"].is_null(), "{query}: {page}");
    }
    let first = app.get("/logs").await.expect(200).json();
    assert!(first["searched_to"].is_string(), "{first}");
    let descending = app.get("/logs?order=desc").await.expect(200).json();
    assert_eq!(workers_of(&descending), ["early:1", "first:1"], "what is committed can be seen");
    late.unlock().await;
    let second = app.get_after("/logs", first["next"].as_str().expect("a cursor")).await.expect(200).json();
    assert_eq!([workers_of(&first), workers_of(&second)].concat(), ["first:1", "late:1", "early:1"]);
    assert!(second["next"].is_null() && second["tail"].is_string(), "{second}");
}

/// What was settled before the transaction began is known to a server that has looked at it then.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_transaction_does_not_hide_what_was_there_before_it() {
    let app = App::start().await;
    add_entry(&app, "first:1").await;
    let before = app.get("/logs").await.expect(200).json();
    let late = HeldRow::with_uncommitted(&app, &entry_of("late:1")).await;
    let during = app.get("/logs").await.expect(200).json();
    assert_eq!((workers_of(&during), &during["logs"]), (vec!["first:1"], &before["logs"]));
    late.unlock().await;
}

/// A server that has just started knows of no settled id while a writer is open. It must not take that for the
/// beginning of the log.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_a_new_server_does_not_begin_with_old_entries() {
    let app = App::start().await;
    add_entry(&app, "old:1").await;
    let late = HeldRow::with_uncommitted(&app, &entry_of("late:1")).await;
    let (url, flags) = (Some(app.url.clone()), vec!["--stream-heartbeat-ms=1000".to_owned()]);
    let started = App::start_with(Options { flags, url, ..Options::default() }).await;
    let mut stream = EventStream::ask(&started, "").await;
    // Many looks at the writers fit between two heartbeats.
    while stream.block().await.expect("a block").comment.is_none() {}
    assert_eq!(stream.last_id, "", "its position is not known yet");
    late.unlock().await;
    stream.until_begun().await;
    add_entry(&app, "new:1").await;
    assert_eq!(stream.entry().await["worker_id"], "new:1");
}

/// Follows the log with cursors until this many entries have come.
async fn poll(app: &App, count: usize) -> Vec<i64> {
    let mut ids = Vec::new();
    let mut page = app.get("/logs?limit=7").await.expect(200).json();
    loop {
        ids.extend(ids_of(&page));
        if ids.len() >= count {
            return ids;
        }
        let cursor = page["next"].as_str().or(page["tail"].as_str()).expect("a cursor");
        page = app.get_after("/logs?limit=7", cursor).await.expect(200).json();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn under_many_late_commits_streams_and_pollers_get_each_entry_once_and_in_order() {
    let app = App::start().await;
    let mut stream = EventStream::open(&app, "").await;
    let Writers { tasks, entries } = Writers::start(&app.url, 8, 60);
    let (streamed, polled) = tokio::join!(stream.ids(entries), within_patience(poll(&app, entries)));
    tasks.join_all().await;
    let all = all_ids(&app.url).await;
    assert_eq!(streamed, all);
    assert_eq!(polled, all);
    add_entry(&app, "last:1").await;
    assert_eq!(stream.entry().await["worker_id"], "last:1", "and nothing else");
}
