//! The wire between a server and its database, with somebody who counts what goes by, and who
//! can cut it at a statement.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::task::JoinHandle;
use tokio_postgres::config::Host;

/// What the database says at the end of an answer; one letter follows.
const READY: &[u8] = b"Z\0\0\0\x05";

/// Leads to a database of the shared cluster. Closed when it is dropped.
pub struct Wire {
    url: String,
    watch: Arc<Watch>,
    task: JoinHandle<()>,
}

/// What is done with a connection that runs a certain statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// It is closed, and the database never sees the statement.
    Before,
    /// The database runs the statement; its answer is lost.
    After,
}

/// Where to cut.
struct Plan {
    part: String,
    passed_over: usize,
    cut: Cut,
}

#[derive(Default)]
struct Watch {
    counts: Mutex<HashMap<String, usize>>,
    cut: Mutex<Option<Plan>>,
}

impl Watch {
    /// Counts a statement; says whether it is the one to cut at, which happens once.
    fn see(&self, text: String) -> Option<Cut> {
        let is_due = |plan: &mut Plan| {
            let is_meant = text.contains(&plan.part);
            let is_next = plan.passed_over == 0;
            plan.passed_over -= usize::from(is_meant && !is_next);
            is_meant && is_next
        };
        let cut = self.cut.lock().expect("nobody panics here").take_if(is_due);
        *self.counts.lock().expect("nobody panics here").entry(text).or_default() += 1;
        cut.map(|plan| plan.cut)
    }
}

impl Wire {
    pub async fn to(url: &str) -> Self {
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
        let watch = Arc::new(Watch::default());
        let task = tokio::spawn(accept(listener, socket, watch.clone()));
        Self { url, watch, task }
    }

    /// Cuts the connection that next runs a statement whose text contains this.
    pub fn cut_at(&self, part: &str, cut: Cut) {
        self.cut_later(0, part, cut);
    }

    /// The same after so many statements of that kind.
    pub fn cut_later(&self, passed_over: usize, part: &str, cut: Cut) {
        let plan = Plan { part: part.to_owned(), passed_over, cut };
        *self.watch.cut.lock().expect("nobody panics here") = Some(plan);
    }

    /// Whether that has happened.
    pub fn was_cut(&self) -> bool {
        self.watch.cut.lock().expect("nobody panics here").is_none()
    }

    /// The address of this end.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// How many statements have been run whose text contains this.
    pub fn statements(&self, part: &str) -> usize {
        let counts = self.watch.counts.lock().expect("nobody panics here");
        counts.iter().filter(|(text, _)| text.contains(part)).map(|(_, count)| count).sum()
    }

    /// What was run, and how often.
    pub fn all(&self) -> HashMap<String, usize> {
        self.watch.counts.lock().expect("nobody panics here").clone()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, socket: PathBuf, watch: Arc<Watch>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        connections.spawn(carry(client, socket.clone(), watch.clone()));
    }
}

/// Carries bytes both ways until one side hangs up, or the wire is cut.
async fn carry(client: TcpStream, socket: PathBuf, watch: Arc<Watch>) -> std::io::Result<()> {
    let server = UnixStream::connect(socket).await?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let loses_answer = AtomicBool::new(false);
    let asking = async {
        // The first message has no letter.
        let mut message = Message { letter: None, body: Vec::new() };
        let mut named: HashMap<Vec<u8>, String> = HashMap::new();
        while message.read(&mut from_client).await? {
            match message.statement(&mut named).and_then(|text| watch.see(text)) {
                Some(Cut::Before) => return Ok(()),
                Some(Cut::After) => loses_answer.store(true, Ordering::Relaxed),
                None => {}
            }
            to_server.write_all(&message.bytes()).await?;
            message.letter = Some(0);
        }
        Ok(())
    };
    let answering = async {
        let mut answer = vec![0; 64 * 1024];
        loop {
            let bytes = match from_server.read(&mut answer).await? {
                0 => return Ok(()),
                length => &answer[..length],
            };
            match loses_answer.load(Ordering::Relaxed) {
                // The database is ready for the next: the statement is over.
                true if bytes.len() > READY.len() && bytes[..bytes.len() - 1].ends_with(READY) => return Ok(()),
                true => {}
                false => to_client.write_all(bytes).await?,
            }
        }
    };
    tokio::select! {
        asked = asking => asked,
        answered = answering => answered,
    }
}

/// A message of the frontend: a letter, the length, the rest.
struct Message {
    letter: Option<u8>,
    body: Vec<u8>,
}

impl Message {
    /// Reads the next one; answers whether there was one.
    async fn read(&mut self, from: &mut (impl AsyncRead + Unpin)) -> std::io::Result<bool> {
        if let Some(letter) = &mut self.letter {
            let mut byte = [0];
            if from.read(&mut byte).await? == 0 {
                return Ok(false);
            }
            *letter = byte[0];
        }
        let length = from.read_u32().await? as usize;
        self.body = vec![0; length - 4];
        from.read_exact(&mut self.body).await?;
        Ok(true)
    }

    fn bytes(&self) -> Vec<u8> {
        let length = (self.body.len() as u32 + 4).to_be_bytes();
        self.letter.into_iter().chain(length).chain(self.body.iter().copied()).collect()
    }

    /// The text of the statement that it runs, if it runs one.
    fn statement(&self, named: &mut HashMap<Vec<u8>, String>) -> Option<String> {
        let mut strings = self.body.split(|byte| *byte == 0);
        let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
        match self.letter? {
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
