//! A worker's and an operator's calls, and the clocks that tests turn by hand.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use waybill::background::{expirer, lease_reaper, promoter};

use super::{App, Reply};

/// Two workers that several tests let meet.
pub const W1: &str = "worker-01:7234";
pub const W2: &str = "worker-02:8742";

/// A claim that a worker was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub event_id: i64,
    pub lease_id: i64,
    pub worker_id: String,
}

/// How a call says which claim it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Naming {
    /// By `lease_id`.
    Lease,
    /// By `worker_id` alone.
    Worker,
}

impl Claim {
    /// Reads it off a claimed event.
    pub fn of(event: &Value) -> Self {
        Claim {
            event_id: event["id"].as_i64().expect("an id"),
            lease_id: event["lease_id"].as_i64().expect("a lease_id"),
            worker_id: event["worker_id"].as_str().expect("a worker_id").to_owned(),
        }
    }

    /// A body that names it.
    pub fn body(&self, naming: Naming) -> Value {
        match naming {
            Naming::Lease => json!({"worker_id": self.worker_id, "lease_id": self.lease_id}),
            Naming::Worker => json!({"worker_id": self.worker_id}),
        }
    }

    /// The same claim in somebody else's mouth.
    pub fn spoken_by(&self, worker_id: &str) -> Self {
        Claim { worker_id: worker_id.to_owned(), ..self.clone() }
    }
}

impl App {
    /// Claims an event that must be there.
    pub async fn take(&self, tags: &str, worker_id: &str) -> Claim {
        Claim::of(&self.claim(tags, worker_id).await.expect("an event to claim"))
    }

    /// Claims a batch; empty where there is nothing.
    pub async fn claim_batch(&self, tags: &str, worker_id: &str, max: usize) -> Vec<Value> {
        let reply = self.get(&format!("/events/subscribe?tags={tags}&worker_id={worker_id}&max={max}")).await;
        match reply.status {
            204 => Vec::new(),
            _ => reply.expect(200).json()["events"].as_array().expect("events").clone(),
        }
    }

    /// Claims one event after another until there is none; answers their ids.
    pub async fn drain(&self, tags: &str, worker_id: &str) -> Vec<i64> {
        let mut ids = Vec::new();
        while let Some(event) = self.claim(tags, worker_id).await {
            ids.push(event["id"].as_i64().expect("an id"));
        }
        ids
    }

    /// Says a word about a claim: `start`, `heartbeat`, `complete`, `fail` or `release`.
    pub async fn say(&self, claim: &Claim, word: &str, naming: Naming) -> Reply {
        self.post(&format!("/events/{}/{word}", claim.event_id), &claim.body(naming)).await
    }

    /// Says a word by `lease_id`, with more fields.
    pub async fn say_with(&self, claim: &Claim, word: &str, more: Value) -> Reply {
        let mut body = claim.body(Naming::Lease);
        let more = more.as_object().expect("an object").clone();
        body.as_object_mut().expect("an object").extend(more);
        self.post(&format!("/events/{}/{word}", claim.event_id), &body).await
    }

    /// An operator's verb on one event: `reset`, `retry` or `cancel`.
    pub async fn operate(&self, id: i64, verb: &str) -> Reply {
        self.post_empty(&format!("/events/{id}/{verb}")).await
    }

    /// Where an event stands.
    pub async fn status(&self, id: i64) -> String {
        self.event(id).await["status"].as_str().expect("a status").to_owned()
    }

    /// Lets everything in that is due.
    pub async fn promote(&self) -> usize {
        promoter::run_once(self.engine()).await.expect("a round of the promoter")
    }

    /// Takes back everything whose lease has run out.
    pub async fn reap(&self) -> usize {
        lease_reaper::run_once(self.engine()).await.expect("a round of the lease_reaper")
    }

    /// Gives up everything that has expired.
    pub async fn expire(&self) -> usize {
        expirer::run_once(self.engine()).await.expect("a round of the expirer")
    }

    /// Moves a fixed clock and lets in what is due then.
    pub async fn advance_and_promote(&self, seconds: i64) -> usize {
        self.advance(seconds);
        self.promote().await
    }

    /// How far a timestamp lies ahead of a fixed clock, in seconds.
    pub fn seconds_ahead(&self, timestamp: &Value) -> i64 {
        let milliseconds = (time(timestamp) - self.now()).num_milliseconds();
        (milliseconds as f64 / 1000.0).round() as i64
    }
}

/// Reads a timestamp of the contract: RFC 3339, UTC, ending in `Z`.
#[track_caller]
pub fn time(value: &Value) -> DateTime<Utc> {
    let text = value.as_str().unwrap_or_else(|| panic!("{value} is no timestamp"));
    assert!(text.ends_with('Z'), "{text} does not end in Z");
    DateTime::parse_from_rfc3339(text).unwrap_or_else(|error| panic!("{text}: {error}")).to_utc()
}

/// The answer to a settlement that repeats the one answered like this.
#[track_caller]
pub fn repeated(first: &Value) -> Value {
    let mut again = first.clone();
    assert_eq!(again["repeated"], false, "{first}");
    again["repeated"] = true.into();
    again
}

/// The log entry that the answer to a settlement tells.
#[track_caller]
pub fn entry_of(answer: &Value) -> Value {
    let mut entry = answer.clone();
    entry.as_object_mut().expect("an object").remove("repeated").expect("a mark");
    entry
}

/// The ids of events, in the order given.
pub fn ids(events: &[Value]) -> Vec<i64> {
    events.iter().map(|event| event["id"].as_i64().expect("an id")).collect()
}
