//! One attempt: a push is made into a request, sent, and what came of it put on record.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::time::Instant;

use super::failing::Failing;
use super::slots::Slot;
use super::writing::{letter_of, write};
use crate::domain::address::without_query;
use crate::domain::attempt::{AttemptOutcome, AttemptVerdict, ErrorKind};
use crate::domain::backoff::chance;
use crate::domain::delivery::{PushRecord, Report};
use crate::domain::retry_after;
use crate::domain::status::Status;
use crate::domain::subscription::SubscriptionSpec;
use crate::engine::Engine;
use crate::engine::operate::replays::Replay;
use crate::engine::publish::subscription_cache::Subscriber;
use crate::engine::push::endpoint_notes::{EndpointNote, Finding};
use crate::engine::push::{ClaimedPush, PushOutcome};
use crate::engine::settle::SettleOutcome;
use crate::error::Error;
use crate::metrics::PushCount;
use crate::webhook::{Client, Exchange, SendError};

/// Between two tries to put an outcome on record while the database is away.
const RECORD_PAUSE: Duration = Duration::from_millis(500);

/// How long after its claim a request may still be begun: it must be over, and on record, before the
/// claim ends, or another server would send the same beside it, and what comes next by its key.
const BEGIN_WITHIN: Duration = Duration::from_secs(super::LEASE_MARGIN_SECONDS as u64 - 5);

/// An attempt about to be made.
pub struct Attempt {
    /// Where it is recorded.
    pub engine: Engine,
    /// By whom it is sent.
    pub client: Client,
    /// To whom.
    pub subscriber: Subscriber,
    /// Which endpoints have failed by now.
    pub failing: Arc<Failing>,
    /// When it was asked for; its claim was made after that.
    pub claimed_at: Instant,
    /// Whether its endpoint's last word was a failure when it was claimed.
    pub has_failed_before: bool,
    /// Whether it tries out an endpoint whose breaker is open.
    pub is_probe: bool,
    /// What.
    pub push: ClaimedPush,
}

impl Attempt {
    /// Makes the attempt. The slot is free again when the receiver has answered; putting that
    /// on record is not its receiver's business any more.
    pub async fn run(self, slot: Slot) {
        let (replay, epoch) = match self.prepare().await {
            Ok(prepared) => prepared,
            // Nothing was sent: the lease runs out, and it is tried again.
            Err(error) => {
                return log::warn!(delivery_id = self.push.delivery_id; "a push could not be prepared: {error}");
            }
        };
        let spec = self.spec_for(&replay);
        let secrets = self.subscriber.secrets_at(self.engine.time());
        let request = write(letter_of(&self.push, &replay, &epoch), &spec, secrets).await;
        if self.claimed_at.elapsed() > BEGIN_WITHIN {
            let unrecorded = slot.answered();
            self.give_back().await;
            return drop(unrecorded);
        }
        let exchange = match request {
            Ok(request) => self.client.send(request).await,
            Err(detail) => not_sent(detail),
        };
        let unrecorded = slot.answered();
        self.record(&spec, replay.subscription_version, exchange).await;
        drop(unrecorded);
    }

    /// Too late to be sent under this claim: the database, or this server, was held up.
    async fn give_back(&self) {
        let settled = self.settle(&Report::default(), PushOutcome::NotSent("late"), Instant::now()).await;
        if let Err(error) = settled {
            log::warn!(delivery_id = self.push.delivery_id; "a push that was not sent could not be given back: {error}");
        }
        let unused = EndpointNote { finding: Some(Finding::ProbeUnused), pause_seconds: None };
        if self.is_probe
            && let Err(error) = self.engine.note_endpoint(&self.subscriber.subscription.spec.url, unused).await
        {
            log::warn!(subscription_id = self.push.subscription_id; "a probe could not be given back: {error}");
        }
    }

    /// How it is sent: as its subscription says by now, unless a dead letter says otherwise. The
    /// claim was made for as long as the subscription allows by now, so that an earlier one may not
    /// take longer.
    fn spec_for<'a>(&'a self, replay: &'a Replay) -> Cow<'a, SubscriptionSpec> {
        let present = &self.subscriber.subscription.spec;
        match &replay.spec {
            Some(spec) if spec.timeout_ms > present.timeout_ms => {
                Cow::Owned(SubscriptionSpec { timeout_ms: present.timeout_ms, ..spec.clone() })
            }
            Some(spec) => Cow::Borrowed(spec),
            None => Cow::Borrowed(present),
        }
    }

