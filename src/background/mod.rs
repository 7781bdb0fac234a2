//! CLOCKS: services that run without a request.
//!
//! Each service is one file with a `run_once` that runs one round, which tests can call, and a `run`
//! that repeats it until the server stops. A failed round is logged once, and the next round tries
//! again. The services are needed for progress, but not for correctness.

pub mod busy_keys;
pub(crate) mod catch_up;
pub(crate) mod connection_trimmer;
pub mod dispatcher;
pub mod expirer;
pub(crate) mod history_checker;
pub(crate) mod key_refresher;
pub(crate) mod key_use_recorder;
pub mod lease_reaper;
pub mod limit_refresher;
pub(crate) mod listener;
pub mod log_summarizer;
pub(crate) mod log_tailer;
pub(crate) mod maintenance;
pub(crate) mod notifier;
pub mod operation_runner;
pub(crate) mod overrun_recorder;
pub mod promoter;
pub(crate) mod queue_poller;
pub(crate) mod refusal_recorder;
pub(crate) mod refused_settlement_recorder;
pub(crate) mod refused_webhook_recorder;
pub mod retention;
pub(crate) mod sighting_recorder;
pub(crate) mod source_refresher;
pub mod stats_recorder;
pub mod subscription_drainer;
pub(crate) mod suppressed_lines;
pub mod unwatched;

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::engine::Engine;
use crate::engine::clock::Clock;
use crate::engine::sweep::SweepOutcome;
use crate::error::Error;
use crate::webhook::Client;
use dispatcher::DispatcherSettings;
use retention::RetentionSettings;

/// Which services run, and how often.
#[derive(Debug, Clone)]
pub struct BackgroundSettings {
    /// Whether expired leases are reset.
    pub auto_reset: bool,
    /// Whether servers notify each other of new work with `NOTIFY`.
    pub notify: bool,
    /// The time between two scans of the queues that workers wait for, in case a notification is lost.
    pub poll_interval: Duration,
    /// The settings of the dispatcher, or `None` if this server does not push events.
    pub dispatch: Option<DispatcherSettings>,
    /// For how long what has ended is kept.
    pub retention: RetentionSettings,
}

/// Starts all services. They end when `shutdown` is cancelled.
pub fn start(
    engine: &Engine,
    client: &Client,
    settings: &BackgroundSettings,
    shutdown: &CancellationToken,
) -> TaskTracker {
    let tasks = TaskTracker::new();
    // With a clock that tests set by hand, tests also run these services by hand.
    if matches!(engine.clock(), Clock::Database) {
        tasks.spawn(promoter::run(engine.clone(), shutdown.clone()));
        tasks.spawn(expirer::run(engine.clone(), shutdown.clone()));
        tasks.spawn(lease_reaper::run(engine.clone(), settings.auto_reset, shutdown.clone()));
        tasks.spawn(unwatched::run(engine.clone(), shutdown.clone()));
        tasks.spawn(busy_keys::run(engine.clone(), settings.auto_reset, shutdown.clone()));
        tasks.spawn(limit_refresher::run(engine.clone(), shutdown.clone()));
        tasks.spawn(stats_recorder::run(engine.clone(), shutdown.clone()));
        tasks.spawn(operation_runner::run(engine.clone(), shutdown.clone()));
        tasks.spawn(subscription_drainer::run(engine.clone(), shutdown.clone()));
        tasks.spawn(retention::run(engine.clone(), settings.retention.clone(), shutdown.clone()));
        tasks.spawn(retention::events::run(engine.clone(), settings.retention.events, shutdown.clone()));
    }
    tasks.spawn(sighting_recorder::run(engine.clone(), shutdown.clone()));
    tasks.spawn(key_use_recorder::run(engine.clone(), shutdown.clone()));
    tasks.spawn(key_refresher::run(engine.clone(), settings.poll_interval, shutdown.clone()));
    tasks.spawn(source_refresher::run(engine.clone(), settings.poll_interval, shutdown.clone()));
    tasks.spawn(refused_webhook_recorder::run(engine.clone(), shutdown.clone()));
    tasks.spawn(history_checker::run(engine.clone(), shutdown.clone()));
    tasks.spawn(overrun_recorder::run(engine.clone(), shutdown.clone()));
    tasks.spawn(refusal_recorder::run(engine.clone(), shutdown.clone()));
    tasks.spawn(refused_settlement_recorder::run(engine.clone(), shutdown.clone()));
    tasks.spawn(queue_poller::run(engine.clone(), settings.poll_interval, shutdown.clone()));
    if settings.notify {
        tasks.spawn(notifier::run(engine.clone(), shutdown.clone()));
        tasks.spawn(listener::run(engine.clone(), shutdown.clone()));
    }
    if let Some(dispatcher) = settings.dispatch {
        tasks.spawn(dispatcher::run(engine.clone(), client.clone(), dispatcher, shutdown.clone()));
    }
    tasks.spawn(catch_up::run(engine.clone(), shutdown.clone()));
    tasks.spawn(maintenance::run(engine.clone(), settings.retention.clone(), shutdown.clone()));
    tasks.spawn(log_summarizer::run(engine.clone(), shutdown.clone()));
    tasks.spawn(log_tailer::run(engine.clone(), shutdown.clone()));
    tasks.spawn(connection_trimmer::run(engine.clone(), shutdown.clone()));
    tasks.spawn(suppressed_lines::run(engine.clone(), shutdown.clone()));
    tasks.close();
    tasks
}

