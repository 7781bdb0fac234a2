//! Several servers on one database wake each other's waiters.

use diesel_async::SimpleAsyncConnection;
use futures_util::future::join_all;
use serde_json::{Value, json};
use waybill::domain::ids::NamespaceId;
use waybill::engine::waiting::low_water_marks::QueuePosition;
use waybill::store::connection::connect::open;
use waybill::store::tables::ready::QueueKey;

use super::{LISTENERS, Waiter, flags};
use crate::support::{App, Options, database, until, within_patience};

async fn two_servers(line: &str) -> (App, App) {
    let one = App::start_with(Options { flags: flags(line), ..Options::default() }).await;
    let options = Options { flags: flags(line), url: Some(one.url.clone()), ..Options::default() };
    let other = App::start_with(options).await;
    (one, other)
}

/// Two servers that learn of each other's work by `NOTIFY` and not by polling.
async fn two_listening_servers() -> (App, App) {
    let servers = two_servers("--poll-interval-ms 60000").await;
    until("both listen", async || servers.0.count(LISTENERS).await == 2).await;
    servers
}

/// Asserts that one server delivers what is published on the other. It does so twice, because a
/// server polls once when it begins to listen, which may have delivered the first event.
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
    let events: Vec<Value> = (0..1_000).map(|n| json!({"title": "t", "tags": format!("a{n},b{n}")})).collect();
    one.post("/events/batch", &json!({"events": events})).await.expect(201);
    assert_eq!(waiter.event().await["tags"], "a777,b777");
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

/// Terminates every server's listening connection, and waits until they are gone.
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
async fn events_published_while_no_server_listened_are_found_when_one_listens_again() {
    let (one, other) = two_listening_servers().await;
    deliver_across(&one, &other).await;
    let waiter = Waiter::enter(&other, "a", "w:1").await;
    cut_listeners(&one).await;
    let id = one.publish_tagged("a").await;
    assert_eq!(waiter.event().await["id"], id);
}

/// Sends many events through both servers, which raises their low-water marks.
async fn raise_low_water_marks(one: &App, other: &App) {
    for (publisher, worker) in [(one, other), (other, one)] {
        let events: Vec<Value> = (0..300).map(|_| json!({"title": "t", "tags": "a"})).collect();
        publisher.post("/events/batch", &json!({"events": events})).await.expect(201);
        while !worker.claim_batch("a", "w:1", 100).await.is_empty() {}
        assert!(low_water_mark(worker) > QueuePosition::BEGINNING);
    }
}

fn low_water_mark(app: &App) -> QueuePosition {
    app.engine().low_water_marks().of(&[QueueKey::of_tag(NamespaceId::DEFAULT, "a")])[0]
}

/// Publishes events of several priorities on one server and delivers them on the other,
/// alternately. Most of them belong before the other server's low-water mark.
async fn deliver_alternately(one: &App, other: &App, priorities: &[i64]) {
    raise_low_water_marks(one, other).await;
    for priority in priorities {
        for (publisher, deliverer) in [(one, other), (other, one)] {
            let waiter = Waiter::enter(deliverer, "a", "w:1").await;
            let id = publisher.publish(json!({"title": "t", "tags": "a", "priority": priority})).await;
            assert_eq!(waiter.event().await["id"], id);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_low_water_mark_of_one_server_does_not_hide_events_published_on_the_other() {
    let (one, other) = two_listening_servers().await;
    let priorities: Vec<i64> = (0..20).map(|n| [0, 5, -3, 100, 1][n % 5]).collect();
    deliver_alternately(&one, &other, &priorities).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_notifications_the_low_water_mark_of_one_server_does_not_hide_events_published_on_the_other() {
    let (one, other) = two_servers("--poll-interval-ms 10 --notify false").await;
    deliver_alternately(&one, &other, &[0; 20]).await;
    // Work before a low-water mark is found by the catch-up scan, some seconds later.
    deliver_alternately(&one, &other, &[5]).await;
}

/// A publisher on one server takes its sequence number and is blocked until the other server has
/// claimed what came after it. Then it commits, and the other server must deliver it.
async fn deliver_a_late_commit(one: &App, other: &App) {
    raise_low_water_marks(one, other).await;
    let hold_up = "CREATE FUNCTION hold_up() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                       PERFORM pg_advisory_xact_lock(1); RETURN NEW; END $$; \
                   CREATE TRIGGER hold_up BEFORE INSERT ON waybill.deliveries \
                       FOR EACH ROW WHEN (NEW.max_retries = 7) EXECUTE FUNCTION hold_up()";
    database::execute(&one.url, hold_up).await;
    let mut holder = database::connection(&one.url).await;
    holder.batch_execute("SELECT pg_advisory_lock(1)").await.expect("a lock");
    let number = one.count("SELECT last_value + 1 FROM waybill.ready_seq").await;

    let late =
        one.client.post(format!("{}/events", one.base)).json(&json!({"title": "late", "tags": "a", "max_retries": 7}));
    let late = tokio::spawn(async move { late.send().await.expect("a response").status() });
    one.until_blocked_calls(1).await;
    let events: Vec<Value> = (0..50).map(|_| json!({"title": "t", "tags": "a"})).collect();
    one.post("/events/batch", &json!({"events": events})).await.expect(201);
    assert_eq!(other.claim_batch("a", "w:1", 50).await.len(), 50);
    assert!(low_water_mark(other).seq > number, "the low-water mark of the other server is behind the late event");
    let waiter = Waiter::enter(other, "a", "w:2").await;

    holder.batch_execute("SELECT pg_advisory_unlock(1)").await.expect("no lock");
    assert_eq!(within_patience(late).await.expect("no panic"), 201);
    assert_eq!(waiter.event().await["title"], "late");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_is_committed_late_is_delivered_by_the_other_server() {
    let (one, other) = two_listening_servers().await;
    deliver_a_late_commit(&one, &other).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_notifications_an_event_that_is_committed_late_is_delivered_by_the_other_server() {
    let (one, other) = two_servers("--poll-interval-ms 10 --notify false").await;
    deliver_a_late_commit(&one, &other).await;
}

/// Publishes `publishes` events from `callers` callers at once. Returns how many notifications were
/// sent.
async fn notifications_for(app: &App, callers: usize, publishes: usize) -> usize {
    let mut listener = open(&app.url, "LISTEN waybill_ready").await.expect("it listens");
    join_all((0..callers).map(async |_| {
        for _ in 0..publishes / callers {
            app.publish_tagged("a").await;
        }
    }))
    .await;
    database::execute(&app.url, "NOTIFY waybill_ready, 'the end'").await;
    let mut count = 0;
    while within_patience(listener.notifications.recv()).await.expect("a notification") != "the end" {
        count += 1;
    }
    count
}

#[tokio::test(flavor = "multi_thread")]
async fn many_publishes_at_once_are_few_notifications() {
    let app = App::start().await;
    let heard = notifications_for(&app, 50, 500).await;
    assert!((1..=100).contains(&heard), "{heard} notifications of 500 publishes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_notifications_sends_none() {
    let app = App::start_with(Options { flags: flags("--notify false"), ..Options::default() }).await;
    assert_eq!(notifications_for(&app, 1, 50).await, 0);
}
