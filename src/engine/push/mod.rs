//! Pushes: the calls with which the dispatcher reads what may be sent, claims it and settles it.
//!
//! The dispatcher is a built-in worker. It claims by subscription, because each subscription has its own
//! limits. Its settlements pass through a batcher of their own.

pub(crate) mod dead_letter_budget;
pub(crate) mod dispatch_signal;
pub mod endpoint_notes;
pub(crate) mod yielding;

use std::sync::Arc;

use diesel_async::AsyncPgConnection;
use tokio::time::Instant;

use crate::domain::address::without_query;
use crate::domain::delivery::Report;
use crate::domain::ids::{DeliveryId, SubscriptionId};
use crate::domain::lease::Caller;
use crate::domain::scope::Scope;
use crate::error::Error;
use crate::store::tables::claims::{ClaimQuery, ClaimedEvent, claim_deliveries};
use crate::store::tables::endpoints::{self, EndpointGate, Grant};
use crate::store::tables::event_columns::EventRow;
use crate::store::tables::ready::queue_of_subscription;
use crate::store::tables::subscriptions::{
    SubscriptionRow, active_subscription_ids_of, active_subscriptions_of, get_subscription,
};

use crate::engine::operate::subscriptions::{Notices, notice, publish_notices};
use crate::engine::settle::{SettleCall, SettleOutcome, Settlement};
use crate::engine::waiting::peer_notifier::Arrivals;
use crate::engine::{Engine, transaction, weight};

/// The maximum number of subscriptions per endpoint that receive a notice when its breaker opens or closes.
const NOTICES: i64 = 100;

/// A claim on the queue of one subscription.
#[derive(Debug, Clone, Copy)]
pub struct PushClaim {
    pub subscription_id: SubscriptionId,
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
    pub delivery_id: DeliveryId,
    pub subscription_id: SubscriptionId,
    /// The id of the dead letter with the replay settings, if the push is a replay.
    pub replay_of: Option<i64>,
    /// The event and the state of the delivery.
    pub row: EventRow,
}

impl ClaimedPush {
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
    /// Reads whether pushes may be sent to `subscription_ids` now.
    pub async fn read_endpoint_gates(&self, subscription_ids: &[SubscriptionId]) -> Result<Vec<EndpointGate>, Error> {
        let mut conn = self.database().connection().await?;
        Ok(endpoints::read_endpoint_gates(&mut conn, &self.scope(), subscription_ids).await?)
    }

