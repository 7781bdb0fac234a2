//! Operators retry, cancel and dead-letter pushes.

use crate::domain::ids::DeliveryId;
use crate::domain::scope::Scope;
use crate::error::Error;
use crate::store::lists::pushes::{PushRow, get_push};

use crate::engine::operate::operator_actions::{OperatorAction, operate_on_one};
use crate::engine::{Engine, transaction};

impl Engine {
    /// FAILED or CANCELLED → PENDING, with its counters reset. The push is sent with the present
    /// configuration of its subscription.
    pub async fn retry_delivery(&self, scope: Scope, id: DeliveryId, reason: Option<String>) -> Result<PushRow, Error> {
        self.operate_on_push(scope, id, OperatorAction::Retry { reason }).await
    }

    /// PENDING → CANCELLED. For a push that is being sent, only a request is recorded. A failed push that
    /// blocks its ordering key is cancelled too, which unblocks the key.
    pub async fn cancel_delivery(
        &self,
        scope: Scope,
        id: DeliveryId,
        reason: Option<String>,
    ) -> Result<PushRow, Error> {
        self.operate_on_push(scope, id, OperatorAction::Cancel { reason }).await
    }

    /// PENDING → FAILED. The push becomes a dead letter.
    pub async fn dead_letter_delivery(&self, scope: Scope, id: DeliveryId, reason: String) -> Result<PushRow, Error> {
        self.operate_on_push(scope, id, OperatorAction::GiveUp { reason }).await
    }

    async fn operate_on_push(&self, scope: Scope, id: DeliveryId, action: OperatorAction) -> Result<PushRow, Error> {
        let engine = self.clone();
        self.detached(async move {
            let (row, applied) = transaction!(engine, |conn| {
                let applied = operate_on_one(conn, &scope, id, true, &action).await?;
                let row = get_push(conn, &scope, id).await?.ok_or(Error::DeliveryNotFound(id))?;
                Ok((row, applied))
            })?;
            engine.notify_after_commit(&applied);
            Ok(row)
        })
        .await
    }
}
