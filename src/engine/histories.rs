//! What a server does when the database goes on from an earlier state.
//!
//! All that it remembers of the database may be wrong then: up to where queues are empty, what
//! waits for which time, who subscribed. It forgets all of it, and looks again.

use std::sync::Arc;

use diesel_async::AsyncPgConnection;

use crate::domain::history::{Histories, Numbers};
use crate::domain::ids::EventId;
use crate::error::Error;

use crate::engine::Engine;

impl Engine {
    /// Asks the database whether it has gone back. Returns once whatever follows from that is done.
    pub async fn check_history(&self) -> Result<(), Error> {
        let mut conn = self.database().connection().await?;
        self.database().history_watch().check(&mut conn).await?;
        Ok(())
    }

    /// Forgets what is remembered of the database as soon as it turns out to be another one.
    pub(crate) fn forget_when_history_changes(&self) {
        let engine = Arc::downgrade(&self.0);
        self.database().history_watch().on_change(move || {
            if let Some(parts) = engine.upgrade() {
                Engine(parts).forget_the_past();
            }
        });
    }

    fn forget_the_past(&self) {
        log::warn!("another history of the database has begun: whatever was remembered of it is forgotten");
        self.subscription_cache().forget();
        self.filter_overruns().forget();
        self.scan_all_queues();
    }

    /// Returns the epoch of an event that there is.
    pub async fn epoch_of(&self, event_id: EventId) -> Result<String, Error> {
        if let Some(epoch) = self.database().histories().epoch_of(event_id) {
            return Ok(epoch.to_owned());
        }
        let mut conn = self.database().connection().await?;
        self.epoch_on(&mut conn, event_id).await
    }

    /// Returns the epoch of an event, by a connection that the caller has.
    pub(crate) async fn epoch_on(&self, conn: &mut AsyncPgConnection, event_id: EventId) -> Result<String, Error> {
        Ok(self.database().history_watch().epoch_of(conn, event_id).await?)
    }

    /// Returns the epoch in which a cursor with this position is handed out, the present one. Another
    /// server may have begun a history of which this one has not heard. A number of that history in
    /// the epoch before would be refused later, so the database is asked.
    pub async fn epoch_for_cursor(&self, numbers: Numbers, position: i64) -> Result<String, Error> {
        if self.database().histories().may_be_later(numbers, position) {
            let seen = (numbers == Numbers::Ids).then_some(position);
            let mut conn = self.database().connection().await?;
            self.database().history_watch().reload(&mut conn, seen).await?;
        }
        self.epoch()
    }

    /// Returns the present epoch, as far as this server knows.
    pub fn epoch(&self) -> Result<String, Error> {
        let histories = self.database().histories();
        let present = histories.present().map(|history| history.epoch.clone());
        present.ok_or_else(|| Error::Internal("no history is known".into()))
    }

    /// Returns whether a cursor of this epoch still says where to go on. One of an epoch that is not
    /// known may come from another server, which has noticed earlier: the database is asked.
    pub async fn holds_cursor(&self, epoch: &str, numbers: Numbers, position: i64) -> Result<bool, Error> {
        let holds = |histories: &Histories| histories.holds(epoch, numbers, position);
        if holds(&self.database().histories()) {
            return Ok(true);
        }
        let mut conn = self.database().connection().await?;
        Ok(holds(&*self.database().history_watch().reload(&mut conn, None).await?))
    }
}
