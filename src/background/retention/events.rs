//! Removes finished events, in two services that take turns: the front, which visits each event once, and the
//! search for what it had to leave. [`super::walk`] describes both.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::RemovedRows;
use super::pace::{pause_for_workers, pause_of_search};
use super::walk::{Search, Step, Walk};
use crate::background::{Service, pause};
use crate::domain::ids::NamespaceId;
use crate::domain::retention::Retention;
use crate::domain::scope::Scope;
use crate::engine::Engine;
use crate::error::Error;
use crate::store::retention::events::list_namespaces;

/// The time between two rounds of the front.
const FRONT_INTERVAL: Duration = Duration::from_secs(1);

/// The time between two passes of the search.
const SEARCH_INTERVAL: Duration = Duration::from_secs(10);

/// The time for which a walk that has found nothing rests, per namespace that there is, and its limit.
const REST_PER_NAMESPACE: Duration = Duration::from_millis(100);
const LONGEST_REST: Duration = Duration::from_secs(5 * 60);

/// The walks of all namespaces on this server. Two steps of one server never run at the same time.
pub struct EventRemover {
    retention: Duration,
    fronts: Mutex<BTreeMap<NamespaceId, Walk>>,
    searches: Mutex<BTreeMap<NamespaceId, Search>>,
    turn: Mutex<()>,
}

/// Removes all finished events that are old enough. Returns the number of removed rows by table.
pub async fn run_once(engine: &Engine, retention: Retention) -> Result<RemovedRows, Error> {
    let mut rows = RemovedRows::new();
    let Some(remover) = EventRemover::new(retention) else { return Ok(rows) };
    let never = CancellationToken::new();
    remover.advance_fronts(engine, &never, |step| add(&mut rows, step)).await?;
    remover.search(engine, None, |step| add(&mut rows, step)).await?;
    Ok(rows)
}

fn add(rows: &mut RemovedRows, step: &Step) {
    for (table, removed) in step.removed_rows() {
        *rows.entry(table).or_default() += removed as usize;
    }
}

impl EventRemover {
    /// Returns the walks at their beginning, or `None` if events are kept for ever.
    pub fn new(retention: Retention) -> Option<Self> {
        let retention = retention.length()?;
        Some(EventRemover { retention, fronts: Mutex::default(), searches: Mutex::default(), turn: Mutex::default() })
    }

    /// Removes what the fronts reach. Yields to workers, unless it lags behind.
    async fn advance_fronts(
        &self,
        engine: &Engine,
        shutdown: &CancellationToken,
        mut note: impl FnMut(&Step),
    ) -> Result<(), Error> {
        let mut fronts = self.fronts.lock().await;
        let mut lag = 0.0_f64;
        let scopes = scopes(engine).await?;
        let rest = rest_among(scopes.len());
        for scope in scopes {
            let walk = fronts.entry(scope.namespace).or_insert_with(|| Walk::front(self.retention));
            if !walk.is_due() {
                continue;
            }
            loop {
                let step = self.take_turn(engine, walk.step(engine, &scope)).await?;
                note(&step);
                walk.rest_after(&step, rest);
                let step_lag = step.lag_seconds();
                lag = lag.max(step_lag);
                engine.metrics().set_retention_lag("events", lag);
                if !step.has_more() || !yield_to_workers(engine, step_lag, &step, shutdown).await {
                    break;
                }
                lag = 0.0;
            }
        }
        Ok(())
    }

    /// Searches all events that are old enough. With a `shutdown` to listen to, it pauses between steps.
    async fn search(
        &self,
        engine: &Engine,
        shutdown: Option<&CancellationToken>,
        mut note: impl FnMut(&Step),
    ) -> Result<(), Error> {
        let mut searches = self.searches.lock().await;
        let scopes = scopes(engine).await?;
        let rest = rest_among(scopes.len());
        for scope in scopes {
            let search = searches.entry(scope.namespace).or_insert_with(|| Search::new(self.retention));
            if !search.is_due() {
                continue;
            }
            loop {
                let step = self.take_turn(engine, search.step(engine, &scope)).await?;
                note(&step);
                search.rest_after(&step, rest);
                if !step.has_more() {
                    break;
                }
                if let Some(shutdown) = shutdown
                    && !(pause(pause_of_search(&step.removed, step.took), shutdown).await
                        && yield_to_workers(engine, 0.0, &step, shutdown).await)
                {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    async fn take_turn(&self, engine: &Engine, step: impl Future<Output = Result<Step, Error>>) -> Result<Step, Error> {
        let _turn = self.turn.lock().await;
        let step = step.await?;
        for (table, rows) in step.removed_rows() {
            engine.metrics().count_removed(table, rows);
        }
        Ok(step)
    }
}

/// Returns for how long a walk that has found nothing rests, among the walks of so many namespaces. However many
/// quiet namespaces there are, their walks together cost some ten statements per second.
fn rest_among(namespaces: usize) -> Duration {
    REST_PER_NAMESPACE.saturating_mul(u32::try_from(namespaces).unwrap_or(u32::MAX)).min(LONGEST_REST)
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
    let front = Service { at_once: true, ..Service::every("removal of events", FRONT_INTERVAL) };
    let search = Service::every("search for old events", SEARCH_INTERVAL);
    let (remover, stop) = (&remover, &shutdown);
    tokio::join!(
        front.run(engine.clone(), shutdown.clone(), |engine| async move {
            remover.advance_fronts(&engine, stop, |_| ()).await.map(|()| None)
        }),
        search.run(engine.clone(), shutdown.clone(), |engine| async move {
            remover.search(&engine, Some(stop), |_| ()).await.map(|()| None)
        }),
    );
}
