//! One attempt: builds the request of a push, sends it and records the outcome.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::time::Instant;

use super::failing::Failing;
use super::slots::Slot;
use super::span::PushSpan;
use super::writing::{build_request, message_of};
use crate::domain::address::masked;
use crate::domain::attempt::{AttemptOutcome, AttemptVerdict, ErrorKind};
use crate::domain::backoff::chance;
use crate::domain::delivery::{PushRecord, Report};
use crate::domain::encryption::Unreadable;
use crate::domain::retry_after;
use crate::domain::status::Status;
use crate::domain::subscription::{Credentials, SubscriptionSpec};
use crate::engine::Engine;
use crate::engine::operate::replays::Replay;
use crate::engine::publish::subscription_cache::Subscriber;
use crate::engine::push::endpoint_notes::{EndpointNote, Finding};
use crate::engine::push::{ClaimedPush, PushOutcome};
use crate::engine::settle::SettleOutcome;
use crate::error::Error;
use crate::logging::limiter::Kind;
use crate::metrics::subscriptions::SubscriptionCount;
use crate::store::tables::endpoints::EndpointKey;
use crate::webhook::{Client, Exchange};

/// The pause between two tries to record an outcome while the database is unavailable.
const RECORD_PAUSE: Duration = Duration::from_millis(500);

/// The time after the claim within which a request may begin. It must end, and be recorded, before the
/// lease expires. Otherwise another server would send the same push concurrently, and then the next
/// push of its ordering key.
const MAX_START_DELAY: Duration = Duration::from_secs(super::LEASE_MARGIN_SECONDS as u64 - 5);

/// An attempt about to be made.
pub struct Attempt {
    pub engine: Engine,
    pub client: Client,
    pub subscriber: Subscriber,
    /// The decrypted secrets and headers of the subscriber, shared by the attempts of one round.
    pub credentials: Arc<Credentials>,
    /// The failing endpoints, shared by all attempts of this server.
    pub failing: Arc<Failing>,
    /// The time just before the claim was sent to the database, so the lease ends later than computed
    /// from it.
    pub claimed_at: Instant,
    /// Whether the latest request to the endpoint had failed at the time of the claim.
    pub has_failed_before: bool,
    /// Whether the attempt probes an endpoint whose circuit breaker is open.
    pub is_probe: bool,
    pub push: ClaimedPush,
}

impl Attempt {
    /// Makes the attempt. The slot is freed when the request has ended, before its outcome is recorded:
    /// a slow database must not reduce the concurrency of the receiver.
    pub async fn run(self, slot: Slot) {
        let (replay, epoch) = match self.prepare().await {
            Ok(prepared) => prepared,
            // Nothing was sent. The lease expires, and the push is tried again.
            Err(error) => {
                return log::warn!(delivery_id = self.push.delivery_id; "a push could not be prepared: {error}");
            }
        };
        let spec = self.spec_for(&replay);
        let span = PushSpan::begin(&self, &spec);
        let request = match self.credentials_for(&replay) {
            Ok(credentials) => {
                let mut message = message_of(&self.push, &replay, &epoch);
                message.traceparent = span.traceparent().or(message.traceparent);
                let built = build_request(message, &spec, credentials).await;
                built.map_err(|detail| Exchange::not_sent(ErrorKind::BodyNotRenderable, &detail))
            }
            Err(unreadable) => Err(Exchange::not_sent(ErrorKind::SecretUnreadable, &unreadable.to_string())),
        };
        if self.claimed_at.elapsed() > MAX_START_DELAY {
            span.release();
            let unrecorded = slot.answered();
            self.release().await;
            return drop(unrecorded);
        }
        let exchange = match request {
            Ok(request) => self.client.send(request).await,
            Err(not_sent) => not_sent,
        };
        span.finish(&exchange);
        let unrecorded = slot.answered();
        self.record(&spec, replay.subscription_version, exchange).await;
        drop(unrecorded);
    }

