//! Servers notice that the database has gone back, and drop what they remembered of it.

use serde_json::json;
use waybill::background::promoter;
use waybill::domain::history::JUMP;
use waybill::domain::ids::EventId;

use crate::push::{attempt, fixed, publish, rows, second_server, with_flags};
use crate::support::receiver::{Receiver, Reply};
use crate::support::{App, Options, database, until};

/// Gives the current history another timeline, as after a failover.
pub(super) async fn pretend_to_be_restored(url: &str) {
    let last = "first_id = (SELECT max(first_id) FROM waybill.histories)";
    database::execute(url, &format!("UPDATE waybill.histories SET timeline = timeline + 1 WHERE {last}")).await;
}

/// Does the same and lets the server notice.
pub(crate) async fn simulate_restore(app: &App) {
    pretend_to_be_restored(&app.url).await;
    app.engine().check_history().await.expect("it is noticed");
}

async fn terminate_all(url: &str) {
    let others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
    database::execute(url, &format!("SELECT pg_terminate_backend(pid) {others}")).await;
}

async fn histories(app: &App) -> i64 {
    app.count("SELECT count(*) FROM waybill.histories").await
}

/// All events published after the connections were lost were published over a new one.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_published_over_a_new_connection_before_its_history_is_checked() {
    let app = App::start().await;
    let before = app.publish_tagged("a").await;
    pretend_to_be_restored(&app.url).await;
    terminate_all(&app.url).await;
    let mut after = 0;
    until("a publish succeeds", async || {
        let reply = app.post("/events", &json!({"title": "t", "tags": "a"})).await;
        after = if reply.status == 201 { reply.json()["id"].as_i64().expect("an id") } else { 0 };
        after > 0
    })
    .await;
    assert!(after >= before + JUMP, "{after} follows {before}");
    assert_eq!(histories(&app).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_servers_that_notice_a_restore_at_the_same_time_one_begins_the_history_and_all_adopt_it() {
    let app = App::start().await;
    let others = [second_server(&app, &[]).await, second_server(&app, &["--notify=false"]).await];
    pretend_to_be_restored(&app.url).await;
    let engines = [app.engine(), others[0].engine(), others[1].engine()];
    futures_util::future::join_all(engines.map(waybill::engine::Engine::check_history)).await;
    assert_eq!(histories(&app).await, 2);
    let epochs = engines.map(|engine| engine.epoch().expect("an epoch"));
    assert_eq!((&epochs[0], &epochs[0]), (&epochs[1], &epochs[2]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_history_begun_by_an_operator_reaches_running_servers() {
    let app = App::start().await;
    let before = app.engine().epoch().expect("an epoch");
    database::execute(&app.url, "SELECT waybill.begin_history(true)").await;
    until("the server has adopted it", async || app.engine().epoch().expect("an epoch") != before).await;
    assert_eq!(histories(&app).await, 2);
}

/// The server has not been notified and knows only the earlier history.
#[tokio::test(flavor = "multi_thread")]
async fn the_webhook_id_has_the_epoch_of_the_history_in_which_the_event_was_published() {
    let (app, receiver) = (with_flags(&["--notify=false"]).await, Receiver::start().await);
    app.subscribe(&receiver.url("/"), json!({"event_types": ["a"]})).await;
    let early = publish(&app, "a", json!({})).await["id"].as_i64().expect("an id");
    receiver.received(1).await;
    let first = app.webhook_id(early);
    database::execute(&app.url, "SELECT waybill.begin_history(true)").await;
    let late = publish(&app, "a", json!({})).await["id"].as_i64().expect("an id");
    let requests = receiver.received(2).await;
    let names: Vec<&str> = requests.iter().filter_map(|request| request.header("webhook-id")).collect();
    assert_eq!(names, [first, app.webhook_id(late)]);
    assert_ne!(
        app.engine().epoch_of(EventId(early)).await.unwrap(),
        app.engine().epoch_of(EventId(late)).await.unwrap()
    );
}

/// The claim left a low-water mark behind the row that the restore brings back.
#[tokio::test(flavor = "multi_thread")]
async fn work_brought_back_by_a_restore_is_found_at_once() {
    let app = App::start().await;
    let id = app.publish_tagged("a").await;
    let saved = "CREATE TABLE saved_ready AS SELECT * FROM waybill.ready; \
                 CREATE TABLE saved AS SELECT status, ready_seq FROM waybill.deliveries";
    database::execute(&app.url, saved).await;
    let claim = app.claim_one("a", "w:1").await;
    app.publish_tagged("a").await;
    app.claim_one("a", "w:1").await;
    let restore = format!(
        "INSERT INTO waybill.ready SELECT * FROM saved_ready; \
         UPDATE waybill.deliveries d SET status = s.status, ready_seq = s.ready_seq, lease_id = 0, worker_id = NULL, \
                lease_expires_at = NULL FROM saved s WHERE id = {id}"
    );
    database::execute(&app.url, &restore).await;
    assert_eq!(app.claim("a", "w:2").await, None, "the low-water mark hides it");
    simulate_restore(&app).await;
    let again = app.claim_one("a", "w:2").await;
    assert_eq!(again.event_id, id);
    assert_ne!(again.lease_id, claim.lease_id, "two workers must not have the same lease");
}

#[tokio::test(flavor = "multi_thread")]
async fn work_made_due_earlier_by_a_restore_is_found_at_once() {
    let app = App::with_fixed_clock().await;
    let id = app.publish(json!({"title": "t", "tags": "a", "delay_seconds": 3600})).await;
    assert_eq!(promoter::run_once(app.engine()).await.expect("a round"), 0);
    let earlier = format!("UPDATE waybill.deliveries SET due_at = due_at - interval '2 hours' WHERE id = {id}");
    database::execute(&app.url, &earlier).await;
    simulate_restore(&app).await;
    assert_eq!(promoter::run_once(app.engine()).await.expect("a round"), 1);
}

/// The version is the same again, but the settings are not. No client publishes, so only the new
/// history shows the change.
#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_that_has_the_same_version_after_a_restore_and_a_change_gets_its_current_settings() {
    let (app, receiver) = (fixed(&["--poll-interval-ms=60000"]).await, Receiver::start().await);
    let backoff = json!({"strategy": "fixed", "seconds": 60});
    let subscription = app.subscribe(&receiver.url("/before"), json!({"event_types": ["a"], "backoff": backoff})).await;
    receiver.next(Reply::status(500));
    let id = publish(&app, "a", json!({})).await["id"].as_i64().expect("an id");
    attempt(&app, id, 1).await;
    let change = format!(
        "UPDATE waybill.subscriptions SET url = replace(url, 'before', 'after'), \
                spec = replace(spec::text, 'before', 'after')::json WHERE id = {}",
        subscription["id"]
    );
    database::execute(&app.url, &change).await;
    simulate_restore(&app).await;
    app.advance_and_promote(60).await;
    assert_eq!(receiver.received(2).await[1].path, "/after");
}

/// Each of the four signs is enough.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_cluster_a_new_timeline_a_copied_database_and_a_restored_dump_are_noticed() {
    for sign in ["system_identifier", "timeline", "database_oid", "table_oid"] {
        let app = App::start().await;
        database::execute(&app.url, &format!("UPDATE waybill.histories SET {sign} = {sign} + 1")).await;
        app.engine().check_history().await.expect("it is noticed");
        app.engine().check_history().await.expect("it is noticed once");
        assert_eq!(histories(&app).await, 2, "{sign}");
    }
}

/// A role without these permissions uses the other two signs.
#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_may_not_read_the_identifier_and_timeline_still_works() {
    let url = database::empty().await;
    let name = url.rsplit_once('/').expect("a database").1;
    let grants = format!(
        "CREATE ROLE {name} LOGIN PASSWORD 'word'; ALTER DATABASE {name} OWNER TO {name}; \
         REVOKE EXECUTE ON FUNCTION pg_control_system(), pg_current_wal_lsn() FROM PUBLIC"
    );
    database::execute(&url, &grants).await;
    let (_, place) = url.split_once('@').expect("an address");
    let ordinary = format!("postgres://{name}:word@{place}");
    let app = App::start_with(Options { url: Some(ordinary), ..Options::default() }).await;
    app.publish_tagged("a").await;
    let known =
        rows(&app, "SELECT system_identifier, timeline, database_oid > 0 AS knows FROM waybill.histories").await;
    assert_eq!(known, [json!({"system_identifier": null, "timeline": null, "knows": true})]);
    database::execute(&app.url, "UPDATE waybill.histories SET table_oid = table_oid + 1").await;
    app.engine().check_history().await.expect("it is noticed");
    assert_eq!(histories(&app).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ordinary_role_may_read_the_identifier_and_timeline() {
    let url = database::empty().await;
    let name = url.rsplit_once('/').expect("a database").1;
    let grants = format!("CREATE ROLE {name} LOGIN PASSWORD 'word'; ALTER DATABASE {name} OWNER TO {name}");
    database::execute(&url, &grants).await;
    let (_, place) = url.split_once('@').expect("an address");
    let ordinary = format!("postgres://{name}:word@{place}");
    let app = App::start_with(Options { url: Some(ordinary), ..Options::default() }).await;
    assert_eq!(app.count("SELECT count(system_identifier) + count(timeline) FROM waybill.histories").await, 2);
}

/// Ids are numbers in JSON, so they must stay below 2^53.
#[tokio::test(flavor = "multi_thread")]
async fn a_restore_is_refused_if_the_ids_cannot_be_moved_further_ahead() {
    let app = App::start().await;
    database::execute(&app.url, "SELECT setval('waybill.ids', (2::numeric ^ 53)::bigint - 2)").await;
    pretend_to_be_restored(&app.url).await;
    let error = app.engine().check_history().await.expect_err("there are no ids left");
    assert!(error.to_string().contains("out of bounds"), "{error}");
    assert_eq!(histories(&app).await, 1);
}
