//! One kept connection, and just enough HTTP/1.1 to measure with.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Answers larger than this are not expected.
const MAX_ANSWER: usize = 64 * 1024 * 1024;

/// A connection to the server under load.
pub struct Connection {
    stream: TcpStream,
    host: String,
    buffer: Vec<u8>,
    request: Vec<u8>,
}

/// An answer: its status, and its body as a range of the connection's buffer.
#[derive(Debug)]
pub struct Answer<'a> {
    /// The status.
    pub status: u16,
    /// The body.
    pub body: &'a [u8],
}

impl Connection {
    /// Connects to `host:port`.
    pub async fn open(host: &str) -> Result<Self, String> {
        let stream = TcpStream::connect(host).await.map_err(|error| format!("{host}: {error}"))?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        Ok(Connection { stream, host: host.to_owned(), buffer: Vec::with_capacity(8192), request: Vec::new() })
    }

    /// `GET`s a path.
    pub async fn get(&mut self, path: &str) -> Result<Answer<'_>, String> {
        self.bare("GET", path).await
    }

    /// `DELETE`s a path.
    pub async fn delete(&mut self, path: &str) -> Result<Answer<'_>, String> {
        self.bare("DELETE", path).await
    }

    async fn bare(&mut self, method: &str, path: &str) -> Result<Answer<'_>, String> {
        self.request.clear();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.host);
        self.request.extend_from_slice(head.as_bytes());
        self.exchange().await
    }

    /// `POST`s JSON to a path.
    pub async fn post(&mut self, path: &str, body: &[u8]) -> Result<Answer<'_>, String> {
        self.request.clear();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.host,
            body.len()
        );
        self.request.extend_from_slice(head.as_bytes());
        self.request.extend_from_slice(body);
        self.exchange().await
    }

    async fn exchange(&mut self) -> Result<Answer<'_>, String> {
        self.stream.write_all(&self.request).await.map_err(|error| error.to_string())?;
        self.buffer.clear();
        loop {
            if let Some((status, start, length)) = parse_head(&self.buffer)? {
                while self.buffer.len() < start + length {
                    self.read_more().await?;
                }
                return Ok(Answer { status, body: &self.buffer[start..start + length] });
            }
            self.read_more().await?;
        }
    }

    async fn read_more(&mut self) -> Result<(), String> {
        match self.stream.read_buf(&mut self.buffer).await {
            Ok(0) => Err("the server closed the connection".into()),
            Ok(_) if self.buffer.len() > MAX_ANSWER => Err("the answer is too large".into()),
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Status, where the body starts, and how long it is; `None` while the head is not complete.
fn parse_head(bytes: &[u8]) -> Result<Option<(u16, usize, usize)>, String> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(&bytes[..end]).map_err(|error| error.to_string())?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
    let status = status.ok_or_else(|| format!("no HTTP answer: {head}"))?;
    let length = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .map_or(Ok(0), |(_, value)| value.trim().parse::<usize>().map_err(|error| error.to_string()))?;
    Ok(Some((status, end + 4, length)))
}

/// Whether an answer is the one that was hoped for.
pub(super) fn expect(status: u16, wanted: u16) -> Result<(), String> {
    if status == wanted { Ok(()) } else { Err(format!("the server answered {status} instead of {wanted}")) }
}

#[cfg(test)]
mod tests {
    use super::parse_head;

    #[test]
    fn a_head_tells_status_and_length() {
        let answer = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\nx: y\r\n\r\n{}";
        assert_eq!(parse_head(answer), Ok(Some((201, answer.len() - 2, 2))));
        assert_eq!(parse_head(b"HTTP/1.1 204 No Content\r\n\r\n"), Ok(Some((204, 27, 0))));
        assert_eq!(parse_head(b"HTTP/1.1 20"), Ok(None));
    }
}
