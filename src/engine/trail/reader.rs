//! One stream of the event log.

use std::sync::{Arc, Weak};
use std::time::Duration;

use diesel_async::AsyncConnection;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use crate::domain::scope::Scope;
use crate::engine::Engine;
use crate::engine::trail::TrailStart;
use crate::engine::trail::recent::{Found, TrailBatch};
use crate::engine::trail::seats::Seat;
use crate::error::Error;
use crate::store::lists::log_entries::{LogFilter, LogPage, list_log_entries_below};
use crate::store::lists::pages::Page;
use crate::store::tables::event_log::LogEntry;

/// The number of entries that a stream reads at a time, until it has reached the recent ones.
const CATCH_UP_ENTRIES: i64 = 100;

/// The number of bytes of error messages that a stream keeps of them, and those of one more entry.
const CATCH_UP_BYTES: usize = 64 * 1024;

/// The pause after a page could not be read.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Why a stream ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TrailEnd {
    /// The server stops.
    Stopping,
    /// The client does not read as fast as the log grows.
    SlowReader,
    /// The database was restored to an earlier state.
    HistoryChanged,
    /// A bug in the server, which was logged.
    Failed,
}

/// One stream: the entries of a namespace that match a filter, in the order of ids.
pub(crate) struct TrailReader {
    engine: Engine,
    scope: Scope,
    filter: LogFilter,
    /// All entries up to this one have been returned. `None` until the stream knows where the log ends.
    position: Option<i64>,
    /// The history of the database in which it began.
    history: u64,
    /// The generation of the recent entries that it has reached.
    reached: Option<u64>,
    news: watch::Receiver<()>,
    reading: Option<Reading>,
    _seat: Seat,
}

/// A page that is being read, up to an id. It goes on while the stream sends heartbeats, and keeps its turn.
struct Reading {
    up_to: i64,
    page: AbortOnDropHandle<Result<LogPage, Error>>,
}

/// Entries for a stream, in the order of ids. There is at least one.
#[derive(Debug)]
pub(crate) enum TrailEntries {
    /// These of the entries that all streams share. A client that reads slowly does not keep them in memory.
    Shared(Weak<TrailBatch>, Vec<usize>),
    /// Entries that were read for this stream.
    Own(Vec<LogEntry>),
}

/// Entries in memory, for as long as some of them are written.
pub(crate) enum OpenEntries<'a> {
    Shared(Arc<TrailBatch>, &'a [usize]),
    Own(&'a [LogEntry]),
}

impl TrailEntries {
    /// Returns the entries, or `None` if they were dropped for newer ones meanwhile.
    pub(crate) fn open(&self) -> Option<OpenEntries<'_>> {
        match self {
            TrailEntries::Shared(batch, chosen) => Some(OpenEntries::Shared(batch.upgrade()?, chosen)),
            TrailEntries::Own(entries) => Some(OpenEntries::Own(entries)),
        }
    }
}

impl OpenEntries<'_> {
    pub(crate) fn get(&self, index: usize) -> Option<&LogEntry> {
        match self {
            OpenEntries::Shared(batch, chosen) => Some(&batch.entries.get(*chosen.get(index)?)?.entry),
            OpenEntries::Own(entries) => entries.get(index),
        }
    }

    pub(crate) fn last(&self) -> Option<&LogEntry> {
        let count = match self {
            OpenEntries::Shared(_, chosen) => chosen.len(),
            OpenEntries::Own(entries) => entries.len(),
        };
        self.get(count.checked_sub(1)?)
    }
}

