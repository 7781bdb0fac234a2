//! Operations: an operator's action on all rows that match a filter, done in the background.
//!
//! An operation is a row. It says what to do, with which rows and how fast, how far it has come and what has
//! come of it. It walks through its table in the order of ids, up to the highest id at its start, and does
//! its work in steps. A step is one transaction: it locks the operation, finds the next rows, changes those
//! that still fit, writes their log lines and saves the progress. If a server dies, its step has not
//! happened, and another server goes on from the saved position. So every row is counted exactly once.
//!
//! [`step`] is what all kinds of operations share. [`events`] changes events, which may have more pushes than
//! one transaction may change; [`rows`] changes pushes and dead letters. [`runner`] decides what happens next
//! when a step has ended or failed.

mod events;
pub mod filter;
mod rows;
mod runner;
mod step;

use diesel_async::AsyncPgConnection;
use serde_json::{Value, json};

use crate::domain::audit::AuditAction::{OperationCancelled, OperationStarted};
use crate::domain::audit::AuditEntry;
use crate::domain::dead_letter::ReplayConfig;
use crate::domain::limits;
use crate::domain::operation::{OperationKind, OperationStatus};
use crate::domain::redaction::Redaction;
use crate::domain::scope::Scope;
use crate::domain::shown_filter::shown_filter;
use crate::error::Error;
use crate::logging::limiter::Kind;
use crate::store::lists::candidates::{Candidates, Walk, find_candidates, last_id};
use crate::store::lists::dead_letters::{DeadLetterRow, find_dead_letters};
use crate::store::lists::events::load_events;
use crate::store::lists::pushes::{PushRow, find_pushes};
use crate::store::tables::audit_log::record_audit;
use crate::store::tables::event_columns::EventRow;
use crate::store::tables::operations::{NewOperationRow, OperationRow, end_operation, get_operation, insert_operation};

use crate::engine::{Engine, transaction};
use filter::{OperationFilter, RowFilter};

/// The number of rows that a dry run returns.
const SAMPLE_ROWS: usize = 10;

/// What an operator wants to be done.
#[derive(Debug, Clone)]
pub struct NewOperation {
    pub kind: OperationKind,
    pub filter: OperationFilter,
    /// The settings with which dead letters are replayed. `None` for other kinds.
    pub config: Option<ReplayConfig>,
    pub reason: Option<String>,
    /// The number of deliveries or dead letters to deal with in a second.
    pub per_second: f64,
}

/// What an operation would do.
#[derive(Debug)]
pub struct OperationPreview {
    pub matches: Matches,
    pub sample: Sample,
}

/// The number of rows that match a filter.
#[derive(Debug, Clone, Copy)]
pub struct Matches {
    /// Counted within a bounded number of rows.
    pub count: i64,
    /// Whether `count` includes all matching rows.
    pub is_exact: bool,
}

/// The first rows that match a filter.
#[derive(Debug)]
pub enum Sample {
    Events(Vec<EventRow>),
    Deliveries(Vec<PushRow>),
    DeadLetters(Vec<DeadLetterRow>),
}

impl Engine {
    /// Returns what an operation would do. Changes nothing.
    pub async fn preview_operation(&self, scope: Scope, new: NewOperation) -> Result<OperationPreview, Error> {
        let engine = self.clone();
        self.detached(async move {
            let mut conn = engine.database().connection().await?;
            let (_, found) = engine.find_matches(&mut conn, &scope, &new).await?;
            let first: Vec<i64> = found.ids.iter().copied().take(SAMPLE_ROWS).collect();
            let sample = read_sample(&mut conn, &scope, &new.filter, &first).await?;
            Ok(OperationPreview { matches: Matches::of(&found), sample })
        })
        .await
    }

