//! Restores: the server drops its caches when the database continues from an earlier state.
//!
//! After a restore everything that the server remembers about the database may be wrong: low-water
//! marks, due times and subscriptions. It drops all of it and reads it again.

use std::sync::Arc;

use diesel_async::AsyncPgConnection;

use crate::domain::history::{Histories, Numbers};
use crate::domain::ids::EventId;
use crate::error::Error;

use crate::engine::Engine;

impl Engine {
    /// Checks whether the database was restored to an earlier state. If so, the caches have been dropped
    /// when this returns.
    pub async fn check_history(&self) -> Result<(), Error> {
        let mut conn = self.database().connection().await?;
        self.database().history_watch().check(&mut conn).await?;
        Ok(())
    }

    /// Registers a callback that drops the caches when another history of the database begins.
    pub(crate) fn forget_when_history_changes(&self) {
        let engine = Arc::downgrade(&self.0);
        self.database().history_watch().on_change(move || {
            if let Some(parts) = engine.upgrade() {
                Engine(parts).forget_cached_state();
            }
        });
    }

    fn forget_cached_state(&self) {
        log::warn!("another history of the database has begun: all cached state is dropped");
        self.namespace_names().forget();
        self.subscription_cache().forget();
        self.filter_overruns().forget();
        self.stats().forget();
        self.keys().forget();
        self.sources().forget();
        self.trail().forget();
        self.scan_all_queues();
    }

    /// Returns the epoch of an event that exists.
    pub async fn epoch_of(&self, event_id: EventId) -> Result<String, Error> {
        if let Some(epoch) = self.database().histories().epoch_of(event_id) {
            return Ok(epoch.to_owned());
        }
        let mut conn = self.database().connection().await?;
        self.epoch_on(&mut conn, event_id).await
    }

    /// Returns the epoch of an event, read on the caller's connection.
    pub(crate) async fn epoch_on(&self, conn: &mut AsyncPgConnection, event_id: EventId) -> Result<String, Error> {
        Ok(self.database().history_watch().epoch_of(conn, event_id).await?)
    }

    /// Returns the current epoch, for a new cursor with this position. Another server may have begun a
    /// history that this one does not know yet. A cursor with a position of that history and the epoch
    /// of the one before would be refused later, so the database is queried.
    pub async fn epoch_for_cursor(&self, numbers: Numbers, position: i64) -> Result<String, Error> {
        if self.database().histories().may_be_later(numbers, position) {
            let seen = (numbers == Numbers::Ids).then_some(position);
            let mut conn = self.database().connection().await?;
            self.database().history_watch().reload(&mut conn, seen).await?;
        }
        self.epoch()
    }

    /// Returns the current epoch, as far as this server knows.
    pub fn epoch(&self) -> Result<String, Error> {
        let histories = self.database().histories();
        let present = histories.present().map(|history| history.epoch.clone());
        present.ok_or_else(|| Error::Internal("no history is known".into()))
    }

    /// Returns whether a cursor of this epoch is still valid. A cursor of an unknown epoch may come from
    /// another server that noticed the new history earlier, so the database is queried.
    pub async fn holds_cursor(&self, epoch: &str, numbers: Numbers, position: i64) -> Result<bool, Error> {
        let holds = |histories: &Histories| histories.holds(epoch, numbers, position);
        if holds(&self.database().histories()) {
            return Ok(true);
        }
        let mut conn = self.database().connection().await?;
        Ok(holds(&*self.database().history_watch().reload(&mut conn, None).await?))
    }
}
