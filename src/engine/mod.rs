//! The engine: all writes that change the state of work.
//!
//! There is one function per verb and one transaction per call. The same transaction writes the rows of
//! `event_log` that record the change, which keeps the log and the state consistent. Every verb takes
//! many items at once: `publish_events`, `claim_deliveries`, `settle_deliveries`.
//!
//! A [`change_set::ChangeSet`] holds locked deliveries while the rules of [`crate::domain`] change them.
//! The [`waiting::hub::Hub`] holds the waiting workers. A delivery that enters `ready` wakes one of them
//! after the commit, on this server directly and on other servers through the
//! [`waiting::peer_notifier::PeerNotifier`]. [`waiting::worker_sightings::WorkerSightings`] records the
//! workers that called, and [`stats::Stats`] counts what is done. The [`trail::Trail`] has what streams of the event log
//! share. The [`keys::KeyCache`] knows who may call, and the [`sources::cache::SourceCache`] whose webhooks are taken.
//!
//! A caller that disconnects must not interrupt a transaction. Therefore writes run as tasks of the main
//! runtime, and the future of the caller only waits.

pub(crate) mod batching;
mod busy_keys;
pub(crate) mod change_set;
pub mod claim;
pub mod clock;
pub(crate) mod histories;
pub mod keys;
pub mod limits;
mod logs;
pub(crate) mod namespaces;
mod notable;
pub mod operate;
mod own_task;
pub(crate) mod publish;
pub mod push;
mod read_turns;
pub mod refused_calls;
pub mod refused_settlements;
mod secret_keys;
pub mod settle;
pub mod sources;
pub mod stats;
pub mod sweep;
pub(crate) mod trail;
mod transaction;
mod turns;
pub mod waiting;

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinError;
use tokio::time::timeout_at;
use tokio_util::task::TaskTracker;

use crate::domain::address::AllowList;
use crate::domain::backoff::Backoff;
use crate::domain::encryption::Keyring;
use crate::domain::ids::{NamespaceId, SubscriptionKey};
use crate::domain::retention::Retention;
use crate::domain::scope::Scope;
use crate::error::{Error, OutageKind};
use crate::logging::REQUEST_ID;
use crate::metrics::Metrics;
use crate::metrics::subscriptions::SubscriptionCount;
use crate::store::connection::database::Database;
use crate::store::tables::endpoints::BreakerRule;
use crate::store::tables::ready::QueueKey;
use crate::traces::Tracer;

use batching::batchers::{Batchers, weight};
use batching::deadline::{CallDeadline, Work, too_late};
use change_set::Applied;
use clock::Clock;
use keys::KeyCache;
use limits::LimitUse;
use namespaces::NamespaceNames;
use publish::filter_overruns::FilterOverruns;
use publish::matching::MatchingSlots;
use publish::recent_repeats::RecentRepeats;
use publish::schema_cache::SchemaCache;
use publish::subscription_cache::SubscriptionCache;
use push::dispatch_signal::DispatchSignal;
use push::yielding::PushPause;
use read_turns::ReadTurns;
use refused_calls::RefusedCalls;
use refused_settlements::RefusedSettlements;
use sources::cache::SourceCache;
use sources::refused_webhooks::RefusedWebhookCounts;
use stats::Stats;
use trail::Trail;
use waiting::due_times::DueTimes;
use waiting::hub::{Hub, Queues};
use waiting::low_water_marks::{LowWaterMarks, QueuePosition};
use waiting::peer_notifier::{Arrivals, PeerNotifier};
use waiting::worker_sightings::WorkerSightings;

/// A caller gets a response within this time, even if the database does not respond.
const RESPOND_WITHIN: Duration = Duration::from_millis(4_700);

/// The time between the two scans after a commit whose outcome is unknown.
const SCAN_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The number of times that a transaction is run again after a conflict.
const CONFLICT_RETRIES: usize = 3;

