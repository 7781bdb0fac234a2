//! A proxy between a server and its database, which counts statements and can cut a connection at a
//! chosen statement.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::task::JoinHandle;
use tokio_postgres::config::Host;

/// The end of a database's response. One status byte follows.
const READY: &[u8] = b"Z\0\0\0\x05";

/// The body of a request for TLS, which the proxy declines.
const SSL_REQUEST: [u8; 4] = [4, 210, 22, 47];

/// Leads to a database of the shared cluster. It is closed when it is dropped.
pub(crate) struct DatabaseProxy {
    url: String,
    state: Arc<ProxyState>,
    task: JoinHandle<()>,
}

/// What happens to the connection that runs a chosen statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The connection is closed, and the database never sees the statement.
    Before,
    /// The database runs the statement, but its response is lost.
    After,
}

/// Where to cut.
struct Plan {
    part: String,
    passed_over: usize,
    cut: Cut,
}

#[derive(Default)]
struct ProxyState {
    counts: Mutex<HashMap<String, usize>>,
    cut: Mutex<Option<Plan>>,
}

impl ProxyState {
    /// Counts a statement. Returns whether the connection must be cut at it, which happens once.
    fn record(&self, text: String) -> Option<Cut> {
        let is_due = |plan: &mut Plan| {
            let is_meant = text.contains(&plan.part);
            let is_next = plan.passed_over == 0;
            plan.passed_over -= usize::from(is_meant && !is_next);
            is_meant && is_next
        };
        let cut = self.cut.lock().expect("no panic under this lock").take_if(is_due);
        *self.counts.lock().expect("no panic under this lock").entry(text).or_default() += 1;
        cut.map(|plan| plan.cut)
    }
}

impl DatabaseProxy {
    pub(crate) async fn to(url: &str) -> Self {
        let config: tokio_postgres::Config = url.parse().expect("an address");
        let socket: PathBuf = match &config.get_hosts()[0] {
            Host::Unix(folder) => folder.join(format!(".s.PGSQL.{}", config.get_ports()[0])),
            Host::Tcp(host) => panic!("{host} is not the shared cluster"),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let (user, password) = (config.get_user().expect("a user"), config.get_password().unwrap_or_default());
        let password = String::from_utf8_lossy(password).into_owned();
        let (address, database) = (listener.local_addr().expect("an address"), config.get_dbname().expect("a name"));
        let url = format!("postgres://{user}:{password}@{address}/{database}");
        let state = Arc::new(ProxyState::default());
        let task = tokio::spawn(accept(listener, socket, state.clone()));
        Self { url, state, task }
    }

    /// Cuts the connection that next runs a statement whose text contains `part`.
    pub(crate) fn cut_at(&self, part: &str, cut: Cut) {
        self.cut_after(0, part, cut);
    }

    /// Does the same after `passed_over` further statements of that kind.
    pub(crate) fn cut_after(&self, passed_over: usize, part: &str, cut: Cut) {
        let plan = Plan { part: part.to_owned(), passed_over, cut };
        *self.state.cut.lock().expect("no panic under this lock") = Some(plan);
    }

    /// Returns whether the planned cut has happened.
    pub(crate) fn was_cut(&self) -> bool {
        self.state.cut.lock().expect("no panic under this lock").is_none()
    }

    /// Returns the URL of the proxy.
    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    /// Returns how many statements have run whose text contains `part`.
    pub(crate) fn statements(&self, part: &str) -> usize {
        let counts = self.state.counts.lock().expect("no panic under this lock");
        counts.iter().filter(|(text, _)| text.contains(part)).map(|(_, count)| count).sum()
    }

    /// Returns how often each statement has run.
    pub(crate) fn all(&self) -> HashMap<String, usize> {
        self.state.counts.lock().expect("no panic under this lock").clone()
    }
}

impl Drop for DatabaseProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, socket: PathBuf, state: Arc<ProxyState>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        connections.spawn(carry(client, socket.clone(), state.clone()));
    }
}

/// Copies bytes in both directions until one side hangs up or the connection is cut.
async fn carry(mut client: TcpStream, socket: PathBuf, state: Arc<ProxyState>) -> std::io::Result<()> {
    let mut server = UnixStream::connect(socket).await?;
    // The first message has no type byte.
    let mut message = Message { type_byte: None, body: Vec::new() };
    message.read(&mut client).await?;
    if message.body == SSL_REQUEST {
        client.write_all(b"N").await?;
        message.read(&mut client).await?;
    }
    server.write_all(&message.bytes()).await?;
    message.type_byte = Some(0);
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let loses_response = AtomicBool::new(false);
    let requests = async {
        let mut named: HashMap<Vec<u8>, String> = HashMap::new();
        while message.read(&mut from_client).await? {
            match message.statement(&mut named).and_then(|text| state.record(text)) {
                Some(Cut::Before) => return Ok(()),
                Some(Cut::After) => loses_response.store(true, Ordering::Relaxed),
                None => {}
            }
            to_server.write_all(&message.bytes()).await?;
        }
        Ok(())
    };
    let responses = async {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let bytes = match from_server.read(&mut buffer).await? {
                0 => return Ok(()),
                length => &buffer[..length],
            };
            match loses_response.load(Ordering::Relaxed) {
                // The database is ready for the next statement, so this one has completed.
                true if bytes.len() > READY.len() && bytes[..bytes.len() - 1].ends_with(READY) => return Ok(()),
                true => {}
                false => to_client.write_all(bytes).await?,
            }
        }
    };
    tokio::select! {
        request_side = requests => request_side,
        response_side = responses => response_side,
    }
}

/// A message of the frontend: a type byte, the length, and the body.
struct Message {
    type_byte: Option<u8>,
    body: Vec<u8>,
}

impl Message {
    /// Reads the next message. Returns whether there was one.
    async fn read(&mut self, from: &mut (impl AsyncRead + Unpin)) -> std::io::Result<bool> {
        if let Some(type_byte) = &mut self.type_byte {
            let mut byte = [0];
            if from.read(&mut byte).await? == 0 {
                return Ok(false);
            }
            *type_byte = byte[0];
        }
        let length = from.read_u32().await? as usize;
        self.body = vec![0; length - 4];
        from.read_exact(&mut self.body).await?;
        Ok(true)
    }

    fn bytes(&self) -> Vec<u8> {
        let length = (self.body.len() as u32 + 4).to_be_bytes();
        self.type_byte.into_iter().chain(length).chain(self.body.iter().copied()).collect()
    }

    /// Returns the text of the statement that this message runs, if it runs one.
    fn statement(&self, named: &mut HashMap<Vec<u8>, String>) -> Option<String> {
        let mut strings = self.body.split(|byte| *byte == 0);
        let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
        match self.type_byte? {
            b'P' => {
                let name = strings.next().unwrap_or_default().to_vec();
                named.insert(name, text(strings.next()));
                None
            }
            b'B' => Some(named.get(strings.nth(1).unwrap_or_default()).cloned().unwrap_or_default()),
            b'Q' => Some(text(strings.next())),
            _ => None,
        }
    }
}