    /// Claims pushes of several subscriptions in one statement.
    pub async fn claim_pushes(&self, claims: &[PushClaim]) -> Result<Vec<ClaimedPush>, Error> {
        let queues: Vec<String> = claims.iter().map(|claim| queue_of_subscription(claim.subscription_id)).collect();
        let windows: Vec<i64> = claims.iter().map(|claim| claim.limit).collect();
        let total = windows.iter().sum::<i64>() as usize;
        let leases: Vec<i32> = claims.iter().map(|claim| claim.lease_seconds).collect();
        let subscriptions: Vec<(SubscriptionId, i32)> =
            claims.iter().map(|claim| (claim.subscription_id, claim.version)).collect();
        let scan = self.low_water_marks().scan(&queues);
        let from: Vec<(i16, i64)> = scan.from.iter().map(|position| (position.rank, position.seq)).collect();
        let mut conn = self.database().connection().await?;
        let query = ClaimQuery {
            scope: self.scope(),
            queues: &queues,
            from: &from,
            windows: &windows,
            worker_ids: &vec![self.instance(); total],
            lease_seconds: &[],
            queue_leases: Some(&leases),
            subscriptions: Some(&subscriptions),
            // The dispatcher limits the bytes in flight.
            max_bytes: i64::MAX,
        };
        let claimed = claim_deliveries(&mut conn, &query).await?;
        drop(conn);
        self.note_claim(&scan, &claimed);
        if claimed.is_out_of_reach() {
            // Expired work blocks the head of the queue until it is swept, or another server is claiming it.
            self.expire_deliveries().await?;
        }
        let push = |claimed: ClaimedEvent| {
            Some(ClaimedPush {
                delivery_id: claimed.delivery_id,
                subscription_id: claimed.subscription_id?,
                replay_of: claimed.replay_of,
                row: claimed.row,
            })
        };
        Ok(claimed.events.into_iter().filter_map(push).collect())
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
            PushOutcome::NotSent(reason) => Settlement::Release { delay_seconds: 0.0, reason: Some(reason.to_owned()) },
        };
        let caller = Caller { worker_id: self.instance().to_owned(), lease_id: Some(push.row.work.lease_id) };
        // A push that fails may be abandoned, and its dead letter copies the payload.
        let copied_bytes = if matches!(settlement, Settlement::Fail { .. }) { push.payload_bytes() } else { 0 };
        let call = SettleCall { delivery_id: push.delivery_id, caller, settlement, push_ended_at: Some(ended_at) };
        let mut settled = self.0.batchers.settle_pushes.call(Arc::new(vec![call]), weight(1, copied_bytes)).await?;
        settled.pop().unwrap_or_else(|| Err(Error::Internal("a settlement was not answered".into())))
    }

    /// Takes the right to probe an endpoint whose breaker is open, for `seconds`. Returns whether it was taken.
    pub async fn take_probe(&self, url: &str, seconds: f64) -> Result<bool, Error> {
        let mut conn = self.database().connection().await?;
        Ok(endpoints::take_probe(&mut conn, &self.scope(), url, seconds).await?)
    }

    /// Takes requests from the rate limiters of subscriptions. `wanted` has the subscription, its rate per
    /// second, and the maximum number of requests to take.
    pub async fn take_from_rates(&self, wanted: &[(SubscriptionId, f64, i64)]) -> Result<Vec<Grant>, Error> {
        let mut conn = self.database().connection().await?;
        Ok(endpoints::take_from_rates(&mut conn, &self.scope(), wanted).await?)
    }

    /// Returns requests that were taken from a rate limiter and not used.
    pub async fn return_to_rate(&self, subscription_id: SubscriptionId, rate: f64, unused: i64) -> Result<(), Error> {
        let mut conn = self.database().connection().await?;
        Ok(endpoints::return_to_rate(&mut conn, &self.scope(), subscription_id, rate, unused).await?)
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
                    publish_notices_about(conn, &engine, std::slice::from_ref(&row.url), "breaker_closed").await?
                } else {
                    None
                };
                let sharing = active_subscription_ids_of(conn, &scope, &row.url).await?;
                Ok((row, notices, sharing))
            })?;
            log::info!(subscription_id = id, endpoint = without_query(&row.url); "an endpoint was resumed");
            if let Some(notices) = notices {
                engine.notify_after_notices(notices);
            }
            engine.wake_dispatchers(&sharing);
            Ok(row)
        });
        resumed.await
    }

    /// Wakes the dispatchers of all servers for subscriptions whose queues have not changed.
    fn wake_dispatchers(&self, subscription_ids: &[SubscriptionId]) {
        for id in subscription_ids {
            self.dispatch_signal().signal(Some(*id));
        }
        let queues = subscription_ids.iter().map(|id| (queue_of_subscription(*id), Arrivals::default()));
        self.peer_notifier().notify_queues(queues.collect());
    }
}

/// Publishes a notice for each active subscription of the endpoints, up to [`NOTICES`] per endpoint. Returns
/// `None` if no subscription uses them.
pub(crate) async fn publish_notices_about(
    conn: &mut AsyncPgConnection,
    engine: &Engine,
    urls: &[String],
    what: &str,
) -> Result<Option<Notices>, Error> {
    let mut notices = Vec::new();
    for url in urls {
        let rows = active_subscriptions_of(conn, &engine.scope(), url, NOTICES).await?;
        notices.extend(rows.iter().map(|row| notice(what, row, what)));
    }
    if notices.is_empty() {
        return Ok(None);
    }
    publish_notices(conn, engine, notices).await.map(Some)
}
