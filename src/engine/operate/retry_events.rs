//! `retry` of many events: everything that matches, in transactions of a bounded number of
//! deliveries.
//!
//! An event that is only pushed has as many deliveries as there were subscriptions, so events are no
//! measure of the work. Each is retried whole, in as many transactions as it takes, and counted
//! once: with the first of its pushes it is PENDING and does not match any more, and a later call
//! would not find the others. Of a call that is broken off in the middle of an event the rest is
//! found again when what was brought back has ended, or by a retry of that event alone.

use std::collections::BTreeSet;

use crate::domain::ids::{DeliveryId, EventId};
use crate::domain::scope::Scope;
use crate::error::Error;
use crate::store::lists::events::{EventFilter, Page, find_events};
use crate::store::tables::roll_ups::{Retriable, read_retriable};

use crate::engine::Engine;
use crate::engine::operate::operator_actions::OperatorAction;
use crate::engine::operate::{BULK_LIMIT, BulkOutcome, DELIVERIES_PER_TRANSACTION, error_after};

/// Events that are looked for at a time.
const EVENTS_PER_PAGE: i64 = 500;

/// Deliveries that one statement reads at most, unless they are all of one event.
const READ_AT_ONCE: i64 = 5_000;

/// An event, and the deliveries of it that can be brought back.
struct EventToRetry {
    id: EventId,
    deliveries: Vec<DeliveryId>,
}

/// What a call has done so far.
#[derive(Default)]
struct Progress {
    /// Deliveries that it has taken on.
    deliveries: usize,
    /// Taken on and not yet carried out.
    batch: Vec<DeliveryId>,
    /// Events that were brought back, or would have been.
    events: BTreeSet<EventId>,
}

impl Progress {
    /// Returns whether an event is too much for what is left of the call. The first never is.
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
    /// Retries everything that matches. `filter.status` says which of FAILED and CANCELLED.
    pub async fn retry_events(&self, scope: Scope, filter: EventFilter, dry_run: bool) -> Result<BulkOutcome, Error> {
        let mut progress = Progress::default();
        let retried = self.retry_pages(&scope, &filter, dry_run, &mut progress).await;
        let count = progress.events.len();
        let more = retried.map_err(|error| error_after(count, error))?;
        Ok(BulkOutcome { count, more })
    }

    /// Returns whether there may be more.
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

    async fn carry_out(&self, scope: &Scope, progress: &mut Progress) -> Result<(), Error> {
        let full = progress.batch.len().min(DELIVERIES_PER_TRANSACTION);
        let rest = progress.batch.split_off(full);
        let batch = std::mem::replace(&mut progress.batch, rest);
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
        let page = Page { descending: false, after, offset: 0, limit: EVENTS_PER_PAGE, scan };
        let (engine, scope) = (self.clone(), scope.clone());
        self.detached(async move {
            let mut conn = engine.database().connection().await?;
            Ok(find_events(&mut conn, &scope, &filter, page).await?)
        })
        .await
    }

    /// Reads as many of these events as are read at once, at least one.
    async fn read_events(&self, ids: &[EventId]) -> Result<Vec<EventToRetry>, Error> {
        let read = self.read_deliveries(ids, READ_AT_ONCE).await?;
        if read.len() < READ_AT_ONCE as usize {
            return Ok(group(ids, &read));
        }
        // Of the last event more may be there.
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

/// Groups what was read by event. Rows come in the order of the events.
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
