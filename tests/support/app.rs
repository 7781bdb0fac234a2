//! A server under test.

use chrono::{DateTime, TimeDelta, Utc};
use clap::Parser;
use serde_json::{Value, json};
use waybill::config::{Cli, Command, ServeArgs};
use waybill::engine::Engine;
use waybill::engine::clock::Clock;
use waybill::startup::Server;

use super::{Reply, database, http_client, until};

#[derive(Default)]
pub(crate) struct Options {
    /// Flags of `waybill serve`.
    pub flags: Vec<String>,
    /// The database; a new one if none is given.
    pub url: Option<String>,
    /// Whether the clock stands still until [`App::advance`].
    pub fixed_clock: bool,
}

/// A real server in this process, with its own database.
pub(crate) struct App {
    pub server: Option<Server>,
    pub url: String,
    pub base: String,
    pub client: reqwest::Client,
}

impl App {
    /// Starts a server that uses the database's clock.
    pub(crate) async fn start() -> Self {
        Self::start_with(Options::default()).await
    }

    /// Starts a server whose clock stands still until it is advanced. Sweeps that depend on the
    /// clock (promoter, lease reaper, expirer) do not run on their own then: call their `run_once`.
    pub(crate) async fn with_fixed_clock() -> Self {
        Self::start_with(Options { fixed_clock: true, ..Options::default() }).await
    }

    pub(crate) async fn start_with(options: Options) -> Self {
        let url = match options.url {
            Some(url) => url,
            None => database::migrated().await,
        };
        let clock = if options.fixed_clock { Clock::fixed(Utc::now()) } else { Clock::Database };
        let server = Server::start(&serve_args(&url, &options.flags), clock).await.expect("the server starts");
        let base = server.url();
        let client = http_client();
        App { server: Some(server), url, base, client }
    }

    pub(crate) fn engine(&self) -> &Engine {
        self.server.as_ref().expect("a running server").engine()
    }

    /// Moves the fixed clock forward.
    pub(crate) fn advance(&self, seconds: i64) {
        self.engine().clock().advance(TimeDelta::seconds(seconds));
    }

    /// Returns the time of the fixed clock.
    pub(crate) fn now(&self) -> DateTime<Utc> {
        self.engine().now().expect("a fixed clock")
    }

    pub(crate) async fn stop(mut self) {
        self.server.take().expect("a running server").stop().await;
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        Reply::of(self.client.get(self.at(path)).send().await.expect("a response")).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Reply {
        self.post_text(path, &body.to_string()).await
    }

    /// Posts a body unchanged. It need not be JSON.
    pub(crate) async fn post_text(&self, path: &str, body: &str) -> Reply {
        self.post_bytes(path, body.as_bytes().to_vec()).await
    }

    pub(crate) async fn post_bytes(&self, path: &str, body: Vec<u8>) -> Reply {
        let request = self.client.post(self.at(path)).header("content-type", "application/json").body(body);
        Reply::of(request.send().await.expect("a response")).await
    }

    pub(crate) async fn patch(&self, path: &str, body: &Value) -> Reply {
        let request = self.client.patch(self.at(path)).json(body);
        Reply::of(request.send().await.expect("a response")).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Reply {
        let request = self.client.put(self.at(path)).json(body);
        Reply::of(request.send().await.expect("a response")).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Reply {
        Reply::of(self.client.delete(self.at(path)).send().await.expect("a response")).await
    }

    /// Subscribes a URL with these further fields. Returns the subscription with its secret.
    pub(crate) async fn subscribe(&self, url: &str, fields: Value) -> Value {
        let mut subscription = json!({"url": url});
        let all = subscription.as_object_mut().expect("an object");
        all.extend(fields.as_object().cloned().expect("an object"));
        self.post("/subscriptions", &subscription).await.expect(201).json()
    }

    pub(crate) async fn post_empty(&self, path: &str) -> Reply {
        Reply::of(self.client.post(self.at(path)).send().await.expect("a response")).await
    }

    /// Publishes an event and returns its id.
    pub(crate) async fn publish(&self, event: Value) -> i64 {
        self.post("/events", &event).await.expect(201).json()["id"].as_i64().expect("an id")
    }

    /// Publishes an event with these tags and no other settings. Returns its id.
    pub(crate) async fn publish_tagged(&self, tags: &str) -> i64 {
        self.publish(json!({"title": "a job", "tags": tags})).await
    }

    /// Claims one event. Returns `None` if there is none.
    pub(crate) async fn claim(&self, tags: &str, worker_id: &str) -> Option<Value> {
        let reply = self.get(&format!("/events/subscribe?tags={tags}&worker_id={worker_id}")).await;
        match reply.status {
            204 => None,
            _ => Some(reply.expect(200).json()),
        }
    }

    pub(crate) async fn complete(&self, id: i64, worker_id: &str) -> Reply {
        self.post(&format!("/events/{id}/complete"), &json!({"worker_id": worker_id})).await
    }

    pub(crate) async fn fail(&self, id: i64, worker_id: &str) -> Reply {
        self.post(&format!("/events/{id}/fail"), &json!({"worker_id": worker_id})).await
    }

    /// Returns an event with its log.
    pub(crate) async fn event(&self, id: i64) -> Value {
        self.get(&format!("/events/{id}?include_logs=true")).await.expect(200).json()
    }

    /// Returns the actions in an event's log, oldest first.
    pub(crate) async fn actions(&self, id: i64) -> Vec<String> {
        let event = self.event(id).await;
        let logs = event["logs"].as_array().expect("logs");
        logs.iter().map(|log| log["action"].as_str().expect("an action").to_owned()).collect()
    }

    /// Returns the `webhook-id` under which receivers see an event of the current epoch.
    pub(crate) fn webhook_id(&self, event_id: i64) -> String {
        format!("evt_{}_{event_id}", self.engine().epoch().expect("an epoch"))
    }

    /// Waits until so many servers on the database of this one hear of changes by `NOTIFY`.
    pub(crate) async fn until_listening(&self, servers: i64) {
        let listeners = "SELECT count(*) FROM pg_stat_activity \
             WHERE datname = current_database() AND state = 'idle' AND query LIKE 'LISTEN waybill%'";
        until("all servers listen", async || self.count(listeners).await == servers).await;
    }

    /// Runs a query that returns one number.
    pub(crate) async fn count(&self, sql: &str) -> i64 {
        database::count(&self.url, sql).await
    }

    fn at(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }
}

fn serve_args(url: &str, flags: &[String]) -> ServeArgs {
    let mut fixed = vec!["waybill", "serve", "--bind", "127.0.0.1:0", "--database-url", url];
    if !flags.iter().any(|flag| flag.starts_with("--webhook-allow")) {
        // Receivers under test are on this machine.
        fixed.push("--webhook-allow=127.0.0.0/8");
    }
    let cli = Cli::parse_from(fixed.into_iter().map(str::to_owned).chain(flags.iter().cloned()));
    let Command::Serve(args) = cli.command else { unreachable!("the flags say serve") };
    args
}
