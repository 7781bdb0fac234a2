//! Records all that was ever handed out, by whichever history, and notices repetitions.

use std::collections::BTreeMap;

use serde_json::json;

use crate::push::publish;
use crate::support::App;
use crate::support::receiver::Receiver;
use crate::support::work::Claim;

/// What was handed out so far.
#[derive(Default)]
pub(super) struct Witness {
    events: usize,
    /// The event of each event id.
    ids: BTreeMap<i64, usize>,
    /// The event of each `webhook-id`.
    webhook_ids: BTreeMap<String, usize>,
    /// The number of the claim that got each lease.
    leases: BTreeMap<i64, usize>,
}

impl Witness {
    /// Publishes an event for `pushes` subscribers, and waits for the requests.
    pub(super) async fn push(&mut self, app: &App, receiver: &Receiver, pushes: usize) -> i64 {
        self.events += 1;
        let before = receiver.count();
        let response = publish(app, "order.paid", json!({"n": self.events})).await;
        assert_eq!(response["enqueued"], pushes);
        let id = response["id"].as_i64().expect("an id");
        assert_eq!(self.ids.insert(id, self.events), None, "id {id} was handed out before");
        for request in &receiver.received(before + pushes).await[before..] {
            assert_eq!(request.json()["n"], self.events);
            let webhook_id = request.header("webhook-id").expect("an id").to_owned();
            let known = self.webhook_ids.insert(webhook_id.clone(), self.events);
            assert!(known.is_none_or(|event| event == self.events), "{webhook_id} named another event before");
        }
        id
    }

    /// Publishes an event for workers, without claiming it.
    pub(super) async fn publish_job(&mut self, app: &App) -> i64 {
        self.events += 1;
        let id = app.publish_tagged("job").await;
        assert_eq!(self.ids.insert(id, self.events), None, "id {id} was handed out before");
        id
    }

    /// Publishes and claims many jobs. PostgreSQL logs a sequence 32 values ahead, so the sequences
    /// of a standby fall behind only then.
    pub(super) async fn publish_and_claim_many(&mut self, app: &App) {
        for _ in 0..40 {
            self.publish_job(app).await;
            self.claim_job(app).await;
        }
    }

    /// Claims the next job.
    pub(super) async fn claim_job(&mut self, app: &App) -> Claim {
        let claim = app.claim_one("job", "w:1").await;
        let number = self.leases.len();
        assert_eq!(self.leases.insert(claim.lease_id, number), None, "lease {} was handed out before", claim.lease_id);
        claim
    }
}
