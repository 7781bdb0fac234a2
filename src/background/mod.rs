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
pub mod pruner;
pub mod queue_poller;
pub mod replayer;
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
        tasks.spawn(pruner::run(engine.clone(), settings.dead_letter_days, shutdown.clone()));
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

/// Waits, unless the server stops; answers whether to go on.
async fn pause(length: Duration, shutdown: &CancellationToken) -> bool {
    shutdown.run_until_cancelled(tokio::time::sleep(length)).await.is_some()
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
