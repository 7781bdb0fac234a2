//! Pushes: the calls with which the dispatcher reads what may be sent, claims it and settles it.
//!
//! The dispatcher is a built-in worker. It claims by subscription, because each subscription has its own
//! limits. Its settlements pass through a batcher of their own.

pub(crate) mod dead_letter_budget;
pub(crate) mod dispatch_signal;
pub mod endpoint_notes;
pub(crate) mod yielding;

use std::collections::BTreeMap;
use std::sync::Arc;

use diesel_async::AsyncPgConnection;
use serde_json::json;
use tokio::time::Instant;

use crate::domain::address::masked;
use crate::domain::audit::AuditAction::SubscriptionResumed;
use crate::domain::audit::AuditEntry;
use crate::domain::delivery::Report;
use crate::domain::event::NewEvent;
use crate::domain::ids::{DeliveryId, DeliveryKey, NamespaceId, SubscriptionId, SubscriptionKey};
use crate::domain::lease::Caller;
use crate::domain::scope::Scope;
use crate::error::Error;
use crate::store::tables::audit_log::record_audit;
use crate::store::tables::claims::{
    ClaimGroup, ClaimQuery, ClaimQueue, Claimed, ClaimedEvent, PushQueue, claim_deliveries,
};
use crate::store::tables::endpoints::{self, ChangedEndpoint, EndpointGate, EndpointKey, Grant};
use crate::store::tables::event_columns::EventRow;
use crate::store::tables::ready::QueueKey;
use crate::store::tables::subscriptions::{
    SubscriptionRow, active_subscription_ids_of, active_subscriptions_of, get_subscription,
};

use crate::engine::operate::subscriptions::{Notices, notice, publish_notices};
use crate::engine::settle::{SettleCall, SettleOutcome, Settlement};
use crate::engine::waiting::low_water_marks::{QueuePosition, QueueScan};
use crate::engine::waiting::peer_notifier::Arrivals;
use crate::engine::{Engine, transaction, weight};

/// The maximum number of subscriptions per endpoint that receive a notice when its breaker opens or closes.
const NOTICES: i64 = 100;

/// A claim on the queue of one subscription.
#[derive(Debug, Clone, Copy)]
pub struct PushClaim {
    pub subscription: SubscriptionKey,
    /// The version of the subscription that the dispatcher knows. Nothing is claimed if the subscription
    /// has been changed or deactivated since: events that are published after a change must not be sent
    /// with the old settings.
    pub version: i32,
    /// The maximum number of deliveries to claim.
    pub limit: i64,
    pub lease_seconds: i32,
}

/// A push that the dispatcher has claimed.
#[derive(Debug, Clone)]
pub struct ClaimedPush {
    pub namespace: NamespaceId,
    pub delivery_id: DeliveryId,
    pub subscription_id: SubscriptionId,
    /// The id of the dead letter with the replay settings, if the push is a replay.
    pub replay_of: Option<i64>,
    /// The event and the state of the delivery.
    pub row: EventRow,
}

impl ClaimedPush {
    pub fn delivery(&self) -> DeliveryKey {
        self.namespace.delivery(self.delivery_id)
    }

    pub fn subscription(&self) -> SubscriptionKey {
        self.namespace.subscription(self.subscription_id)
    }

    /// Returns the size of the event's payload.
    pub fn payload_bytes(&self) -> usize {
        self.row.event.payload.as_ref().map_or(0, |json| json.0.as_str().len())
    }
}

/// The outcome of an attempt.
#[derive(Debug, Clone)]
pub enum PushOutcome {
    /// The endpoint accepted the push.
    Delivered,
    /// The attempt failed. If attempts are left, the push is retried after this number of seconds.
    RetryAfter(f64),
    /// The attempt failed, and the push is abandoned.
    GaveUp,
    /// No request was sent, for this reason. The push returns to its queue, and the next claim may take it.
    NotSent(&'static str),
}

impl Engine {
    /// Reads whether pushes may be sent to `subscriptions` now.
    pub async fn read_endpoint_gates(&self, subscriptions: &[SubscriptionKey]) -> Result<Vec<EndpointGate>, Error> {
        let mut conn = self.database().connection().await?;
        Ok(endpoints::read_endpoint_gates(&mut conn, self.now(), subscriptions).await?)
    }

