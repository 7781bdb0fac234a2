//! Ten thousand idle workers: what they cost, and that none of them is forgotten.
//!
//! The server is a process of its own, so that its memory can be told from the test's; the
//! workers are open sockets and nothing else.

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

/// The promise: memory per waiting worker.
const KB_EACH: usize = 32;

/// Files that a process needs to be open at once: a socket per worker, and some others.
const FILES: u64 = 12_000;

/// Parts of the texts of statements, by which to tell them.
const CLAIM: &str = "-- claim_deliveries";
const POLL: &str = "AS q(queue, from_rank, from_seq) CROSS JOIN LATERAL (SELECT 1";
const PROMOTE: &str = "due_at <=";

/// One crowd at a time: two would need more files than many systems allow.
static ROOM: Mutex<()> = Mutex::const_new(());

/// A server, the wire between it and its database, and those who wait.
struct Scene {
    waiting: Vec<TcpStream>,
    server: Process,
    app: App,
    proxy: DatabaseProxy,
    files_before: usize,
    _room: MutexGuard<'static, ()>,
}

impl Scene {
    async fn set(poll_interval_ms: u32) -> Self {
        let room = ROOM.lock().await;
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
        // Whatever is opened or prepared once is opened and prepared now.
        app.publish_tagged("warm").await;
        let id = app.claim("warm", "w:1").await.expect("an event")["id"].as_i64().expect("an id");
        app.complete(id, "w:1").await.expect(200);
        let files_before = open_files(&server);
        Scene { waiting: Vec::new(), server, app, proxy, files_before, _room: room }
    }

    fn address(&self) -> &str {
        self.app.base.trim_start_matches("http://")
    }

    /// One more worker waits; its number is its place in line.
    fn enter(&mut self, tag: &str) {
        let address = self.address().parse().expect("an address");
        let mut socket = TcpStream::connect_timeout(&address, PATIENCE).expect("a connection");
        let path = format!("/events/subscribe?tags={tag}&worker_id=crowd:{}&wait=60", self.waiting.len() + 1);
        let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", self.address());
        socket.write_all(request.as_bytes()).expect("the request is sent");
        socket.set_nonblocking(true).expect("a socket");
        self.waiting.push(socket);
    }

    /// Workers come until there are so many; the server has let all of them in.
    async fn gather(&mut self, workers: usize, tag: impl Fn(usize) -> String) {
        while self.waiting.len() < workers {
            self.enter(&tag(self.waiting.len()));
        }
        let all = self.files_before + workers;
        until("the server has let everybody in", async || open_files(&self.server) >= all).await;
        // Its threads have dealt with all that came before once they answer what comes after.
        for _ in 0..4 {
            let client = http_client();
            client.get(format!("{}/health", self.app.base)).send().await.expect("an answer");
        }
    }

    /// The statements that the database is asked while the queues are looked at so many times.
    async fn statements_in(&self, polls: usize) -> usize {
        let total = || self.proxy.all().values().sum::<usize>();
        let (begin, before) = (self.proxy.statements(POLL), total());
        until("the queues are looked at", async || self.proxy.statements(POLL) >= begin + polls).await;
        total() - before
    }

    /// Nobody has been answered, nor hung up on.
    fn all_still_wait(&self) -> bool {
        let is_silent =
            |socket: &TcpStream| socket.peek(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        self.waiting.iter().all(is_silent)
    }

    /// Publishes an event, and the worker who has waited longest for it gets it, and nobody else.
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

    /// All of them hang up, and the server closes its ends.
    async fn disperse(&mut self) {
        self.waiting.clear();
        let few = self.files_before + FEW;
        until("the server has let everybody go", async || open_files(&self.server) <= few).await;
    }
}

/// The server, started with as few files as most systems begin with.
fn serve(proxy: &DatabaseProxy, poll_interval_ms: u32) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -Sn 1024 && exec \"$@\"", "sh", env!("CARGO_BIN_EXE_waybill"), "serve"]);
    command.args(["--bind=127.0.0.1:0", "--notify=false", "--database-url"]).arg(proxy.url());
    command.arg(format!("--poll-interval-ms={poll_interval_ms}"));
    command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    command
}

/// Lets this process open as many files as it needs. The server sees to that itself.
fn allow_files() {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    assert!(hard >= FILES, "{FILES} open files are needed, and only {hard} are allowed: see `ulimit -Hn`");
    if soft < FILES {
        setrlimit(Resource::RLIMIT_NOFILE, FILES, hard).expect("within the hard limit");
    }
}

