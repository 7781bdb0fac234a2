//! The limits of namespaces and keys: each is reached, answered and released.

mod counts;
mod doors;
mod rates;
mod resources;
mod servers;
mod usage;

use serde_json::{Value, json};
use waybill::background::limit_refresher;

use crate::support::{App, Options, Reply};

/// Sets the limits of a namespace. Those that are left out are off.
async fn limit(app: &App, namespace: &str, limits: Value) {
    app.patch(&format!("/namespaces/{namespace}"), &json!({"settings": {"limits": limits}})).await.expect(200);
}

/// Starts servers on one database, whose clocks stand still.
async fn servers<const N: usize>() -> [App; N] {
    let first = server(None).await;
    let mut servers = vec![first];
    while servers.len() < N {
        servers.push(server(Some(servers[0].url.clone())).await);
    }
    servers.try_into().unwrap_or_else(|_| unreachable!("there are N servers"))
}

async fn server(url: Option<String>) -> App {
    let flags = vec!["--poll-interval-ms".to_owned(), "60000".to_owned()];
    App::start_with(Options { flags, url, fixed_clock: true }).await
}

/// Renews what servers know about limits, as they do every second.
async fn refresh<'a>(servers: impl IntoIterator<Item = &'a App>) {
    for server in servers {
        limit_refresher::run_once(server.engine()).await.expect("a round");
    }
}

/// Publishes an event for workers.
async fn publish(app: &App) -> Reply {
    app.post("/events", &json!({"title": "a job", "tags": "a"})).await
}

async fn publish_many(app: &App, events: usize) -> Reply {
    let event = json!({"title": "a job", "tags": "a"});
    app.post("/events/batch", &json!({"events": vec![event; events]})).await
}

/// Asserts that a request was refused because of a limit. Returns the problem.
#[track_caller]
fn refused(reply: Reply, limit: &str, owner: &str) -> Value {
    let after = reply.header("retry-after").map(str::to_owned);
    assert!(after.as_ref().is_some_and(|after| after.parse::<u64>().is_ok_and(|after| after > 0)), "{after:?}");
    let problem = reply.problem(429, "limit_exceeded");
    assert_eq!((&problem["limit"], &problem["limit_of"]), (&json!(limit), &json!(owner)), "{problem}");
    assert_eq!((&problem["retryable"], &problem["effect"]), (&json!(true), &json!("none")), "{problem}");
    problem
}

/// Returns the number of events that are stored.
async fn stored(app: &App) -> i64 {
    app.count("SELECT count(*) FROM waybill.events").await
}