    /// Returns what the dead letter says from which it is sent again, and the epoch of its event.
    async fn prepare(&self) -> Result<(Replay, String), Error> {
        let replay = match self.push.replay_of {
            Some(id) => self.engine.load_replay(id).await?,
            None => Replay::default(),
        };
        Ok((replay, self.engine.epoch_of(self.push.row.event.id).await?))
    }

    async fn record(&self, spec: &SubscriptionSpec, version: Option<i32>, exchange: Exchange) {
        let ended_at = Instant::now();
        let outcome = match &exchange.result {
            Ok(answer) => AttemptOutcome::Status(answer.status),
            Err(error) => AttemptOutcome::Error(error.kind),
        };
        let judgement = spec.retry_on.judge(&outcome);
        let pause = self.pause_asked_for(&exchange);
        let is_noted = self.note_endpoint(spec, &exchange, judgement, pause).await;
        let report = self.report(&exchange, version, judgement);
        // The pause keeps back whatever goes to its endpoint. A delivery that waited for it by
        // itself would go on waiting when somebody lifts the pause.
        let is_kept_back = is_noted && spec.url == self.subscriber.subscription.spec.url;
        let own_pause = pause.filter(|_| !is_kept_back).unwrap_or(0.0);
        let outcome = match judgement {
            AttemptVerdict::Success => PushOutcome::Delivered,
            AttemptVerdict::Retry => PushOutcome::RetryAfter(self.wait(spec).max(own_pause)),
            AttemptVerdict::Terminal => PushOutcome::GaveUp,
        };
        let settled = self.settle(&report, outcome, ended_at).await;
        self.count(&exchange, &settled);
        self.log(spec, &exchange, settled);
    }

    /// How long the receiver asked to be left alone.
    fn pause_asked_for(&self, exchange: &Exchange) -> Option<f64> {
        let answer = exchange.result.as_ref().ok().filter(|answer| matches!(answer.status, 429 | 503))?;
        retry_after::parse(answer.retry_after.as_deref()?, self.engine.time())
    }

    fn wait(&self, spec: &SubscriptionSpec) -> f64 {
        spec.retry.seconds_after(self.push.row.work.retry_count + 1, chance())
    }

    /// What the attempt says of its endpoint. Written before the delivery is settled, so that
    /// nothing else is sent there in between. A fault here costs the delivery nothing. Returns
    /// whether all of it was written.
    async fn note_endpoint(
        &self,
        spec: &SubscriptionSpec,
        exchange: &Exchange,
        judgement: AttemptVerdict,
        pause: Option<f64>,
    ) -> bool {
        let note = EndpointNote { finding: self.finding(&spec.url, exchange, judgement), pause_seconds: pause };
        let noted = async {
            self.engine.note_endpoint(&spec.url, note).await?;
            if matches!(&exchange.result, Ok(answer) if answer.status == 410) {
                self.engine.deactivate_subscription(self.push.subscription_id, &spec.url, "gone").await?;
            }
            Ok::<(), Error>(())
        };
        let noted = noted.await;
        if let Err(error) = &noted {
            log::warn!(endpoint = without_query(&spec.url); "the state of an endpoint could not be written: {error}");
        }
        noted.is_ok()
    }

    /// Returns what the attempt says of its endpoint, if that is any news.
    fn finding(&self, url: &str, exchange: &Exchange, judgement: AttemptVerdict) -> Option<Finding> {
        let is_sent = !matches!(&exchange.result, Err(error) if error.kind == ErrorKind::BodyNotRenderable);
        match judgement {
            AttemptVerdict::Retry => {
                self.failing.note(url);
                Some(Finding::Failed { is_probe: self.is_probe })
            }
            // Whoever answers, be it with a refusal, is there.
            _ if is_sent && (self.failing.forget(url) || self.has_failed_before) => Some(Finding::Answered),
            _ if self.is_probe => Some(Finding::ProbeUnused),
            _ => None,
        }
    }

    fn report(&self, exchange: &Exchange, version: Option<i32>, judgement: AttemptVerdict) -> Report {
        let error_message = match &exchange.result {
            Ok(answer) if answer.is_success() => None,
            Ok(answer) => Some(format!("the receiver answered {}", answer.status)),
            Err(error) => Some(format!("{}: {}", error.kind, error.detail)),
        };
        let answer = exchange.result.as_ref().ok();
        Report {
            status_code: answer.map(|answer| i32::from(answer.status)),
            execution_time_ms: Some(exchange.duration.as_millis() as i64),
            error_message,
            result: None,
            push: PushRecord {
                error_kind: exchange.result.as_ref().err().map(|error| error.kind),
                response_excerpt: answer.map(|a| a.excerpt.clone()).filter(|excerpt| !excerpt.is_empty()),
                subscription_version: Some(version.unwrap_or(self.subscriber.subscription.version)),
                is_terminal: judgement == AttemptVerdict::Terminal,
            },
        }
    }

