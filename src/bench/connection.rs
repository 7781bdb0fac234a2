//! A keep-alive connection with a minimal HTTP/1.1 client for measurements.
//!
//! `crate::client` is what programs use, and prepares what is measured: namespaces and backlogs. It is not measured
//! with: TLS, a pool, timeouts and whole answers as values take time of the cores that the server needs, and the
//! figures recorded so far were taken without them.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The largest expected response, in bytes.
const MAX_RESPONSE: usize = 64 * 1024 * 1024;

/// A connection to the server under load.
pub(crate) struct Connection {
    stream: TcpStream,
    /// The header lines that every request has.
    headers: String,
    buffer: Vec<u8>,
    request: Vec<u8>,
    /// The header that names the namespace of requests, or nothing.
    namespace: String,
    /// The header with the idempotency key of the next `POST`s, or nothing.
    idempotency_key: String,
}

/// A response. Its body borrows the buffer of the connection.
#[derive(Debug)]
pub(crate) struct Response<'a> {
    pub status: u16,
    pub body: &'a [u8],
}

impl Connection {
    /// Connects to `host:port`. Requests carry the API key, if there is one.
    pub(crate) async fn open(host: &str, key: Option<&str>) -> Result<Self, String> {
        let stream = TcpStream::connect(host).await.map_err(|error| format!("{host}: {error}"))?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let authorization = key.map(|key| format!("Authorization: Bearer {key}\r\n")).unwrap_or_default();
        Ok(Connection {
            stream,
            headers: format!("Host: {host}\r\n{authorization}"),
            buffer: Vec::with_capacity(8192),
            request: Vec::new(),
            namespace: String::new(),
            idempotency_key: String::new(),
        })
    }

    /// Makes the following requests be about a namespace.
    pub(crate) fn use_namespace(&mut self, name: &str) {
        self.namespace = format!("Waybill-Namespace: {name}\r\n");
    }

    /// Sends an idempotency key with the following `POST`s.
    pub(crate) fn use_idempotency_key(&mut self, key: &str) {
        self.idempotency_key = format!("Idempotency-Key: \"{key}\"\r\n");
    }

    pub(crate) async fn get(&mut self, path: &str) -> Result<Response<'_>, String> {
        self.request_without_body("GET", path).await
    }

    pub(crate) async fn delete(&mut self, path: &str) -> Result<Response<'_>, String> {
        self.request_without_body("DELETE", path).await
    }

    async fn request_without_body(&mut self, method: &str, path: &str) -> Result<Response<'_>, String> {
        self.request.clear();
        let head = format!("{method} {path} HTTP/1.1\r\n{}{}\r\n", self.headers, self.namespace);
        self.request.extend_from_slice(head.as_bytes());
        self.exchange().await
    }

    /// Sends a `POST` with a JSON body.
    pub(crate) async fn post(&mut self, path: &str, body: &[u8]) -> Result<Response<'_>, String> {
        self.request.clear();
        let head = format!(
            "POST {path} HTTP/1.1\r\n{}{}{}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.headers,
            self.namespace,
            self.idempotency_key,
            body.len()
        );
        self.request.extend_from_slice(head.as_bytes());
        self.request.extend_from_slice(body);
        self.exchange().await
    }

    async fn exchange(&mut self) -> Result<Response<'_>, String> {
        self.stream.write_all(&self.request).await.map_err(|error| error.to_string())?;
        self.buffer.clear();
        loop {
            if let Some((status, start, length)) = parse_head(&self.buffer)? {
                while self.buffer.len() < start + length {
                    self.read_more().await?;
                }
                return Ok(Response { status, body: &self.buffer[start..start + length] });
            }
            self.read_more().await?;
        }
    }

    async fn read_more(&mut self) -> Result<(), String> {
        match self.stream.read_buf(&mut self.buffer).await {
            Ok(0) => Err("the server closed the connection".into()),
            Ok(_) if self.buffer.len() > MAX_RESPONSE => Err("the response is too large".into()),
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Returns the status, the start of the body and its length, or `None` while the head is incomplete.
fn parse_head(bytes: &[u8]) -> Result<Option<(u16, usize, usize)>, String> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(&bytes[..end]).map_err(|error| error.to_string())?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
    let status = status.ok_or_else(|| format!("not an HTTP response: {head}"))?;
    let length = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .map_or(Ok(0), |(_, value)| value.trim().parse::<usize>().map_err(|error| error.to_string()))?;
    Ok(Some((status, end + 4, length)))
}

/// Returns an error unless the status is the expected one.
pub(super) fn expect(status: u16, expected: u16) -> Result<(), String> {
    if status == expected { Ok(()) } else { Err(format!("the server responded with {status} instead of {expected}")) }
}

#[cfg(test)]
mod tests {
    use super::parse_head;

    #[test]
    fn a_head_contains_status_and_length() {
        let response = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\nx: y\r\n\r\n{}";
        assert_eq!(parse_head(response), Ok(Some((201, response.len() - 2, 2))));
        assert_eq!(parse_head(b"HTTP/1.1 204 No Content\r\n\r\n"), Ok(Some((204, 27, 0))));
        assert_eq!(parse_head(b"HTTP/1.1 20"), Ok(None));
    }
}
