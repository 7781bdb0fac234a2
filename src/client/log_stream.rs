//! The event log as it is written.
//!
//! A stream remembers its position, and goes on there when a connection is lost or a server restarts: each entry comes
//! once, and none is missed.
//!
//! ```no_run
//! use waybill::client::{Client, LogFilter, LogSignal};
//!
//! # async fn follow() -> Result<(), waybill::client::ClientError> {
//! let client = Client::new("http://127.0.0.1:8080", None)?;
//! let mut log = client.follow_log(LogFilter::new().with("action", "FAILED"));
//! while let Ok(signal) = log.next().await {
//!     if let LogSignal::Entry(entry) = signal {
//!         println!("{}", entry.get());
//!     }
//! }
//! # Ok(())
//! # }
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use reqwest::{Method, Response};
use serde_json::value::RawValue;
use url::form_urlencoded::Serializer;

use super::pause::Pause;
use super::server_sent::{Reader, ServerSent};
use super::{Client, ClientError, Refusal};

/// How long the beginning of an answer may take.
const CONNECT: Duration = Duration::from_secs(30);

/// How long a stream may be silent. A server sends something every 15 seconds, unless it is set otherwise; asking again
/// does no harm.
const SILENCE: Duration = Duration::from_secs(60);

/// The pause after a stream that the server ended in order.
const AFTER_END: Duration = Duration::from_millis(200);

/// Which entries to follow: parameters of `GET /logs/stream`, such as `event_id`, `worker_id`, `action` and `since`.
#[derive(Debug, Clone, Default)]
pub struct LogFilter(Vec<(String, String)>);

impl LogFilter {
    /// Returns the filter that selects every entry from now on.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the filter with one more parameter.
    pub fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.0.push((name.to_owned(), value.to_string()));
        self
    }
}

/// What a stream tells.
#[derive(Debug)]
pub enum LogSignal {
    /// The server answers: the stream has begun, or goes on. From here on no entry is missed.
    Connected,
    /// An entry, as the server wrote it.
    Entry(Box<RawValue>),
    /// The connection is lost for this reason. The stream asks again.
    Lost(ClientError),
}

/// A stream of log entries.
#[derive(Debug)]
pub struct LogStream {
    client: Client,
    path: String,
    position: Option<String>,
    response: Option<Response>,
    reader: Reader,
    waiting: VecDeque<ServerSent>,
    pause: Pause,
    /// The time to wait before the next request.
    delay: Duration,
    was_connected: bool,
    /// Whether [`LogSignal::Connected`] is still to be returned. Without a position, a connection that is lost would go
    /// on at a later one.
    is_new: bool,
}

impl Client {
    /// Returns a stream of log entries. It connects when it is first read.
    pub fn follow_log(&self, filter: LogFilter) -> LogStream {
        let query = Serializer::new(String::new()).extend_pairs(filter.0).finish();
        LogStream {
            client: self.clone(),
            path: format!("/logs/stream?{query}"),
            position: None,
            response: None,
            reader: Reader::default(),
            waiting: VecDeque::new(),
            pause: Pause::default(),
            delay: Duration::ZERO,
            was_connected: false,
            is_new: false,
        }
    }
}

impl LogStream {
    /// Waits for the next signal. Returns an error if the first connection fails, or the server refuses to go on.
    pub async fn next(&mut self) -> Result<LogSignal, ClientError> {
        loop {
            if self.is_new && self.position.is_some() {
                self.is_new = false;
                return Ok(LogSignal::Connected);
            }
            if let Some(event) = self.waiting.pop_front() {
                match self.take(event)? {
                    Some(signal) => return Ok(signal),
                    None => continue,
                }
            }
            if self.response.is_none() {
                match self.connect().await {
                    Ok(()) => {
                        self.is_new = true;
                        continue;
                    }
                    Err(error) if self.was_connected && !error.is_final() => return Ok(self.lost(error)),
                    Err(error) => return Err(error),
                }
            }
            if let Err(error) = self.read().await {
                return Ok(self.lost(error));
            }
        }
    }

    async fn connect(&mut self) -> Result<(), ClientError> {
        tokio::time::sleep(self.delay).await;
        let mut request = self.client.request(Method::GET, &self.path);
        if let Some(position) = &self.position {
            request = request.header("last-event-id", position);
        }
        let answered = tokio::time::timeout(CONNECT, request.send()).await;
        let response = answered.map_err(|_| self.client.silent())?.map_err(|error| self.client.unreachable(&error))?;
        if let Some(refusal) = Refusal::of(&response) {
            let body = tokio::time::timeout(CONNECT, response.bytes()).await.map_err(|_| self.client.silent())?;
            let body = body.map_err(|error| self.client.unreachable(&error))?;
            return Err(ClientError::Refused(Box::new(refusal.read(&body))));
        }
        (self.response, self.reader, self.was_connected) = (Some(response), Reader::default(), true);
        self.delay = Duration::ZERO;
        Ok(())
    }

    /// Reads the next piece of the response.
    async fn read(&mut self) -> Result<(), ClientError> {
        let Some(response) = &mut self.response else { return Ok(()) };
        let piece = tokio::time::timeout(SILENCE, response.chunk()).await;
        match piece.map_err(|_| self.client.silent())?.map_err(|error| self.client.unreachable(&error))? {
            Some(bytes) => self.waiting.extend(self.reader.add(&bytes).map_err(ClientError::Unreadable)?),
            None => {
                (self.response, self.delay) = (None, AFTER_END);
            }
        }
        Ok(())
    }

    /// Returns what an event says, if it says anything but its position.
    fn take(&mut self, event: ServerSent) -> Result<Option<LogSignal>, ClientError> {
        let unreadable = |error: serde_json::Error| ClientError::Unreadable(error.to_string());
        let signal = match event.name.as_str() {
            "log" => Some(LogSignal::Entry(RawValue::from_string(event.data).map_err(unreadable)?)),
            _ => None,
        };
        self.pause = Pause::default();
        // Only now: an event that was not handed out comes again.
        self.position = event.id.or(self.position.take());
        Ok(signal)
    }

    fn lost(&mut self, error: ClientError) -> LogSignal {
        self.response = None;
        self.delay = self.pause.next(&error);
        LogSignal::Lost(error)
    }
}
