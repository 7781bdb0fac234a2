//! Removes finished events, in two services that take turns: the front, which visits each event once, and the
//! search for what it had to leave. [`super::walk`] describes both.
//!
//! Namespaces take turns of a few steps: neither a backlog nor a failure in one keeps others from being cleaned up.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::RemovedRows;
use super::pace::{pause_for_workers, pause_of_search};
use super::walk::{Rest, Search, Step, Walk};
use crate::background::{Service, pause, report};
use crate::domain::ids::NamespaceId;
use crate::domain::retention::Retention;
use crate::domain::scope::Scope;
use crate::engine::Engine;
use crate::error::Error;
use crate::store::retention::events::list_namespaces;

/// The names of the services in the log.
const FRONT: &str = "removal of events";
const SEARCH: &str = "search for old events";

/// The time between two rounds of the front.
const FRONT_INTERVAL: Duration = Duration::from_secs(1);

/// The time between two passes of the search.
const SEARCH_INTERVAL: Duration = Duration::from_secs(10);

/// The time for which a walk that has found nothing rests, per namespace that there is, and its limit.
const REST_PER_NAMESPACE: Duration = Duration::from_millis(100);
const LONGEST_REST: Duration = Duration::from_secs(5 * 60);

/// The number of steps after which it is the next namespace's turn, however much there is left.
const STEPS_PER_TURN: usize = 10;

/// The walks of all namespaces on this server. Two steps of one server never run at the same time.
pub struct EventRemover {
    retention: Duration,
    fronts: Mutex<BTreeMap<NamespaceId, Walk>>,
    searches: Mutex<BTreeMap<NamespaceId, Search>>,
    step_lock: Mutex<()>,
    lags: std::sync::Mutex<Lags>,
}

/// By how many seconds the fronts and the searches are behind.
#[derive(Debug, Default)]
struct Lags {
    fronts: f64,
    searches: f64,
}

/// What is left after a turn of every namespace.
#[derive(Debug, Default)]
struct Turn {
    has_more: bool,
    /// The first failure. It does not keep the other namespaces from their turns.
    failure: Option<Error>,
}

impl Turn {
    /// Adds the turn of one namespace: whether it has more.
    fn add(&mut self, turn: Result<bool, Error>) {
        match turn {
            Ok(has_more) => self.has_more |= has_more,
            Err(error) => self.failure = self.failure.take().or(Some(error)),
        }
    }

    /// Returns the time until the next turn, or `None` if it is the usual one.
    fn until_next(self, service: &str) -> Result<Option<Duration>, Error> {
        match self.failure {
            Some(error) if !self.has_more => return Err(error),
            // The service waits after an error, and the namespaces that have more do not.
            Some(error) => report(service, &error),
            None => {}
        }
        Ok(self.has_more.then_some(Duration::ZERO))
    }
}

/// Removes all finished events that are old enough. Returns the number of removed rows by table.
pub async fn run_once(engine: &Engine, retention: Retention) -> Result<RemovedRows, Error> {
    let mut rows = RemovedRows::new();
    let Some(remover) = EventRemover::new(retention) else { return Ok(rows) };
    let never = CancellationToken::new();
    let (mut turn, mut failure) = (Turn { has_more: true, failure: None }, None);
    while turn.has_more {
        turn = remover.advance_fronts(engine, &never, |step| add(&mut rows, step)).await?;
        failure = failure.or(turn.failure.take());
    }
    turn.has_more = true;
    while turn.has_more {
        turn = remover.search(engine, None, |step| add(&mut rows, step)).await?;
        failure = failure.or(turn.failure.take());
    }
    failure.map_or(Ok(rows), Err)
}

fn add(rows: &mut RemovedRows, step: &Step) {
    for (table, removed) in step.removed_rows() {
        *rows.entry(table).or_default() += removed as usize;
    }
}

impl EventRemover {
    /// Returns the walks at their beginning, or `None` if events are kept for ever.
    pub fn new(retention: Retention) -> Option<Self> {
        Some(EventRemover {
            retention: retention.length()?,
            fronts: Mutex::default(),
            searches: Mutex::default(),
            step_lock: Mutex::default(),
            lags: std::sync::Mutex::default(),
        })
    }

    /// Lets the front of each namespace remove what it reaches in one turn.
    async fn advance_fronts(
        &self,
        engine: &Engine,
        shutdown: &CancellationToken,
        mut note: impl FnMut(&Step),
    ) -> Result<Turn, Error> {
        let mut fronts = self.fronts.lock().await;
        let listed = scopes(engine).await;
        if listed.is_err() {
            fronts.values_mut().for_each(Walk::note_failure);
            self.set_lag(engine, |lags| lags.fronts = greatest(fronts.values().map(Walk::lag_seconds)));
        }
        let (scopes, mut turn) = (listed?, Turn::default());
        let rest = rest_among(scopes.len(), FRONT_INTERVAL);
        for scope in scopes {
            let front = fronts.entry(scope.namespace).or_insert_with(|| Walk::front(self.retention));
            if front.is_due(rest) && !shutdown.is_cancelled() {
                turn.add(self.advance_front(engine, &scope, front, shutdown, &mut note).await);
                self.set_lag(engine, |lags| lags.fronts = greatest(fronts.values().map(Walk::lag_seconds)));
            }
        }
        Ok(turn)
    }

