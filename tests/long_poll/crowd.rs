//! Ten thousand idle workers: what they cost, and that each of them is served.
//!
//! The server is a separate process, so its memory is separate from the test's. The workers are
//! open sockets and nothing else.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::Command;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};

use crate::support::process::{Process, send};
use crate::support::wire::DatabaseProxy;
use crate::support::{App, PATIENCE, database, http_client, until};

const CROWD: usize = 10_000;
const FEW: usize = 10;

/// The documented memory per waiting worker.
const KB_EACH: usize = 34;

/// Files that a process must have open at once: a socket per worker, and some others.
const FILES: u64 = 12_000;

/// Parts of the texts of statements, by which the proxy counts them.
const CLAIM: &str = "-- claim_deliveries";
const POLL: &str = "-- find_busy_queues";
const PROMOTE: &str = "-- lock_due";

/// Allows one crowd at a time: two would need more files than many systems allow.
pub(crate) static ONE_CROWD: Mutex<()> = Mutex::const_new(());

/// A server, the proxy between it and its database, and the waiting workers.
struct Crowd {
    waiting: Vec<TcpStream>,
    server: Process,
    app: App,
    proxy: DatabaseProxy,
    files_before: usize,
    _one_crowd: MutexGuard<'static, ()>,
}

impl Crowd {
    async fn start(poll_interval_ms: u32) -> Self {
        let one_crowd = ONE_CROWD.lock().await;
        allow_files();
        let url = database::migrated().await;
        let proxy = DatabaseProxy::to(&url).await;
        let mut server = Process::start(serve(&proxy, poll_interval_ms));
        server.app.url = url;
        let app = App {
            server: None,
            url: server.app.url.clone(),
            base: server.app.base.clone(),
            client: server.app.client.clone(),
        };
        // Opens and prepares everything that happens only once.
        app.publish_tagged("warm").await;
        let id = app.claim("warm", "w:1").await.expect("an event")["id"].as_i64().expect("an id");
        app.complete(id, "w:1").await.expect(200);
        let files_before = open_files(&server);
        Crowd { waiting: Vec::new(), server, app, proxy, files_before, _one_crowd: one_crowd }
    }

    fn address(&self) -> &str {
        self.app.base.trim_start_matches("http://")
    }

    /// Adds a waiting worker. Its number is its position in the line.
    fn enter(&mut self, tag: &str) {
        let address = self.address().parse().expect("an address");
        let mut socket = TcpStream::connect_timeout(&address, PATIENCE).expect("a connection");
        let path = format!("/events/subscribe?tags={tag}&worker_id=crowd:{}&wait_seconds=60", self.waiting.len() + 1);
        let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", self.address());
        socket.write_all(request.as_bytes()).expect("the request is sent");
        socket.set_nonblocking(true).expect("a socket");
        self.waiting.push(socket);
    }

    /// Adds workers until there are `workers`, and waits until the server has accepted all of them.
    async fn gather(&mut self, workers: usize, tag: impl Fn(usize) -> String) {
        while self.waiting.len() < workers {
            self.enter(&tag(self.waiting.len()));
        }
        let all = self.files_before + workers;
        until("the server has accepted all workers", async || open_files(&self.server) >= all).await;
        // The server's threads have handled all earlier requests once they answer later ones.
        for _ in 0..4 {
            let client = http_client();
            client.get(format!("{}/health", self.app.base)).send().await.expect("a response");
        }
    }

    /// Returns how many statements the server sends during `polls` polls of the queues.
    async fn statements_in(&self, polls: usize) -> usize {
        let total = || self.proxy.all().values().sum::<usize>();
        let (begin, before) = (self.proxy.statements(POLL), total());
        until("the queues are polled", async || self.proxy.statements(POLL) >= begin + polls).await;
        total() - before
    }

    /// Returns whether every worker still waits for its response.
    fn all_still_wait(&self) -> bool {
        let is_silent =
            |socket: &TcpStream| socket.peek(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        self.waiting.iter().all(is_silent)
    }

    /// Publishes an event, and asserts that only the worker that has waited longest gets it.
    async fn publish_to_the_first(&mut self, tag: &str) {
        let id = self.app.publish_tagged(tag).await;
        let event = read_event(self.waiting.remove(0)).await;
        assert_eq!(event["id"], id);
        assert_eq!(event["worker_id"], "crowd:1");
        let log = self.app.event(id).await["logs"].clone();
        assert_eq!(log.as_array().expect("logs").len(), 1, "{log}");
        assert_eq!((&log[0]["action"], &log[0]["worker_id"]), (&json!("PICKED"), &json!("crowd:1")));
        assert!(self.all_still_wait());
    }

    /// Closes all sockets, and waits until the server has closed its ends.
    async fn disperse(&mut self) {
        self.waiting.clear();
        let few = self.files_before + FEW;
        until("the server has closed all connections", async || open_files(&self.server) <= few).await;
    }
}

/// The server's command, with the low limit of open files that most systems start with.
fn serve(proxy: &DatabaseProxy, poll_interval_ms: u32) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -Sn 1024 && exec \"$@\"", "sh", env!("CARGO_BIN_EXE_waybill"), "serve"]);
    command.args(["--bind=127.0.0.1:0", "--notify=false", "--database-url"]).arg(proxy.url());
    command.arg(format!("--poll-interval-ms={poll_interval_ms}"));
    command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    command
}