/// The settings of the engine.
#[derive(Debug, Clone)]
pub struct EngineSettings {
    /// The backoff of events that specify none.
    pub default_backoff: Backoff,
    /// The number of leases that may expire in a row before an event fails as poison.
    pub poison_after: i32,
    /// The maximum number of workers that wait in long polls at once.
    pub max_waiting: usize,
    /// The maximum number of calls of one verb that wait for the database.
    pub max_queued: usize,
    /// The number of batches, of all verbs together, that run at once. A batch that waits too long for
    /// its permit runs without one.
    pub batches_at_once: usize,
    /// The maximum number of rows that a list reads for a filter without an index.
    pub list_scan_rows: i64,
    /// The maximum number of streams of the event log.
    pub max_streams: usize,
    /// When the circuit breaker of an endpoint opens, and for how long.
    pub breaker: BreakerRule,
    /// The maximum number of namespaces.
    pub max_namespaces: i64,
    /// The maximum number of subscriptions of a namespace.
    pub max_subscriptions: i64,
    /// How long the idempotency keys of publishers are kept.
    pub idempotency_retention: Retention,
    /// The maximum number of sources of a namespace.
    pub max_sources: i64,
    /// The maximum number of event types that a namespace declares.
    pub max_event_types: i64,
    /// The private or otherwise special addresses that pushes may go to.
    pub webhook_allow: AllowList,
    /// The keys that encrypt secrets at rest.
    pub secret_keys: Keyring,
}

/// A handle to the engine. It is cheap to clone, and all clones share their state.
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
    trail: Trail,
    read_turns: ReadTurns,
    keys: KeyCache,
    sources: SourceCache,
    refused_webhooks: RefusedWebhookCounts,
    namespace_names: NamespaceNames,
    limit_use: LimitUse,
    subscription_cache: SubscriptionCache,
    matching_slots: MatchingSlots,
    schema_cache: SchemaCache,
    recent_repeats: RecentRepeats,
    filter_overruns: FilterOverruns,
    refused_calls: RefusedCalls,
    refused_settlements: RefusedSettlements,
    dispatch_signal: DispatchSignal,
    operation_started: Notify,
    metrics: Metrics,
    tracer: OnceLock<Tracer>,
    stats: Stats,
    instance: String,
    runtime: Handle,
    /// Claims that are being undone because their responses did not arrive.
    claim_undos: TaskTracker,
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

    /// Returns whether publishers have lately sent events again.
    pub(crate) fn recent_repeats(&self) -> &RecentRepeats {
        &self.0.recent_repeats
    }

    /// Returns the workers that called since they were last recorded.
    pub fn worker_sightings(&self) -> &WorkerSightings {
        &self.0.worker_sightings
    }

    /// Returns what the streams of the event log share.
    pub(crate) fn trail(&self) -> &Trail {
        &self.0.trail
    }

    /// Returns the turns of lists and pages.
    pub(crate) fn read_turns(&self) -> &ReadTurns {
        &self.0.read_turns
    }

    /// Returns the API keys that this server has in memory.
    pub fn keys(&self) -> &KeyCache {
        &self.0.keys
    }

    /// Returns the sources that this server has in memory.
    pub fn sources(&self) -> &SourceCache {
        &self.0.sources
    }

    /// Returns the counts of refused webhooks since they were last recorded.
    pub fn refused_webhooks(&self) -> &RefusedWebhookCounts {
        &self.0.refused_webhooks
    }

    /// Returns the names of namespaces that this server has looked up.
    pub fn namespace_names(&self) -> &NamespaceNames {
        &self.0.namespace_names
    }

    /// Returns where the limits of namespaces and keys stand.
    pub fn limit_use(&self) -> &LimitUse {
        &self.0.limit_use
    }

    /// Returns this server's snapshots of the subscriptions.
    pub fn subscription_cache(&self) -> &SubscriptionCache {
        &self.0.subscription_cache
    }

    /// Returns the limits on matchings that take long.
    pub fn matching_slots(&self) -> &MatchingSlots {
        &self.0.matching_slots
    }

    /// Returns the schemas of event types that this server has compiled.
    pub(crate) fn schema_cache(&self) -> &SchemaCache {
        &self.0.schema_cache
    }

    /// Returns the slots in which schemas are compiled and large payloads are checked.
    pub fn schema_slots(&self) -> &Arc<Semaphore> {
        self.0.schema_cache.slots()
    }

    /// Returns the filters that exceeded their budget since they were last recorded.
    pub fn filter_overruns(&self) -> &FilterOverruns {
        &self.0.filter_overruns
    }

    /// Returns the counts of refused calls since they were last recorded.
    pub fn refused_calls(&self) -> &RefusedCalls {
        &self.0.refused_calls
    }

    /// Returns the settlements that were refused since they were last recorded.
    pub fn refused_settlements(&self) -> &RefusedSettlements {
        &self.0.refused_settlements
    }

    /// Returns the signal that wakes the dispatcher.
    pub fn dispatch_signal(&self) -> &DispatchSignal {
        &self.0.dispatch_signal
    }

    /// Returns the signal that wakes the runner of operations.
    pub fn operation_started(&self) -> &Notify {
        &self.0.operation_started
    }

    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// Sets the tracer. Must be called before the first request; further calls have no effect.
    pub(crate) fn trace_with(&self, tracer: Tracer) {
        let _ = self.0.tracer.set(tracer);
    }

    /// Returns the tracer, which records nothing unless it was set.
    pub(crate) fn tracer(&self) -> &Tracer {
        self.0.tracer.get_or_init(Tracer::default)
    }

    /// Returns what this server has done since it was last stored.
    pub fn stats(&self) -> &Stats {
        &self.0.stats
    }
}

