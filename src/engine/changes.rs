//! Deliveries under lock, being changed.
//!
//! Locks are always taken in the same order, so that no two transactions wait for each other
//! in a circle: first the ordering keys, then the rows by id. `write` saves what was touched,
//! appends the lines to the log and, for every ordering key that was touched, lets the head
//! of the key into `ready` if it waits for nothing but its turn. That last step is the only
//! way in which keyed work ever enters `ready`.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use diesel_async::AsyncPgConnection;

use crate::domain::delivery::{Delivery, LogLine, Place};
use crate::error::Error;
use crate::store::DEFAULT_NAMESPACE;
use crate::store::deliveries::{EnteredRow, FirstMoments, Loaded, Save, load_deliveries, save_deliveries};
use crate::store::event_log::{LogEntry, append_log};
use crate::store::ordering::{find_heads, lock_keys_of_deliveries};

use super::{Entered, marks};

/// Deliveries under lock.
pub struct Changes {
    loaded: BTreeMap<i64, Loaded>,
    touched: Vec<i64>,
    to_tail: BTreeSet<i64>,
    lines: Vec<LogLine>,
    now: Option<DateTime<Utc>>,
}

/// What was written.
#[derive(Debug, Default)]
pub struct Written {
    /// The log entries, in the order in which the lines were given.
    pub entries: Vec<LogEntry>,
    /// What entered `ready`.
    pub entered_ready: Vec<Entered>,
    /// The first moments that any of it waits for now.
    pub first_moments: FirstMoments,
}

impl Changes {
    /// Locks and loads deliveries; ids that do not exist are simply not there.
    pub async fn load(conn: &mut AsyncPgConnection, ids: &[i64], now: Option<DateTime<Utc>>) -> Result<Self, Error> {
        lock_keys_of_deliveries(conn, ids).await?;
        let loaded: BTreeMap<i64, Loaded> =
            load_deliveries(conn, ids, now).await?.into_iter().map(|loaded| (loaded.delivery.id, loaded)).collect();
        Ok(Changes { loaded, touched: Vec::new(), to_tail: BTreeSet::new(), lines: Vec::new(), now })
    }

    /// Looks at a delivery.
    pub fn get(&self, id: i64) -> Option<&Loaded> {
        self.loaded.get(&id)
    }

    /// All ids that were found.
    pub fn ids(&self) -> Vec<i64> {
        self.loaded.keys().copied().collect()
    }

    /// Takes a delivery in hand to change it. What enters `ready` does so in the order in
    /// which it was first touched.
    pub fn touch(&mut self, id: i64) -> Option<&mut Loaded> {
        let loaded = self.loaded.get_mut(&id)?;
        if !self.touched.contains(&id) {
            self.touched.push(id);
        }
        Some(loaded)
    }

    /// Lets a delivery queue up behind its key anew.
    pub fn send_to_tail(&mut self, id: i64) {
        self.to_tail.insert(id);
    }

    /// Notes a line for the log; the answer is its index in [`Written::entries`].
    pub fn log(&mut self, line: LogLine) -> usize {
        self.lines.push(line);
        self.lines.len() - 1
    }

    /// Notes several.
    pub fn log_all(&mut self, lines: Vec<LogLine>) -> usize {
        let first = self.lines.len();
        self.lines.extend(lines);
        first
    }

    /// The lines noted so far.
    pub fn lines(&self) -> &[LogLine] {
        &self.lines
    }

    /// Writes everything.
    pub async fn write(self, conn: &mut AsyncPgConnection) -> Result<Written, Error> {
        let touched: Vec<&Loaded> = self.touched.iter().filter_map(|id| self.loaded.get(id)).collect();
        let saves: Vec<Save<'_>> = touched
            .iter()
            .map(|loaded| Save { delivery: &loaded.delivery, to_tail: self.to_tail.contains(&loaded.delivery.id) })
            .collect();
        let first =
            |pick: fn(&Delivery) -> Option<DateTime<Utc>>| touched.iter().filter_map(|l| pick(&l.delivery)).min();
        let mut written = Written {
            first_moments: FirstMoments {
                due_at: first(Delivery::due_at),
                expires_at: first(|delivery| delivery.expires_at),
                look_at: first(|delivery| delivery.lease_expires_at),
            },
            ..Written::default()
        };
        if !saves.is_empty() {
            let entered = save_deliveries(conn, self.now, &saves).await?;
            written.entered_ready =
                entered.into_iter().filter_map(|row| entered_ready(row, self.loaded.get(&row.id))).collect();
        }
        if !self.lines.is_empty() {
            written.entries = append_log(conn, DEFAULT_NAMESPACE, self.now, &self.lines).await?;
        }
        let keys: BTreeSet<String> = touched.iter().filter_map(|l| l.delivery.ordering_key.clone()).collect();
        written.entered_ready.extend(advance_keys(conn, keys, self.now).await?);
        Ok(written)
    }
}

/// Lets the heads of keys into `ready`; answers what entered. The keys'
/// locks must be held.
pub async fn advance_keys(
    conn: &mut AsyncPgConnection,
    keys: BTreeSet<String>,
    now: Option<DateTime<Utc>>,
) -> Result<Vec<Entered>, Error> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let keys: Vec<String> = keys.into_iter().collect();
    let ids = find_heads(conn, DEFAULT_NAMESPACE, &keys).await?;
    let mut heads = load_deliveries(conn, &ids, now).await?;
    for head in &mut heads {
        head.delivery.place = Place::Ready;
    }
    let saves: Vec<Save<'_>> = heads.iter().map(|h| Save { delivery: &h.delivery, to_tail: false }).collect();
    if saves.is_empty() {
        return Ok(Vec::new());
    }
    let entered = save_deliveries(conn, now, &saves).await?;
    let head = |row: &EnteredRow| heads.iter().find(|head| head.delivery.id == row.id);
    Ok(entered.into_iter().filter_map(|row| entered_ready(row, head(&row))).collect())
}

fn entered_ready(row: EnteredRow, loaded: Option<&Loaded>) -> Option<Entered> {
    Some(Entered { tags: loaded?.tags.clone(), place: marks::Place { rank: row.rank, seq: row.seq } })
}