    /// Stores an operation. Its steps run in the background.
    pub async fn start_operation(&self, scope: Scope, new: NewOperation) -> Result<OperationRow, Error> {
        let filter = new.filter.to_json().map_err(|error| Error::Internal(error.to_string()))?;
        let engine = self.clone();
        self.detached(async move {
            let row = transaction!(engine, |conn| {
                let (until_id, found) = engine.find_matches(conn, &scope, &new).await?;
                let matches = Matches::of(&found);
                let row = NewOperationRow {
                    kind: new.kind,
                    filter: filter.clone(),
                    config: new.config,
                    reason: new.reason.clone(),
                    per_second: new.per_second,
                    matched: matches.count,
                    matched_is_exact: matches.is_exact,
                    until_id,
                };
                let max_running = limits::RUNNING_OPERATIONS;
                let id = insert_operation(conn, &scope, &row, max_running).await?;
                let id = id.ok_or(Error::TooManyOperations(max_running))?;
                record_audit(conn, &scope, &AuditEntry::about(OperationStarted, id, detail_of(&row))).await?;
                get_operation(conn, &scope, id).await?.ok_or(Error::OperationNotFound(id))
            })?;
            engine.operation_started().notify_one();
            log_operation(&row, "an operation was started");
            Ok(row)
        })
        .await
    }

    /// Cancels an operation. What it has done stays done, and a step that is running is finished. An operation
    /// that is over stays as it is.
    pub async fn cancel_operation(&self, scope: Scope, id: i64) -> Result<OperationRow, Error> {
        let engine = self.clone();
        self.detached(async move {
            let (row, was_running) = transaction!(engine, |conn| {
                let was_running = end_operation(conn, &scope, id, OperationStatus::Cancelled).await?;
                let row = get_operation(conn, &scope, id).await?.ok_or(Error::OperationNotFound(id))?;
                if was_running {
                    let detail = json!({"kind": row.kind, "started_by": row.actor});
                    record_audit(conn, &scope, &AuditEntry::about(OperationCancelled, id, detail)).await?;
                }
                Ok((row, was_running))
            })?;
            if was_running {
                log_operation(&row, "an operation was cancelled");
            }
            Ok(row)
        })
        .await
    }

    /// Returns the highest id that an operation started now is about, and the rows that match, as far as a
    /// bounded search finds them.
    async fn find_matches(
        &self,
        conn: &mut AsyncPgConnection,
        scope: &Scope,
        new: &NewOperation,
    ) -> Result<(i64, Candidates), Error> {
        let statuses = new.filter.statuses(new.kind);
        let target = new.filter.target(new.kind, &statuses);
        let until = last_id(conn, scope, target).await?;
        let walk =
            Walk { ids: &new.filter.ids, after: 0, until, limit: i64::MAX, scan: self.settings().list_scan_rows };
        Ok((until, find_candidates(conn, scope, target, walk).await?))
    }
}

impl Matches {
    fn of(found: &Candidates) -> Self {
        Matches { count: found.ids.len() as i64, is_exact: found.next.is_none() }
    }
}

/// Returns what the audit log keeps of an operation that starts. Its readers may not be allowed to see what was searched
/// for in payloads and errors; the operation itself shows it to those who are.
fn detail_of(row: &NewOperationRow) -> Value {
    let filter = shown_filter(&row.filter, &Redaction::everything());
    json!({
        "kind": row.kind.as_str(),
        "filter": serde_json::from_str::<Value>(filter.as_str()).unwrap_or_default(),
        "matched": row.matched,
        "matched_is_exact": row.matched_is_exact,
        "reason": row.reason,
        "per_second": row.per_second,
    })
}

/// Logs that an operation has started or ended.
fn log_operation(row: &OperationRow, text: &'static str) {
    if Kind::Operation.is_due() {
        log::info!(
            operation_id = row.id,
            namespace_id = row.namespace_id,
            kind = row.kind.as_str(),
            actor = row.actor.as_deref().unwrap_or_default(),
            matched = row.matched,
            done = row.done,
            skipped = row.skipped,
            failed = row.failed;
            "{text}"
        );
    }
}

async fn read_sample(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    filter: &OperationFilter,
    ids: &[i64],
) -> Result<Sample, Error> {
    Ok(match &filter.rows {
        RowFilter::Events(_) | RowFilter::Held(_) => Sample::Events(load_events(conn, scope, ids).await?),
        RowFilter::Deliveries(_) => Sample::Deliveries(find_pushes(conn, scope, ids).await?),
        RowFilter::DeadLetters(_) => Sample::DeadLetters(find_dead_letters(conn, scope, ids).await?),
    })
}
