//! Events that have failed for good.

use serde_json::{Value, json};

use super::App;
use super::work::Claim;

impl App {
    /// Publishes `count` events of a tag and lets them fail with this error. Returns their ids.
    pub(crate) async fn publish_failures(&self, count: usize, tag: &str, error: &str) -> Vec<i64> {
        let event = |n: usize| json!({"title": format!("Charge order {n}"), "tags": tag});
        let events: Vec<Value> = (1..=count).map(event).collect();
        self.post("/events/batch", &json!({"events": events})).await.expect(201);
        let mut ids = Vec::new();
        while ids.len() < count {
            let claims: Vec<Claim> = self.claim_batch(tag, "pay:1", 100).await.iter().map(Claim::of).collect();
            assert!(!claims.is_empty(), "{} of {count} events", ids.len());
            let failed = json!({"error_message": error, "retryable": false});
            let settlements: Vec<Value> = claims.iter().map(|claim| claim.settlement("fail", failed.clone())).collect();
            self.settle_batch("pay:1", &settlements).await;
            ids.extend(claims.iter().map(|claim| claim.event_id));
        }
        ids.sort_unstable();
        ids
    }
}
