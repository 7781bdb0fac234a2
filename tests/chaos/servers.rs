//! The servers, and calls to them that may fail.

use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::process::{Process, waybill};
use crate::support::{App, http_client, until};

/// Longer than any call may take, including a wait of a minute.
const GIVE_UP: Duration = Duration::from_secs(70);

const LISTENERS: &str = "SELECT count(*) FROM pg_stat_activity \
     WHERE datname = current_database() AND state = 'idle' AND query LIKE 'LISTEN waybill%'";

pub(super) struct Servers {
    pub url: String,
    client: reqwest::Client,
    bases: Vec<RwLock<String>>,
    processes: Vec<tokio::sync::Mutex<Option<Process>>>,
}

/// A response that arrived.
#[derive(Debug)]
pub(super) struct Response {
    pub status: u16,
    pub body: Value,
}

/// The statuses that a server may return while there are faults.
const EXPECTED: [u16; 9] = [200, 201, 202, 204, 400, 404, 409, 429, 503];

impl Servers {
    pub(super) async fn start(url: String, count: usize) -> Self {
        let mut servers = Servers { url, client: http_client(), bases: Vec::new(), processes: Vec::new() };
        for _ in 0..count {
            let process = servers.spawn().await;
            servers.bases.push(RwLock::new(process.app.base.clone()));
            servers.processes.push(tokio::sync::Mutex::new(Some(process)));
        }
        servers
    }

    /// Starts a server that polls only once a minute, so that work is found only by notifications.
    async fn spawn(&self) -> Process {
        let url = self.url.clone();
        let starting = move || {
            let flags = "--poll-interval-ms=60000 --db-connections=6 --backoff-seconds=0.2 --poison-after=100 \
                         --dispatch=false --bind=127.0.0.1:0 --database-url";
            let mut arguments = vec!["serve"];
            arguments.extend(flags.split_whitespace());
            arguments.push(&url);
            // The database may be frozen when the server connects.
            (0..10).find_map(|_| Process::spawn(waybill(&arguments)).ok()).expect("a server that starts")
        };
        tokio::task::spawn_blocking(starting).await.expect("no panic")
    }

    pub(super) fn len(&self) -> usize {
        self.bases.len()
    }

    /// Kills a server and starts another instead.
    pub(super) async fn kill_and_restart(&self, number: usize) {
        let mut process = self.processes[number].lock().await;
        process.take().expect("a server").kill_9().await;
        let fresh = self.spawn().await;
        self.bases[number].write().unwrap_or_else(PoisonError::into_inner).clone_from(&fresh.app.base);
        *process = Some(fresh);
    }

    pub(super) async fn stop(self) {
        for process in self.processes {
            process.into_inner().expect("a server").stop().await;
        }
    }

    /// Returns the database in the form that the consistency checks need.
    pub(super) fn database(&self) -> App {
        App { server: None, url: self.url.clone(), base: self.base(0), client: self.client.clone() }
    }

    fn base(&self, number: usize) -> String {
        self.bases[number].read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sends a GET. Returns `None` if no response arrived.
    pub(super) async fn get(&self, server: usize, path: &str) -> Option<Response> {
        response_to(self.client.get(format!("{}{path}", self.base(server)))).await
    }

    /// Sends a POST. Returns `None` if no response arrived.
    pub(super) async fn post(&self, server: usize, path: &str, body: &Value) -> Option<Response> {
        response_to(self.client.post(format!("{}{path}", self.base(server))).json(body)).await
    }

    /// Waits until all servers have their database and receive each other's notifications.
    pub(super) async fn until_undisturbed(&self) {
        for server in 0..self.len() {
            until("a server is ready", async || {
                self.get(server, "/ready").await.is_some_and(|answer| answer.status == 200)
            })
            .await;
        }
        let database = self.database();
        until("all servers listen", async || database.count(LISTENERS).await == self.len() as i64).await;
    }
}

async fn response_to(request: reqwest::RequestBuilder) -> Option<Response> {
    let response = request.timeout(GIVE_UP).send().await.ok()?;
    let status = response.status().as_u16();
    let text = response.text().await.ok()?;
    assert!(EXPECTED.contains(&status), "{status}: {text}");
    let body = if text.is_empty() { json!(null) } else { serde_json::from_str(&text).expect("JSON") };
    Some(Response { status, body })
}
