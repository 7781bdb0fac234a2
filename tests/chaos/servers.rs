//! The servers, and calls to them that may fail.

use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::process::{Process, waybill};
use crate::support::{App, http_client, until};

/// Longer than any call may take, a wait of a minute included.
const GIVE_UP: Duration = Duration::from_secs(70);

const LISTENERS: &str = "SELECT count(*) FROM pg_stat_activity \
     WHERE datname = current_database() AND state = 'idle' AND query LIKE 'LISTEN waybill%'";

pub struct Servers {
    pub url: String,
    client: reqwest::Client,
    bases: Vec<RwLock<String>>,
    processes: Vec<tokio::sync::Mutex<Option<Process>>>,
}

/// An answer that arrived.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub body: Value,
}

/// What a server may answer while there is trouble.
const EXPECTED: [u16; 8] = [200, 201, 204, 400, 404, 409, 429, 503];

impl Servers {
    pub async fn start(url: String, count: usize) -> Self {
        let mut servers = Servers { url, client: http_client(), bases: Vec::new(), processes: Vec::new() };
        for _ in 0..count {
            let process = servers.spawn().await;
            servers.bases.push(RwLock::new(process.app.base.clone()));
            servers.processes.push(tokio::sync::Mutex::new(Some(process)));
        }
        servers
    }

    /// Looks for work by itself once a minute, so that only notices serve.
    async fn spawn(&self) -> Process {
        let url = self.url.clone();
        let starting = move || {
            let flags = "--poll-interval-ms=60000 --db-connections=6 --backoff-seconds=0.2 --poison-after=100 \
                         --dispatch=false --bind=127.0.0.1:0 --database-url";
            let mut arguments = vec!["serve"];
            arguments.extend(flags.split_whitespace());
            arguments.push(&url);
            // The database may be frozen when it asks.
            (0..10).find_map(|_| Process::spawn(waybill(&arguments)).ok()).expect("a server that starts")
        };
        tokio::task::spawn_blocking(starting).await.expect("no panic")
    }

    pub fn len(&self) -> usize {
        self.bases.len()
    }

    /// Kills a server and starts another in its place.
    pub async fn kill_and_restart(&self, number: usize) {
        let mut process = self.processes[number].lock().await;
        process.take().expect("a server").kill_9().await;
        let fresh = self.spawn().await;
        *self.bases[number].write().unwrap_or_else(PoisonError::into_inner) = fresh.app.base.clone();
        *process = Some(fresh);
    }

    pub async fn stop(self) {
        for process in self.processes {
            process.into_inner().expect("a server").stop().await;
        }
    }

    /// The database, as helpers for checks want it.
    pub fn database(&self) -> App {
        App { server: None, url: self.url.clone(), base: self.base(0), client: self.client.clone() }
    }

    fn base(&self, number: usize) -> String {
        self.bases[number].read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks a server; none if no answer arrived.
    pub async fn get(&self, server: usize, path: &str) -> Option<Answer> {
        answer_to(self.client.get(format!("{}{path}", self.base(server)))).await
    }

    /// Tells a server; none if no answer arrived.
    pub async fn post(&self, server: usize, path: &str, body: &Value) -> Option<Answer> {
        answer_to(self.client.post(format!("{}{path}", self.base(server))).json(body)).await
    }

    /// Waits until all servers have their database, and hear each other.
    pub async fn until_undisturbed(&self) {
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

async fn answer_to(request: reqwest::RequestBuilder) -> Option<Answer> {
    let response = request.timeout(GIVE_UP).send().await.ok()?;
    let status = response.status().as_u16();
    let text = response.text().await.ok()?;
    assert!(EXPECTED.contains(&status), "{status}: {text}");
    let body = if text.is_empty() { json!(null) } else { serde_json::from_str(&text).expect("JSON") };
    Some(Answer { status, body })
}
