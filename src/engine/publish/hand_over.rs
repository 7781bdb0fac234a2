//! Hand-over: an event that a worker already waits for is stored as claimed by it.
//!
//! Otherwise the worker would be woken after the commit of the publication, and would claim the event with
//! a statement and a commit of its own. [`crate::engine::waiting::hub`] decides which waiters are reserved
//! for which events, and how a reservation ends.
//!
//! - *Nothing is stored*, because the statement is refused or the subscriptions have changed: the waiters
//!   go on waiting.
//! - *The outcome is unknown:* the waiters go on waiting, and scan, as all waiters do then. If the events are
//!   stored, they are held until their leases expire. The same happens to a claim whose response is lost.
//! - *A waiter has left* when the events are stored: they are released, as from a worker that disconnects.
//! - *The statement is held up:* the waiters are released after [`RESERVED_FOR`]. The events are released,
//!   too, once they are stored.
//!
//! A publication with ordering keys hands nothing over, because it may wait for the locks of its keys.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use diesel_async::AsyncPgConnection;
use tokio::time::timeout;

use crate::domain::event::{NewEvent, RunAt};
use crate::error::{Error, OutageKind};
use crate::store::tables::deliveries::EarliestTimes;
use crate::store::tables::event_columns::EventRow;
use crate::store::tables::events::{
    FanOut, LARGE_PAYLOAD, NamespacedEvent, Published, Recipient, is_taken_key, publish_events,
};
use crate::store::tables::ready::QueueKey;

use crate::engine::claim::{ClaimedBatch, Undo};
use crate::engine::waiting::hub::{NewArrival, Reservation};
use crate::engine::{Engine, statement};

/// The time for which waiters are reserved while their events are being stored.
const RESERVED_FOR: Duration = Duration::from_millis(500);

impl Engine {
    /// Stores events without ordering keys, and hands over those that workers wait for. Returns `None` and
    /// stores nothing if the subscriptions have changed since the events were matched.
    pub(super) async fn publish_and_hand_over(
        &self,
        events: &[NamespacedEvent<'_>],
        fan_out: &FanOut,
    ) -> Result<Option<Published>, Error> {
        let reservation = self.reserve_waiters(events);
        let recipients = recipients(&reservation, events.len());
        let storing =
            async { statement!(self, |conn| self.publish_by_statement(conn, events, fan_out, &recipients).await) };
        let published = store_while_reserved(&reservation, storing).await?;
        if let Some(published) = &published {
            self.hand_over(&reservation, events, published);
        }
        Ok(published)
    }

    /// Stores events by one statement. If a key is not new against expectation, fails with a conflict, and the next
    /// attempt looks the keys up.
    async fn publish_by_statement(
        &self,
        conn: &mut AsyncPgConnection,
        events: &[NamespacedEvent<'_>],
        fan_out: &FanOut,
        recipients: &[Option<Arc<Recipient>>],
    ) -> Result<Option<Published>, Error> {
        let keys = self.key_rule(!self.recent_repeats().are_there(Instant::now()));
        match publish_events(conn, self.now(), events, fan_out, recipients, keys).await {
            Err(error) if keys.are_new && is_taken_key(&error) => {
                self.recent_repeats().note(Instant::now());
                Err(Error::outage(OutageKind::Conflict, "an idempotency key is taken"))
            }
            Ok(Some(published)) => {
                if published.events.iter().any(|stored| stored.is_repeated) {
                    self.recent_repeats().note(Instant::now());
                }
                Ok(Some(published))
            }
            other => Ok(other?),
        }
    }

    /// Reserves waiters for the events that can be claimed at once.
    fn reserve_waiters(&self, events: &[NamespacedEvent<'_>]) -> Reservation<'_> {
        if self.hub().asleep() == 0 {
            return self.hub().reserve(&[]);
        }
        let mut order: Vec<usize> = (0..events.len()).filter(|index| self.is_claimable(events[*index].event)).collect();
        // Claims take events in this order.
        order.sort_by_key(|index| -events[*index].event.priority);
        let arrival = |index: usize| {
            let NamespacedEvent { namespace, event, .. } = events[index];
            NewArrival {
                event: index,
                queues: event.tags.as_slice().iter().map(|tag| QueueKey::of_tag(namespace, tag)).collect(),
                bytes: event.payload.as_ref().map_or(0, |payload| payload.as_str().len()).max(LARGE_PAYLOAD),
            }
        };
        self.hub().reserve(&order.into_iter().map(arrival).collect::<Vec<_>>())
    }

    /// Returns whether a new event can be claimed at once, by this server's clock. The statement asks the
    /// database's clock.
    fn is_claimable(&self, event: &NewEvent) -> bool {
        let is_due = match event.run_at {
            RunAt::Now => true,
            RunAt::At(time) => time <= self.time(),
            RunAt::After(_) => false,
        };
        is_due && !event.tags.is_empty() && event.expires_at.is_none_or(|time| time > self.time())
    }

    /// Gives the reserved waiters the events that were stored as claimed. Call it after the commit, and before
    /// other waiters are notified of the events that were not.
    fn hand_over(&self, reservation: &Reservation<'_>, events: &[NamespacedEvent<'_>], published: &Published) {
        for waiter in reservation.waiters() {
            let row = |index: &usize| {
                let lease = (*published.handed_over.get(*index)?)?;
                let stored = published.events.get(*index)?;
                Some(EventRow::handed_over(events[*index].event.clone(), stored, &waiter.recipient, lease))
            };
            let rows: Vec<EventRow> = waiter.events.iter().filter_map(row).collect();
            let Some(first) = rows.first() else { continue };
            // Leases are checked some time after the claim, and never before it.
            let look_at = Some(first.work.updated_at);
            self.due_times().wait_for(&EarliestTimes { look_at, ..EarliestTimes::default() });
            self.metrics().events_claimed.inc_by(rows.len() as u64);
            // All events of a waiter are of its namespace.
            let Some(namespace) = waiter.events.first().map(|index| events[*index].namespace) else { continue };
            self.stats().count_claimed(namespace, &rows);
            reservation.deliver(waiter, ClaimedBatch::new(self.clone(), namespace, rows, Undo::AtOnce));
        }
    }
}

/// Returns the recipient of each event, or nothing if there are none.
fn recipients(reservation: &Reservation<'_>, events: usize) -> Vec<Option<Arc<Recipient>>> {
    if reservation.waiters().is_empty() {
        return Vec::new();
    }
    let mut recipients = vec![None; events];
    for waiter in reservation.waiters() {
        for index in &waiter.events {
            recipients[*index] = Some(waiter.recipient.clone());
        }
    }
    recipients
}

/// Stores events, and ends the reservation if that takes too long.
async fn store_while_reserved<T>(reservation: &Reservation<'_>, storing: impl Future<Output = T>) -> T {
    if reservation.waiters().is_empty() {
        return storing.await;
    }
    let mut storing = pin!(storing);
    if let Ok(stored) = timeout(RESERVED_FOR, &mut storing).await {
        return stored;
    }
    reservation.release();
    storing.await
}
