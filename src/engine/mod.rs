//! WRITES: the one place through which work changes its state.
//!
//! One function per verb, one transaction per call, and in that transaction the lines of
//! `event_log` that say what was done, so that the log and the state cannot disagree. Every
//! verb takes many at once: `publish_events`, `claim_deliveries`, `settle_deliveries`.
//!
//! The cast: [`change_set::ChangeSet`] is a handful of deliveries under lock, being changed by the
//! rules of [`crate::domain`]; the [`waiting::hub::Hub`] holds the workers that wait; whatever enters
//! `ready` wakes one of them after the commit, here and, by way of [`waiting::peer_notifier::PeerNotifier`],
//! on other servers. [`waiting::worker_sightings::WorkerSightings`] remembers who called.
//!
//! A caller that goes away must not cut a transaction in two, so writes run as tasks of the
//! main runtime; only waiting happens in the caller's own future.

pub mod batching;
mod busy_keys;
pub mod change_set;
pub mod claim;
pub mod clock;
pub mod histories;
pub mod operate;
pub mod publish;
pub mod push;
pub mod settle;
pub mod sweep;
mod transaction;
pub mod waiting;

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::runtime::Handle;
use tokio::task::JoinError;
use tokio::time::timeout_at;

use crate::domain::address::AllowList;
use crate::domain::backoff::Backoff;
use crate::domain::ids::NamespaceId;
use crate::domain::scope::Scope;
use crate::error::{Error, OutageKind};
use crate::logging::REQUEST_ID;
use crate::metrics::{Metrics, PushCount};
use crate::store::connection::database::Database;
use crate::store::tables::endpoints::BreakerRule;
use crate::store::tables::ready::subscription_of_queue;

use batching::batchers::{Batchers, weight};
use batching::deadline::{CallDeadline, Work, too_late};
use change_set::Applied;
use clock::Clock;
use publish::filter_overruns::FilterOverruns;
use publish::matching::MatchingSlots;
use publish::subscription_cache::SubscriptionCache;
use push::dispatch_signal::DispatchSignal;
use push::yielding::PushPause;
use waiting::due_times::DueTimes;
use waiting::hub::{Hub, Queues};
use waiting::low_water_marks::{LowWaterMarks, QueuePosition};
use waiting::peer_notifier::{Arrivals, PeerNotifier};
use waiting::worker_sightings::WorkerSightings;

/// A caller gets a response within this time, whatever the database does.
const RESPOND_WITHIN: Duration = Duration::from_millis(4_700);

/// The time between the two scans after a commit whose outcome is unknown.
const SCAN_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The number of times that a transaction is run again after a conflict.
const CONFLICT_RETRIES: usize = 3;

/// What the engine has to know about this server.
#[derive(Debug, Clone)]
pub struct EngineSettings {
    /// The wait after a failure, for events that do not say.
    pub default_backoff: Backoff,
    /// After how many leases that ran out in a row an event is given up as poison.
    pub poison_after: i32,
    /// How many workers may wait at once.
    pub max_waiting: usize,
    /// How many calls of one verb may wait for the database.
    pub max_queued: usize,
    /// How many batched batches, of whatever verb, are at the database at a time.
    pub batches_at_once: usize,
    /// How many rows a filter without an index may read.
    pub list_scan_rows: i64,
    /// When nothing is sent to an endpoint any more for a while.
    pub breaker: BreakerRule,
    /// How many subscriptions there may be.
    pub max_subscriptions: i64,
    /// Which special addresses pushes may go to all the same.
    pub webhook_allow: AllowList,
}

/// The engine. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Engine(Arc<EngineParts>);

/// The parts of the engine. Each is reached through a method of [`Engine`].
pub struct EngineParts {
    database: Database,
    clock: Clock,
    settings: EngineSettings,
    hub: Arc<Hub>,
    low_water_marks: LowWaterMarks,
    due_times: DueTimes,
    peer_notifier: PeerNotifier,
    worker_sightings: WorkerSightings,
    subscription_cache: SubscriptionCache,
    matching_slots: MatchingSlots,
    filter_overruns: FilterOverruns,
    dispatch_signal: DispatchSignal,
    metrics: Metrics,
    instance: String,
    runtime: Handle,
    batchers: Batchers,
    push_pause: Arc<PushPause>,
}

