//! Several servers on one database wake each other's waiters.

use serde_json::{Value, json};

use super::{Waiter, flags};
use crate::support::{App, Options, database, until};

const LISTENERS: &str = "SELECT count(*) FROM pg_stat_activity \
     WHERE datname = current_database() AND state = 'idle' AND query LIKE 'LISTEN waybill%'";

async fn two_servers(line: &str) -> (App, App) {
    let one = App::start_with(Options { flags: flags(line), ..Options::default() }).await;
    let options = Options { flags: flags(line), url: Some(one.url.clone()), ..Options::default() };
    let other = App::start_with(options).await;
    (one, other)
}

/// Two servers that hear of each other's work by `NOTIFY` and not by looking.
async fn two_listening_servers() -> (App, App) {
    let servers = two_servers("--poll-interval-ms 60000").await;
    until("both listen", async || servers.0.count(LISTENERS).await == 2).await;
    servers
}

/// What is published on one is delivered by the other; twice, because a server looks once by
/// itself when it begins to listen, and that may have been what delivered the first.
async fn deliver_across(publisher: &App, deliverer: &App) {
    for _ in 0..2 {
        let waiter = Waiter::enter(deliverer, "a", "w:1").await;
        let id = publisher.publish_tagged("a").await;
        assert_eq!(waiter.event().await["id"], id);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_on_one_server_wakes_a_waiter_of_the_other() {
    let (one, other) = two_listening_servers().await;
    deliver_across(&one, &other).await;
    deliver_across(&other, &one).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_on_one_server_wakes_a_waiter_of_the_other_for_each_of_its_events() {
    let (one, other) = two_listening_servers().await;
    let waiters = [Waiter::enter(&other, "a", "w:1").await, Waiter::enter(&other, "a", "w:2").await];
    one.post("/events/batch", &json!({"events": [{"title": "t", "tags": "a"}, {"title": "t", "tags": "a"}]}))
        .await
        .expect(201);
    for waiter in waiters {
        waiter.event().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn more_new_tags_than_a_notification_lists_still_wake_a_waiter_of_the_other() {
    let (one, other) = two_listening_servers().await;
    deliver_across(&one, &other).await;
    let waiter = Waiter::enter(&other, "a777", "w:1").await;
    let events: Vec<Value> = (0..1_000).map(|n| json!({"title": "t", "tags": format!("a{n}")})).collect();
    one.post("/events/batch", &json!({"events": events})).await.expect(201);
    assert_eq!(waiter.event().await["tags"], "a777");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_on_one_server_wakes_a_waiter_of_the_other() {
    let (one, other) = two_listening_servers().await;
    deliver_across(&one, &other).await;
    let id = one.publish_tagged("b").await;
    one.claim("b", "w:2").await.expect("an event");
    let waiter = Waiter::enter(&other, "b", "w:1").await;
    one.post_empty(&format!("/events/{id}/reset")).await.expect(200);
    assert_eq!(waiter.event().await["id"], id);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_notifications_the_poll_alone_delivers() {
    let (one, other) = two_servers("--poll-interval-ms 10 --notify false").await;
    deliver_across(&one, &other).await;
    assert_eq!(one.count(LISTENERS).await, 0);
}

/// Cuts every server's listening connection, and waits until it is cut.
async fn cut_listeners(app: &App) {
    let now = app.count("SELECT extract(epoch FROM clock_timestamp()) * 1000000").await;
    database::execute(&app.url, &LISTENERS.replace("count(*)", "pg_terminate_backend(pid)")).await;
    let old = format!("{LISTENERS} AND extract(epoch FROM backend_start) * 1000000 <= {now}");
    until("the old connections are gone", async || app.count(&old).await == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_whose_connection_is_cut_listens_again() {
    let (one, other) = two_listening_servers().await;
    cut_listeners(&one).await;
    until("both listen again", async || one.count(LISTENERS).await == 2).await;
    deliver_across(&one, &other).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_published_while_nobody_listened_is_found_when_somebody_listens_again() {
    let (one, other) = two_listening_servers().await;
    deliver_across(&one, &other).await;
    let waiter = Waiter::enter(&other, "a", "w:1").await;
    cut_listeners(&one).await;
    let id = one.publish_tagged("a").await;
    assert_eq!(waiter.event().await["id"], id);
}
