//! `reset`, `retry`, `cancel`: an operator's word.

use chrono::TimeDelta;
use diesel_async::AsyncPgConnection;

use crate::domain::delivery::LogLine;
use crate::domain::status::Status;
use crate::error::Error;
use crate::store::DEFAULT_NAMESPACE;
use crate::store::deliveries::Loaded;
use crate::store::events::{EventRow, get_event};
use crate::store::lease_watch::find_stale;
use crate::store::listing::{EventFilter, Page, find_events};

use super::changes::{Changes, Written};
use super::{Engine, transaction};

/// Rows per transaction of a bulk operation.
const BULK: i64 = 500;

/// Rows that one bulk call changes at most.
pub const BULK_LIMIT: usize = 10_000;

/// What came of a bulk operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BulkOutcome {
    /// How many were changed, or would have been.
    pub count: usize,
    /// Whether there may be more.
    pub more: bool,
}

/// An operator's verb, applied to one delivery.
#[derive(Debug, Clone)]
enum Verb {
    Reset { reason: String, stale_for: f64 },
    Retry { reason: Option<String> },
    Cancel { reason: Option<String> },
}

impl Engine {
    /// PROCESSING → PENDING.
    pub async fn reset_event(&self, id: i64, reason: String) -> Result<EventRow, Error> {
        self.operate_on(id, Verb::Reset { reason, stale_for: 0.0 }).await
    }

    /// FAILED or CANCELLED → PENDING, counters fresh.
    pub async fn retry_event(&self, id: i64, reason: Option<String>) -> Result<EventRow, Error> {
        self.operate_on(id, Verb::Retry { reason }).await
    }

    /// PENDING → CANCELLED; what somebody holds is marked.
    pub async fn cancel_event(&self, id: i64, reason: Option<String>) -> Result<EventRow, Error> {
        self.operate_on(id, Verb::Cancel { reason }).await
    }

    /// Resets everything that has been held without a sign of life for `stale_for` seconds.
    pub async fn reset_stale(&self, stale_for: f64, reason: String, dry_run: bool) -> Result<BulkOutcome, Error> {
        let mut count = 0;
        loop {
            let limit = if dry_run { BULK_LIMIT as i64 + 1 } else { BULK };
            let engine = self.clone();
            let found = self.detached(async move {
                let mut conn = engine.database.connection().await?;
                Ok(find_stale(&mut conn, DEFAULT_NAMESPACE, stale_for, engine.now(), limit).await?)
            });
            let ids = found.await?;
            if dry_run {
                return Ok(capped(ids.len()));
            }
            count += self.operate_on_many(ids.clone(), Verb::Reset { reason: reason.clone(), stale_for }).await?;
            if (ids.len() as i64) < BULK || count >= BULK_LIMIT {
                return Ok(BulkOutcome { count, more: ids.len() as i64 == BULK });
            }
        }
    }

    /// Retries everything that matches. `filter.status` says which of FAILED and CANCELLED.
    pub async fn retry_events(&self, filter: EventFilter, dry_run: bool) -> Result<BulkOutcome, Error> {
        let mut count = 0;
        let mut after = None;
        loop {
            let page = Page { descending: false, after, offset: 0, limit: BULK, scan: self.settings.list_scan_rows };
            let (engine, filter) = (self.clone(), filter.clone());
            let found = self.detached(async move {
                let mut conn = engine.database.connection().await?;
                Ok(find_events(&mut conn, DEFAULT_NAMESPACE, &filter, page).await?)
            });
            let (ids, next) = found.await?;
            count += if dry_run { ids.len() } else { self.operate_on_many(ids, Verb::Retry { reason: None }).await? };
            match next {
                Some(next) if count < BULK_LIMIT => after = Some(next),
                next => return Ok(BulkOutcome { count, more: next.is_some() }),
            }
        }
    }