impl TrailReader {
    pub(super) fn new(
        engine: Engine,
        scope: Scope,
        filter: LogFilter,
        start: TrailStart,
        history: u64,
        seat: Seat,
    ) -> Self {
        let position = match start {
            TrailStart::Now => None,
            TrailStart::Behind(position) => Some(position),
        };
        let news = engine.trail().news.subscribe();
        TrailReader { engine, scope, filter, position, history, reached: None, news, reading: None, _seat: seat }
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Returns the position up to which all entries have been returned, if it is known.
    pub(crate) fn position(&self) -> Option<i64> {
        self.position
    }

    /// Waits until the position is known, and returns it.
    pub(crate) async fn begin(&mut self) -> Result<i64, TrailEnd> {
        loop {
            self.look()?;
            match self.position {
                Some(position) => return Ok(position),
                None => self.wait().await?,
            }
        }
    }

    /// Waits for the next entries and returns them. If the future is dropped, nothing is lost.
    pub(crate) async fn next(&mut self) -> Result<TrailEntries, TrailEnd> {
        loop {
            let found = match self.look()? {
                Found::Unknown | Found::Nothing => {
                    self.wait().await?;
                    None
                }
                Found::Batch(batch) => self.choose(batch),
                Found::Dropped(above) => self.catch_up(above).await?,
            };
            if let Some(entries) = found {
                return Ok(entries);
            }
        }
    }

    /// Returns what there is behind the position.
    fn look(&mut self) -> Result<Found, TrailEnd> {
        // Before the state is read: what comes later wakes this stream.
        self.news.borrow_and_update();
        let state = self.engine.trail().lock();
        if state.is_closed {
            return Err(TrailEnd::Stopping);
        }
        if state.history != self.history {
            return Err(TrailEnd::HistoryChanged);
        }
        self.position = self.position.or(state.recent.present_end());
        let found = self.position.map_or(Found::Unknown, |position| state.recent.find_behind(position));
        let generation = state.recent.generation();
        match &found {
            Found::Dropped(_) if self.reached == Some(generation) => return Err(TrailEnd::SlowReader),
            Found::Batch(_) | Found::Nothing => self.reached = Some(generation),
            Found::Dropped(_) | Found::Unknown => {}
        }
        Ok(found)
    }

    /// Waits until something has changed.
    async fn wait(&mut self) -> Result<(), TrailEnd> {
        self.news.changed().await.map_err(|_| TrailEnd::Stopping)
    }

    /// Takes its own entries out of those of all streams.
    fn choose(&mut self, batch: Arc<TrailBatch>) -> Option<TrailEntries> {
        // A page that was being read is not needed any more.
        self.reading = None;
        let position = self.position.replace(batch.up_to).unwrap_or(batch.above);
        let is_chosen = |at: &usize| {
            let tail = &batch.entries[*at];
            tail.namespace == self.scope.namespace && tail.entry.id > position && self.filter.matches(&tail.entry)
        };
        let chosen: Vec<usize> = (0..batch.entries.len()).filter(is_chosen).collect();
        (!chosen.is_empty()).then(|| TrailEntries::Shared(Arc::downgrade(&batch), chosen))
    }

    /// Reads a page of the log, up to `up_to`. If the future is dropped, the next call waits for the same page.
    async fn catch_up(&mut self, up_to: i64) -> Result<Option<TrailEntries>, TrailEnd> {
        let begun = self.reading.take().unwrap_or_else(|| self.begin_page(up_to));
        let reading = self.reading.insert(begun);
        let (up_to, page) = (reading.up_to, (&mut reading.page).await);
        self.reading = None;
        match page.unwrap_or_else(|ended| Err(Error::Internal(ended.to_string()))) {
            Ok(LogPage { mut entries, end, .. }) => {
                let cut_at = cut(&mut entries);
                self.position = Some(cut_at.or(end).unwrap_or(up_to));
                Ok((!entries.is_empty()).then_some(TrailEntries::Own(entries)))
            }
            // A stream survives a restart of the database.
            Err(Error::Unavailable(_) | Error::OutcomeUnknown(_)) => {
                sleep(RETRY_PAUSE).await;
                Ok(None)
            }
            Err(error) => {
                log::error!("a stream of the event log has failed: {error}");
                Err(TrailEnd::Failed)
            }
        }
    }

    /// Begins to read a page behind the position. While it waits for its turn, it ends with the stream. After that it
    /// goes on: a connection that is dropped in the middle of a statement cannot be used again.
    fn begin_page(&self, up_to: i64) -> Reading {
        let (engine, scope, filter) = (self.engine.clone(), self.scope.clone(), self.filter.clone());
        let scan = engine.settings().list_scan_rows;
        let page = Page { descending: false, after: self.position, limit: CATCH_UP_ENTRIES, scan };
        let reading = async move {
            let turn = engine.trail().catch_ups.turn(scope.namespace).await?;
            let read_turn = engine.read_turns().turn_of_stream(scope.namespace).await?;
            let task = engine.clone();
            let read = engine.detached(async move {
                let _turns = (turn, read_turn);
                let mut conn = task.database().connection().await?;
                let below = up_to.saturating_add(1);
                let list =
                    conn.transaction(async |conn| list_log_entries_below(conn, &scope, &filter, page, below).await);
                Ok(list.await?)
            });
            read.await
        };
        Reading { up_to, page: AbortOnDropHandle::new(tokio::spawn(reading)) }
    }
}

/// Cuts entries so that a stream does not keep many long texts. Returns the id of the last entry if some were cut off.
fn cut(entries: &mut Vec<LogEntry>) -> Option<i64> {
    let mut bytes = 0;
    for entry in &mut *entries {
        // No stream shows it.
        entry.response_excerpt = None;
    }
    let fitting = entries.iter().take_while(|entry| {
        let fits = bytes < CATCH_UP_BYTES;
        bytes += entry.error_message.as_ref().map_or(0, String::len);
        fits
    });
    let fitting = fitting.count();
    (fitting < entries.len()).then(|| {
        entries.truncate(fitting);
        entries.last().map(|entry| entry.id)
    })?
}
