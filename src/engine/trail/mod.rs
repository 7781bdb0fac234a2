//! The live trail: streams of the event log.
//!
//! A [`TrailReader`] is one stream. It returns the entries of a namespace that match a filter, in the order of ids,
//! each once, and none is skipped: only *settled* entries are returned ([`settled`]), so a position in the log is one
//! id.
//!
//! One reader of the log serves all streams: [`Engine::extend_trail`], which `background/log_tailer.rs` calls while
//! there are streams. It reads each new entry once, whatever its namespace, and adds it to the [`RecentEntries`]. Each
//! stream picks its own out of these. So a thousand streams cost the database what one costs.
//!
//! A stream that begins further back reads pages of the log, as a list does, until it reaches the recent entries. Only
//! a few do so at once. A stream that had reached them and is now behind them belongs to a client that reads too
//! slowly: it ends, and the client may come back with its position.

mod reader;
mod recent;
mod seats;
mod settled;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use diesel_async::{AsyncConnection, AsyncPgConnection};
use tokio::sync::{Notify, watch};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout};

use crate::domain::scope::Scope;
use crate::engine::turns::NamespaceTurns;
use crate::engine::{Engine, stopping};
use crate::error::{Error, OutageKind};
use crate::store::connection::database::PooledConnection;
use crate::store::lists::log_entries::LogFilter;
use crate::store::lists::log_tail::read_log_tail;
use crate::store::tables::log_writers::read_log_writers;

pub(crate) use reader::{TrailEnd, TrailEntries, TrailReader};
use recent::{NextRead, RecentEntries};
use seats::Seats;
use settled::SettledIds;
pub(crate) use settled::SettledLog;

/// The maximum number of bytes of error messages that are read at a time, and those of one more entry.
const BYTES_PER_READ: i64 = 512 * 1024;

/// The time that a look may take. Others wait for it, and the network may have swallowed it.
const LOOK_WITHIN: Duration = Duration::from_secs(3);

/// A stream that begins need not look at the log if somebody has done so within this time.
const FRESH_LOOK: Duration = Duration::from_millis(100);

/// The time that a list waits for open transactions that may add entries to it.
const SETTLE_WITHIN: Duration = Duration::from_millis(200);

/// The first pause between two looks at these transactions. The others are each twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(2);

/// The maximum number of streams that read pages of the log at once. The others wait.
const CATCH_UPS_AT_ONCE: usize = 4;

/// The maximum number of them that belong to one namespace, so that it cannot keep the others waiting.
const CATCH_UPS_OF_NAMESPACE: usize = 2;

/// What the streams of one server share.
pub(crate) struct Trail {
    looks: tokio::sync::Mutex<Looks>,
    state: Mutex<TrailState>,
    /// Changes with the state.
    news: watch::Sender<()>,
    /// Tells the tailer that there is a stream.
    arrived: Notify,
    seats: Arc<Seats>,
    catch_ups: NamespaceTurns,
}

/// What looks at the transactions that write to the log have shown. Looks are made one after the other.
#[derive(Default)]
struct Looks {
    settled: SettledIds,
    /// When the latest look began, and its result.
    latest: Option<(Instant, SettledLog)>,
    /// The history of the database that they are about.
    history: u64,
}

#[derive(Default)]
struct TrailState {
    recent: RecentEntries,
    is_closed: bool,
    /// Grows when another history of the database begins.
    history: u64,
}

/// Where a stream begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TrailStart {
    /// With the entries that are settled from now on.
    Now,
    /// Behind this position.
    Behind(i64),
}

impl Trail {
    /// Returns a trail for at most `max_streams` streams.
    pub(crate) fn new(max_streams: usize) -> Self {
        Trail {
            looks: tokio::sync::Mutex::default(),
            state: Mutex::default(),
            news: watch::Sender::new(()),
            arrived: Notify::new(),
            seats: Seats::new(max_streams),
            catch_ups: NamespaceTurns::new(CATCH_UPS_AT_ONCE, CATCH_UPS_OF_NAMESPACE),
        }
    }

    /// Returns whether somebody has looked at the log a moment ago. Needs no connection.
    async fn has_fresh_look(&self) -> bool {
        self.looks.lock().await.latest.is_some_and(|(began, _)| began.elapsed() <= FRESH_LOOK)
    }

    /// Returns the number of streams that are open.
    pub(crate) fn streams(&self) -> usize {
        self.seats.taken()
    }

    /// Waits until there is a stream. While there is none, nothing is kept in memory.
    pub(crate) async fn until_followed(&self) {
        while self.seats.is_empty() {
            self.lock().recent.clear();
            // A stream that has begun since has left a permit.
            self.arrived.notified().await;
        }
    }

    /// Ends all streams, because the server stops.
    pub(crate) fn close(&self) {
        self.change(|state| state.is_closed = true);
    }

    /// Ends all streams, because another history of the database has begun: some of what they have returned may have
    /// been undone.
    pub(crate) fn forget(&self) {
        self.change(|state| {
            state.history += 1;
            state.recent.clear();
        });
    }

