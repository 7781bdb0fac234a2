//! A recorded request.

use std::io;
use std::time::Instant;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt};

/// What arrived, when, and on which connection.
#[derive(Debug, Clone)]
pub(crate) struct Recorded {
    pub method: String,
    /// Path and query, as sent.
    pub path: String,
    /// In the order sent, with names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// When the last byte arrived.
    pub at: Instant,
    /// The number of the connection, starting from 1. Requests with equal numbers shared a
    /// connection.
    pub connection: usize,
}

impl Recorded {
    /// Returns the first header of this name, which must be in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    #[track_caller]
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a body that is text")
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// Reads the next request, or returns `None` if the sender has hung up. Bytes of later requests
    /// stay in `buffer`.
    pub(super) async fn read(
        from: &mut (impl AsyncRead + Unpin),
        buffer: &mut Vec<u8>,
        connection: usize,
    ) -> io::Result<Option<Self>> {
        let head_bytes = loop {
            if let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            if from.read_buf(buffer).await? == 0 {
                return Ok(None);
            }
        };
        let head = String::from_utf8(buffer.drain(..head_bytes).collect()).expect("headers that are text");
        let mut request = Self::from_head(&head, connection);
        let body_bytes = request.header("content-length").map_or(0, |length| length.parse().expect("a length"));
        assert!(request.header("transfer-encoding").is_none(), "the receiver reads no chunks: {head}");
        while buffer.len() < body_bytes {
            if from.read_buf(buffer).await? == 0 {
                return Ok(None);
            }
        }
        request.body = buffer.drain(..body_bytes).collect();
        request.at = Instant::now();
        Ok(Some(request))
    }

    fn from_head(head: &str, connection: usize) -> Self {
        let mut lines = head.trim_end().split("\r\n");
        let mut words = lines.next().unwrap_or_default().split(' ').map(str::to_owned);
        let header = |line: &str| {
            let (name, value) = line.split_once(':').unwrap_or_else(|| panic!("{line} is no header"));
            (name.to_ascii_lowercase(), value.trim().to_owned())
        };
        Self {
            method: words.next().expect("a method"),
            path: words.next().expect("a path"),
            headers: lines.map(header).collect(),
            body: Vec::new(),
            at: Instant::now(),
            connection,
        }
    }
}