    /// Removes what one front reaches in one turn. Yields to workers, unless it lags behind. Returns whether there is
    /// more.
    async fn advance_front(
        &self,
        engine: &Engine,
        scope: &Scope,
        front: &mut Walk,
        shutdown: &CancellationToken,
        note: &mut impl FnMut(&Step),
    ) -> Result<bool, Error> {
        for _ in 0..STEPS_PER_TURN {
            let step = self.count(engine, front.step(engine, scope)).await?;
            note(&step);
            if !step.has_more() {
                return Ok(false);
            }
            if !yield_to_workers(engine, step.lag_seconds(), &step, shutdown).await {
                break;
            }
        }
        Ok(true)
    }

    /// Searches the events of each namespace that are old enough, for one turn. With a `shutdown` to listen to, it
    /// pauses between steps.
    async fn search(
        &self,
        engine: &Engine,
        shutdown: Option<&CancellationToken>,
        mut note: impl FnMut(&Step),
    ) -> Result<Turn, Error> {
        let mut searches = self.searches.lock().await;
        let listed = scopes(engine).await;
        if listed.is_err() {
            searches.values_mut().for_each(Search::note_failure);
            self.set_lag(engine, |lags| lags.searches = greatest(searches.values().map(Search::lag_seconds)));
        }
        let (scopes, mut turn) = (listed?, Turn::default());
        let rest = rest_among(scopes.len(), SEARCH_INTERVAL);
        for scope in scopes {
            let search = searches.entry(scope.namespace).or_insert_with(|| Search::new(self.retention));
            if search.is_due(rest) && !shutdown.is_some_and(CancellationToken::is_cancelled) {
                turn.add(self.search_one(engine, &scope, search, shutdown, &mut note).await);
                self.set_lag(engine, |lags| lags.searches = greatest(searches.values().map(Search::lag_seconds)));
            }
        }
        Ok(turn)
    }

    /// Searches the events of one namespace for one turn. Returns whether there are more.
    async fn search_one(
        &self,
        engine: &Engine,
        scope: &Scope,
        search: &mut Search,
        shutdown: Option<&CancellationToken>,
        note: &mut impl FnMut(&Step),
    ) -> Result<bool, Error> {
        for _ in 0..STEPS_PER_TURN {
            let step = self.count(engine, search.step(engine, scope)).await?;
            note(&step);
            if !step.has_more() {
                return Ok(false);
            }
            if let Some(shutdown) = shutdown
                && !(pause(pause_of_search(&step.removed, step.took), shutdown).await
                    && yield_to_workers(engine, 0.0, &step, shutdown).await)
            {
                break;
            }
        }
        Ok(true)
    }

    /// Takes a step while no other one runs, and counts what it has removed.
    async fn count(&self, engine: &Engine, step: impl Future<Output = Result<Step, Error>>) -> Result<Step, Error> {
        let _lock = self.step_lock.lock().await;
        let step = step.await?;
        for (table, rows) in step.removed_rows() {
            engine.metrics().count_removed(table, rows);
        }
        Ok(step)
    }

    fn set_lag(&self, engine: &Engine, set: impl FnOnce(&mut Lags)) {
        let mut lags = self.lags.lock().unwrap_or_else(PoisonError::into_inner);
        set(&mut lags);
        engine.metrics().set_retention_lag("events", lags.fronts.max(lags.searches));
    }
}

fn greatest(lags: impl Iterator<Item = f64>) -> f64 {
    lags.fold(0.0, f64::max)
}

/// Returns for how long the walks of `namespaces` namespaces rest. However many quiet namespaces there are, their
/// walks together cost some ten statements per second.
fn rest_among(namespaces: usize, interval: Duration) -> Rest {
    let quiet = REST_PER_NAMESPACE.saturating_mul(u32::try_from(namespaces).unwrap_or(u32::MAX)).min(LONGEST_REST);
    // Less than an interval, so that the next turn after one is not missed. Turns are more frequent while other
    // namespaces have more.
    let short = interval / 2;
    Rest { short, long: quiet.max(short) }
}

/// Returns the scope of each namespace.
async fn scopes(engine: &Engine) -> Result<Vec<Scope>, Error> {
    let mut conn = engine.database().connection().await?;
    let namespaces = list_namespaces(&mut conn).await?;
    Ok(namespaces.into_iter().map(|namespace| Scope::new(namespace, engine.now())).collect())
}

/// Pauses while workers need the database. Returns `false` if the server stops.
async fn yield_to_workers(engine: &Engine, lag_seconds: f64, step: &Step, shutdown: &CancellationToken) -> bool {
    let length = if engine.has_busy_workers() { pause_for_workers(lag_seconds, step.took) } else { Duration::ZERO };
    !shutdown.is_cancelled() && pause(length, shutdown).await
}

/// Runs both walks until the server stops.
pub(crate) async fn run(engine: Engine, retention: Retention, shutdown: CancellationToken) {
    let Some(remover) = EventRemover::new(retention) else { return };
    let front = Service { at_once: true, ..Service::every(FRONT, FRONT_INTERVAL) };
    let search = Service::every(SEARCH, SEARCH_INTERVAL);
    let (remover, stop) = (&remover, &shutdown);
    tokio::join!(
        front.run(engine.clone(), shutdown.clone(), |engine| async move {
            remover.advance_fronts(&engine, stop, |_| ()).await?.until_next(FRONT)
        }),
        search.run(engine.clone(), shutdown.clone(), |engine| async move {
            remover.search(&engine, Some(stop), |_| ()).await?.until_next(SEARCH)
        }),
    );
}
