//! `/logs/stream`: the event log as Server-Sent Events.
//!
//! Each entry is one event. Its id is a cursor of `/logs`, so a client that has lost its connection goes on where it
//! was: browsers send the last id as `Last-Event-ID` by themselves. The id is also sent without an entry, at the
//! beginning and with every heartbeat, because the entries that match the filter may be far apart.
//!
//! The server asks for more bytes only when the client has taken the former ones. So a client that reads slowly keeps
//! at most one piece in memory, and what it has missed meanwhile decides whether it may go on
//! ([`TrailEnd::SlowReader`]). A client that does not read at all is disconnected by the write timeout of its
//! connection.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use actix_http::ConnectionType;
use actix_web::http::Version;
use actix_web::http::header::{self, HeaderName};
use actix_web::web::{Bytes, Data};
use actix_web::{HttpRequest, HttpResponse};
use futures_util::stream;
use serde_json::json;
use tokio::time::sleep;

use super::cursor::{Cursor, CursorTemplate, ListCursors};
use super::doors::Admitted;
use super::logs::{LIST, read_filter};
use super::problem::code_of;
use super::query::{Query, read_cursor, read_query};
use super::view::LogView;
use crate::domain::history::Numbers;
use crate::domain::scope::Scope;
use crate::engine::Engine;
use crate::engine::keys::Admission;
use crate::engine::trail::{TrailEnd, TrailEntries, TrailReader, TrailStart};
use crate::error::Error;

/// The header with which a client names the last event that it has.
const LAST_EVENT_ID: &str = "Last-Event-ID";

/// Tells nginx not to hold back parts of the response.
static ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// The number of milliseconds after which a client that has lost its connection should come back.
const RETRY_MS: u32 = 2_000;

/// The number of bytes of events that are sent at a time, and those of one more event.
const PIECE_BYTES: usize = 16 * 1024;

/// The reason for an end that the client should answer with another request.
const KEY_CHANGED: &str = "key_changed";

/// How streams are served.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamSettings {
    /// The time after which a stream without entries sends a heartbeat.
    pub heartbeat: Duration,
}

/// `GET /logs/stream`: sends log entries as they come.
pub(crate) async fn stream_log_entries(
    engine: Data<Engine>,
    admitted: Admitted,
    scope: Scope,
    settings: Data<StreamSettings>,
    request: HttpRequest,
) -> Result<HttpResponse, Error> {
    let mut query = read_query(&request)?;
    let filter = read_filter(&mut query);
    let after = read_cursor(&mut query);
    let last_event_id = read_last_event_id(&request, &mut query);
    query.finish()?;
    let cursors = ListCursors::new(&engine, scope.namespace, LIST, Numbers::LogIds, false, &filter)?;
    let template = cursors.template();
    // The header is newer: a browser that comes back sends it with the URL of its first request.
    let position = match last_event_id {
        Some(cursor) => Some(cursors.position_of(LAST_EVENT_ID, cursor).await?),
        None => cursors.position(after).await?,
    };
    let start = match position {
        Some(position) => TrailStart::Behind(position),
        None if filter.since.is_some() => TrailStart::Behind(0),
        None => TrailStart::Now,
    };
    let reader = engine.follow_log(scope, filter, start).await?;
    let Admitted(admission) = admitted;
    Ok(respond(&request, LogStream::new(reader, template, admission, settings.heartbeat)))
}

/// Reads the cursor in the header `Last-Event-ID`.
fn read_last_event_id(request: &HttpRequest, query: &mut Query) -> Option<Cursor> {
    let mut values = request.headers().get_all(LAST_EVENT_ID);
    let value = values.next()?;
    let cursor = value.to_str().ok().and_then(Cursor::parse).filter(|_| values.next().is_none());
    if cursor.is_none() {
        query.refuse(LAST_EVENT_ID, "must be the id of an event of this stream, or a cursor of `/logs`");
    }
    cursor
}

fn respond(request: &HttpRequest, log_stream: LogStream) -> HttpResponse {
    let mut response = HttpResponse::Ok()
        .content_type("text/event-stream")
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .insert_header((ACCEL_BUFFERING.clone(), "no"))
        .streaming(stream::unfold(log_stream, LogStream::next_piece));
    if request.version() < Version::HTTP_11 {
        // It knows no chunks: the end of the connection is the end of the response.
        let head = response.head_mut();
        head.no_chunking(true);
        head.set_connection_type(ConnectionType::Close);
    }
    response
}

/// The body of a stream.
struct LogStream {
    reader: TrailReader,
    cursors: CursorTemplate,
    admission: Arc<Admission>,
    heartbeat: Duration,
    progress: Progress,
    /// Entries that are being sent, and the number of those that were.
    entries: Option<(TrailEntries, usize)>,
}

