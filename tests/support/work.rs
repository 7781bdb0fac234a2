//! Calls of workers and operators, and sweeps that tests run explicitly.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use waybill::background::{expirer, lease_reaper, promoter};

use super::{App, Reply};

/// Two workers shared by several tests.
pub(crate) const W1: &str = "worker-01:7234";
pub(crate) const W2: &str = "worker-02:8742";

/// A claim that a worker holds or has held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claim {
    pub event_id: i64,
    pub lease_id: i64,
    pub worker_id: String,
}

/// How a call identifies its claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Naming {
    Lease,
    /// By `worker_id` alone.
    Worker,
}

impl Claim {
    /// Reads the claim from a claimed event.
    pub(crate) fn of(event: &Value) -> Self {
        Claim {
            event_id: event["id"].as_i64().expect("an id"),
            lease_id: event["lease_id"].as_i64().expect("a lease_id"),
            worker_id: event["worker_id"].as_str().expect("a worker_id").to_owned(),
        }
    }

    /// Returns an item of `POST /events/settle` for the claim, with further fields.
    pub(crate) fn settlement(&self, action: &str, more: Value) -> Value {
        let mut item = json!({"event_id": self.event_id, "lease_id": self.lease_id, "action": action});
        item.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        item
    }

    /// Returns a request body that identifies the claim.
    pub(crate) fn body(&self, naming: Naming) -> Value {
        match naming {
            Naming::Lease => json!({"worker_id": self.worker_id, "lease_id": self.lease_id}),
            Naming::Worker => json!({"worker_id": self.worker_id}),
        }
    }

    /// Returns the same claim under another worker's name.
    pub(crate) fn as_worker(&self, worker_id: &str) -> Self {
        Claim { worker_id: worker_id.to_owned(), ..self.clone() }
    }
}

impl App {
    /// Claims an event and panics if there is none.
    pub(crate) async fn claim_one(&self, tags: &str, worker_id: &str) -> Claim {
        Claim::of(&self.claim(tags, worker_id).await.expect("an event to claim"))
    }

    /// Claims a batch, which is empty if there are no events.
    pub(crate) async fn claim_batch(&self, tags: &str, worker_id: &str, max: usize) -> Vec<Value> {
        let tags: Vec<&str> = tags.split(',').collect();
        self.claim_by(&json!({"tags": tags, "worker_id": worker_id, "max": max})).await
    }

    /// Claims a batch with any request.
    pub(crate) async fn claim_by(&self, body: &Value) -> Vec<Value> {
        let reply = self.post("/events/claim", body).await.expect(200);
        reply.json()["events"].as_array().expect("events").clone()
    }

    /// Settles a batch. Returns the results.
    pub(crate) async fn settle_batch(&self, worker_id: &str, settlements: &[Value]) -> Vec<Value> {
        let body = json!({"worker_id": worker_id, "settlements": settlements});
        self.post("/events/settle", &body).await.expect(200).json()["results"].as_array().expect("results").clone()
    }

    /// Claims events until there are none left. Returns their ids.
    pub(crate) async fn drain(&self, tags: &str, worker_id: &str) -> Vec<i64> {
        let mut ids = Vec::new();
        while let Some(event) = self.claim(tags, worker_id).await {
            ids.push(event["id"].as_i64().expect("an id"));
        }
        ids
    }

    /// Settles a claim: `verb` is `start`, `heartbeat`, `complete`, `fail` or `release`.
    pub(crate) async fn settle(&self, claim: &Claim, verb: &str, naming: Naming) -> Reply {
        self.post(&format!("/events/{}/{verb}", claim.event_id), &claim.body(naming)).await
    }

    /// Settles a claim by its `lease_id`, with further fields.
    pub(crate) async fn settle_with(&self, claim: &Claim, verb: &str, more: Value) -> Reply {
        let mut body = claim.body(Naming::Lease);
        let more = more.as_object().expect("an object").clone();
        body.as_object_mut().expect("an object").extend(more);
        self.post(&format!("/events/{}/{verb}", claim.event_id), &body).await
    }

    /// Calls an operator's verb on one event: `reset`, `retry` or `cancel`.
    pub(crate) async fn operate(&self, id: i64, verb: &str) -> Reply {
        self.post_empty(&format!("/events/{id}/{verb}")).await
    }

    pub(crate) async fn status(&self, id: i64) -> String {
        self.event(id).await["status"].as_str().expect("a status").to_owned()
    }

    /// Runs the promoter once: makes ready all that is due.
    pub(crate) async fn promote(&self) -> usize {
        promoter::run_once(self.engine()).await.expect("a round of the promoter")
    }

    /// Runs the lease reaper once: resets all whose lease has expired.
    pub(crate) async fn reap(&self) -> usize {
        lease_reaper::run_once(self.engine()).await.expect("a round of the lease_reaper")
    }

    /// Runs the expirer once: fails all that has expired.
    pub(crate) async fn expire(&self) -> usize {
        expirer::run_once(self.engine()).await.expect("a round of the expirer")
    }

    /// Moves the fixed clock and makes ready all that is due then.
    pub(crate) async fn advance_and_promote(&self, seconds: i64) -> usize {
        self.advance(seconds);
        self.promote().await
    }

    /// Returns how far a timestamp lies ahead of the fixed clock, in microseconds.
    pub(crate) fn microseconds_ahead(&self, timestamp: &Value) -> i64 {
        // The clock is finer than the database.
        time(timestamp).timestamp_micros() - self.now().timestamp_micros()
    }

    /// Returns how far a timestamp lies ahead of the fixed clock, in seconds.
    pub(crate) fn seconds_ahead(&self, timestamp: &Value) -> i64 {
        let milliseconds = (time(timestamp) - self.now()).num_milliseconds();
        (milliseconds as f64 / 1000.0).round() as i64
    }
}

/// Parses a timestamp of the API: RFC 3339, UTC, ending in `Z`.
#[track_caller]
pub(crate) fn time(value: &Value) -> DateTime<Utc> {
    let text = value.as_str().unwrap_or_else(|| panic!("{value} is no timestamp"));
    assert!(text.ends_with('Z'), "{text} does not end in Z");
    DateTime::parse_from_rfc3339(text).unwrap_or_else(|error| panic!("{text}: {error}")).to_utc()
}

/// Returns the expected response to a repeat of the settlement with this first response.
#[track_caller]
pub(crate) fn repeated(first: &Value) -> Value {
    let mut again = first.clone();
    assert_eq!(again["repeated"], false, "{first}");
    again["repeated"] = true.into();
    again
}

/// Returns the log entry in the response to a settlement.
#[track_caller]
pub(crate) fn entry_of(answer: &Value) -> Value {
    let mut entry = answer.clone();
    entry.as_object_mut().expect("an object").remove("repeated").expect("a mark");
    entry
}

/// Returns the ids of events, in the order given.
pub(crate) fn ids(events: &[Value]) -> Vec<i64> {
    events.iter().map(|event| event["id"].as_i64().expect("an id")).collect()
}
