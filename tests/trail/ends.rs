//! How streams end.

use std::time::Duration;

use chrono::TimeDelta;
use serde_json::json;

use super::add_entry;
use crate::restores::noticing::simulate_restore;
use crate::support::event_stream::EventStream;
use crate::support::{App, Options, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_when_its_key_is_revoked_and_others_go_on() {
    let app = App::with_keys().await;
    let key = app.make_key(json!({"scopes": ["read"]})).await;
    let mut stream = EventStream::open(&app.holding(&key), "").await;
    let mut other = EventStream::open(&app, "").await;
    app.post_empty(&format!("/keys/{}/revoke", key.id)).await.expect(200);
    assert_eq!(stream.rest().await, (Vec::new(), "key_revoked".to_owned()));
    add_entry(&app, "w:1").await;
    assert_eq!(other.entry().await["worker_id"], "w:1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_when_its_key_expires() {
    let flags = vec!["--poll-interval-ms=10".to_owned()];
    let app = App::start_with(Options { fixed_clock: true, flags, ..Options::default() }).await.with_admin_key().await;
    let key = app.make_key(json!({"scopes": ["read"], "expires_at": app.now() + TimeDelta::minutes(1)})).await;
    let mut stream = EventStream::open(&app.holding(&key), "").await;
    app.advance(61);
    assert_eq!(stream.rest().await.1, "key_expired");
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_without_a_key_end_when_keys_are_required() {
    let app = App::start().await;
    let mut stream = EventStream::open(&app, "").await;
    app.make_key(json!({"scopes": ["admin"]})).await;
    assert_eq!(stream.rest().await.1, "unauthenticated");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_open_streams_stops_promptly_and_says_so() {
    let app = App::start().await;
    let mut streams = Vec::new();
    for _ in 0..20 {
        streams.push(EventStream::open(&app, "").await);
    }
    tokio::time::timeout(Duration::from_secs(4), app.stop()).await.expect("streams do not hold it up");
    for stream in &mut streams {
        assert_eq!(stream.rest().await, (Vec::new(), "server_stopping".to_owned()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_end_when_the_database_was_restored_and_can_go_on_behind_what_stands() {
    let app = App::start().await;
    let mut stream = EventStream::open(&app, "").await;
    add_entry(&app, "before:1").await;
    stream.entry().await;
    simulate_restore(&app).await;
    assert_eq!(stream.rest().await.1, "history_changed");
    let mut again = EventStream::open_behind(&app, "", &stream.last_id).await;
    add_entry(&app, "after:1").await;
    assert_eq!(again.entry().await["worker_id"], "after:1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_too_many_is_refused_until_another_one_has_ended() {
    let flags = vec!["--max-streams=3".to_owned()];
    let app = App::start_with(Options { flags, ..Options::default() }).await;
    let other = app.namespace("other").await;
    let first = EventStream::open(&app, "").await;
    let _second = EventStream::open(&app, "").await;
    let problem = app.get("/logs/stream").await.problem(429, "overloaded");
    assert_eq!(problem["detail"], "2 streams are open already, and the namespace may have no more");
    let third = EventStream::open(&other, "").await;
    let problem = other.get("/logs/stream").await.problem(429, "overloaded");
    assert_eq!(problem["detail"], "3 streams are open already, and the server may have no more");
    drop((first, third));
    until("the clients are gone", async || app.get("/logs/stream").await.status == 200).await;
}