impl Engine {
    /// Creates an engine and starts its batchers. Must be called on the main runtime, which runs all writes.
    pub fn new(database: Database, clock: Clock, settings: EngineSettings) -> Self {
        let runtime = Handle::current();
        let push_pause = Arc::<PushPause>::default();
        let engine = Engine(Arc::new_cyclic(|engine| EngineParts {
            batchers: Batchers::open(engine, &runtime, &database, &settings, push_pause.clone()),
            push_pause,
            read_turns: ReadTurns::new(database.max_connections(), settings.batches_at_once),
            database,
            clock,
            hub: Arc::new(Hub::new(settings.max_waiting)),
            low_water_marks: LowWaterMarks::default(),
            due_times: DueTimes::default(),
            peer_notifier: PeerNotifier::default(),
            worker_sightings: WorkerSightings::default(),
            trail: Trail::new(settings.max_streams),
            keys: KeyCache::default(),
            sources: SourceCache::default(),
            refused_webhooks: RefusedWebhookCounts::default(),
            namespace_names: NamespaceNames::default(),
            limit_use: LimitUse::default(),
            subscription_cache: SubscriptionCache::default(),
            matching_slots: MatchingSlots::default(),
            schema_cache: SchemaCache::default(),
            recent_repeats: RecentRepeats::default(),
            filter_overruns: FilterOverruns::default(),
            refused_calls: RefusedCalls::default(),
            refused_settlements: RefusedSettlements::default(),
            dispatch_signal: DispatchSignal::default(),
            operation_started: Notify::default(),
            metrics: Metrics::new(),
            tracer: OnceLock::new(),
            stats: Stats::default(),
            settings,
            instance: format!(
                "{}:{}:{}",
                gethostname::gethostname().to_string_lossy(),
                std::process::id(),
                getrandom::u32().unwrap_or_default()
            ),
            runtime,
            claim_undos: TaskTracker::new(),
        }));
        engine.forget_when_history_changes();
        engine
    }

    /// Returns the number of calls that wait for the database, by verb.
    pub fn queued(&self) -> Queued {
        self.0.batchers.queued()
    }

    /// Returns the name of this server process, which is unique among the servers on the same database.
    pub fn instance(&self) -> &str {
        &self.0.instance
    }