/// How a service repeats its rounds. Services that wait for a signal have loops of their own.
pub(crate) struct Service {
    /// The name in the log.
    pub name: &'static str,
    /// The time between two rounds, before jitter. A round may return another time.
    pub interval: Duration,
    /// Whether the first round runs at once instead of after an interval.
    pub at_once: bool,
    /// Whether one more round runs when the server stops.
    pub once_more_at_stop: bool,
}

impl Service {
    /// Creates a service whose first round runs after `interval`.
    pub(crate) fn every(name: &'static str, interval: Duration) -> Self {
        Service { name, interval, at_once: false, once_more_at_stop: false }
    }

    /// Runs rounds until the server stops. A round may return the time until the next one. A failed
    /// round is logged, and the next one runs after an interval.
    pub(crate) async fn run<F, Round>(self, engine: Engine, shutdown: CancellationToken, round: F)
    where
        F: Fn(Engine) -> Round,
        Round: Future<Output = Result<Option<Duration>, Error>>,
    {
        let mut wait = if self.at_once { Duration::ZERO } else { jittered(self.interval) };
        loop {
            let is_running = pause(wait, &shutdown).await;
            if !is_running && !self.once_more_at_stop {
                return;
            }
            wait = match round(engine.clone()).await {
                Ok(Some(next)) => next,
                Ok(None) => jittered(self.interval),
                Err(error) => {
                    report(self.name, &error);
                    jittered(self.interval)
                }
            };
            if !is_running {
                return;
            }
        }
    }
}

/// Waits for `duration`. Returns `false`, possibly early, if the server stops.
async fn pause(duration: Duration, shutdown: &CancellationToken) -> bool {
    shutdown.run_until_cancelled(tokio::time::sleep(duration)).await.is_some()
}

/// Returns the pause before a sweep that is due in `seconds`, within limits, or `None` if that is unknown.
fn until_next(seconds: Option<f64>, shortest: Duration, longest: Duration) -> Option<Duration> {
    seconds.map(|seconds| Duration::from_secs_f64(seconds.clamp(0.0, 1.0)).clamp(shortest, longest))
}

/// Sweeps in batches until nothing is left. Returns the outcome of the last batch with the total count.
async fn sweep_all<F: Future<Output = Result<SweepOutcome, Error>>>(
    batch: impl Fn() -> F,
) -> Result<SweepOutcome, Error> {
    let mut count = 0;
    loop {
        let swept = batch().await?;
        count += swept.count;
        if !swept.more {
            return Ok(SweepOutcome { count, ..swept });
        }
    }
}

/// Changes a duration by up to a quarter at random, to spread the rounds of servers started together.
fn jittered(duration: Duration) -> Duration {
    let chance = getrandom::u32().map_or(0.5, |bits| f64::from(bits) / f64::from(u32::MAX));
    duration.mul_f64(0.75 + chance / 2.0)
}

/// Logs a failed round. An unavailable database is a warning and not an error.
fn report(service: &str, error: &Error) {
    match error {
        Error::Unavailable(_) | Error::OutcomeUnknown(_) => log::warn!(service; "a round was skipped: {error}"),
        _ => log::error!(service; "a round failed: {error}"),
    }
}