    async fn operate_on(&self, id: i64, verb: Verb) -> Result<EventRow, Error> {
        let engine = self.clone();
        self.detached(async move {
            let (row, written) = transaction!(engine, |conn| {
                let mut changes = Changes::load(conn, &[id], engine.now()).await?;
                let Some(loaded) = changes.get(id) else { return Err(Error::EventNotFound(id)) };
                verb.check(loaded)?;
                verb.carry_out(&mut changes, id);
                let written = changes.write(conn).await?;
                let row = read_back(conn, id).await?;
                Ok((row, written))
            })?;
            engine.follow_up(&written);
            Ok(row)
        })
        .await
    }

    /// Those that the verb does not fit any more are passed over.
    async fn operate_on_many(&self, ids: Vec<i64>, verb: Verb) -> Result<usize, Error> {
        let engine = self.clone();
        self.detached(async move {
            let (count, written): (usize, Written) = transaction!(engine, |conn| {
                let mut changes = Changes::load(conn, &ids, engine.now()).await?;
                let fitting: Vec<i64> = changes
                    .ids()
                    .into_iter()
                    .filter(|id| changes.get(*id).is_some_and(|loaded| verb.check(loaded).is_ok()))
                    .collect();
                for id in &fitting {
                    verb.carry_out(&mut changes, *id);
                }
                Ok((fitting.len(), changes.write(conn).await?))
            })?;
            engine.follow_up(&written);
            Ok(count)
        })
        .await
    }
}

impl Verb {
    fn check(&self, loaded: &Loaded) -> Result<(), Error> {
        use Status::{Cancelled, Completed, Failed, Pending, Processing};
        let status = loaded.delivery.status;
        let (fits, wanted) = match self {
            // Looked at again under the lock: its worker may have given a sign of life meanwhile.
            Verb::Reset { stale_for, .. } => (status == Processing && is_stale(loaded, *stale_for), "PROCESSING"),
            Verb::Retry { .. } => (matches!(status, Failed | Cancelled), "FAILED or CANCELLED"),
            // Cancelling twice is no mistake.
            Verb::Cancel { .. } => (matches!(status, Pending | Processing | Cancelled), "PENDING or PROCESSING"),
        };
        // A push-only event has no work of its own to bring back.
        let has_work = !loaded.tags.is_empty() || status != Completed;
        if fits && has_work {
            return Ok(());
        }
        Err(Error::WrongState { what: "event", id: loaded.delivery.event_id, status, wanted })
    }

    fn carry_out(&self, changes: &mut Changes, id: i64) {
        let Some(loaded) = changes.touch(id) else { return };
        let now = loaded.now;
        let lines: Vec<LogLine> = match self {
            Verb::Reset { reason, .. } => loaded.delivery.reset(reason, now),
            Verb::Retry { reason } => {
                let line = loaded.delivery.retry(reason.as_deref(), now);
                // An expiry that has passed would end it again at once.
                loaded.delivery.expires_at = loaded.event_expires_at.filter(|at| *at > now);
                changes.send_to_tail(id);
                vec![line]
            }
            Verb::Cancel { .. } if loaded.delivery.status == Status::Cancelled => Vec::new(),
            Verb::Cancel { reason } => loaded.delivery.cancel(reason.as_deref()).into_iter().collect(),
        };
        changes.log_all(lines);
    }
}

/// Whether nothing was heard of it for so many seconds; 0 means whatever was heard.
fn is_stale(loaded: &Loaded, seconds: f64) -> bool {
    seconds <= 0.0 || loaded.updated_at <= loaded.now - TimeDelta::microseconds((seconds * 1e6).round() as i64)
}

async fn read_back(conn: &mut AsyncPgConnection, id: i64) -> Result<EventRow, Error> {
    get_event(conn, DEFAULT_NAMESPACE, id).await?.ok_or(Error::EventNotFound(id))
}

fn capped(found: usize) -> BulkOutcome {
    BulkOutcome { count: found.min(BULK_LIMIT), more: found > BULK_LIMIT }
}
