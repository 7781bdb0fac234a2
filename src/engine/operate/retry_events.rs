//! Retries of all events that match a filter, in transactions of a bounded number of deliveries.
//!
//! Limits count deliveries, not events: an event that is only pushed has one delivery per subscription
//! that matched it. An event is always retried as a whole, in as many transactions as it needs, and
//! counted once. Once its first push is retried, the event is PENDING and no longer matches the filter,
//! and a later call would not find its other pushes. If a call is interrupted in the middle of an event,
//! its remaining pushes are found again after the retried ones have ended, or by a retry of that event
//! alone.

use std::collections::BTreeSet;

use crate::domain::ids::{DeliveryId, EventId};
use crate::domain::scope::Scope;
use crate::error::Error;
use crate::store::lists::events::{EventFilter, find_events};
use crate::store::lists::pages::Page;
use crate::store::tables::roll_ups::{Retriable, read_retriable};

use crate::engine::Engine;
use crate::engine::operate::operator_actions::OperatorAction;
use crate::engine::operate::{BULK_LIMIT, BulkOutcome, DELIVERIES_PER_TRANSACTION, error_after};

/// The number of events that one query finds.
const EVENTS_PER_PAGE: i64 = 500;

/// The number of deliveries that one statement may read. The deliveries of a single event may be more.
const READ_AT_ONCE: i64 = 5_000;

/// An event, with those of its deliveries that can be retried.
struct EventToRetry {
    id: EventId,
    deliveries: Vec<DeliveryId>,
}

/// The progress of one call.
#[derive(Default)]
struct Progress {
    /// The number of deliveries that were added so far.
    deliveries: usize,
    /// Deliveries that were added and are not retried yet.
    batch: Vec<DeliveryId>,
    /// Events that were retried, or would have been in a dry run.
    events: BTreeSet<EventId>,
}

impl Progress {
    /// Returns whether an event would exceed the limit of the call. The first event never does.
    fn is_full_for(&self, event: &EventToRetry) -> bool {
        self.deliveries > 0 && self.deliveries + event.deliveries.len() > BULK_LIMIT
    }

    /// Adds an event: to the next transaction, or only to the count of a dry run.
    fn add(&mut self, event: EventToRetry, dry_run: bool) {
        self.deliveries += event.deliveries.len();
        match dry_run {
            true => self.events.extend((!event.deliveries.is_empty()).then_some(event.id)),
            false => self.batch.extend(event.deliveries),
        }
    }
}

impl Engine {
    /// Retries all events that match. `filter.status` is FAILED or CANCELLED.
    pub async fn retry_events(&self, scope: Scope, filter: EventFilter, dry_run: bool) -> Result<BulkOutcome, Error> {
        let mut progress = Progress::default();
        let retried = self.retry_pages(&scope, &filter, dry_run, &mut progress).await;
        let count = progress.events.len();
        let more = retried.map_err(|error| error_after(count, error))?;
        Ok(BulkOutcome { count, more })
    }

    /// Retries page after page. Returns whether more events may match.
    async fn retry_pages(
        &self,
        scope: &Scope,
        filter: &EventFilter,
        dry_run: bool,
        progress: &mut Progress,
    ) -> Result<bool, Error> {
        let mut after = None;
        loop {
            let (ids, next) = self.find_page(scope, filter.clone(), after).await?;
            let mut ids = ids.as_slice();
            while !ids.is_empty() {
                let events = self.read_events(ids).await?;
                ids = &ids[events.len()..];
                for event in events {
                    if progress.is_full_for(&event) {
                        self.carry_out(scope, progress).await?;
                        return Ok(true);
                    }
                    progress.add(event, dry_run);
                    while progress.batch.len() >= DELIVERIES_PER_TRANSACTION {
                        self.carry_out(scope, progress).await?;
                    }
                }
            }
            self.carry_out(scope, progress).await?;
            match next {
                Some(next) if progress.deliveries < BULK_LIMIT => after = Some(next),
                next => return Ok(next.is_some()),
            }
        }
    }

    /// Retries the next deliveries of the batch, at most one transaction full.
    async fn carry_out(&self, scope: &Scope, progress: &mut Progress) -> Result<(), Error> {
        let full = progress.batch.len().min(DELIVERIES_PER_TRANSACTION);
        let remaining = progress.batch.split_off(full);
        let batch = std::mem::replace(&mut progress.batch, remaining);
        if !batch.is_empty() {
            progress.events.extend(self.operate_on_many(scope, batch, OperatorAction::Retry { reason: None }).await?);
        }
        Ok(())
    }

    async fn find_page(
        &self,
        scope: &Scope,
        filter: EventFilter,
        after: Option<i64>,
    ) -> Result<(Vec<EventId>, Option<i64>), Error> {
        let scan = self.settings().list_scan_rows;
        let page = Page { descending: false, after, limit: EVENTS_PER_PAGE, scan };
        let (engine, scope) = (self.clone(), scope.clone());
        self.detached(async move {
            let mut conn = engine.database().connection().await?;
            Ok(find_events(&mut conn, &scope, &filter, page).await?)
        })
        .await
    }

    /// Reads the deliveries of the first events, as many as fit into one read but at least one event.
    async fn read_events(&self, ids: &[EventId]) -> Result<Vec<EventToRetry>, Error> {
        let read = self.read_deliveries(ids, READ_AT_ONCE).await?;
        if read.len() < READ_AT_ONCE as usize {
            return Ok(group(ids, &read));
        }
        // The last event may have more deliveries than were read, so it is left to the next read.
        let last = read.last().map(|row| row.event_id);
        let whole = ids.iter().position(|id| Some(*id) == last).unwrap_or(0);
        match whole {
            0 => Ok(group(&ids[..1], &self.read_deliveries(&ids[..1], i64::MAX).await?)),
            whole => Ok(group(&ids[..whole], &read)),
        }
    }

    async fn read_deliveries(&self, event_ids: &[EventId], rows: i64) -> Result<Vec<Retriable>, Error> {
        let (engine, event_ids) = (self.clone(), event_ids.to_vec());
        self.detached(async move {
            let mut conn = engine.database().connection().await?;
            Ok(read_retriable(&mut conn, &event_ids, rows).await?)
        })
        .await
    }
}

/// Groups rows by event. The rows must be in the order of the events.
fn group(event_ids: &[EventId], read: &[Retriable]) -> Vec<EventToRetry> {
    let mut read = read.iter().peekable();
    let event = |id: &EventId| {
        let mut deliveries = Vec::new();
        while let Some(row) = read.next_if(|row| row.event_id == *id) {
            deliveries.extend(row.is_retriable.then_some(row.id));
        }
        EventToRetry { id: *id, deliveries }
    };
    event_ids.iter().map(event).collect()
}