    /// Returns the time to pass to statements as `now`, or `None` for the database's own time.
    pub fn now(&self) -> Option<DateTime<Utc>> {
        self.clock().now()
    }

    /// Returns the scope of what the server does on its own account in a namespace. Statements that serve many
    /// namespaces at once have none: there the namespace is a column of the input.
    pub fn scope_of(&self, namespace: NamespaceId) -> Scope {
        Scope::new(namespace, self.now())
    }

    /// Returns the current time without a query: the time of a fixed clock, or this server's own.
    pub fn time(&self) -> DateTime<Utc> {
        self.now().unwrap_or_else(Utc::now)
    }

    /// Runs work as a task of the main runtime. The task continues if the caller disconnects, and the
    /// caller gets a result in time even if the task does not end. The task is spawned at once, before the
    /// returned future is polled. Therefore that future stays small: it does not contain the work.
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
        let result_of = move |joined: Result<Result<T, Error>, JoinError>, time: &CallDeadline| match joined {
            Ok(result) => result,
            Err(panic) => {
                let cause = format!("a task panicked: {panic}");
                Err(time.without_answer(Error::Internal(cause.clone()), &cause))
            }
        };
        async move {
            if let Ok(joined) = timeout_at(time.send_by(), &mut task).await {
                return result_of(joined, &time);
            }
            if time.cancel() {
                return Err(too_late());
            }
            match timeout_at(time.respond_by(), task).await {
                Ok(joined) => result_of(joined, &time),
                Err(_) => Err(Error::OutcomeUnknown("no answer from the database in time".into())),
            }
        }
    }

    /// Wakes workers, dispatchers and sweeps for the changes of a transaction. Call it after the commit.
    fn notify_after_commit(&self, applied: &Applied) {
        if !applied.entries.is_empty() {
            self.database().note_success();
        }
        self.due_times().wait_for(&applied.earliest_times);
        for SubscriptionKey { namespace, id } in &applied.dead_lettered {
            self.metrics().subscriptions.count(SubscriptionCount::DeadLettered, (namespace.0, id.0), 1);
        }
        self.note_changes(applied);
        let times = applied.entries.iter().map(|entry| entry.created_at);
        self.stats().count_changes(applied.counted.iter().zip(times));
        self.wake(&applied.entered_ready);
    }

    /// Wakes all workers, dispatchers and sweeps after a transaction whose outcome is unknown. It may have
    /// inserted into any queue, or set any due time. The database may commit it only later, so everything
    /// is scanned a second time after [`SCAN_AGAIN_AFTER`].
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

    /// Notifies waiting workers and dispatchers, on all servers, of deliveries that entered `ready`. Call it
    /// after the commit.
    fn wake(&self, entered: &[ReadyEntry]) {
        let mut arrivals: HashMap<QueueKey, Arrivals> = HashMap::new();
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
                [queue] if queue.subscription().is_some() => self.dispatch_signal().signal(queue.subscription()),
                _ => self.hub().notify(queues),
            }
        }
        self.peer_notifier().notify_queues(arrivals);
    }

    /// Records deliveries that entered a queue earlier or through another server.
    pub fn note_arrivals(&self, queue: &QueueKey, arrivals: Arrivals) {
        self.low_water_marks().lower(queue, arrivals.first);
        self.wake_for(queue, arrivals.count);
    }

    /// Wakes up to `count` waiters of a queue, or the dispatcher.
    pub fn wake_for(&self, queue: &QueueKey, count: usize) {
        match queue.subscription() {
            Some(key) => self.dispatch_signal().signal(Some(key)),
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
    pub queues: Queues,
    /// The position of the delivery, the same in each queue.
    pub position: QueuePosition,
}

/// Returns the error of a call that was not started because the server is stopping.
fn stopping() -> Error {
    Error::outage(OutageKind::Stopping, "the server is stopping")
}

pub use batching::batchers::Queued;
use transaction::{statement, transaction};
