//! Runs the steps of operations, and decides what happens when one fails.
//!
//! If a step fails because the database cannot be used, it is tried again later. If it fails for another
//! reason, one of its rows is probably at fault, and its rows are dealt with one by one. A row that still
//! fails is counted, and left alone.

use std::time::Duration;

use crate::domain::operation::OperationStatus;
use crate::error::Error;
use crate::store::connection::transactions::limit_lock_wait;
use crate::store::tables::operations::{
    OperationRow, Part, Progress, end_operation, lock_operation, next_operation_in, postpone_operation,
    save_operation_progress, take_operation,
};

use crate::engine::operate::operations::log_operation;
use crate::engine::operate::operations::step::{First, run_step, step_limit};
use crate::engine::sweep::SweepOutcome;
use crate::engine::{Engine, transaction};

/// The seconds after which a step that failed is tried again.
const RETRY_SECONDS: f64 = 1.0;

/// The time that a step waits for each lock. Whoever holds a row must not keep all operations from their steps.
const LOCK_WAIT: Duration = Duration::from_millis(200);

/// The number of failed steps that is counted, in `postpone_operation.sql`. An operation that still cannot find
/// its next row is given up.
const MAX_FAILED_STEPS: i32 = 16;

/// The number of failed rows of an operation that are logged. The operation counts all.
const LOGGED_FAILURES: i64 = 10;

/// A step that failed.
struct FailedStep {
    error: Error,
    operation: OperationRow,
    /// The row that it dealt with.
    first: First,
}

impl Engine {
    /// Runs one step of an operation that is due. The count is that of the deliveries or dead letters that
    /// were dealt with.
    pub async fn run_operations(&self) -> Result<SweepOutcome, Error> {
        let (mut taken, mut first) = (None, None);
        let stepped = transaction!(self, |conn| {
            // What an attempt that met a conflict has found is no longer true.
            (taken, first) = (None, None);
            limit_lock_wait(conn, LOCK_WAIT).await?;
            taken = take_operation(conn, self.now()).await?;
            let Some(operation) = &taken else { return Ok(None) };
            run_step(conn, self, operation, step_limit(operation), &mut first).await.map(Some)
        });
        let more = |count| Ok(SweepOutcome { count, more: true, next_in: None });
        match (stepped, taken) {
            (Ok(Some((progress, applied))), taken) => {
                self.notify_after_commit(&applied);
                log_end(&progress, taken.as_ref());
                more(progress.handled as usize)
            }
            (Ok(None), _) => {
                let mut conn = self.database().connection().await?;
                Ok(SweepOutcome { count: 0, more: false, next_in: next_operation_in(&mut conn, self.now()).await? })
            }
            (Err(error), None) => Err(error),
            (Err(error), Some(operation)) if is_outage(&error) => {
                self.postpone(&operation, &error).await?;
                more(0)
            }
            (Err(error), Some(operation)) if first.is_none() => {
                self.postpone_or_give_up(&operation, &error).await?;
                more(0)
            }
            (Err(_), Some(operation)) => more(self.step_row_by_row(operation).await?),
        }
    }

    /// Runs a failed step again with one row at a time. Returns the number of rows that were dealt with.
    async fn step_row_by_row(&self, operation: OperationRow) -> Result<usize, Error> {
        // Otherwise another server would take the operation between two rows, and fail with all of them again.
        self.set_back(&operation).await?;
        let mut handled = 0;
        for _ in 0..step_limit(&operation) {
            let (mut taken, mut first) = (None, None);
            let stepped = transaction!(self, |conn| {
                (taken, first) = (None, None);
                limit_lock_wait(conn, LOCK_WAIT).await?;
                taken = lock_operation(conn, operation.namespace_id, operation.id).await?;
                let Some(operation) = &taken else { return Ok(None) };
                run_step(conn, self, operation, 1, &mut first).await.map(Some)
            });
            match (stepped, taken) {
                (Ok(Some((progress, applied))), taken) => {
                    self.notify_after_commit(&applied);
                    log_end(&progress, taken.as_ref());
                    handled += progress.handled as usize;
                }
                // It is over, or another server goes on with it.
                (Ok(None), _) => break,
                (Err(error), None) => return Err(error),
                (Err(error), Some(operation)) => {
                    let Some(first) = first.filter(|_| !is_outage(&error)) else {
                        self.postpone(&operation, &error).await?;
                        break;
                    };
                    self.count_failure(FailedStep { error, operation, first }).await?;
                    handled += 1;
                }
            }
        }
        Ok(handled)
    }