fn open_files(server: &Process) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("it runs").count()
}

/// Kilobytes of memory that the server has in use.
fn memory(server: &Process) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its size");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Waits for the answer, which must be an event.
async fn read_event(mut socket: TcpStream) -> Value {
    let mut answer = Vec::new();
    let mut event = None;
    until("the worker has its answer", async || {
        // Fails where there is nothing more to be had yet.
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

/// The server looks by itself only once a minute: what is delivered is delivered by a wake-up.
#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_idle_workers_take_little_memory_and_are_woken_one_at_a_time() {
    let mut scene = Scene::set(60_000).await;
    let claims = scene.proxy.statements(CLAIM);
    scene.enter("a");
    until("the first has looked", async || scene.proxy.statements(CLAIM) > claims).await;
    scene.gather(FEW, |_| "a".into()).await;
    let with_few = memory(&scene.server);
    scene.gather(CROWD, |_| "a".into()).await;
    let with_crowd = memory(&scene.server);
    assert!(scene.all_still_wait());
    let each = (with_crowd - with_few) as f64 / (CROWD - FEW) as f64;
    eprintln!("{with_few} KB with {FEW}, {with_crowd} KB with {CROWD}: {each:.1} KB each");
    assert!(each <= KB_EACH as f64, "{each:.1} KB for each worker that waits");
    assert_eq!(scene.proxy.statements(CLAIM) - claims, 1, "who waits behind others does not look");
    scene.publish_to_the_first("a").await;

    scene.disperse().await;
    let id = scene.app.publish_tagged("a").await;
    let claim = scene.app.claim("a", "w:2").await.expect("an event");
    assert_eq!(claim["id"], id);
    assert_eq!(scene.app.actions(id).await, ["PICKED"], "nobody was there to take it");
    scene.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_database_is_asked_no_more_for_ten_thousand_idle_workers_than_for_ten() {
    const POLLS: usize = 10;
    let mut scene = Scene::set(200).await;
    let claims = scene.proxy.statements(CLAIM);
    scene.enter("a");
    until("the first has looked", async || scene.proxy.statements(CLAIM) > claims).await;
    scene.gather(FEW, |_| "a".into()).await;
    let with_few = scene.statements_in(POLLS).await;
    scene.gather(CROWD, |_| "a".into()).await;
    let with_crowd = scene.statements_in(POLLS).await;
    assert!(scene.all_still_wait());
    scene.publish_to_the_first("a").await;
    scene.disperse().await;

    let claims = scene.proxy.statements(CLAIM);
    scene.gather(CROWD, |n| format!("tag{}", n % 100)).await;
    assert!(scene.proxy.statements(CLAIM) - claims <= 100, "one look for each tag at most");
    let with_many_tags = scene.statements_in(POLLS).await;
    assert!(scene.all_still_wait());
    eprintln!("{with_few} statements with {FEW}, {with_crowd} with {CROWD}, {with_many_tags} with a hundred tags");
    for statements in [with_crowd, with_many_tags] {
        assert!(statements <= 2 * with_few, "{statements} statements, and {with_few} with {FEW} workers");
    }

    // Nobody waits: nobody looks, while other clocks go on.
    scene.disperse().await;
    let (polls, promotions) = (scene.proxy.statements(POLL), scene.proxy.statements(PROMOTE));
    until("time has passed", async || scene.proxy.statements(PROMOTE) >= promotions + 3).await;
    assert!(scene.proxy.statements(POLL) <= polls + 1, "a look was on its way, and then no more");
    scene.server.stop().await;
}

/// The server is held up while they come, so that it accepts none of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_workers_that_come_at_once_are_not_turned_away_at_the_door() {
    const ARRIVALS: usize = 1_000;
    let scene = Scene::set(60_000).await;
    let address = scene.address().parse().expect("an address");
    send(scene.server.pid(), Signal::SIGSTOP);
    let arrive = |_| TcpStream::connect_timeout(&address, PATIENCE);
    let arrived: std::io::Result<Vec<TcpStream>> = (0..ARRIVALS).map(arrive).collect();
    send(scene.server.pid(), Signal::SIGCONT);
    assert_eq!(arrived.expect("a place in the line").len(), ARRIVALS);
    scene.server.stop().await;
}