impl Engine {
    /// Returns the pool of connections.
    pub fn database(&self) -> &Database {
        &self.0.database
    }

    /// Returns the clock: the database's, or one that a test sets.
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// Returns the settings.
    pub fn settings(&self) -> &EngineSettings {
        &self.0.settings
    }

    /// Returns the workers that wait in long polls.
    pub fn hub(&self) -> &Arc<Hub> {
        &self.0.hub
    }

    /// Returns the positions at which claims begin, by queue.
    pub fn low_water_marks(&self) -> &LowWaterMarks {
        &self.0.low_water_marks
    }

    /// Returns the times at which sweeps begin.
    pub fn due_times(&self) -> &DueTimes {
        &self.0.due_times
    }

    /// Returns the collector of notifications for other servers.
    pub fn peer_notifier(&self) -> &PeerNotifier {
        &self.0.peer_notifier
    }

    /// Returns the workers that called since they were last recorded.
    pub fn worker_sightings(&self) -> &WorkerSightings {
        &self.0.worker_sightings
    }

    /// Returns this server's snapshot of the subscriptions.
    pub fn subscription_cache(&self) -> &SubscriptionCache {
        &self.0.subscription_cache
    }

    /// Returns the limits on matchings that take long.
    pub fn matching_slots(&self) -> &MatchingSlots {
        &self.0.matching_slots
    }

    /// Returns the filters that exceeded their budget since they were last recorded.
    pub fn filter_overruns(&self) -> &FilterOverruns {
        &self.0.filter_overruns
    }

    /// Returns the signal that wakes the dispatcher.
    pub fn dispatch_signal(&self) -> &DispatchSignal {
        &self.0.dispatch_signal
    }

    /// Returns the metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }
}

impl Engine {
    /// Puts an engine together. Must be called on the main runtime.
    pub fn new(database: Database, clock: Clock, settings: EngineSettings) -> Self {
        let runtime = Handle::current();
        let push_pause = Arc::<PushPause>::default();
        let engine = Engine(Arc::new_cyclic(|engine| EngineParts {
            batchers: Batchers::open(engine, &runtime, &database, &settings, push_pause.clone()),
            push_pause,
            database,
            clock,
            hub: Arc::new(Hub::new(settings.max_waiting)),
            low_water_marks: LowWaterMarks::default(),
            due_times: DueTimes::default(),
            peer_notifier: PeerNotifier::default(),
            worker_sightings: WorkerSightings::default(),
            subscription_cache: SubscriptionCache::default(),
            matching_slots: MatchingSlots::default(),
            filter_overruns: FilterOverruns::default(),
            dispatch_signal: DispatchSignal::default(),
            metrics: Metrics::new(),
            settings,
            instance: format!(
                "{}:{}:{}",
                gethostname::gethostname().to_string_lossy(),
                std::process::id(),
                getrandom::u32().unwrap_or_default()
            ),
            runtime,
        }));
        engine.forget_when_history_changes();
        engine
    }

    /// How many calls wait to be taken to the database.
    pub fn queued(&self) -> Queued {
        self.0.batchers.queued()
    }

    /// This server's name among those on the same database.
    pub fn instance(&self) -> &str {
        &self.0.instance
    }

    /// The time, where it is not the database's to tell.
    pub fn now(&self) -> Option<DateTime<Utc>> {
        self.clock().now()
    }

    /// Returns the scope of work that the server does on its own account or for many callers at once.
    pub fn scope(&self) -> Scope {
        Scope::new(NamespaceId::DEFAULT, self.now())
    }

    /// The time, where no statement asks the database for it.
    pub fn time(&self) -> DateTime<Utc> {
        self.now().unwrap_or_else(Utc::now)
    }

