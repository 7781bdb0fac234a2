//! What `/metrics` shows, and what reads it: a real Prometheus, the alert rules, the dashboard and the documents.

mod counts;
mod outage;
mod prometheus;
mod queues;
mod requests;
mod rules;
mod scrapes;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use crate::retention::publish_completed;
use crate::support::receiver::{Receiver, Reply};
use crate::support::retention::DAY;
use crate::support::{App, Options, until};

/// Starts a server whose clock stands still, and that reads its gauges again for every scrape.
async fn start(flags: &[&str]) -> App {
    let flags = ["--metrics-cache-ms=0"].iter().chain(flags).map(|flag| (*flag).to_owned()).collect();
    App::start_with(Options { flags, fixed_clock: true, ..Options::default() }).await
}

/// One answer of `/metrics`.
#[derive(Debug)]
struct Scrape {
    /// The type of each family.
    families: BTreeMap<String, String>,
    /// The value of each series.
    samples: BTreeMap<String, f64>,
}

impl Scrape {
    async fn of(app: &App) -> Self {
        Scrape::read(&app.get("/metrics").await.expect(200).text)
    }

    /// Reads the format of Prometheus.
    fn read(text: &str) -> Self {
        let (mut families, mut samples) = (BTreeMap::new(), BTreeMap::new());
        for line in text.lines() {
            if let Some(described) = line.strip_prefix("# TYPE ") {
                let (name, kind) = described.split_once(' ').expect(line);
                families.insert(name.to_owned(), kind.to_owned());
            } else if !line.starts_with('#') {
                let (series, value) = line.rsplit_once(' ').expect(line);
                samples.insert(series.to_owned(), value.parse().expect(line));
            }
        }
        Scrape { families, samples }
    }

    #[track_caller]
    fn value(&self, series: &str) -> f64 {
        self.samples.get(series).copied().unwrap_or_else(|| panic!("{series} in {:?}", self.samples))
    }

    fn has(&self, series: &str) -> bool {
        self.samples.contains_key(series)
    }

    /// Returns the names of all series, without labels.
    fn names(&self) -> BTreeSet<&str> {
        self.samples.keys().map(|series| series.split('{').next().unwrap_or_default()).collect()
    }
}

/// Does a little of everything that is counted, so that every family has a series.
async fn all_traffic(app: &App) {
    let receiver = Receiver::start().await;
    let source = json!({"name": "ours", "provider": "github", "verify": {"secret": "It's a Secret"}});
    let source = app.source(source).await;
    app.send_webhook(&source, &[], "{}").await.problem(401, "webhook_refused");
    let expensive = json!({"$and": vec![json!({"payload.s": {"$contains": "ab"}}); 99]});
    app.subscribe("http://127.0.0.1:9/", json!({"event_types": ["large"], "filter": expensive})).await;
    app.publish_typed("large", json!({"s": "ab".repeat(500_000)})).await;
    let fields = json!({"event_types": ["t"], "backoff": {"strategy": "fixed", "seconds": 0}, "max_attempts": 2});
    app.subscribe(&receiver.url("/hook"), fields).await;
    let retried = vec![Reply::status(500), Reply::ok()];
    for (replies, status) in
        [(vec![Reply::ok()], "COMPLETED"), (retried, "COMPLETED"), (vec![Reply::status(400)], "FAILED")]
    {
        replies.into_iter().for_each(|reply| receiver.next(reply));
        let event = app.publish_typed("t", json!({})).await;
        until(status, async || app.event(event).await["status"] == status).await;
    }
    publish_completed(app, "work").await;
    app.get("/no/such/path").await.problem(404, "route_not_found");
    // What has finished by now is removed.
    app.advance(31 * DAY);
    app.remove_old().await;
    app.publish_tagged("email").await;
    let counted = "waybill_first_push_seconds_count";
    until("all attempts are counted", async || Scrape::of(app).await.value(counted) == 3.0).await;
}