    /// Puts the outcome on record, trying for as long as the lease lasts: what was sent and not
    /// recorded is sent twice. Once the lease has ended, the outcome would be refused.
    async fn settle(&self, report: &Report, outcome: PushOutcome, ended_at: Instant) -> Result<SettleOutcome, Error> {
        let lease = super::lease_of(&self.subscriber.subscription.spec);
        loop {
            match self.engine.settle_push(&self.push, report.clone(), outcome.clone(), ended_at).await {
                Err(Error::Unavailable(_) | Error::OutcomeUnknown(_) | Error::Overloaded)
                    if may_try_again(self.claimed_at, lease, Instant::now()) =>
                {
                    tokio::time::sleep(RECORD_PAUSE).await
                }
                settled => return settled,
            }
        }
    }

    fn count(&self, exchange: &Exchange, settled: &Result<SettleOutcome, Error>) {
        let metrics = &self.engine.metrics();
        let count = |what| metrics.count_push(what, self.push.subscription_id.0);
        count(PushCount::Sent);
        metrics.push_seconds.observe(exchange.duration.as_secs_f64());
        if self.push.row.work.retry_count == 0 {
            let age = self.engine.time() - self.push.row.event.created_at;
            metrics.first_push_seconds.observe(age.as_seconds_f64().max(0.0));
        }
        match settled {
            Ok(SettleOutcome::Recorded(record)) if record.status == Status::Completed => count(PushCount::Succeeded),
            Ok(SettleOutcome::Recorded(record)) if record.status == Status::Pending => count(PushCount::Retried),
            _ => {}
        }
    }

    fn log(&self, spec: &SubscriptionSpec, exchange: &Exchange, settled: Result<SettleOutcome, Error>) {
        let outcome = match &exchange.result {
            Ok(answer) => answer.status.to_string(),
            Err(error) => error.kind.to_string(),
        };
        let (state, next_due) = match &settled {
            Ok(SettleOutcome::Recorded(record)) => (state_of(record.status), record.entry.next_retry_at()),
            Ok(SettleOutcome::Extended { .. }) => ("", None),
            Err(Error::Refused(_)) => ("lost", None),
            Err(error) => {
                log::error!(delivery_id = self.push.delivery_id; "an attempt could not be put on record: {error}");
                return;
            }
        };
        log::info!(
            event_id = self.push.row.event.id,
            delivery_id = self.push.delivery_id,
            subscription_id = self.push.subscription_id,
            endpoint = without_query(&spec.url),
            attempt = self.push.row.work.retry_count + 1,
            outcome = outcome.as_str(),
            state,
            duration_ms = exchange.duration.as_millis() as u64,
            next_due = next_due.map(|at: DateTime<Utc>| at.to_rfc3339()).unwrap_or_default().as_str();
            "push"
        );
    }
}

/// Whether the lease lasts until the next try. By a clock that nobody sets: a wall clock that jumps
/// would cut the tries short, or go on with them after the lease.
fn may_try_again(claimed_at: Instant, lease: Duration, now: Instant) -> bool {
    now.duration_since(claimed_at) + RECORD_PAUSE < lease
}

fn state_of(status: Status) -> &'static str {
    match status {
        Status::Completed => "delivered",
        Status::Pending | Status::Processing => "retry",
        Status::Failed => "dead_letter",
        Status::Cancelled => "cancelled",
    }
}

fn not_sent(detail: String) -> Exchange {
    let error = SendError { kind: ErrorKind::BodyNotRenderable, detail };
    Exchange { duration: Duration::ZERO, result: Err(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_is_offered_for_as_long_as_the_lease_from_its_claim_lasts() {
        let (claimed_at, lease) = (Instant::now(), Duration::from_secs(16));
        let may_try_after =
            |milliseconds| may_try_again(claimed_at, lease, claimed_at + Duration::from_millis(milliseconds));
        assert!(may_try_after(0) && may_try_after(15_499));
        assert!(!may_try_after(15_500) && !may_try_after(60_000));
    }
}
