//! Pushes, from publishing an event to the request that a real receiver gets.

mod breaker;
mod budgets;
mod by_hand;
mod checker;
mod crashes;
mod delivery;
mod drain;
mod endpoint_notes;
mod fan_out;
mod given_up;
mod gone;
mod isolation;
mod log_lines;
mod order;
mod outcomes;
mod pauses;
mod replays;
mod requests;
mod resume;
mod signatures;

use diesel::QueryableByName;
use diesel::sql_types::Text;
use diesel_async::RunQueryDsl;
use serde_json::{Value, json};

use crate::support::process::{Process, waybill};
use crate::support::{App, Options, database, until};

/// Publishes an event with only a type and a payload. Returns the response.
pub(crate) async fn publish(app: &App, event_type: &str, payload: Value) -> Value {
    app.post("/events", &json!({"event_type": event_type, "payload": payload})).await.expect(201).json()
}

/// Publishes an event with only a type. Returns its id.
pub(crate) async fn publish_id(app: &App, event_type: &str) -> i64 {
    id_of(&publish(app, event_type, json!({})).await)
}

pub(crate) fn id_of(view: &Value) -> i64 {
    view["id"].as_i64().expect("an id")
}

/// A backoff of zero seconds.
pub(crate) fn at_once() -> Value {
    json!({"strategy": "fixed", "seconds": 0})
}

/// Starts a server with these flags and a fixed clock.
pub(crate) async fn fixed(flags: &[&str]) -> App {
    App::start_with(Options { fixed_clock: true, flags: owned(flags), ..Options::default() }).await
}

pub(crate) async fn with_flags(flags: &[&str]) -> App {
    App::start_with(Options { flags: owned(flags), ..Options::default() }).await
}

/// Starts another server on the same database.
pub(crate) async fn second_server(app: &App, flags: &[&str]) -> App {
    App::start_with(Options { url: Some(app.url.clone()), flags: owned(flags), ..Options::default() }).await
}

pub(crate) fn owned(flags: &[&str]) -> Vec<String> {
    flags.iter().map(|flag| (*flag).to_owned()).collect()
}

/// Returns rows of the database as JSON objects.
pub(crate) async fn rows(app: &App, sql: &str) -> Vec<Value> {
    #[derive(QueryableByName)]
    struct Row {
        #[diesel(sql_type = Text)]
        row: String,
    }
    let query = diesel::sql_query(format!("SELECT row_to_json(q)::text AS row FROM ({sql}) q"));
    let found: Vec<Row> = query.load(&mut database::connection(&app.url).await).await.expect(sql);
    found.iter().map(|row| serde_json::from_str(&row.row).expect("JSON")).collect()
}

/// Returns the recorded attempts to push an event, oldest first.
pub(crate) async fn attempts(app: &App, event_id: i64) -> Vec<Value> {
    let of_event = format!("event_id = {event_id} AND action IN ('COMPLETED', 'FAILED')");
    rows(app, &format!("SELECT *, extract(epoch FROM next_retry_at - created_at)::float8 AS retry_in FROM waybill.event_log WHERE {of_event} ORDER BY id")).await
}

/// Waits until `number` attempts are recorded, and returns the last of them.
pub(crate) async fn attempt(app: &App, event_id: i64, number: usize) -> Value {
    let mut known = Vec::new();
    until("the attempt is recorded", async || {
        known = attempts(app, event_id).await;
        known.len() >= number
    })
    .await;
    assert_eq!(known.len(), number, "{known:?}");
    known.remove(number - 1)
}

/// Waits until an event has this status.
pub(crate) async fn until_status(app: &App, event_id: i64, status: &str) {
    until(&format!("event {event_id} is {status}"), async || app.status(event_id).await == status).await;
}

/// Returns the dead letter of an event's only push.
pub(crate) async fn dead_letter(app: &App, event_id: i64) -> Value {
    let mut found = rows(app, &format!("SELECT * FROM waybill.dead_letters WHERE event_id = {event_id}")).await;
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

/// Starts a server in its own process, which can be killed.
pub(crate) fn in_own_process(app: &App, flags: &[&str]) -> Process {
    let mut arguments =
        vec!["serve", "--bind", "127.0.0.1:0", "--database-url", &app.url, "--webhook-allow", "127.0.0.0/8"];
    arguments.extend(flags);
    tokio::task::block_in_place(|| Process::start(waybill(&arguments)))
}

/// Ends the leases of a killed server now. A lease lasts at least fifteen seconds, which is too
/// long for a test; the next server finds an expired lease in the same way.
pub(crate) async fn end_leases(app: &App) {
    let sql = "UPDATE waybill.deliveries SET lease_expires_at = now() WHERE status = 'PROCESSING'; \
               UPDATE waybill.lease_watch SET look_at = now()";
    database::execute(&app.url, sql).await;
}

/// Returns the endpoint of a subscription.
pub(crate) async fn endpoint(app: &App, subscription: &Value) -> Value {
    app.get(&format!("/subscriptions/{}", id_of(subscription))).await.expect(200).json()["endpoint"].clone()
}

/// Returns how often the pushes of an event were claimed.
pub(crate) async fn claims(app: &App, event_id: i64) -> i64 {
    app.count(&format!("SELECT count(*) FROM waybill.event_log WHERE event_id = {event_id} AND action = 'PICKED'"))
        .await
}

/// Moves the fixed clock, promotes what is due then, and signals the dispatcher.
pub(crate) async fn advance_and_dispatch(app: &App, seconds: i64) {
    app.advance_and_promote(seconds).await;
    app.engine().dispatch_signal().signal(None);
}