    /// Claims pushes of several subscriptions, of any namespaces, in one statement.
    pub async fn claim_pushes(&self, claims: &[PushClaim]) -> Result<Vec<ClaimedPush>, Error> {
        let mut by_namespace: BTreeMap<NamespaceId, Vec<PushClaim>> = BTreeMap::new();
        for claim in claims {
            by_namespace.entry(claim.subscription.namespace).or_default().push(*claim);
        }
        let queues: Vec<Vec<QueueKey>> = by_namespace
            .values()
            .map(|claims| claims.iter().map(|claim| QueueKey::of_subscription(claim.subscription)).collect())
            .collect();
        let scans: Vec<QueueScan<'_>> = queues.iter().map(|queues| self.low_water_marks().scan(queues)).collect();
        let groups: Vec<ClaimGroup<'_>> = by_namespace
            .iter()
            .zip(queues.iter().zip(&scans))
            .map(|((namespace, claims), (queues, scan))| push_group(*namespace, claims, queues, scan, self.instance()))
            .collect();
        // The dispatcher limits the bytes in flight.
        let query = ClaimQuery { now: self.now(), groups: &groups, max_bytes: i64::MAX };
        let mut conn = self.database().connection().await?;
        let claimed = claim_deliveries(&mut conn, &query).await?;
        drop(conn);
        for (scan, claimed) in scans.iter().zip(&claimed) {
            self.note_claim(scan, claimed);
        }
        // What was left is reported only if nothing was claimed at all.
        if claimed.iter().any(Claimed::is_out_of_reach) {
            // Expired work blocks the head of the queue until it is swept, or another server is claiming it.
            self.expire_deliveries().await?;
        }
        let push = |namespace: NamespaceId, claimed: ClaimedEvent| {
            Some(ClaimedPush {
                namespace,
                delivery_id: claimed.delivery_id,
                subscription_id: claimed.subscription_id?,
                replay_of: claimed.replay_of,
                row: claimed.row,
            })
        };
        let of_groups = by_namespace.keys().zip(claimed);
        let pushes =
            of_groups.flat_map(|(namespace, claimed)| claimed.events.into_iter().map(|event| (*namespace, event)));
        Ok(pushes.filter_map(|(namespace, event)| push(namespace, event)).collect())
    }

    /// Records the outcome of an attempt whose request ended at `ended_at`.
    pub async fn settle_push(
        &self,
        push: &ClaimedPush,
        report: Report,
        outcome: PushOutcome,
        ended_at: Instant,
    ) -> Result<SettleOutcome, Error> {
        let settlement = match outcome {
            PushOutcome::Delivered => Settlement::Complete(report),
            PushOutcome::RetryAfter(seconds) => {
                Settlement::Fail { report, retryable: true, retry_after_seconds: Some(seconds) }
            }
            PushOutcome::GaveUp => Settlement::Fail { report, retryable: false, retry_after_seconds: None },
            PushOutcome::NotSent(reason) => {
                Settlement::Release { delay_seconds: 0.0, reason: Some(reason.to_owned()), service: None }
            }
        };
        let caller = Caller { worker_id: self.instance().to_owned(), lease_id: Some(push.row.work.lease_id) };
        // A push that fails may be abandoned, and its dead letter copies the payload.
        let copied_bytes = if matches!(settlement, Settlement::Fail { .. }) { push.payload_bytes() } else { 0 };
        let push_ended_at = Some(ended_at);
        let call = SettleCall { delivery: push.delivery(), caller, settlement, push_ended_at, tag_patterns: None };
        let mut settled =
            self.0.batchers.settle_pushes.call(push.namespace, Arc::new(vec![call]), weight(1, copied_bytes)).await?;
        settled.pop().unwrap_or_else(|| Err(Error::Internal("a settlement was not answered".into())))
    }

    /// Takes the right to probe an endpoint whose breaker is open, for `seconds`. Returns whether it was taken.
    pub async fn take_probe(&self, endpoint: EndpointKey<'_>, seconds: f64) -> Result<bool, Error> {
        let mut conn = self.database().connection().await?;
        Ok(endpoints::take_probe(&mut conn, self.now(), endpoint, seconds).await?)
    }

    /// Takes requests from the rate limiters of subscriptions. `wanted` has the subscription, its rate per
    /// second, and the maximum number of requests to take.
    pub async fn take_from_rates(&self, wanted: &[(SubscriptionKey, f64, i64)]) -> Result<Vec<Grant>, Error> {
        let mut conn = self.database().connection().await?;
        Ok(endpoints::take_from_rates(&mut conn, self.now(), wanted).await?)
    }

