//! What each connection does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use tokio::time::Instant;

use super::connection::Connection;
use super::intervals::Intervals;
use crate::config::{BenchArgs, Workload};

/// Rows per request while a backlog is being prepared.
const PREPARE_BATCH: usize = 1_000;

/// Where a payload of `steady` says when it was due.
pub(super) const DUE: &str = "\"due_us\":";

/// What was measured: how many, and how long each took, in microseconds.
pub struct Tally {
    /// Events that got through: published, or lived to their end.
    pub events: u64,
    /// Requests that were answered.
    pub requests: u64,
    /// How long.
    pub latency: Histogram<u64>,
}

impl Tally {
    /// Nothing yet.
    pub fn new() -> Self {
        Tally { events: 0, requests: 0, latency: new_histogram() }
    }

    /// Adds another connection's.
    pub fn add(&mut self, other: Tally) -> Result<(), String> {
        self.events += other.events;
        self.requests += other.requests;
        self.latency.add(&other.latency).map_err(|error| error.to_string())
    }
}

/// Microseconds, up to a minute, to three digits.
pub fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000, 3).expect("valid bounds")
}

impl Default for Tally {
    fn default() -> Self {
        Self::new()
    }
}

/// A workload, ready to run.
pub struct Plan {
    args: BenchArgs,
    host: String,
    tag: String,
    one: Vec<u8>,
    batch: Vec<u8>,
    done: AtomicU64,
    left_to_drain: AtomicU64,
    drained: tokio::sync::Notify,
    /// Of the run, if they were asked for.
    pub intervals: Option<Intervals>,
    /// When the event that is under way was published, for `pickup`.
    published_at: tokio::sync::Mutex<Option<Instant>>,
    worker_waits: tokio::sync::Notify,
    worker_done: tokio::sync::Notify,
}

