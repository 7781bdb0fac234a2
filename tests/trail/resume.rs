//! Streams that go on where they were.

use super::{Writers, add_entry, all_ids, entry_of};
use crate::support::event_stream::EventStream;
use crate::support::locks::HeldRow;
use crate::support::{App, Options, Rng, database};

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_goes_on_across_restarts_with_no_gap_and_no_repeat_under_late_commits() {
    let url = database::migrated().await;
    let start = async || App::start_with(Options { url: Some(url.clone()), ..Options::default() }).await;
    let mut app = start().await;
    let mut stream = EventStream::open(&app, "").await;
    let Writers { tasks, entries } = Writers::start(&url, 6, 120);
    let (mut rng, mut received, mut restarts) = (Rng::new(7), Vec::new(), 0);
    while received.len() < entries {
        let wanted = (rng.below(150) as usize + 1).min(entries - received.len());
        received.extend(stream.ids(wanted).await);
        let mut last_id = stream.last_id.clone();
        if rng.one_in(2) {
            // The connection is cut, with entries on their way.
            drop(stream);
            app.stop().await;
        } else {
            let ((rest, reason), ()) = tokio::join!(stream.rest(), app.stop());
            assert_eq!(reason, "server_stopping");
            received.extend(rest);
            last_id = stream.last_id;
        }
        app = start().await;
        stream = EventStream::open_behind(&app, "", &last_id).await;
        restarts += 1;
    }
    tasks.join_all().await;
    assert_eq!(received, all_ids(&url).await);
    assert!(restarts > 3, "only {restarts} restarts");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_came_while_nobody_listened_is_sent_on_return() {
    let app = App::start().await;
    let mut stream = EventStream::open(&app, "").await;
    add_entry(&app, "first:1").await;
    stream.entry().await;
    let last_id = stream.last_id.clone();
    drop(stream);
    let missed = "INSERT INTO waybill.event_log (event_id, action, lease_id, attempt, worker_id) \
                  SELECT 1, 'PICKED', 1, 1, 'missed:' || n FROM generate_series(1, 5000) AS n";
    database::execute(&app.url, missed).await;
    let mut stream = EventStream::open_behind(&app, "", &last_id).await;
    assert_eq!(stream.last_id, last_id);
    let ids = stream.ids(5_000).await;
    assert_eq!(ids, all_ids(&app.url).await[1..]);
    let late = HeldRow::with_uncommitted(&app, &entry_of("late:1")).await;
    late.unlock().await;
    assert_eq!(stream.entry().await["worker_id"], "late:1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_goes_on_at_another_server() {
    let app = App::start().await;
    let other = App::start_with(Options { url: Some(app.url.clone()), ..Options::default() }).await;
    let mut stream = EventStream::open(&app, "").await;
    add_entry(&app, "first:1").await;
    stream.entry().await;
    add_entry(&app, "second:1").await;
    let mut elsewhere = EventStream::open_behind(&other, "", &stream.last_id).await;
    assert_eq!(elsewhere.entry().await["worker_id"], "second:1");
    assert_eq!(elsewhere.last_id, {
        stream.entry().await;
        stream.last_id
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_survives_the_loss_of_all_connections_to_the_database() {
    let app = App::start().await;
    let mut stream = EventStream::open(&app, "").await;
    add_entry(&app, "first:1").await;
    stream.entry().await;
    let others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
    database::execute(&app.url, &format!("SELECT pg_terminate_backend(pid) {others}")).await;
    add_entry(&app, "second:1").await;
    assert_eq!(stream.entry().await["worker_id"], "second:1");
}