/// Raises the limit of open files for this process. The server raises its own.
pub(crate) fn allow_files() {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    assert!(hard >= FILES, "{FILES} open files are needed, and only {hard} are allowed: see `ulimit -Hn`");
    if soft < FILES {
        setrlimit(Resource::RLIMIT_NOFILE, FILES, hard).expect("within the hard limit");
    }
}

fn open_files(server: &Process) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("it runs").count()
}

/// Returns the memory that the server uses, in kilobytes.
fn memory(server: &Process) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its size");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Waits for the response, which must be an event.
async fn read_event(mut socket: TcpStream) -> Value {
    let mut answer = Vec::new();
    let mut event = None;
    until("the worker has its answer", async || {
        // Fails while no more bytes have arrived.
        let ended = socket.read_to_end(&mut answer).is_ok();
        let text = String::from_utf8_lossy(&answer).into_owned();
        assert!(!ended, "hung up after {text}");
        event = text.split_once("\r\n\r\n").and_then(|(_, body)| serde_json::from_str(body).ok());
        assert!(event.is_none() || text.starts_with("HTTP/1.1 200"), "{text}");
        event.is_some()
    })
    .await;
    event.expect("an event")
}

/// The server polls only once a minute: what is delivered here is delivered by a wake-up.
#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_idle_workers_take_little_memory_and_are_woken_one_at_a_time() {
    let mut crowd = Crowd::start(60_000).await;
    let claims = crowd.proxy.statements(CLAIM);
    crowd.enter("a");
    until("the first worker has polled", async || crowd.proxy.statements(CLAIM) > claims).await;
    crowd.gather(FEW, |_| "a".into()).await;
    let with_few = memory(&crowd.server);
    crowd.gather(CROWD, |_| "a".into()).await;
    let with_crowd = memory(&crowd.server);
    assert!(crowd.all_still_wait());
    let each = (with_crowd - with_few) as f64 / (CROWD - FEW) as f64;
    eprintln!("{with_few} KB with {FEW}, {with_crowd} KB with {CROWD}: {each:.1} KB each");
    assert!(each <= KB_EACH as f64, "{each:.1} KB for each worker that waits");
    assert_eq!(crowd.proxy.statements(CLAIM) - claims, 1, "workers behind the first do not poll");
    crowd.publish_to_the_first("a").await;

    crowd.disperse().await;
    let id = crowd.app.publish_tagged("a").await;
    let claim = crowd.app.claim("a", "w:2").await.expect("an event");
    assert_eq!(claim["id"], id);
    assert_eq!(crowd.app.actions(id).await, ["PICKED"], "no worker was there to claim it");
    crowd.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_idle_workers_cost_the_database_no_more_statements_than_ten() {
    const POLLS: usize = 10;
    let mut crowd = Crowd::start(200).await;
    let claims = crowd.proxy.statements(CLAIM);
    crowd.enter("a");
    until("the first worker has polled", async || crowd.proxy.statements(CLAIM) > claims).await;
    crowd.gather(FEW, |_| "a".into()).await;
    let with_few = crowd.statements_in(POLLS).await;
    crowd.gather(CROWD, |_| "a".into()).await;
    let with_crowd = crowd.statements_in(POLLS).await;
    assert!(crowd.all_still_wait());
    crowd.publish_to_the_first("a").await;
    crowd.disperse().await;

    let claims = crowd.proxy.statements(CLAIM);
    crowd.gather(CROWD, |n| format!("tag{}", n % 100)).await;
    assert!(crowd.proxy.statements(CLAIM) - claims <= 100, "at most one poll for each tag");
    let with_many_tags = crowd.statements_in(POLLS).await;
    assert!(crowd.all_still_wait());
    eprintln!("{with_few} statements with {FEW}, {with_crowd} with {CROWD}, {with_many_tags} with a hundred tags");
    for statements in [with_crowd, with_many_tags] {
        assert!(statements <= 2 * with_few, "{statements} statements, and {with_few} with {FEW} workers");
    }

    // Without waiting workers there are no polls, while other timers continue.
    crowd.disperse().await;
    let (polls, promotions) = (crowd.proxy.statements(POLL), crowd.proxy.statements(PROMOTE));
    until("some time has passed", async || crowd.proxy.statements(PROMOTE) >= promotions + 3).await;
    assert!(crowd.proxy.statements(POLL) <= polls + 1, "one poll was in progress, and then no more");
    crowd.server.stop().await;
}

/// The server is suspended while they connect, so it accepts none of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_workers_that_connect_at_once_are_not_refused() {
    const ARRIVALS: usize = 1_000;
    let crowd = Crowd::start(60_000).await;
    let address = crowd.address().parse().expect("an address");
    send(crowd.server.pid(), Signal::SIGSTOP);
    let arrive = |_| TcpStream::connect_timeout(&address, PATIENCE);
    let arrived: std::io::Result<Vec<TcpStream>> = (0..ARRIVALS).map(arrive).collect();
    send(crowd.server.pid(), Signal::SIGCONT);
    assert_eq!(arrived.expect("a place in the accept queue").len(), ARRIVALS);
    crowd.server.stop().await;
}