    /// Counts a row that cannot be changed, and moves the operation past it.
    async fn count_failure(&self, FailedStep { error, operation, first }: FailedStep) -> Result<(), Error> {
        let is_counted = transaction!(self, |conn| {
            let Some(now) = lock_operation(conn, operation.namespace_id, operation.id).await? else { return Ok(false) };
            // Another server may have dealt with the row since.
            if (now.last_id, now.part_last_id) != (operation.last_id, operation.part_last_id) {
                return Ok(false);
            }
            save_operation_progress(
                conn,
                &self.scope_of(operation.namespace_id),
                operation.id,
                &progress_past(&operation, first),
            )
            .await?;
            Ok(true)
        })?;
        // Of an event with many pushes that cannot be changed, the first is enough.
        if is_counted && operation.failed < LOGGED_FAILURES && !operation.part_has_failed {
            let (operation_id, kind, row) = (operation.id, operation.kind.as_str(), first.id);
            log::error!(operation_id, kind, row; "an operation could not change a row, and skips it: {error}");
        }
        Ok(())
    }

    /// Lets an operation whose step failed wait, so that it does not keep the others from their steps. If this
    /// fails too, the database cannot be used.
    async fn postpone(&self, operation: &OperationRow, error: &Error) -> Result<(), Error> {
        let OperationRow { id, failed_steps, .. } = *operation;
        self.set_back(operation).await?;
        let count = failed_steps + 1;
        // A cause that lasts is logged ever more rarely, and in the end no more.
        if count.count_ones() == 1 {
            log::warn!(operation_id = id, count; "a step of an operation failed, and is tried again: {error}");
        }
        Ok(())
    }

    /// Deals with an operation that cannot even find its next row, such as one whose filter cannot be read. No
    /// row is at fault, so there is none to leave out.
    async fn postpone_or_give_up(&self, operation: &OperationRow, error: &Error) -> Result<(), Error> {
        if operation.failed_steps < MAX_FAILED_STEPS {
            return self.postpone(operation, error).await;
        }
        let (id, scope) = (operation.id, self.scope_of(operation.namespace_id));
        transaction!(self, |conn| {
            limit_lock_wait(conn, LOCK_WAIT).await?;
            Ok(end_operation(conn, &scope, id, OperationStatus::Failed).await?)
        })?;
        log::error!(operation_id = id; "an operation cannot continue, and is given up: {error}");
        Ok(())
    }

    async fn set_back(&self, operation: &OperationRow) -> Result<(), Error> {
        let scope = self.scope_of(operation.namespace_id);
        transaction!(self, |conn| {
            limit_lock_wait(conn, LOCK_WAIT).await?;
            Ok(postpone_operation(conn, &scope, operation.id, RETRY_SECONDS).await?)
        })
    }
}

/// Returns the progress past a row that cannot be changed. Of an event that is only pushed, just one push is
/// left out: the others must not stay behind because of it. The event is counted at its end.
fn progress_past(operation: &OperationRow, first: First) -> Progress {
    let Some(push) = first.push else {
        return Progress { handled: 1, failed: 1, last_id: first.id, ..Progress::default() };
    };
    let is_changed = operation.part_of == Some(first.id) && operation.part_is_changed;
    let part = Part { event_id: first.id, last_id: push.0, is_changed, has_failed: true };
    Progress { handled: 1, part: Some(part), ..Progress::default() }
}

/// Logs that an operation has ended, if this step was its last.
fn log_end(progress: &Progress, operation: Option<&OperationRow>) {
    if let Some(operation) = operation.filter(|_| progress.is_complete) {
        let ended = OperationRow {
            done: operation.done + progress.done,
            skipped: operation.skipped + progress.skipped,
            failed: operation.failed + progress.failed,
            ..operation.clone()
        };
        log_operation(&ended, "an operation has ended");
    }
}

fn is_outage(error: &Error) -> bool {
    matches!(error, Error::Unavailable(_) | Error::OutcomeUnknown(_))
}
