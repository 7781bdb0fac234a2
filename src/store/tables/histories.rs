//! Histories of the database: noticing that it goes on from an earlier state.
//!
//! A connection that was newly made may lead to another database than the one before: a backup was
//! restored, or a standby promoted. So it is asked which database it leads to before anything is
//! written through it ([`HistoryWatch::check`]). The first server to notice begins a history, the
//! others adopt it, and each forgets what it remembered of the database.

use std::sync::{Arc, OnceLock};

use diesel::prelude::{QueryDsl, Queryable};
use diesel::prelude::{QueryableByName, Selectable, SelectableHelper};
use diesel::sql_types::{Bool, Text};
use diesel::{QueryResult, sql_query};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::history::{Histories, History};
use crate::domain::ids::EventId;
use crate::error::Error;
use crate::store::connection::connect::open;
use crate::store::connection::sqlstate::SqlState;
use crate::store::tables::latest::{Latest, Load};
use crate::store::tables::schema::histories;

/// What NOTIFY carries when a history begins; `waybill.begin_history` sends it.
pub const NOTICE: &str = "history";

/// What a server knows of the histories.
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
}

/// What a check found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checked {
    /// The history is known, and whatever is written belongs to it.
    Known,
    /// It could not be told: the database takes no writes, or has no such table yet.
    NotYet,
}

impl HistoryWatch {
    /// Returns the histories, as far as they are known.
    pub fn histories(&self) -> Arc<Histories> {
        self.histories.get()
    }

    /// Has a function called whenever the present history turns out to be another one, before the
    /// connection that it was noticed on is used.
    pub fn on_change(&self, call: impl Fn() + Send + Sync + 'static) {
        let is_first = self.on_change.set(Box::new(call)).is_ok();
        debug_assert!(is_first, "one engine per database");
    }

    /// Compares the database with its present history, and begins another one if it has gone back.
    ///
    /// A standby has to be asked again before anything is written: it may have been promoted.
    pub async fn check(&self, conn: &mut AsyncPgConnection) -> QueryResult<Checked> {
        let load = self.histories.begin();
        let present = match look(conn).await {
            Ok(present) => present,
            Err(error) if SqlState::of(&error).is_some_and(SqlState::is_undefined) => return Ok(Checked::NotYet),
            Err(error) => return Err(error),
        };
        let begun = present.has_gone_back && !present.is_read_only && begin_history(conn, false).await?;
        let known = self.histories();
        if begun || known.present().is_none_or(|known| known.epoch != present.epoch) || present.has_gone_back {
            let loaded = self.load(conn, load, None).await?;
            if let (true, Some(history)) = (begun, loaded.present()) {
                log::warn!(
                    epoch = history.epoch.as_str(), first_id = history.first_id;
                    "the database goes on from an earlier state (a restore or a failover): a new history begins"
                );
            }
        }
        Ok(if present.is_read_only { Checked::NotYet } else { Checked::Known })
    }

    /// Returns the epoch of an event that there is.
    pub async fn epoch_of(&self, conn: &mut AsyncPgConnection, event_id: EventId) -> QueryResult<String> {
        if let Some(epoch) = self.histories().epoch_of(event_id) {
            return Ok(epoch.to_owned());
        }
        let loaded = self.reload(conn, Some(event_id.0)).await?;
        loaded.epoch_of(event_id).map(str::to_owned).ok_or(diesel::NotFound)
    }

    /// Reads the histories again, after all that are just beginning. The id `seen`, if there is
    /// one, has been given out.
    pub async fn reload(&self, conn: &mut AsyncPgConnection, seen: Option<i64>) -> QueryResult<Arc<Histories>> {
        let load = self.histories.begin();
        let settled = "SELECT pg_advisory_xact_lock_shared(hashtextextended('waybill.histories', 0))";
        sql_query(settled).execute(conn).await?;
        self.load(conn, load, seen).await
    }

    /// Reads the histories and keeps them. Returns those that are kept by then.
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

    /// Keeps what was loaded. Returns false if it has to be loaded again: another load at the same
    /// time found something else, and nobody knows which of the two read first.
    fn adopt(&self, load: Load, loaded: Histories) -> bool {
        let present = loaded.present().cloned();
        let finished = self.histories.finish(load, loaded);
        let before = finished.before.present();
        let is_another = before.is_some() && before != present.as_ref();
        if finished.is_kept
            && is_another
            && let Some(call) = self.on_change.get()
        {
            call();
        }
        !(is_another && finished.has_overlapped)
    }
}

async fn look(conn: &mut AsyncPgConnection) -> QueryResult<Present> {
    sql_query(
        "SELECT epoch, waybill.has_gone_back() AS has_gone_back, \
                current_setting('transaction_read_only')::boolean AS is_read_only \
         FROM waybill.histories ORDER BY first_id DESC LIMIT 1",
    )
    .get_result(conn)
    .await
}

/// Returns all histories, the oldest first.
async fn load_histories(conn: &mut AsyncPgConnection) -> QueryResult<Vec<History>> {
    let rows: Vec<HistoryRow> =
        histories::table.order(histories::first_id).select(HistoryRow::as_select()).load(conn).await?;
    let history = |HistoryRow { epoch, first_id, first_log_id }| History { epoch, first_id, first_log_id };
    Ok(rows.into_iter().map(history).collect())
}

/// Begins a history if the database has gone back, or in any case if it is done `by_hand`. Returns
/// whether it has begun one.
async fn begin_history(conn: &mut AsyncPgConnection, by_hand: bool) -> QueryResult<bool> {
    #[derive(QueryableByName)]
    struct Begun {
        #[diesel(sql_type = Bool)]
        has_begun: bool,
    }
    let begin = sql_query("SELECT waybill.begin_history($1) AS has_begun").bind::<Bool, _>(by_hand);
    begin.get_result::<Begun>(conn).await.map(|begun| begun.has_begun)
}

/// Begins a history because somebody says that the database was restored. Returns the history
/// before and the new one.
pub async fn begin_by_hand(url: &str) -> Result<(History, History), Error> {
    let mut conn = open(url, "SET lock_timeout = '60s'").await?.connection;
    begin_history(&mut conn, true).await?;
    let mut rows = load_histories(&mut conn).await?;
    let (new, before) = (rows.pop(), rows.pop());
    before.zip(new).ok_or_else(|| Error::Internal("there are no histories".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn up_to(epoch: &str) -> Histories {
        Histories::new(vec![History { epoch: epoch.to_owned(), first_id: 0, first_log_id: 0 }], None)
    }

    #[test]
    fn of_two_loads_that_differ_the_second_to_end_is_repeated() {
        for is_earlier_first in [false, true] {
            let watch = HistoryWatch::default();
            let (earlier, later) = (watch.histories.begin(), watch.histories.begin());
            let (first, second) = if is_earlier_first { (earlier, later) } else { (later, earlier) };
            assert!(watch.adopt(first, up_to("one")));
            assert!(!watch.adopt(second, up_to("other")));
            assert!(watch.adopt(watch.histories.begin(), up_to("other")));
            assert_eq!(watch.histories().present().expect("a history").epoch, "other");
        }
    }

    #[test]
    fn a_load_that_finds_the_same_as_another_is_not_repeated() {
        let watch = HistoryWatch::default();
        let (earlier, later) = (watch.histories.begin(), watch.histories.begin());
        assert!(watch.adopt(later, up_to("one")));
        assert!(watch.adopt(earlier, up_to("one")));
    }
}