    /// Releases a push that is too late to be sent, because the database or this server was delayed.
    async fn release(&self) {
        let settled = self.settle(&Report::default(), PushOutcome::NotSent("late"), Instant::now()).await;
        if let Err(error) = settled {
            log::warn!(delivery_id = self.push.delivery_id; "a push that was not sent could not be released: {error}");
        }
        let unused = EndpointNote { finding: Some(Finding::ProbeUnused), pause_seconds: None };
        if self.is_probe
            && let Err(error) =
                self.engine.note_endpoint(self.endpoint(&self.subscriber.subscription.spec.url), unused).await
        {
            log::warn!(subscription_id = self.push.subscription_id; "an unused probe could not be returned: {error}");
        }
    }

    fn endpoint<'a>(&self, url: &'a str) -> EndpointKey<'a> {
        EndpointKey { namespace: self.push.namespace, url }
    }

    /// Returns the spec to send with: that of the dead letter if the replay uses it, otherwise the
    /// current one. The lease was computed from the current timeout, so a replayed spec must not have
    /// a longer one.
    fn spec_for<'a>(&'a self, replay: &'a Replay) -> Cow<'a, SubscriptionSpec> {
        let current = &self.subscriber.subscription.spec;
        match &replay.spec {
            Some(spec) if spec.timeout_ms > current.timeout_ms => {
                Cow::Owned(SubscriptionSpec { timeout_ms: current.timeout_ms, ..spec.clone() })
            }
            Some(spec) => Cow::Borrowed(spec),
            None => Cow::Borrowed(current),
        }
    }

    /// Returns the headers and secrets to send with. A replay may send the headers of its dead letter. If they cannot
    /// be decrypted, the attempt fails, and the push is retried or becomes a dead letter again: nothing is lost.
    fn credentials_for(&self, replay: &Replay) -> Result<Arc<Credentials>, Unreadable> {
        let Some(spec) = &replay.spec else { return Ok(self.credentials.clone()) };
        let keys = &self.engine.settings().secret_keys;
        self.credentials.with_headers_of(spec, keys, self.subscriber.owner()).map(Arc::new)
    }

    /// Loads the replay settings of the dead letter, if the push is a replay, and the epoch of the event.
    async fn prepare(&self) -> Result<(Replay, String), Error> {
        let replay = match self.push.replay_of {
            Some(id) => self.engine.load_replay(self.push.namespace, id).await?,
            None => Replay::default(),
        };
        Ok((replay, self.engine.epoch_of(self.push.row.event.id).await?))
    }

    /// Records the outcome of a request, for the endpoint and for the delivery.
    async fn record(&self, spec: &SubscriptionSpec, version: Option<i32>, exchange: Exchange) {
        let ended_at = Instant::now();
        let outcome = match &exchange.result {
            Ok(response) => AttemptOutcome::Status(response.status),
            Err(error) => AttemptOutcome::Error(error.kind),
        };
        let verdict = spec.retry_on.judge(&outcome);
        let pause = self.requested_pause(&exchange);
        let is_endpoint_recorded = self.record_endpoint(spec, &exchange, verdict, pause).await;
        let report = self.report(&exchange, version, verdict);
        // A recorded pause of the endpoint delays all its deliveries. If this delivery also had a delay of
        // its own, it would go on waiting after an operator ends the pause.
        let is_paused_by_endpoint = is_endpoint_recorded && spec.url == self.subscriber.subscription.spec.url;
        let own_pause = pause.filter(|_| !is_paused_by_endpoint).unwrap_or(0.0);
        let outcome = match verdict {
            AttemptVerdict::Success => PushOutcome::Delivered,
            AttemptVerdict::Retry => PushOutcome::RetryAfter(self.backoff_seconds(spec).max(own_pause)),
            AttemptVerdict::Terminal => PushOutcome::GaveUp,
        };
        let settled = self.settle(&report, outcome, ended_at).await;
        self.observe(&exchange, &settled);
        self.log(spec, &exchange, settled);
    }

    /// Returns the seconds in the `Retry-After` of a 429 or 503 response.
    fn requested_pause(&self, exchange: &Exchange) -> Option<f64> {
        let response = exchange.result.as_ref().ok().filter(|response| matches!(response.status, 429 | 503))?;
        retry_after::parse(response.retry_after.as_deref()?, self.engine.time())
    }

    fn backoff_seconds(&self, spec: &SubscriptionSpec) -> f64 {
        spec.backoff.seconds_after(self.push.row.work.retry_count + 1, chance())
    }

    /// Records what the attempt shows about its endpoint. Returns whether that succeeded.
    ///
    /// This comes before the delivery is settled: otherwise other pushes could be sent to a paused
    /// endpoint in between. An error here is logged and does not affect the delivery.
    async fn record_endpoint(
        &self,
        spec: &SubscriptionSpec,
        exchange: &Exchange,
        verdict: AttemptVerdict,
        pause: Option<f64>,
    ) -> bool {
        let note = EndpointNote { finding: self.finding(&spec.url, exchange, verdict), pause_seconds: pause };
        let recording = async {
            self.engine.note_endpoint(self.endpoint(&spec.url), note).await?;
            if matches!(&exchange.result, Ok(response) if response.status == 410) {
                self.engine.deactivate_subscription(self.push.subscription(), &spec.url, "gone").await?;
            }
            Ok::<(), Error>(())
        };
        let recorded = recording.await;
        if let Err(error) = &recorded {
            log::warn!(endpoint = masked(&spec.url).as_str(); "the state of an endpoint could not be recorded: {error}");
        }
        recorded.is_ok()
    }

    /// Returns what the attempt shows about its endpoint, or `None` if nothing has changed.
    fn finding(&self, url: &str, exchange: &Exchange, verdict: AttemptVerdict) -> Option<Finding> {
        let not_sent = [ErrorKind::BodyNotRenderable, ErrorKind::SecretUnreadable];
        let is_sent = !matches!(&exchange.result, Err(error) if not_sent.contains(&error.kind));
        match verdict {
            AttemptVerdict::Retry if is_sent => {
                self.failing.note(self.endpoint(url));
                Some(Finding::Failed { is_probe: self.is_probe })
            }
            // Any response, even a refusal, shows that the endpoint is up.
            _ if is_sent && (self.failing.forget(self.endpoint(url)) || self.has_failed_before) => {
                Some(Finding::Answered)
            }
            _ if self.is_probe => Some(Finding::ProbeUnused),
            _ => None,
        }
    }

    fn report(&self, exchange: &Exchange, version: Option<i32>, verdict: AttemptVerdict) -> Report {
        let error_message = match &exchange.result {
            Ok(response) if response.is_success() => None,
            Ok(response) => Some(format!("the receiver answered {}", response.status)),
            Err(error) => Some(format!("{}: {}", error.kind, error.detail)),
        };
        let response = exchange.result.as_ref().ok();
        Report {
            status_code: response.map(|response| i32::from(response.status)),
            execution_time_ms: Some(exchange.duration.as_millis() as i64),
            error_message,
            result: None,
            push: PushRecord {
                error_kind: exchange.result.as_ref().err().map(|error| error.kind),
                response_excerpt: response
                    .map(|response| response.excerpt.clone())
                    .filter(|excerpt| !excerpt.is_empty()),
                subscription_version: Some(version.unwrap_or(self.subscriber.subscription.version)),
                is_terminal: verdict == AttemptVerdict::Terminal,
            },
        }
    }

    /// Settles the delivery. Retries until the lease expires, because a push that was sent and not
    /// recorded is sent twice. After the lease has expired, the settlement would be refused.
    async fn settle(&self, report: &Report, outcome: PushOutcome, ended_at: Instant) -> Result<SettleOutcome, Error> {
        let lease = super::lease_duration(&self.subscriber.subscription.spec);
        loop {
            match self.engine.settle_push(&self.push, report.clone(), outcome.clone(), ended_at).await {
                Err(Error::Unavailable(_) | Error::OutcomeUnknown(_) | Error::Overloaded)
                    if may_retry(self.claimed_at, lease, Instant::now()) =>
                {
                    tokio::time::sleep(RECORD_PAUSE).await;
                }
                settled => return settled,
            }
        }
    }

    /// Updates the metrics.
    fn observe(&self, exchange: &Exchange, settled: &Result<SettleOutcome, Error>) {
        let metrics = &self.engine.metrics();
        let count = |what| metrics.subscriptions.count(what, (self.push.namespace.0, self.push.subscription_id.0), 1);
        count(SubscriptionCount::Sent);
        metrics.push_seconds.observe(exchange.duration.as_secs_f64());
        if self.push.row.work.retry_count == 0 {
            let age = self.engine.time() - self.push.row.event.created_at;
            metrics.first_push_seconds.observe(age.as_seconds_f64().max(0.0));
        }
        match settled {
            Ok(SettleOutcome::Recorded(record)) if record.status == Status::Completed => {
                count(SubscriptionCount::Succeeded);
            }
            Ok(SettleOutcome::Recorded(record)) if record.status == Status::Pending => {
                count(SubscriptionCount::Retried);
            }
            _ => {}
        }
    }

    fn log(&self, spec: &SubscriptionSpec, exchange: &Exchange, settled: Result<SettleOutcome, Error>) {
        let outcome = match &exchange.result {
            Ok(response) => response.status.to_string(),
            Err(error) => error.kind.to_string(),
        };
        let (state, next_attempt_at) = match &settled {
            Ok(SettleOutcome::Recorded(record)) => (state_name(record.status), record.entry.next_retry_at()),
            Ok(SettleOutcome::Extended { .. }) => ("", None),
            Err(Error::Refused(_)) => ("lost", None),
            Err(error) => {
                log::error!(delivery_id = self.push.delivery_id; "an attempt could not be recorded: {error}");
                return;
            }
        };
        let kind = match state {
            "delivered" => Kind::PushDelivered,
            "retry" => Kind::PushRetried,
            "dead_letter" => Kind::PushGivenUp,
            _ => Kind::PushLost,
        };
        if !kind.is_due() {
            return;
        }
        log::info!(
            namespace_id = self.push.namespace,
            event_id = self.push.row.event.id,
            delivery_id = self.push.delivery_id,
            subscription_id = self.push.subscription_id,
            endpoint = masked(&spec.url).as_str(),
            attempt = self.push.row.work.retry_count + 1,
            outcome = outcome.as_str(),
            state,
            duration_ms = exchange.duration.as_millis() as u64,
            next_attempt_at = next_attempt_at.map(|at: DateTime<Utc>| at.to_rfc3339()).unwrap_or_default().as_str();
            "push"
        );
    }
}

/// Returns whether the lease lasts until the next try. Uses the monotonic clock: if the wall clock
/// jumps, the tries would end too early or go on after the lease.
fn may_retry(claimed_at: Instant, lease: Duration, now: Instant) -> bool {
    now.duration_since(claimed_at) + RECORD_PAUSE < lease
}

fn state_name(status: Status) -> &'static str {
    match status {
        Status::Completed => "delivered",
        Status::Pending | Status::Processing => "retry",
        Status::Failed => "dead_letter",
        Status::Cancelled => "cancelled",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recording_an_outcome_is_retried_until_the_lease_expires() {
        let (claimed_at, lease) = (Instant::now(), Duration::from_secs(16));
        let may_retry_after =
            |milliseconds| may_retry(claimed_at, lease, claimed_at + Duration::from_millis(milliseconds));
        assert!(may_retry_after(0) && may_retry_after(15_499));
        assert!(!may_retry_after(15_500) && !may_retry_after(60_000));
    }
}
