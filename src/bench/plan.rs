//! The prepared requests of a workload, and the state that its connections share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use reqwest::Method;
use serde::de::IgnoredAny;
use tokio::time::Instant;

use super::intervals::Intervals;
use crate::client::{Client, NewEvent};
use crate::config::{BenchArgs, Workload};

/// Events per request while a backlog is prepared.
const PREPARE_BATCH: usize = 1_000;

/// The field of a payload that contains its due time, in microseconds since the start of the run.
pub(super) const DUE: &str = "\"due_us\":";

/// The namespace that `--loud-namespace` keeps busy.
pub(super) const LOUD_NAMESPACE: &str = "bench-loud";

/// A workload, ready to run.
pub(crate) struct Plan {
    pub(super) args: BenchArgs,
    pub(super) host: String,
    pub(super) tags: Vec<String>,
    /// The namespaces over which the events are spread. Empty for `default`.
    pub(super) namespaces: Vec<String>,
    pub(super) one: Vec<u8>,
    pub(super) batch: Vec<u8>,
    pub(super) done: AtomicU64,
    pub(super) left_to_drain: AtomicU64,
    pub(super) drained: tokio::sync::Notify,
    /// Set with `--interval-seconds`.
    pub intervals: Option<Intervals>,
    /// The time when the current event was published, for `pickup`.
    pub(super) published_at: tokio::sync::Mutex<Option<Instant>>,
    pub(super) worker_waits: tokio::sync::Notify,
    pub(super) worker_done: tokio::sync::Notify,
}

impl Plan {
    /// Prepares the requests.
    pub(crate) fn new(args: &BenchArgs) -> Result<Self, String> {
        if args.workload == Workload::Steady && args.rate == 0 {
            return Err("steady needs --rate".into());
        }
        let takes_turns =
            matches!(args.workload, Workload::Publish | Workload::Life | Workload::BatchPublish | Workload::BatchLife);
        if args.namespaces > 0 && !takes_turns {
            return Err("--namespaces needs a workload whose connections publish what they claim".into());
        }
        if args.idempotency_keys && args.workload != Workload::Publish {
            return Err("--idempotency-keys needs the workload publish".into());
        }
        let host = args.url.strip_prefix("http://").ok_or("--url must begin with http://")?;
        let host = host.trim_end_matches('/').to_owned();
        let tag = format!("{}-{:08x}", args.tag, getrandom::u32().unwrap_or_default());
        let tags: Vec<String> = match args.tags {
            1 => vec![tag],
            many => (0..many).map(|number| format!("{tag}-{number}")).collect(),
        };
        let event = event(&tags[0], args.payload_bytes);
        let batch = batch_of(&event, args.batch);
        Ok(Plan {
            host,
            one: event.into_bytes(),
            batch: batch.into_bytes(),
            tags,
            namespaces: (1..=args.namespaces).map(|number| format!("bench-{number}")).collect(),
            args: args.clone(),
            done: AtomicU64::new(0),
            left_to_drain: AtomicU64::new(0),
            drained: tokio::sync::Notify::new(),
            intervals: (args.interval_seconds > 0)
                .then(|| Intervals::new(Duration::from_secs(args.interval_seconds), Duration::from_secs(args.seconds))),
            published_at: tokio::sync::Mutex::new(None),
            worker_waits: tokio::sync::Notify::new(),
            worker_done: tokio::sync::Notify::new(),
        })
    }

    /// Returns the number of connections.
    pub(crate) fn connections(&self) -> usize {
        match self.args.workload {
            Workload::Pickup => 2,
            Workload::Steady => self.args.connections * 2,
            Workload::Publish
            | Workload::Http
            | Workload::Push
            | Workload::Life
            | Workload::BatchPublish
            | Workload::BatchLife
            | Workload::Drain => self.args.connections,
        }
    }

