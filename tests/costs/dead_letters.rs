//! What it costs to dead-letter a push and to read its attempts: the same however many pushes its
//! event has.

use serde_json::json;
use waybill::domain::ids::{DeliveryId, NamespaceId};
use waybill::domain::scope::Scope;
use waybill::store::tables::dead_letters::{NewDeadLetter, insert_dead_letters};
use waybill::store::tables::push_log::attempts_of_push;

use crate::support::records::app_that_sends_nothing;
use crate::support::{App, database};

/// The number of attempts of each push.
const ATTEMPTS: i64 = 4;

/// The number of pushes that fail together.
const GIVEN_UP: usize = 10;

/// A larger index may be one page taller, in each of the few days that are searched.
const MOST_GROWTH: f64 = 1.2;

/// Publishes an event with `fan_out` pushes, each with [`ATTEMPTS`] failed attempts. Returns its
/// pushes.
async fn failing_event(app: &App, fan_out: usize) -> Vec<i64> {
    app.subscribe_many(fan_out, "http://127.0.0.1:9/hook", json!({"max_attempts": 5})).await;
    let event_id = app.publish(json!({"event_type": "order.paid", "payload": {"a": 1}})).await;
    for attempt in 1..=ATTEMPTS {
        let sql = format!(
            "INSERT INTO waybill.event_log (event_id, delivery_id, action, worker_id, lease_id, attempt, status_code, \
                                            subscription_version) \
             SELECT event_id, id, a.action::waybill.action, 'a server', id, {attempt}, 500, 1 \
             FROM waybill.deliveries, (VALUES ('PICKED'), ('FAILED')) a(action) \
             WHERE event_id = {event_id} AND subscription_id IS NOT NULL ORDER BY a.action DESC, id"
        );
        database::execute(&app.url, &sql).await;
    }
    let pushes = format!("FROM waybill.deliveries WHERE event_id = {event_id} AND subscription_id IS NOT NULL");
    assert_eq!(app.count(&format!("SELECT count(*) {pushes}")).await, fan_out as i64);
    let mut ids = Vec::new();
    for offset in 0..GIVEN_UP {
        let offset = offset * fan_out / GIVEN_UP;
        ids.push(app.count(&format!("SELECT id {pushes} ORDER BY id OFFSET {offset} LIMIT 1")).await);
    }
    ids
}

/// Returns the buffers of a dead letter, and of reading the attempts of one push.
async fn costs(fan_out: usize) -> (f64, f64) {
    let app = app_that_sends_nothing().await;
    let scope = Scope::new(NamespaceId::DEFAULT, None);
    let pushes = failing_event(&app, fan_out).await;
    let letter = |id: &i64| NewDeadLetter {
        delivery: NamespaceId::DEFAULT.delivery(DeliveryId(*id)),
        reason: "exhausted",
        actor: None,
    };
    let letters: Vec<NewDeadLetter> = pushes.iter().map(letter).collect();
    let give_up = async |conn: &mut diesel_async::AsyncPgConnection| insert_dead_letters(conn, None, &letters).await;
    // The first use of a table on a connection also reads its catalog entries.
    app.buffers_of(give_up).await;
    let ((), buffers) = app.buffers_of(give_up).await;
    let published_at = chrono::Utc::now();
    let (attempts, reading) = app
        .buffers_of(async |conn| attempts_of_push(conn, &scope, DeliveryId(pushes[0]), published_at, 500).await)
        .await;
    assert_eq!(attempts.len() as i64, ATTEMPTS);
    app.stop().await;
    (buffers as f64 / GIVEN_UP as f64, reading as f64)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_costs_the_same_whatever_the_fan_out_of_its_event() {
    let (few, few_read) = costs(50).await;
    let (many, many_read) = costs(1_000).await;
    println!("buffers per dead letter: {few} of 50 pushes, {many} of 1,000; of its attempts: {few_read}, {many_read}");
    assert!(many <= few * MOST_GROWTH, "{many} buffers against {few}");
    assert!(many_read <= few_read * MOST_GROWTH, "{many_read} buffers against {few_read}");
}