impl Plan {
    /// Puts requests together.
    pub fn new(args: &BenchArgs) -> Result<Self, String> {
        if args.workload == Workload::Steady && args.rate == 0 {
            return Err("steady needs --rate".into());
        }
        let host = args.url.strip_prefix("http://").ok_or("--url must begin with http://")?;
        let host = host.trim_end_matches('/').to_owned();
        let tag = format!("{}-{:08x}", args.tag, getrandom::u32().unwrap_or_default());
        let event = event(&tag, args.payload_bytes);
        let batch = format!("{{\"events\":[{}]}}", vec![event.as_str(); args.batch].join(","));
        Ok(Plan {
            host,
            one: event.into_bytes(),
            batch: batch.into_bytes(),
            tag,
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

    /// How many connections it wants.
    pub fn connections(&self) -> usize {
        match self.args.workload {
            Workload::Pickup => 2,
            Workload::Steady => self.args.connections * 2,
            Workload::Publish
            | Workload::Push
            | Workload::Life
            | Workload::BatchPublish
            | Workload::BatchLife
            | Workload::Drain => self.args.connections,
        }
    }

    /// How many events got through so far.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Publishes what is to be drained, and what is to lie in the way.
    pub async fn prepare(&self) -> Result<(), String> {
        self.fill(&self.foreign_tag(), self.args.foreign).await?;
        if self.args.workload == Workload::Drain {
            self.fill(&self.tag, self.args.prefill).await?;
            self.left_to_drain.store(self.args.prefill as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    fn foreign_tag(&self) -> String {
        format!("{}-foreign", self.tag)
    }

    async fn fill(&self, tag: &str, count: usize) -> Result<(), String> {
        if count == 0 {
            return Ok(());
        }
        let mut connection = Connection::open(&self.host).await?;
        let event = event(tag, self.args.payload_bytes);
        let body = |count: usize| format!("{{\"events\":[{}]}}", vec![event.as_str(); count].join(","));
        let mut left = count;
        while left > 0 {
            let now = left.min(PREPARE_BATCH);
            expect(connection.post("/events/batch", body(now).as_bytes()).await?.status, 201)?;
            left -= now;
        }
        Ok(())
    }

    /// Returns when `drain` has nothing left to do; never, for the other workloads.
    pub async fn drained(&self) {
        self.drained.notified().await;
    }
}

fn event(tag: &str, payload_bytes: usize) -> String {
    let payload = format!("{{\"data\":\"{}\"}}", "x".repeat(payload_bytes.saturating_sub(11)));
    format!("{{\"title\":\"bench\",\"tags\":\"{tag}\",\"payload\":{payload}}}")
}

/// An event that says when it was due, in microseconds since the start of the run.
fn due_event(tag: &str, payload_bytes: usize, due: Duration) -> String {
    let due = format!("{DUE}{}", due.as_micros());
    let data = "x".repeat(payload_bytes.saturating_sub(due.len() + 12));
    format!("{{\"title\":\"bench\",\"tags\":\"{tag}\",\"payload\":{{{due},\"data\":\"{data}\"}}}}")
}

/// Runs connection `number` of a plan until `stop`.
pub async fn run(plan: Arc<Plan>, number: usize, stop: Arc<AtomicBool>, started: Instant) -> Result<Tally, String> {
    let connection = Connection::open(&plan.host).await?;
    let id = format!("bench:{}", number + 1);
    let mut worker = Worker { plan: &plan, connection, tally: Tally::new(), id, stop, started };
    match plan.args.workload {
        Workload::Publish if plan.args.rate > 0 => worker.publish_at_rate(number).await?,
        Workload::Publish => worker.repeat_publish().await?,
        Workload::BatchPublish => worker.repeat_batch_publish().await?,
        Workload::Life => worker.repeat_life().await?,
        Workload::BatchLife => worker.repeat_batch_life().await?,
        Workload::Drain => worker.drain().await?,
        Workload::Pickup if number == 0 => worker.publish_when_awaited().await?,
        Workload::Pickup => worker.wait_for_pickup().await?,
        Workload::Steady if number < plan.args.connections => worker.publish_at_rate(number).await?,
        Workload::Steady => worker.work_steadily().await?,
        // Has a file of its own.
        Workload::Push => {}
    }
    Ok(worker.tally)
}

struct Worker<'a> {
    plan: &'a Plan,
    connection: Connection,
    tally: Tally,
    id: String,
    stop: Arc<AtomicBool>,
    /// Of the run.
    started: Instant,
}

/// What an answer to a claim of one event says.
struct Claimed {
    id: u64,
    lease: u64,
    /// When it was due, if its payload tells.
    due: Option<Duration>,
}

impl Worker<'_> {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// Counts events that are done, and how long that took.
    fn done(&mut self, since: Instant, events: u64) {
        let now = Instant::now();
        let took = now - since;
        self.tally.latency.saturating_record(took.as_micros() as u64);
        self.tally.events += events;
        self.plan.done.fetch_add(events, Ordering::Relaxed);
        if let Some(intervals) = &self.plan.intervals {
            intervals.note(now - self.started, took, events);
        }
    }

    async fn repeat_publish(&mut self) -> Result<(), String> {
        while self.goes_on() {
            let since = Instant::now();
            self.publish().await?;
            self.done(since, 1);
        }
        Ok(())
    }

    async fn publish(&mut self) -> Result<(), String> {
        self.tally.requests += 1;
        expect(self.connection.post("/events", &self.plan.one).await?.status, 201)
    }

    /// Open loop: each request is due at its time and measured from then. In `steady` the
    /// worker measures, until its completion is answered, so the event tells it when.
    async fn publish_at_rate(&mut self, number: usize) -> Result<(), String> {
        let interval = Duration::from_secs_f64(self.plan.args.connections as f64 / self.plan.args.rate as f64);
        let mut due = self.started + interval.mul_f64(number as f64 / self.plan.args.connections as f64);
        while self.goes_on() {
            tokio::time::sleep_until(due).await;
            if self.plan.args.workload == Workload::Publish {
                self.publish().await?;
                self.done(due, 1);
            } else {
                let event = due_event(&self.plan.tag, self.plan.args.payload_bytes, due - self.started);
                self.tally.requests += 1;
                expect(self.connection.post("/events", event.as_bytes()).await?.status, 201)?;
            }
            due += interval;
        }
        Ok(())
    }

    async fn repeat_batch_publish(&mut self) -> Result<(), String> {
        while self.goes_on() {
            let since = Instant::now();
            self.tally.requests += 1;
            expect(self.connection.post("/events/batch", &self.plan.batch).await?.status, 201)?;
            self.done(since, self.plan.args.batch as u64);
        }
        Ok(())
    }

    async fn repeat_life(&mut self) -> Result<(), String> {
        while self.goes_on() {
            let since = Instant::now();
            self.publish().await?;
            if let Some(claimed) = self.claim(0).await? {
                self.complete(&claimed).await?;
                self.done(since, 1);
            }
        }
        Ok(())
    }

    async fn claim(&mut self, wait: u32) -> Result<Option<Claimed>, String> {
        let path = format!("/events/subscribe?tags={}&worker_id={}&wait={wait}", self.plan.tag, self.id);
        self.tally.requests += 1;
        let answer = self.connection.get(&path).await?;
        if answer.status == 204 {
            return Ok(None);
        }
        expect(answer.status, 200)?;
        Ok(Some(Claimed {
            id: number_after(answer.body, b"{\"id\":")?,
            lease: number_after(answer.body, b"\"lease_id\":")?,
            due: number_after(answer.body, DUE.as_bytes()).ok().map(Duration::from_micros),
        }))
    }

    async fn complete(&mut self, claimed: &Claimed) -> Result<(), String> {
        let body = format!(
            "{{\"worker_id\":\"{}\",\"lease_id\":{},\"execution_time_ms\":1,\"status_code\":200}}",
            self.id, claimed.lease
        );
        self.tally.requests += 1;
        expect(self.connection.post(&format!("/events/{}/complete", claimed.id), body.as_bytes()).await?.status, 200)
    }

    async fn repeat_batch_life(&mut self) -> Result<(), String> {
        while self.goes_on() {
            let since = Instant::now();
            self.tally.requests += 1;
            expect(self.connection.post("/events/batch", &self.plan.batch).await?.status, 201)?;
            let done = self.claim_and_settle_batch().await?;
            self.done(since, done);
        }
        Ok(())
    }

    async fn drain(&mut self) -> Result<(), String> {
        while self.goes_on() && self.plan.left_to_drain.load(Ordering::Relaxed) > 0 {
            let since = Instant::now();
            let done = self.claim_and_settle_batch().await?;
            if done > 0 {
                self.done(since, done);
                if self.plan.left_to_drain.fetch_sub(done, Ordering::Relaxed) == done {
                    self.plan.drained.notify_one();
                }
            }
        }
        Ok(())
    }

    async fn claim_and_settle_batch(&mut self) -> Result<u64, String> {
        let path =
            format!("/events/subscribe?tags={}&worker_id={}&max={}", self.plan.tag, self.id, self.plan.args.batch);
        self.tally.requests += 1;
        let answer = self.connection.get(&path).await?;
        if answer.status == 204 {
            return Ok(0);
        }
        expect(answer.status, 200)?;
        let (body, count) = settle_body(answer.body, &self.id)?;
        self.tally.requests += 1;
        expect(self.connection.post("/events/settle", body.as_bytes()).await?.status, 200)?;
        Ok(count)
    }

    async fn work_steadily(&mut self) -> Result<(), String> {
        while self.goes_on() {
            if let Some(claimed) = self.claim(1).await? {
                self.complete(&claimed).await?;
                let due = claimed.due.ok_or("an event that does not say when it was due")?;
                self.done(self.started + due, 1);
            }
        }
        Ok(())
    }

    /// `pickup`: publishes one event each time the worker waits.
    async fn publish_when_awaited(&mut self) -> Result<(), String> {
        while self.goes_on() {
            self.plan.worker_waits.notified().await;
            // Long enough for the poll to have arrived and found nothing.
            tokio::time::sleep(Duration::from_millis(5)).await;
            *self.plan.published_at.lock().await = Some(Instant::now());
            self.publish().await?;
            self.plan.worker_done.notified().await;
        }
        Ok(())
    }

    async fn wait_for_pickup(&mut self) -> Result<(), String> {
        let path = format!("/events/subscribe?tags={}&worker_id={}&wait=30", self.plan.tag, self.id);
        while self.goes_on() {
            self.plan.worker_waits.notify_one();
            let answer = self.connection.get(&path).await?;
            expect(answer.status, 200)?;
            let id = number_after(answer.body, b"{\"id\":")?;
            let since = self.plan.published_at.lock().await.take();
            self.done(since.ok_or("an event that nobody published")?, 1);
            let body = format!("{{\"worker_id\":\"{}\"}}", self.id);
            expect(self.connection.post(&format!("/events/{id}/complete"), body.as_bytes()).await?.status, 200)?;
            self.plan.worker_done.notify_one();
        }
        // Let the publisher go.
        self.plan.worker_waits.notify_one();
        self.plan.worker_done.notify_one();
        Ok(())
    }
}

pub(super) fn expect(status: u16, wanted: u16) -> Result<(), String> {
    if status == wanted { Ok(()) } else { Err(format!("the server answered {status} instead of {wanted}")) }
}

/// The number behind the first occurrence of `name`.
fn number_after(body: &[u8], name: &[u8]) -> Result<u64, String> {
    let start =
        body.windows(name.len()).position(|part| part == name).ok_or("an answer without its number")? + name.len();
    let digits = body[start..].iter().take_while(|byte| byte.is_ascii_digit());
    Ok(digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}

/// The body that completes a whole claimed batch, and how many are in it.
fn settle_body(claimed: &[u8], worker_id: &str) -> Result<(String, u64), String> {
    #[derive(serde::Deserialize)]
    struct Batch {
        events: Vec<Claimed>,
    }
    #[derive(serde::Deserialize)]
    struct Claimed {
        id: i64,
        lease_id: i64,
    }
    let batch: Batch = serde_json::from_slice(claimed).map_err(|error| error.to_string())?;
    let results: Vec<String> = batch
        .events
        .iter()
        .map(|event| format!("{{\"event_id\":{},\"lease_id\":{},\"action\":\"complete\"}}", event.id, event.lease_id))
        .collect();
    Ok((format!("{{\"worker_id\":\"{worker_id}\",\"results\":[{}]}}", results.join(",")), batch.events.len() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_due_event_has_the_size_asked_for_and_tells_its_time() {
        let event = due_event("t", 120, Duration::from_millis(1_500));
        let payload = &event[event.find("\"payload\":").unwrap() + 10..event.len() - 1];
        assert_eq!(payload.len(), 120);
        assert_eq!(number_after(event.as_bytes(), DUE.as_bytes()), Ok(1_500_000));
        serde_json::from_str::<serde_json::Value>(&event).unwrap();
    }
}
