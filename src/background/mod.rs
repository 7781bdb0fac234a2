//! CLOCKS: what happens without anybody asking.
//!
//! Each service is one file with a `run_once` that does one round, callable from a test, and
//! a `run` that repeats it until the server stops. A round that fails is logged once and
//! tried again at the next tick; nothing here is needed for correctness, only for progress.

pub mod busy_keys;
pub mod catch_up;
pub mod connection_trimmer;
pub mod dispatcher;
pub mod expirer;
pub mod history_checker;
pub mod lease_reaper;
pub mod listener;
pub mod maintenance;
pub mod notifier;
pub mod overrun_recorder;
pub mod promoter;
pub mod queue_poller;
pub mod replayer;
pub mod retention;
pub mod sighting_recorder;
pub mod subscription_drainer;
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

/// Which services run, and how often.
#[derive(Debug, Clone)]
pub struct BackgroundSettings {
    /// Whether expired leases are reset.
    pub auto_reset: bool,
    /// Whether servers tell each other of new work by `NOTIFY`.
    pub notify: bool,
    /// How often waiting workers' queues are looked at, in case no word came.
    pub poll_interval: Duration,
    /// Whether events are pushed from here.
    pub dispatch: Option<DispatcherSettings>,
    /// For how many days dead letters are kept.
    pub dead_letter_days: u32,
}

/// Starts all services; they end when `shutdown` is cancelled.
pub fn start(
    engine: &Engine,
    client: &Client,
    settings: &BackgroundSettings,
    shutdown: &CancellationToken,
) -> TaskTracker {
    let tasks = TaskTracker::new();
    // A clock that is moved by hand has its services run by hand, too.
    if matches!(engine.clock(), Clock::Database) {
        tasks.spawn(promoter::run(engine.clone(), shutdown.clone()));
        tasks.spawn(expirer::run(engine.clone(), shutdown.clone()));
        tasks.spawn(lease_reaper::run(engine.clone(), settings.auto_reset, shutdown.clone()));
        tasks.spawn(unwatched::run(engine.clone(), shutdown.clone()));
        tasks.spawn(busy_keys::run(engine.clone(), settings.auto_reset, shutdown.clone()));
        tasks.spawn(replayer::run(engine.clone(), shutdown.clone()));
        tasks.spawn(subscription_drainer::run(engine.clone(), shutdown.clone()));
        tasks.spawn(retention::run(engine.clone(), settings.dead_letter_days, shutdown.clone()));
    }
    tasks.spawn(sighting_recorder::run(engine.clone(), shutdown.clone()));
    tasks.spawn(history_checker::run(engine.clone(), shutdown.clone()));
    tasks.spawn(overrun_recorder::run(engine.clone(), shutdown.clone()));
    tasks.spawn(queue_poller::run(engine.clone(), settings.poll_interval, shutdown.clone()));
    if settings.notify {
        tasks.spawn(notifier::run(engine.clone(), shutdown.clone()));
        tasks.spawn(listener::run(engine.clone(), shutdown.clone()));
    }
    if let Some(dispatcher) = settings.dispatch {
        tasks.spawn(dispatcher::run(engine.clone(), client.clone(), dispatcher, shutdown.clone()));
    }
    tasks.spawn(catch_up::run(engine.clone(), shutdown.clone()));
    tasks.spawn(maintenance::run(engine.clone(), shutdown.clone()));
    tasks.spawn(connection_trimmer::run(engine.clone(), shutdown.clone()));
    tasks.close();
    tasks
}

/// How a service repeats its rounds. All services but those that wait for a message run like this.
pub(crate) struct Service {
    /// The name in the log.
    pub name: &'static str,
    /// The time between two rounds, jittered, unless a round says otherwise.
    pub interval: Duration,
    /// Whether the first round is run at once, and not after an interval.
    pub at_once: bool,
    /// Whether one more round is run when the server stops.
    pub once_more_at_stop: bool,
}

impl Service {
    /// Returns a service whose first round comes after `interval`.
    pub fn every(name: &'static str, interval: Duration) -> Self {
        Service { name, interval, at_once: false, once_more_at_stop: false }
    }

    /// Runs rounds until the server stops. A round may return the time until the next one. A round
    /// that fails is logged, and the next one comes after an interval.
    pub async fn run<F, Round>(self, engine: Engine, shutdown: CancellationToken, round: F)
    where
        F: Fn(Engine) -> Round,
        Round: Future<Output = Result<Option<Duration>, Error>>,
    {
        let mut wait = if self.at_once { Duration::ZERO } else { jittered(self.interval) };
        loop {
            let goes_on = pause(wait, &shutdown).await;
            if !goes_on && !self.once_more_at_stop {
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
            if !goes_on {
                return;
            }
        }
    }
}

/// Waits, unless the server stops; returns whether to go on.
async fn pause(length: Duration, shutdown: &CancellationToken) -> bool {
    shutdown.run_until_cancelled(tokio::time::sleep(length)).await.is_some()
}

/// Returns the time until a sweep is run again that has to be run in `seconds`, if that is known.
fn until_next(seconds: Option<f64>, shortest: Duration, longest: Duration) -> Option<Duration> {
    seconds.map(|seconds| Duration::from_secs_f64(seconds.clamp(0.0, 1.0)).clamp(shortest, longest))
}

/// Sweeps until there is no more to do at once; answers what it came to.
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

/// Up to a quarter more or less, so that servers started together do not act together.
fn jittered(length: Duration) -> Duration {
    let chance = getrandom::u32().map_or(0.5, |bits| f64::from(bits) / f64::from(u32::MAX));
    length.mul_f64(0.75 + chance / 2.0)
}

/// Logs a failed round. The database being away is told once per round, not as an error.
fn report(service: &str, error: &Error) {
    match error {
        Error::Unavailable(_) | Error::OutcomeUnknown(_) => log::warn!(service; "a round was skipped: {error}"),
        _ => log::error!(service; "a round failed: {error}"),
    }
}
