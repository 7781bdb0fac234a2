//! All that was ever handed out, by whichever history, so that a repetition is noticed.

use std::collections::BTreeMap;

use serde_json::json;

use crate::push::publish;
use crate::support::App;
use crate::support::receiver::Receiver;
use crate::support::work::Claim;

/// What was handed out so far.
#[derive(Default)]
pub struct Witness {
    events: usize,
    /// By event id: which event.
    ids: BTreeMap<i64, usize>,
    /// By webhook-id: which event.
    webhook_ids: BTreeMap<String, usize>,
    /// By lease: the how-manieth claim.
    leases: BTreeMap<i64, usize>,
}

impl Witness {
    /// Publishes an event for `pushes` subscribers, and waits for the requests.
    pub async fn push(&mut self, app: &App, receiver: &Receiver, pushes: usize) -> i64 {
        self.events += 1;
        let before = receiver.count();
        let told = publish(app, "order.paid", json!({"n": self.events})).await;
        assert_eq!(told["enqueued"], pushes);
        let id = told["id"].as_i64().expect("an id");
        assert_eq!(self.ids.insert(id, self.events), None, "id {id} was given out before");
        for request in &receiver.received(before + pushes).await[before..] {
            assert_eq!(request.json()["n"], self.events);
            let webhook_id = request.header("webhook-id").expect("an id").to_owned();
            let known = self.webhook_ids.insert(webhook_id.clone(), self.events);
            assert!(known.is_none_or(|event| event == self.events), "{webhook_id} named another event before");
        }
        id
    }

    /// Publishes an event for workers; nobody claims it yet.
    pub async fn publish_job(&mut self, app: &App) -> i64 {
        self.events += 1;
        let id = app.publish_tagged("job").await;
        assert_eq!(self.ids.insert(id, self.events), None, "id {id} was given out before");
        id
    }

    /// Publishes and claims so many jobs that sequences, which are written ahead by 32, are behind
    /// on a standby.
    pub async fn work_much(&mut self, app: &App) {
        for _ in 0..40 {
            self.publish_job(app).await;
            self.claim_job(app).await;
        }
    }

    /// Claims the next job.
    pub async fn claim_job(&mut self, app: &App) -> Claim {
        let claim = app.claim_one("job", "w:1").await;
        let number = self.leases.len();
        assert_eq!(self.leases.insert(claim.lease_id, number), None, "lease {} was given out before", claim.lease_id);
        claim
    }
}