    /// Changes the state, and wakes all streams.
    fn change(&self, change: impl FnOnce(&mut TrailState)) {
        change(&mut self.lock());
        self.news.send_replace(());
    }

    fn lock(&self) -> MutexGuard<'_, TrailState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine {
    /// Begins a stream of the entries of a namespace that match a filter. If nothing is read for other streams yet, it
    /// first tries whether the log can be read.
    pub(crate) async fn follow_log(
        &self,
        scope: Scope,
        filter: LogFilter,
        start: TrailStart,
    ) -> Result<TrailReader, Error> {
        let trail = self.trail();
        let (history, is_read) = match trail.lock() {
            state if state.is_closed => return Err(stopping()),
            state => (state.history, state.recent.present_end().is_some()),
        };
        let seat = trail.seats.take(scope.namespace)?;
        if !is_read && !trail.has_fresh_look().await {
            let mut conn = self.database().connection().await?;
            // A thousand streams that begin at once must not look one after the other: the tailer would wait for them.
            self.look_again_after(FRESH_LOOK, &mut conn).await?;
        }
        let reader = TrailReader::new(self.clone(), scope, filter, start, history, seat);
        trail.arrived.notify_one();
        Ok(reader)
    }

    /// Reads the entries that have been settled since the last call, for all streams. Returns whether the log is
    /// settled up to its end.
    pub(crate) async fn extend_trail(&self) -> Result<bool, Error> {
        let history = self.trail().lock().history;
        let mut conn = self.database().connection().await?;
        let log = self.look_at_log(&mut conn).await?;
        // Streams wait until it is known where the log ends.
        let Some(settled) = log.id else { return Ok(false) };
        while let Some(read) = self.next_read(settled, history) {
            let NextRead { above, up_to, since, .. } = read;
            let entries =
                conn.transaction(async |conn| read_log_tail(conn, above, up_to, since, BYTES_PER_READ).await).await?;
            let bytes: usize =
                entries.iter().map(|tail| tail.entry.error_message.as_ref().map_or(0, String::len)).sum();
            let read_to = match entries.last() {
                Some(last) if bytes as i64 >= BYTES_PER_READ => last.entry.id,
                _ => up_to,
            };
            self.trail().change(|state| state.recent.add(read, read_to, entries));
            // The streams take what is new before it is dropped for newer entries.
            yield_now().await;
        }
        Ok(settled == log.last_id)
    }

    /// Returns what to read next, unless another history has begun: the connection may still lead to the former one.
    fn next_read(&self, settled: i64, history: u64) -> Option<NextRead> {
        let mut state = self.trail().lock();
        if state.history == history { state.recent.next_read(settled) } else { None }
    }

    /// Returns how far the log is settled, and whether that includes all that was committed before this call. Waits for
    /// open transactions, but not for long. The connection is the one that has been used for it.
    pub(crate) async fn settle_log(&self) -> Result<(PooledConnection, SettledLog), Error> {
        let deadline = Instant::now() + SETTLE_WITHIN;
        let (mut pause, mut last_id) = (FIRST_PAUSE, None);
        loop {
            let mut conn = self.database().connection().await?;
            let log = self.look_at_log(&mut conn).await?;
            // Later ids do not matter.
            let last_id = *last_id.get_or_insert(log.last_id);
            if log.id.is_some_and(|id| id >= last_id) || Instant::now() >= deadline {
                return Ok((conn, SettledLog { last_id, ..log }));
            }
            // Others may need the connection more.
            drop(conn);
            sleep(pause).await;
            pause *= 2;
        }
    }

    /// Looks at the transactions that write to the log. Callers that wait for the same look share it.
    async fn look_at_log(&self, conn: &mut AsyncPgConnection) -> Result<SettledLog, Error> {
        self.look_again_after(Duration::ZERO, conn).await
    }

    /// Does the same, unless the latest look began less than this time before the call.
    async fn look_again_after(&self, time: Duration, conn: &mut AsyncPgConnection) -> Result<SettledLog, Error> {
        let asked = Instant::now();
        let mut looks = self.trail().looks.lock().await;
        if let Some((began, log)) = looks.latest
            && began + time >= asked
        {
            return Ok(log);
        }
        let history = self.trail().lock().history;
        if looks.history != history {
            *looks = Looks { history, ..Looks::default() };
        }
        let began = Instant::now();
        let writers = timeout(LOOK_WITHIN, read_log_writers(conn)).await;
        let writers = writers.map_err(|_| Error::outage(OutageKind::TooSlow, "the log's writers could not be read"));
        let writers = writers.and_then(|read| read.map_err(Error::from));
        let writers = writers.inspect_err(|_| looks.settled.forget_open())?;
        // A standby does not know who writes on its primary. It may end before its primary's last entries.
        let log = match writers.is_standby {
            true => SettledLog { id: Some(writers.last_id), last_id: writers.last_id },
            false => looks.settled.note(writers),
        };
        looks.latest = Some((began, log));
        Ok(log)
    }
}
