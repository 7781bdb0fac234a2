//! Runs the steps of operations, and decides what happens when one fails.
//!
//! If a step fails because the database cannot be used, it is tried again later. If it fails for another
//! reason, one of its rows is probably at fault, and its rows are dealt with one by one. A row that still
//! fails is counted, and left alone.

use crate::error::Error;
use crate::store::tables::operations::{
    OperationRow, Progress, lock_operation, next_operation_in, postpone_operation, save_operation_progress,
    take_operation,
};

use crate::engine::operate::operations::step::{run_step, step_limit};
use crate::engine::sweep::SweepOutcome;
use crate::engine::{Engine, transaction};

/// The seconds after which a step that failed is tried again.
const RETRY_SECONDS: f64 = 1.0;

/// The number of failed rows of an operation that are logged. The operation counts all.
const LOGGED_FAILURES: i64 = 10;

/// A step that failed.
struct FailedStep {
    error: Error,
    operation: OperationRow,
    /// The first row that it dealt with, if it came that far.
    first: Option<i64>,
}

impl Engine {
    /// Runs one step of an operation that is due. The count is that of the deliveries or dead letters that
    /// were dealt with.
    pub async fn run_operations(&self) -> Result<SweepOutcome, Error> {
        let (mut taken, mut first) = (None, None);
        let stepped = transaction!(self, |conn| {
            taken = take_operation(conn, self.now()).await?;
            let Some(operation) = &taken else { return Ok(None) };
            run_step(conn, self, operation, step_limit(operation), &mut first).await.map(Some)
        });
        let more = |count| Ok(SweepOutcome { count, more: true, next_in: None });
        match (stepped, taken) {
            (Ok(Some((progress, applied))), _) => {
                self.notify_after_commit(&applied);
                more(progress.handled as usize)
            }
            (Ok(None), _) => {
                let mut conn = self.database().connection().await?;
                Ok(SweepOutcome { count: 0, more: false, next_in: next_operation_in(&mut conn, self.now()).await? })
            }
            (Err(error), None) => Err(error),
            (Err(error), Some(operation)) if first.is_none() || is_outage(&error) => {
                Err(self.postpone(operation.id, error).await)
            }
            (Err(_), Some(operation)) => more(self.step_row_by_row(operation).await?),
        }
    }

    /// Runs a failed step again with one row at a time. Returns the number of rows that were dealt with.
    async fn step_row_by_row(&self, operation: OperationRow) -> Result<usize, Error> {
        let mut handled = 0;
        for _ in 0..step_limit(&operation) {
            let (mut taken, mut first) = (None, None);
            let stepped = transaction!(self, |conn| {
                taken = lock_operation(conn, operation.id).await?;
                let Some(operation) = &taken else { return Ok(None) };
                run_step(conn, self, operation, 1, &mut first).await.map(Some)
            });
            match (stepped, taken) {
                (Ok(Some((progress, applied))), _) => {
                    self.notify_after_commit(&applied);
                    handled += progress.handled as usize;
                }
                // It is over, or another server goes on with it.
                (Ok(None), _) => break,
                (Err(error), None) => return Err(error),
                (Err(error), Some(operation)) => {
                    self.count_failure(FailedStep { error, operation, first }).await?;
                    handled += 1;
                }
            }
        }
        Ok(handled)
    }

    /// Counts a row that cannot be changed, and moves the operation past it.
    async fn count_failure(&self, FailedStep { error, operation, first }: FailedStep) -> Result<(), Error> {
        let Some(row) = first.filter(|_| !is_outage(&error)) else {
            return Err(self.postpone(operation.id, error).await);
        };
        let is_counted = transaction!(self, |conn| {
            let Some(now) = lock_operation(conn, operation.id).await? else { return Ok(false) };
            // Another server may have dealt with the row since.
            if (now.last_id, now.part_last_id) != (operation.last_id, operation.part_last_id) {
                return Ok(false);
            }
            let progress = Progress { handled: 1, failed: 1, last_id: row, ..Progress::default() };
            save_operation_progress(conn, self.now(), operation.id, &progress).await?;
            Ok(true)
        })?;
        if is_counted && operation.failed < LOGGED_FAILURES {
            let (operation_id, kind) = (operation.id, operation.kind.as_str());
            log::error!(operation_id, kind, row; "an operation could not change a row, and skips it: {error}");
        }
        Ok(())
    }

    /// Lets an operation whose step failed wait, so that it does not keep the others from their steps. Returns
    /// the error of the step.
    async fn postpone(&self, id: i64, error: Error) -> Error {
        // If this fails too, the database cannot be used, and the next round waits anyway.
        let _ = self.try_to_postpone(id).await;
        error
    }

    async fn try_to_postpone(&self, id: i64) -> Result<(), Error> {
        transaction!(self, |conn| Ok(postpone_operation(conn, self.now(), id, RETRY_SECONDS).await?))
    }
}

fn is_outage(error: &Error) -> bool {
    matches!(error, Error::Unavailable(_) | Error::OutcomeUnknown(_))
}
