//! Helpers to read pushes and dead letters, and to bring them about.

use serde_json::{Value, json};

use super::receiver::{Receiver, Reply};
use super::{App, Options, until};

/// Starts a server that sends no pushes: published events stay pending.
pub(crate) async fn app_that_sends_nothing() -> App {
    App::start_with(Options { flags: vec!["--dispatch=false".into()], ..Options::default() }).await
}

/// Settings of a subscription that gives up after the first attempt.
pub(crate) fn one_attempt() -> Value {
    json!({"max_attempts": 1})
}

impl App {
    /// Publishes an event with only a type and a payload. Returns its id.
    pub(crate) async fn publish_typed(&self, event_type: &str, payload: Value) -> i64 {
        self.publish(json!({"event_type": event_type, "payload": payload})).await
    }

    /// Returns the deliveries of an event, ordered by id.
    pub(crate) async fn deliveries_of(&self, event_id: i64) -> Vec<Value> {
        let page = self.get(&format!("/deliveries?event_id={event_id}")).await.expect(200).json();
        page["deliveries"].as_array().expect("deliveries").clone()
    }

    /// Returns the id of an event's only delivery.
    pub(crate) async fn only_delivery(&self, event_id: i64) -> i64 {
        let deliveries = self.deliveries_of(event_id).await;
        assert_eq!(deliveries.len(), 1, "{deliveries:?}");
        deliveries[0]["id"].as_i64().expect("an id")
    }

    /// Returns a delivery with its attempts.
    pub(crate) async fn delivery(&self, id: i64) -> Value {
        self.get(&format!("/deliveries/{id}")).await.expect(200).json()
    }

    /// Waits until a delivery has this status, and returns it.
    pub(crate) async fn until_delivery(&self, id: i64, status: &str) -> Value {
        until(status, async || self.delivery(id).await["status"] == status).await;
        self.delivery(id).await
    }

    /// Calls an operator's verb on a delivery that needs no body.
    pub(crate) async fn operate_on_delivery(&self, id: i64, verb: &str) -> super::Reply {
        self.post_empty(&format!("/deliveries/{id}/{verb}")).await
    }

    /// Returns the dead letters that a query finds.
    pub(crate) async fn dead_letters(&self, query: &str) -> Vec<Value> {
        let page = self.get(&format!("/dead-letters?{query}")).await.expect(200).json();
        page["dead_letters"].as_array().expect("dead letters").clone()
    }

    /// Returns the only open dead letter of an event.
    pub(crate) async fn open_dead_letter(&self, event_id: i64) -> Value {
        let open = self.dead_letters(&format!("event_id={event_id}&replayed=false")).await;
        assert_eq!(open.len(), 1, "{open:?}");
        self.get(&format!("/dead-letters/{}", open[0]["id"])).await.expect(200).json()
    }

    /// Publishes an event that its only subscriber refuses. Returns the event's id once the push
    /// has failed.
    pub(crate) async fn publish_and_fail(&self, receiver: &Receiver, event_type: &str, payload: Value) -> i64 {
        receiver.next_event(Reply::status(500).body("no"));
        let id = self.publish_typed(event_type, payload).await;
        until("the push has failed", async || self.event(id).await["status"] == "FAILED").await;
        id
    }

    /// Replays a dead letter.
    pub(crate) async fn replay(&self, dead_letter_id: &Value, order: Value) -> super::Reply {
        self.post(&format!("/dead-letters/{dead_letter_id}/replay"), &order).await
    }

    /// Moves a push to the dead letters.
    pub(crate) async fn dead_letter(&self, delivery_id: i64, reason: &str) -> super::Reply {
        self.post_empty(&format!("/deliveries/{delivery_id}/dead-letter?reason={reason}")).await
    }
}
