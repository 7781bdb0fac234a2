//! Histories of the database: detects that the database continues from an earlier state.
//!
//! A new connection may lead to another database state than the connections before, because a backup was
//! restored or a standby promoted. Each connection is therefore checked before anything is written
//! through it ([`HistoryWatch::check`]). The first server that detects the change begins a new history,
//! the others load it, and each server drops what it has cached of the database.

use std::sync::{Arc, OnceLock};

use diesel::prelude::{QueryDsl, Queryable};
use diesel::prelude::{QueryableByName, Selectable, SelectableHelper};
use diesel::result::Error::QueryBuilderError;
use diesel::sql_types::{Bool, Text};
use diesel::{QueryResult, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::history::{Histories, History};
use crate::domain::ids::EventId;
use crate::error::Error;
use crate::store::connection::connect::open;
use crate::store::connection::sqlstate::SqlState;
use crate::store::connection::whole_result::LoadOne;
use crate::store::statement::statement;
use crate::store::tables::latest::{Latest, Load};
use crate::store::tables::schema::histories;

/// The payload of the notification that a history has begun. `waybill.begin_history` sends it.
pub(crate) const NOTICE: &str = "history";

/// A server's snapshot of the histories, and the detection of new ones.
#[derive(Default)]
pub struct HistoryWatch {
    histories: Latest<Histories>,
    on_change: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = histories, check_for_backend(diesel::pg::Pg))]
struct HistoryRow {
    epoch: String,
    first_id: i64,
    first_log_id: i64,
}

#[derive(QueryableByName)]
struct Present {
    #[diesel(sql_type = Text)]
    epoch: String,
    #[diesel(sql_type = Bool)]
    has_gone_back: bool,
    #[diesel(sql_type = Bool)]
    is_read_only: bool,
    #[diesel(sql_type = Bool)]
    is_being_restored: bool,
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checked {
    /// The history is known, and all writes belong to it.
    Known,
    /// The history cannot be determined yet: the database is read-only, or its schema is not migrated.
    NotYet,
}

impl HistoryWatch {
    /// Returns the known histories.
    pub fn histories(&self) -> Arc<Histories> {
        self.histories.get()
    }

    /// Registers a function that is called whenever the current history has changed, before the
    /// connection that detected the change is used.
    pub fn on_change(&self, call: impl Fn() + Send + Sync + 'static) {
        let is_first = self.on_change.set(Box::new(call)).is_ok();
        debug_assert!(is_first, "one engine per database");
    }

    /// Compares the database with its current history, and begins a new one if the database continues
    /// from an earlier state.
    ///
    /// A standby must be checked again before anything is written, since it may have been promoted.
    pub async fn check(&self, conn: &mut AsyncPgConnection) -> QueryResult<Checked> {
        let load = self.histories.begin();
        let present = match read_present(conn).await {
            Ok(present) => present,
            Err(error) if SqlState::of(&error).is_some_and(SqlState::is_undefined) => return Ok(Checked::NotYet),
            Err(error) => return Err(error),
        };
        if present.is_being_restored {
            // A server that had no connection when the restore began, or that runs during one.
            return Err(QueryBuilderError("a restore into this database runs, or was interrupted".into()));
        }
        let begun = present.has_gone_back && !present.is_read_only && begin_history(conn, false).await?;
        let known = self.histories();
        if begun || known.present().is_none_or(|known| known.epoch != present.epoch) || present.has_gone_back {
            let loaded = self.load(conn, load, None).await?;
            if let (true, Some(history)) = (begun, loaded.present()) {
                log::warn!(
                    epoch = history.epoch.as_str(), first_id = history.first_id;
                    "the database continues from an earlier state (a restore or a failover): a new history begins"
                );
            }
        }
        Ok(if present.is_read_only { Checked::NotYet } else { Checked::Known })
    }

    /// Returns the epoch of an existing event.
    pub async fn epoch_of(&self, conn: &mut AsyncPgConnection, event_id: EventId) -> QueryResult<String> {
        if let Some(epoch) = self.histories().epoch_of(event_id) {
            return Ok(epoch.to_owned());
        }
        let loaded = self.reload(conn, Some(event_id.0)).await?;
        loaded.epoch_of(event_id).map(str::to_owned).ok_or(diesel::NotFound)
    }