    /// Returns the number of events finished so far.
    pub(crate) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Creates the namespaces, and publishes the backlog to drain and the events of the other tag (`--foreign`).
    pub(crate) async fn prepare(&self) -> Result<(), String> {
        self.create_namespaces().await?;
        self.fill(&self.foreign_tag(), self.args.foreign).await?;
        if self.args.workload == Workload::Drain {
            let each = self.args.prefill.div_ceil(self.tags.len());
            for tag in &self.tags {
                self.fill(tag, each).await?;
            }
            self.left_to_drain.store((each * self.tags.len()) as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Returns the client that prepares a run. What is measured uses [`super::connection`].
    fn client(&self) -> Result<Client, String> {
        Client::new(&self.args.url, self.args.key.as_deref()).map_err(|error| error.to_string())
    }

    async fn create_namespaces(&self) -> Result<(), String> {
        let loud = (self.args.loud_namespace > 0).then_some(LOUD_NAMESPACE);
        let names: Vec<&str> = self.namespaces.iter().map(String::as_str).chain(loud).collect();
        // They are created in order: if the last one is there, an earlier run has created all. Otherwise the measurement
        // would include the statements of this.
        let Some(last) = names.last() else { return Ok(()) };
        let client = self.client()?;
        if client.get::<IgnoredAny>(&format!("/namespaces/{last}")).await.is_ok() {
            return Ok(());
        }
        for name in names {
            let body = format!("{{\"name\":\"{name}\"}}");
            match client.call::<IgnoredAny>(Method::POST, "/namespaces", Some(body)).await {
                Ok(_) => {}
                // An earlier run has created it.
                Err(error) if error.problem().is_some_and(|problem| problem.status == 409) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    }

    fn foreign_tag(&self) -> String {
        format!("{}-foreign", self.tags[0])
    }

    /// Returns the tags that worker `number` of `drain` claims from, for a query. They are neighbours in a
    /// circle of all tags, so the workers together cover all tags if each claims from enough of them.
    pub(super) fn tags_of_worker(&self, number: usize) -> String {
        let first = number * self.tags.len() / self.args.connections.max(1);
        let tag = |offset: usize| self.tags[(first + offset) % self.tags.len()].as_str();
        (0..self.args.tags_per_worker.min(self.tags.len())).map(tag).collect::<Vec<_>>().join(",")
    }

    async fn fill(&self, tag: &str, total: usize) -> Result<(), String> {
        let client = self.client()?;
        let event = NewEvent::new("bench", [tag]).payload_text(payload(self.args.payload_bytes));
        let events = vec![event.map_err(|error| error.to_string())?; total.min(PREPARE_BATCH)];
        let mut left = total;
        while left > 0 {
            let count = left.min(PREPARE_BATCH);
            client.publish_events(&events[..count]).await.map_err(|error| error.to_string())?;
            left -= count;
        }
        Ok(())
    }

    /// Returns when the backlog of `drain` is finished. Never returns for other workloads.
    pub(crate) async fn drained(&self) {
        self.drained.notified().await;
    }
}

fn event(tag: &str, payload_bytes: usize) -> String {
    format!("{{\"title\":\"bench\",\"tags\":\"{tag}\",\"payload\":{}}}", payload(payload_bytes))
}

fn payload(bytes: usize) -> String {
    format!("{{\"data\":\"{}\"}}", "x".repeat(bytes.saturating_sub(11)))
}

/// Returns a batch request with `count` copies of an event.
fn batch_of(event: &str, count: usize) -> String {
    format!("{{\"events\":[{}]}}", vec![event; count].join(","))
}

/// Returns an event that contains its due time.
pub(super) fn due_event(tag: &str, payload_bytes: usize, due: Duration) -> String {
    let due = format!("{DUE}{}", due.as_micros());
    let data = "x".repeat(payload_bytes.saturating_sub(due.len() + 12));
    format!("{{\"title\":\"bench\",\"tags\":\"{tag}\",\"payload\":{{{due},\"data\":\"{data}\"}}}}")
}