/// How far a stream has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    New,
    /// The client knows that the stream has begun, but not where it is.
    Opened,
    Following,
    Over,
}

/// Why a stream ends, as the client learns it.
type Reason = &'static str;

impl LogStream {
    fn new(reader: TrailReader, cursors: CursorTemplate, admission: Arc<Admission>, heartbeat: Duration) -> Self {
        LogStream { reader, cursors, admission, heartbeat, progress: Progress::New, entries: None }
    }

    /// Returns the next piece of the body, and what comes after it.
    async fn next_piece(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        let piece = match self.progress {
            Progress::New => {
                self.progress = Progress::Opened;
                format!("retry: {RETRY_MS}\n\n").into_bytes()
            }
            Progress::Opened | Progress::Following => match self.next_events().await {
                Ok(piece) => piece,
                Err(reason) => {
                    self.progress = Progress::Over;
                    format!("event: end\ndata: {}\n\n", json!({"reason": reason})).into_bytes()
                }
            },
            Progress::Over => return None,
        };
        Some((Ok(piece.into()), self))
    }

    /// Waits for entries and returns them as events. If none come, it returns a heartbeat.
    async fn next_events(&mut self) -> Result<Vec<u8>, Reason> {
        let (admission, heartbeat) = (self.admission.clone(), sleep(self.heartbeat));
        let events = tokio::select! {
            biased;
            error = admission.until_ended() => return Err(error.map_or(KEY_CHANGED, |error| code_of(&error).name())),
            events = self.follow() => Some(events?),
            () = heartbeat => None,
        };
        match events {
            Some(events) => Ok(events),
            None => self.write_heartbeat().await,
        }
    }

    /// If the future is dropped, nothing is lost.
    async fn follow(&mut self) -> Result<Vec<u8>, Reason> {
        if self.progress == Progress::Opened {
            let position = self.reader.begin().await.map_err(reason_of)?;
            let id = self.id_at(position).await?;
            self.progress = Progress::Following;
            return Ok(format!("{id}\n").into_bytes());
        }
        if self.entries.is_none() {
            self.entries = Some((self.reader.next().await.map_err(reason_of)?, 0));
        }
        self.write_entries().await
    }

    /// Writes entries, as many as fit into a piece.
    async fn write_entries(&mut self) -> Result<Vec<u8>, Reason> {
        let mut piece = Vec::new();
        let Some((entries, written)) = &mut self.entries else { return Ok(piece) };
        // They were dropped for newer ones while the client read the former piece.
        let Some(open) = entries.open() else { return Err(reason_of(TrailEnd::SlowReader)) };
        let last = open.last().map_or(0, |entry| entry.id);
        let epoch = epoch_at(self.reader.engine(), last).await?;
        while piece.len() < PIECE_BYTES
            && let Some(entry) = open.get(*written)
        {
            let id = self.cursors.at(&epoch, &entry.id);
            piece.extend_from_slice(format!("id: {id}\nevent: log\ndata: ").as_bytes());
            let view = LogView::of(entry).for_reader(self.admission.principal());
            serde_json::to_writer(&mut piece, &view).map_err(|error| failed(&Error::Internal(error.to_string())))?;
            piece.extend_from_slice(b"\n\n");
            *written += 1;
        }
        let is_over = open.get(*written).is_none();
        drop(open);
        if is_over {
            self.entries = None;
        }
        Ok(piece)
    }

    /// Writes a comment, which clients ignore, and the position, if there is no entry that was read and not written.
    async fn write_heartbeat(&self) -> Result<Vec<u8>, Reason> {
        let id = match self.reader.position() {
            Some(position) if self.entries.is_none() => self.id_at(position).await?,
            _ => String::new(),
        };
        Ok(format!(": heartbeat\n{id}\n").into_bytes())
    }

    /// Returns the line with the id of a position.
    async fn id_at(&self, position: i64) -> Result<String, Reason> {
        let epoch = epoch_at(self.reader.engine(), position).await?;
        Ok(format!("id: {}\n", self.cursors.at(&epoch, &position)))
    }
}

async fn epoch_at(engine: &Engine, position: i64) -> Result<String, Reason> {
    engine.epoch_for_cursor(Numbers::LogIds, position).await.map_err(|error| failed(&error))
}

/// Logs the error that ends a stream. Returns the reason for the client.
fn failed(error: &Error) -> Reason {
    log::error!("a stream of the event log has failed: {error}");
    code_of(error).name()
}

fn reason_of(end: TrailEnd) -> Reason {
    match end {
        TrailEnd::Stopping => "server_stopping",
        TrailEnd::SlowReader => "slow_reader",
        TrailEnd::HistoryChanged => "history_changed",
        TrailEnd::Failed => "internal_error",
    }
}
