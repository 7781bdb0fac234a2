//! `/event-types`, and what declared types mean for publishing.

mod declare;
mod doors;
mod hostile;
mod large;
mod list;
mod publish;
mod recent;
mod servers;
mod strict;
mod versions;

use serde_json::{Value, json};

use crate::support::{App, Reply};

/// The path of the type that most tests declare.
const ORDER_PAID: &str = "/event-types/order.paid";

/// A schema that requires an integer `id`.
fn needs_id() -> Value {
    json!({"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}})
}

/// Declares `order.paid` with a schema.
async fn declare(app: &App, schema: Value) -> Value {
    let reply = app.put(ORDER_PAID, &json!({"schema": schema})).await;
    assert!([200, 201].contains(&reply.status), "{reply:?}");
    reply.json()
}

/// Publishes an event of the type `order.paid`.
async fn pay(app: &App, payload: Value) -> Reply {
    app.post("/events", &json!({"event_type": "order.paid", "payload": payload})).await
}

/// Returns the number of events that are stored.
async fn stored(app: &App) -> i64 {
    app.count("SELECT count(*) FROM waybill.events").await
}
