//! A relay in front of a server, which counts connections, cuts them, and counts the statuses of
//! responses.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// Closes its port and all connections when it is dropped.
pub(super) struct Relay {
    pub url: String,
    seen: Arc<Mutex<Seen>>,
    accepting: JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    connections: usize,
    statuses: BTreeMap<String, usize>,
    serving: JoinSet<()>,
}

impl Relay {
    /// Starts a relay to the server with this base URL.
    pub(super) async fn to(base: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let seen = Arc::new(Mutex::new(Seen::default()));
        let server = base.trim_start_matches("http://").to_owned();
        let accepting = tokio::spawn(accept(listener, server, seen.clone()));
        Relay { url, seen, accepting }
    }

    /// Returns the number of connections made so far.
    pub(super) fn connections(&self) -> usize {
        self.seen.lock().expect("no panic under this lock").connections
    }

    /// Returns the number of responses with this status.
    pub(super) fn count(&self, status: &str) -> usize {
        self.seen.lock().expect("no panic under this lock").statuses.get(status).copied().unwrap_or(0)
    }

    pub(super) fn cut(&self) {
        self.seen.lock().expect("no panic under this lock").serving.abort_all();
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, server: String, seen: Arc<Mutex<Seen>>) {
    while let Ok((client, _)) = listener.accept().await {
        let carrying = carry(client, server.clone(), seen.clone());
        let mut seen = seen.lock().expect("no panic under this lock");
        seen.connections += 1;
        seen.serving.spawn(async { carrying.await.unwrap_or_default() });
    }
}

/// Copies bytes in both directions until one side hangs up. Every response starts a packet of its
/// own.
async fn carry(client: TcpStream, server: String, seen: Arc<Mutex<Seen>>) -> std::io::Result<()> {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = TcpStream::connect(server).await?.into_split();
    let answering = async {
        let mut bytes = vec![0; 65_536];
        loop {
            let count = from_server.read(&mut bytes).await?;
            if count == 0 {
                return Ok(());
            }
            if let Some(status) = bytes[..count].strip_prefix(b"HTTP/1.1 ").and_then(|rest| rest.get(..3)) {
                let status = String::from_utf8_lossy(status).into_owned();
                *seen.lock().expect("no panic under this lock").statuses.entry(status).or_default() += 1;
            }
            to_client.write_all(&bytes[..count]).await?;
        }
    };
    tokio::select! {
        asked = tokio::io::copy(&mut from_client, &mut to_server) => asked.map(drop),
        answered = answering => answered,
    }
}
