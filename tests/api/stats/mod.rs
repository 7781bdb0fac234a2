//! `GET /stats` and `GET /stats/history`.

mod history;
mod now;
mod outages;
mod parameters;
mod servers;

use chrono::{DateTime, Timelike, Utc};
use serde_json::{Value, json};
use waybill::background::stats_recorder;

use crate::support::{App, Options};

/// Starts servers on one database. Their clocks stand at the same time, in the middle of an hour.
async fn servers<const N: usize>() -> [App; N] {
    let now = Utc::now().with_minute(30).and_then(|now| now.with_second(30));
    let middle = now.and_then(|now| now.with_nanosecond(0)).expect("a time");
    let first = server(None, middle).await;
    let mut servers = vec![first];
    while servers.len() < N {
        servers.push(server(Some(servers[0].url.clone()), middle).await);
    }
    servers.try_into().unwrap_or_else(|_| unreachable!("there are N servers"))
}

async fn server(url: Option<String>, time: DateTime<Utc>) -> App {
    let app = App::start_with(Options { url, fixed_clock: true, ..Options::default() }).await;
    app.engine().clock().advance(time - app.now());
    app
}

/// Stores what servers have counted, as they do every ten seconds. Returns the number of rows.
async fn record<'a>(servers: impl IntoIterator<Item = &'a App>) -> usize {
    let mut rows = 0;
    for server in servers {
        rows += stats_recorder::run_once(server.engine()).await.expect("a round");
    }
    rows
}

async fn history(app: &App, query: &str) -> Value {
    app.get(&format!("/stats/history?{query}")).await.expect(200).json()
}

/// Returns the sum of a metric over the last hour, of a tag or of the namespace.
async fn sum(app: &App, tag: Option<&str>, metric: &str) -> i64 {
    let tag = tag.map(|tag| format!("&tag={tag}")).unwrap_or_default();
    let by_minute = total(&history(app, &format!("metric={metric}&from=1h&step=1m{tag}")).await, metric);
    let by_hour = total(&history(app, &format!("metric={metric}&from=1h&step=1h{tag}")).await, metric);
    assert_eq!(by_minute, by_hour, "{metric} of {tag:?} by minute and by hour");
    by_minute
}

fn total(history: &Value, metric: &str) -> i64 {
    values(history, metric).iter().map(|value| value.as_i64().expect("a number")).sum()
}

fn values(history: &Value, metric: &str) -> Vec<Value> {
    history["series"][metric].as_array().expect("values").clone()
}

async fn stats(app: &App) -> Value {
    app.get("/stats").await.expect(200).json()
}

/// Publishes an event, claims it and completes it. Returns its id.
async fn publish_completed(app: &App, tags: &str) -> i64 {
    let id = app.publish(json!({"title": "a job", "tags": tags})).await;
    app.claim(tags, "w:1").await.expect("an event");
    app.complete(id, "w:1").await.expect(200);
    id
}
