//! `retry`, `cancel`, `dead-letter`: an operator's word on pushes.

use crate::domain::ids::DeliveryId;
use crate::domain::scope::Scope;
use crate::error::Error;
use crate::store::lists::pushes::{PushRow, get_push};

use crate::engine::operate::operator_actions::{OperatorAction, operate_on_one};
use crate::engine::{Engine, transaction};

impl Engine {
    /// FAILED or CANCELLED → PENDING, counters fresh: sent as its subscription says by now.
    pub async fn retry_delivery(&self, scope: Scope, id: DeliveryId, reason: Option<String>) -> Result<PushRow, Error> {
        self.operate_on_push(scope, id, OperatorAction::Retry { reason }).await
    }

    /// PENDING → CANCELLED; one that is just being sent is marked; one that was given up and keeps
    /// the rest of its key waiting is passed over.
    pub async fn cancel_delivery(
        &self,
        scope: Scope,
        id: DeliveryId,
        reason: Option<String>,
    ) -> Result<PushRow, Error> {
        self.operate_on_push(scope, id, OperatorAction::Cancel { reason }).await
    }

    /// PENDING → FAILED, with the dead letters.
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
