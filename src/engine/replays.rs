//! Dead letters are sent again.

use crate::domain::json::RawJson;
use crate::domain::subscription::SubscriptionSpec;
use crate::error::Error;

use super::Engine;

/// What of a push is as a dead letter has it, and not as the event and the subscription do.
#[derive(Debug, Clone, Default)]
pub struct Replay {
    /// How it is sent.
    pub spec: Option<SubscriptionSpec>,
    /// What is sent.
    pub payload: Option<RawJson>,
    /// What the receiver knows it by.
    pub webhook_id: Option<String>,
}

impl Engine {
    /// What a dead letter says of how it is sent again.
    pub async fn load_replay(&self, _dead_letter_id: i64) -> Result<Replay, Error> {
        Ok(Replay::default())
    }
}
