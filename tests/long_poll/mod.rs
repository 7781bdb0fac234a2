//! Waiting for work. The servers here poll only once a minute, which is longer than any of these
//! tests waits: what is delivered is delivered by a wake-up.

mod closing;
pub(crate) mod crowd;
mod hand_over;
mod hangups;
mod servers;
mod sharing;
mod waiting;
mod waking;

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::support::{App, Options, Reply, until, within_patience};

const LISTENERS: &str = "SELECT count(*) FROM pg_stat_activity \
     WHERE datname = current_database() AND state = 'idle' AND query LIKE 'LISTEN waybill%'";

/// Flags of a server that learns of new work only from itself.
fn quiet() -> Vec<String> {
    flags("--poll-interval-ms 60000 --notify false")
}

fn flags(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

async fn quiet_app() -> App {
    App::start_with(Options { flags: quiet(), ..Options::default() }).await
}

async fn quiet_app_with_fixed_clock() -> App {
    App::start_with(Options { flags: quiet(), fixed_clock: true, ..Options::default() }).await
}

/// Waits until `workers` workers wait, all of which have looked for work and found none.
async fn until_asleep(app: &App, workers: usize) {
    let hub = &app.engine().hub();
    until("the workers wait", async || hub.len() == workers && hub.asleep() == workers).await;
}

/// Publishes an event that wakes a waiting worker, which then claims it: an event with an ordering key is not handed
/// over.
async fn publish_with_key(app: &App, key: &str) -> i64 {
    app.publish(json!({"title": "a job", "tags": "a", "ordering_key": key})).await
}

/// A worker in a long poll.
struct Waiter(JoinHandle<Reply>);

impl Waiter {
    /// Polls with a wait of a minute, and returns once the worker is waiting.
    async fn enter(app: &App, tags: &str, worker_id: &str) -> Self {
        let path = format!("/events/subscribe?tags={tags}&worker_id={worker_id}&wait_seconds=60");
        Self::send(app, app.client.get(format!("{}{path}", app.base))).await
    }

    /// Sends a `POST` that waits, and returns once the worker is waiting.
    async fn post(app: &App, path: &str, body: &Value) -> Self {
        Self::send(app, app.client.post(format!("{}{path}", app.base)).json(body)).await
    }

    async fn send(app: &App, request: reqwest::RequestBuilder) -> Self {
        let before = app.engine().hub().len();
        let waiter = Self(tokio::spawn(async move { Reply::of(request.send().await.expect("a response")).await }));
        until_asleep(app, before + 1).await;
        waiter
    }

    fn is_still_waiting(&self) -> bool {
        !self.0.is_finished()
    }

    /// Waits for the response.
    async fn reply(self) -> Reply {
        within_patience(self.0).await.expect("the worker did not panic")
    }

    /// Waits for the response, which must be an event.
    async fn event(self) -> Value {
        self.reply().await.expect(200).json()
    }
}