    /// Loads the histories again, after waiting for any transaction that is beginning one. `seen` is an id
    /// that is known to be assigned.
    pub async fn reload(&self, conn: &mut AsyncPgConnection, seen: Option<i64>) -> QueryResult<Arc<Histories>> {
        let load = self.histories.begin();
        let wait = "SELECT pg_advisory_xact_lock_shared(hashtextextended('waybill.histories', 0))";
        sql_query(wait).execute(conn).await?;
        self.load(conn, load, seen).await
    }

    /// Loads the histories until a load is adopted. Returns the adopted histories.
    async fn load(
        &self,
        conn: &mut AsyncPgConnection,
        mut load: Load,
        seen: Option<i64>,
    ) -> QueryResult<Arc<Histories>> {
        while !self.adopt(load, Histories::new(load_histories(conn).await?, seen)) {
            load = self.histories.begin();
        }
        Ok(self.histories())
    }

    /// Adopts loaded histories. Returns false if they must be loaded again: a concurrent load found
    /// another current history, and it is unknown which of the two loads read first.
    fn adopt(&self, load: Load, loaded: Histories) -> bool {
        let present = loaded.present().cloned();
        let finished = self.histories.finish(load, loaded);
        let previous = finished.previous.present();
        let has_changed = previous.is_some() && previous != present.as_ref();
        if finished.is_kept
            && has_changed
            && let Some(call) = self.on_change.get()
        {
            call();
        }
        !(has_changed && finished.has_overlapped)
    }
}

async fn read_present(conn: &mut AsyncPgConnection) -> QueryResult<Present> {
    statement!("read_present_history").query().load_one(conn).await
}

/// Returns all histories, the oldest first.
async fn load_histories(conn: &mut AsyncPgConnection) -> QueryResult<Vec<History>> {
    let rows: Vec<HistoryRow> =
        histories::table.order(histories::first_id).select(HistoryRow::as_select()).load(conn).await?;
    let history = |HistoryRow { epoch, first_id, first_log_id }| History { epoch, first_id, first_log_id };
    Ok(rows.into_iter().map(history).collect())
}

/// Begins a history if the database continues from an earlier state, or unconditionally if `by_hand`.
/// Returns whether a history has begun.
async fn begin_history(conn: &mut AsyncPgConnection, by_hand: bool) -> QueryResult<bool> {
    #[derive(QueryableByName)]
    struct Begun {
        #[diesel(sql_type = Bool)]
        has_begun: bool,
    }
    let begin = sql_query("SELECT waybill.begin_history($1) AS has_begun").bind::<Bool, _>(by_hand);
    begin.load_one::<Begun>(conn).await.map(|begun| begun.has_begun)
}

/// Begins a history because an operator states that the database was restored. Returns the previous
/// history and the new one.
pub(crate) async fn begin_by_hand(url: &str) -> Result<(History, History), Error> {
    let mut conn = open(url, "SET lock_timeout = '60s'").await?.connection;
    begin_history(&mut conn, true).await?;
    let mut rows = load_histories(&mut conn).await?;
    let (new, previous) = (rows.pop(), rows.pop());
    previous.zip(new).ok_or_else(|| Error::Internal("there are no histories".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histories(epoch: &str) -> Histories {
        Histories::new(vec![History { epoch: epoch.to_owned(), first_id: 0, first_log_id: 0 }], None)
    }

    #[test]
    fn if_two_concurrent_loads_differ_the_second_to_finish_is_repeated() {
        for is_earlier_first in [false, true] {
            let watch = HistoryWatch::default();
            let (earlier, later) = (watch.histories.begin(), watch.histories.begin());
            let (first, second) = if is_earlier_first { (earlier, later) } else { (later, earlier) };
            assert!(watch.adopt(first, histories("one")));
            assert!(!watch.adopt(second, histories("other")));
            assert!(watch.adopt(watch.histories.begin(), histories("other")));
            assert_eq!(watch.histories().present().expect("a history").epoch, "other");
        }
    }

    #[test]
    fn a_load_with_the_same_result_as_a_concurrent_one_is_not_repeated() {
        let watch = HistoryWatch::default();
        let (earlier, later) = (watch.histories.begin(), watch.histories.begin());
        assert!(watch.adopt(later, histories("one")));
        assert!(watch.adopt(earlier, histories("one")));
    }
}