    /// Returns requests that were taken from a rate limiter and not used.
    pub async fn return_to_rate(&self, subscription: SubscriptionKey, rate: f64, unused: i64) -> Result<(), Error> {
        let mut conn = self.database().connection().await?;
        Ok(endpoints::return_to_rate(&mut conn, subscription, rate, unused).await?)
    }

    /// Ends the pause of a subscription's endpoint and closes its breaker. Wakes the dispatchers of all
    /// servers, which then send the waiting pushes at once. Returns the subscription.
    pub async fn resume_subscription(&self, scope: Scope, id: SubscriptionId) -> Result<SubscriptionRow, Error> {
        let engine = self.clone();
        let resumed = self.detached(async move {
            let (row, notices, sharing) = transaction!(engine, |conn| {
                let row = get_subscription(conn, &scope, id).await?;
                let row = row.ok_or(Error::SubscriptionNotFound(id))?;
                let closed = endpoints::resume_endpoint(conn, &scope, &row.url).await?;
                let notices = if closed {
                    let endpoint = ChangedEndpoint { namespace_id: scope.namespace, url: row.url.clone() };
                    publish_notices_about(conn, &engine, &[endpoint], "breaker_closed").await?
                } else {
                    Vec::new()
                };
                let detail = json!({"url": masked(&row.url), "breaker_closed": closed});
                record_audit(conn, &scope, &AuditEntry::about(SubscriptionResumed, id.0, detail)).await?;
                let sharing = active_subscription_ids_of(conn, &scope, &row.url).await?;
                let sharing: Vec<_> = sharing.into_iter().map(|id| scope.namespace.subscription(id)).collect();
                Ok((row, notices, sharing))
            })?;
            log::info!(subscription_id = id, endpoint = masked(&row.url).as_str(); "an endpoint was resumed");
            notices.into_iter().for_each(|notices| engine.notify_after_notices(notices));
            engine.wake_dispatchers(&sharing);
            Ok(row)
        });
        resumed.await
    }

    /// Wakes the dispatchers of all servers for subscriptions whose queues have not changed.
    fn wake_dispatchers(&self, subscriptions: &[SubscriptionKey]) {
        for key in subscriptions {
            self.dispatch_signal().signal(Some(*key));
        }
        let queues = subscriptions.iter().map(|key| (QueueKey::of_subscription(*key), Arrivals::default()));
        self.peer_notifier().notify_queues(queues.collect());
    }
}

/// Returns the claim of pushes of one namespace. Each queue has its own limit and its own lease.
fn push_group<'a>(
    namespace: NamespaceId,
    claims: &[PushClaim],
    queues: &'a [QueueKey],
    scan: &QueueScan<'_>,
    worker_id: &'a str,
) -> ClaimGroup<'a> {
    let queue = |((claim, queue), mark): ((&PushClaim, &'a QueueKey), &QueuePosition)| ClaimQueue {
        name: &queue.name,
        from: (mark.rank, mark.seq),
        window: claim.limit,
        pushes: Some(PushQueue {
            subscription_id: claim.subscription.id,
            version: claim.version,
            lease_seconds: claim.lease_seconds,
        }),
    };
    let total = claims.iter().map(|claim| claim.limit).sum::<i64>() as usize;
    ClaimGroup {
        namespace,
        queues: claims.iter().zip(queues).zip(&scan.from).map(queue).collect(),
        worker_ids: vec![worker_id; total],
        lease_seconds: Vec::new(),
    }
}

/// Publishes a notice for each active subscription of the endpoints, up to [`NOTICES`] per endpoint, in the namespaces
/// of the endpoints. Returns the notices by namespace.
pub(crate) async fn publish_notices_about(
    conn: &mut AsyncPgConnection,
    engine: &Engine,
    endpoints: &[ChangedEndpoint],
    what: &str,
) -> Result<Vec<Notices>, Error> {
    let mut events: BTreeMap<NamespaceId, Vec<NewEvent>> = BTreeMap::new();
    for ChangedEndpoint { namespace_id, url } in endpoints {
        let rows = active_subscriptions_of(conn, &engine.scope_of(*namespace_id), url, NOTICES).await?;
        events.entry(*namespace_id).or_default().extend(rows.iter().map(|row| notice(what, row, what)));
    }
    let mut published = Vec::new();
    for (namespace, events) in events {
        if !events.is_empty() {
            published.push(publish_notices(conn, engine, namespace, events).await?);
        }
    }
    Ok(published)
}
