//! The edge of the server: what is decided about a request before routing, and how connections
//! behave.

mod browsers;
mod connections;
mod methods;
mod pages;
mod proxies;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{App, within_patience};

/// A connection on which a test writes and reads bytes.
struct RawConnection {
    stream: TcpStream,
    received: Vec<u8>,
}

/// A response as it arrived.
#[derive(Debug)]
struct Response {
    status: u16,
    head: String,
    body: String,
}

impl RawConnection {
    async fn to(app: &App) -> Self {
        let address = app.base.trim_start_matches("http://");
        RawConnection { stream: TcpStream::connect(address).await.expect("a connection"), received: Vec::new() }
    }

    async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.expect("sent");
    }

    /// Reads the response to a request of this method.
    async fn response_to(&mut self, method: &str) -> Response {
        let end = self.read_until(|received| Some(find(received, b"\r\n\r\n")? + 4)).await;
        let head = String::from_utf8(self.received.drain(..end).collect()).expect("a head that is text");
        let mut response = Response { status: head[9..12].parse().expect("a status"), head, body: String::new() };
        let length = response.header("content-length").map_or(0, |length| length.parse().expect("a length"));
        if method != "HEAD" {
            let end = self.read_until(|received| (received.len() >= length).then_some(length)).await;
            response.body = String::from_utf8(self.received.drain(..end).collect()).expect("a body that is text");
        }
        response
    }

    /// Asserts that the server closes the connection and sends nothing more.
    async fn expect_end(mut self) {
        let ended = within_patience(self.stream.read_to_end(&mut self.received)).await;
        // A server that refuses to read the rest may also reset the connection.
        assert!(ended.is_ok() || ended.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset));
        assert_eq!(String::from_utf8_lossy(&self.received), "");
    }

    async fn read_until(&mut self, end: impl Fn(&[u8]) -> Option<usize>) -> usize {
        loop {
            if let Some(end) = end(&self.received) {
                return end;
            }
            let count = within_patience(self.stream.read_buf(&mut self.received)).await.expect("more bytes");
            assert_ne!(count, 0, "the connection ended after {:?}", String::from_utf8_lossy(&self.received));
        }
    }
}

impl Response {
    fn header(&self, name: &str) -> Option<&str> {
        let mut pairs = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        pairs.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}
