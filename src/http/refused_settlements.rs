//! Settlements of workers that are refused because of the state of their claim: noted, and shown with the event.

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::problem::code_of;
use super::spans::NotedSettlement;
use super::view::Timestamp;
use crate::domain::ids::{EventId, LeaseId, NamespaceId};
use crate::domain::lease::Caller;
use crate::domain::scope::Scope;
use crate::engine::Engine;
use crate::engine::refused_settlements::RefusedKind;
use crate::engine::settle::SettleOutcome;
use crate::error::Error;
use crate::store::tables::refused_settlements::RefusedSettlement;

/// A settlement that may be refused: what is left of it when the engine has it.
pub(crate) struct SettlementAttempt {
    pub event_id: EventId,
    pub caller: Caller,
    /// The last word of the path: `complete`, `fail`, …
    pub verb: &'static str,
}

impl SettlementAttempt {
    /// Returns what a span tells about the settlement.
    pub(crate) fn trace<'a>(
        &self,
        namespace: NamespaceId,
        began_at: DateTime<Utc>,
        outcome: &'a Result<SettleOutcome, Error>,
    ) -> NotedSettlement<'a> {
        NotedSettlement { namespace, event_id: self.event_id, verb: self.verb, began_at, outcome }
    }

    /// Notes that the settlement was refused, if the state of the claim is the reason.
    pub(crate) fn note(self, engine: &Engine, scope: &Scope, error: &Error) {
        if !matches!(error, Error::Refused(_)) {
            return;
        }
        let kind = RefusedKind {
            event: scope.namespace.event(self.event_id),
            lease_id: self.caller.lease_id.unwrap_or(LeaseId::NONE),
            action: self.verb,
            code: code_of(error).info().name,
            worker_id: self.caller.worker_id,
        };
        engine.refused_settlements().note(kind, scope.actor.as_deref(), engine.time());
    }
}

/// Refused settlements that differ in nothing but their time, in a response.
#[derive(Serialize)]
pub(crate) struct RefusedSettlementView<'a> {
    action: &'a str,
    code: &'a str,
    worker_id: &'a str,
    /// Omitted if the caller named none.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_id: Option<LeaseId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    actor: Option<&'a str>,
    calls: i64,
    first_at: Timestamp,
    last_at: Timestamp,
}

impl<'a> RefusedSettlementView<'a> {
    pub(crate) fn of(row: &'a RefusedSettlement) -> Self {
        RefusedSettlementView {
            action: &row.action,
            code: &row.code,
            worker_id: &row.worker_id,
            lease_id: Some(row.lease_id).filter(|id| *id > LeaseId::NONE),
            actor: row.actor.as_deref(),
            calls: row.calls,
            first_at: Timestamp(row.first_at),
            last_at: Timestamp(row.last_at),
        }
    }
}