    /// Runs work as a task of the main runtime, which goes on even if the caller goes away,
    /// and answers in time even if it does not. Begins at once: a caller that waits for long
    /// must not carry all that its work needs along.
    fn detached<T, F>(&self, work: F) -> impl Future<Output = Result<T, Error>> + use<T, F>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let time = CallDeadline::start();
        let work = Work::on_call(time.clone()).run(work);
        let mut task = match REQUEST_ID.try_with(String::clone) {
            Ok(id) => self.0.runtime.spawn(REQUEST_ID.scope(id, work)),
            Err(_) => self.0.runtime.spawn(work),
        };
        let ended = move |ended: Result<Result<T, Error>, JoinError>, time: &CallDeadline| match ended {
            Ok(answer) => answer,
            Err(panic) => {
                let cause = format!("a task panicked: {panic}");
                Err(time.without_answer(Error::Internal(cause.clone()), &cause))
            }
        };
        async move {
            if let Ok(answer) = timeout_at(time.send_by(), &mut task).await {
                return ended(answer, &time);
            }
            if time.cancel() {
                return Err(too_late());
            }
            match timeout_at(time.respond_by(), task).await {
                Ok(answer) => ended(answer, &time),
                Err(_) => Err(Error::OutcomeUnknown("no answer from the database in time".into())),
            }
        }
    }

    /// Sees to what a transaction's changes call for. Call it after the commit.
    fn notify_after_commit(&self, applied: &Applied) {
        if !applied.entries.is_empty() {
            self.database().note_success();
        }
        self.due_times().wait_for(&applied.earliest_times);
        for subscription_id in &applied.dead_lettered {
            self.metrics().count_push(PushCount::DeadLettered, subscription_id.0);
        }
        self.wake(&applied.entered_ready);
    }

    /// Sees to what a transaction may have changed whose outcome is not known: anything may have
    /// entered any queue, or wait for any moment. The database may still be about to commit it, so
    /// everybody looks again a little later.
    fn notify_after_unknown_commit(&self) {
        let engine = self.clone();
        self.0.runtime.spawn(async move {
            for pause in [Duration::ZERO, SCAN_AGAIN_AFTER] {
                tokio::time::sleep(pause).await;
                engine.due_times().forget();
                engine.scan_all_queues();
                engine.peer_notifier().notify_all_queues();
            }
        });
    }

    /// Tells waiting workers and dispatchers, here and elsewhere, of deliveries that entered
    /// `ready`. Call it after the commit.
    fn wake(&self, entered: &[ReadyEntry]) {
        let mut arrivals: HashMap<String, Arrivals> = HashMap::new();
        for ReadyEntry { queues, position } in entered {
            for queue in queues.iter() {
                self.low_water_marks().lower(queue, *position);
                let arrival = Arrivals { first: *position, count: 1 };
                match arrivals.get_mut(queue) {
                    Some(arrivals) => arrivals.add(arrival),
                    None => drop(arrivals.insert(queue.clone(), arrival)),
                }
            }
            match &**queues {
                [queue] if subscription_of_queue(queue).is_some() => {
                    self.dispatch_signal().signal(subscription_of_queue(queue))
                }
                _ => self.hub().notify(queues),
            }
        }
        self.peer_notifier().notify_queues(arrivals);
    }

    /// Records deliveries that entered a queue earlier or through another server.
    pub fn note_arrivals(&self, queue: &str, arrivals: Arrivals) {
        self.low_water_marks().lower(queue, arrivals.first);
        self.wake_for(queue, arrivals.count);
    }

    /// Wakes up to `count` waiters of a queue, or the dispatcher.
    pub fn wake_for(&self, queue: &str, count: usize) {
        match subscription_of_queue(queue) {
            Some(id) => self.dispatch_signal().signal(Some(id)),
            None => self.hub().notify_many(queue, count),
        }
    }

    /// Scans all queues and due times from their start, because anything may have entered them.
    pub fn scan_all_queues(&self) {
        self.low_water_marks().forget();
        self.due_times().forget();
        self.hub().wake_all();
        self.dispatch_signal().signal(None);
    }
}

/// A delivery that has entered `ready`.
#[derive(Debug, Clone)]
pub struct ReadyEntry {
    /// The queues that it is in.
    pub queues: Queues,
    /// Its place in each.
    pub position: QueuePosition,
}

/// The answer to a call that was not begun because the server stops.
fn stopping() -> Error {
    Error::outage(OutageKind::Stopping, "the server is stopping")
}

pub use batching::batchers::Queued;
use transaction::{statement, transaction};
