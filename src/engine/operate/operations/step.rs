//! One step of an operation: what all kinds share.

use std::panic::AssertUnwindSafe;

use diesel_async::AsyncPgConnection;
use futures_util::FutureExt;

use crate::domain::dead_letter::ReplayConfig;
use crate::domain::ids::DeliveryId;
use crate::domain::operation::OperationKind;
use crate::domain::scope::Scope;
use crate::domain::status::Status;
use crate::error::Error;
use crate::store::lists::candidates::{Candidates, Walk, find_candidates};
use crate::store::tables::deliveries::Loaded;
use crate::store::tables::operations::{OperationRow, Progress, save_operation_progress};

use crate::engine::Engine;
use crate::engine::change_set::Applied;
use crate::engine::operate::DELIVERIES_PER_TRANSACTION;
use crate::engine::operate::operations::filter::{OperationFilter, RowFilter};
use crate::engine::operate::operations::{events, rows};
use crate::engine::operate::operator_actions::{OperatorAction, ResetTarget};
use crate::engine::operate::replays::ReplayOrder;

/// The number of steps per second over which the rate of an operation is spread, to avoid bursts.
const STEPS_PER_SECOND: f64 = 10.0;

/// The least number of rows that a step examines, however often it has failed.
const LEAST_SCAN: i64 = 500;

/// A step of an operation that is locked.
pub(super) struct Step<'a> {
    pub operation: &'a OperationRow,
    pub scope: Scope,
    pub work: Work,
    /// The states of the rows that the operation is about.
    pub statuses: Vec<Status>,
    /// The number of deliveries or dead letters that the step may deal with.
    pub limit: usize,
    kind: OperationKind,
    filter: OperationFilter,
    /// The number of rows that it may read in search of them.
    scan: i64,
}

/// The first row that a step deals with.
#[derive(Debug, Clone, Copy)]
pub(super) struct First {
    pub id: i64,
    /// The push that the step begins with, if the row is an event that is only pushed.
    pub push: Option<DeliveryId>,
}

impl First {
    pub(super) fn of(ids: &[i64]) -> Option<Self> {
        ids.first().map(|id| First { id: *id, push: None })
    }
}

/// What a step does with its rows.
pub(super) enum Work {
    Events(OperatorAction),
    Deliveries(OperatorAction),
    DeadLetters(ReplayOrder),
}

/// The number of deliveries or dead letters in one step of an operation. Each step that failed halves it, in case
/// it was too large to end in time.
pub(super) fn step_limit(operation: &OperationRow) -> usize {
    let spread = (operation.per_second / STEPS_PER_SECOND).ceil();
    let whole = spread.clamp(1.0, DELIVERIES_PER_TRANSACTION as f64) as usize;
    (whole >> operation.failed_steps.clamp(0, 20)).max(1)
}

/// Runs a step of an operation that is locked, and saves the progress. Stores in `first` the first row that
/// it deals with, as soon as that is known.
pub(super) async fn run_step(
    conn: &mut AsyncPgConnection,
    engine: &Engine,
    operation: &OperationRow,
    limit: usize,
    first: &mut Option<First>,
) -> Result<(Progress, Applied), Error> {
    let changed = async {
        let step = Step::of(engine, operation, limit)?;
        let (progress, applied) = match &step.work {
            Work::Events(action) => events::change_events(conn, &step, action, first).await?,
            Work::Deliveries(action) => rows::change_deliveries(conn, &step, action, first).await?,
            Work::DeadLetters(order) => rows::replay_dead_letters(conn, &step, order, first).await?,
        };
        save_operation_progress(conn, &step.scope, operation.id, &progress).await?;
        Ok((progress, applied))
    };
    // A panic is an error like any other: it must not end the service that runs all operations.
    let changed = AssertUnwindSafe(changed).catch_unwind().await;
    changed.unwrap_or_else(|_| Err(Error::Internal(format!("a step of operation {} panicked", operation.id))))
}

impl<'a> Step<'a> {
    fn of(engine: &Engine, operation: &'a OperationRow, limit: usize) -> Result<Self, Error> {
        let unreadable = || Error::Internal(format!("operation {} cannot be read", operation.id));
        let kind = OperationKind::parse(&operation.kind).ok_or_else(unreadable)?;
        let filter = OperationFilter::read(kind, &operation.filter.0).map_err(|_| unreadable())?;
        Ok(Step {
            operation,
            scope: Scope {
                actor: operation.actor.as_deref().map(Into::into),
                ..Scope::new(operation.namespace_id, engine.now())
            },
            work: work_of(kind, operation, &filter),
            statuses: filter.statuses(kind),
            limit,
            kind,
            filter,
            // A search that took too long is tried again with less to search.
            scan: (engine.settings().list_scan_rows >> operation.failed_steps.clamp(0, 20)).max(LEAST_SCAN),
        })
    }

    /// Searches for the next rows.
    pub(super) async fn find(&self, conn: &mut AsyncPgConnection) -> Result<Candidates, Error> {
        let OperationRow { last_id, until_id, .. } = *self.operation;
        let ids = &self.filter.ids;
        let walk = Walk { ids, after: last_id, until: until_id, limit: self.limit as i64, scan: self.scan };
        let target = self.filter.target(self.kind, &self.statuses);
        Ok(find_candidates(conn, &self.scope, target, walk).await?)
    }

    /// Returns whether a delivery still matches the filter. It was found before it was locked.
    pub(super) fn still_matches(&self, loaded: &Loaded) -> bool {
        self.statuses.contains(&loaded.delivery.status)
            && self.filter.admits_worker(loaded.delivery.worker_id.as_deref())
    }

    /// Returns the progress of a step that has dealt with all rows up to `next`, or with all there are.
    pub(super) fn progress_to(&self, next: Option<i64>) -> Progress {
        Progress {
            last_id: next.unwrap_or(self.operation.until_id),
            is_complete: next.is_none(),
            ..Progress::default()
        }
    }
}

fn work_of(kind: OperationKind, operation: &OperationRow, filter: &OperationFilter) -> Work {
    let reason = operation.reason.clone();
    match kind {
        OperationKind::RetryEvents => Work::Events(OperatorAction::Retry { reason }),
        OperationKind::CancelEvents => Work::Events(OperatorAction::Cancel { reason }),
        OperationKind::ResetEvents => {
            let silent_seconds = match &filter.rows {
                RowFilter::Held(held) => held.stale_for_seconds,
                _ => None,
            };
            let reason = reason.unwrap_or_else(|| "operator".into());
            Work::Events(OperatorAction::Reset { reason, of: ResetTarget::Stale { silent_seconds } })
        }
        OperationKind::RetryDeliveries => Work::Deliveries(OperatorAction::Retry { reason }),
        OperationKind::CancelDeliveries => Work::Deliveries(OperatorAction::Cancel { reason }),
        OperationKind::ReplayDeadLetters => {
            let config = operation.config.as_deref().and_then(ReplayConfig::parse).unwrap_or_default();
            Work::DeadLetters(ReplayOrder { config, payload: None, new_webhook_id: false, reason })
        }
    }
}
