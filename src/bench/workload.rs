//! The actions of each connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::connection::{Connection, expect};
use super::plan::{DUE, Plan, due_event};
use super::tally::Tally;
use crate::config::Workload;

/// Runs connection `number` of a plan until `stop`.
pub(crate) async fn run(
    plan: Arc<Plan>,
    number: usize,
    stop: CancellationToken,
    started: Instant,
) -> Result<Tally, String> {
    let connection = Connection::open(&plan.host, plan.args.key.as_deref()).await?;
    let id = format!("bench:{}", number + 1);
    let tags = plan.tags_of_worker(number);
    let mut worker = Worker { plan: &plan, connection, tally: Tally::new(), id, tags, turn: number, stop, started };
    match plan.args.workload {
        Workload::Publish if plan.args.rate > 0 => worker.publish_at_rate(number).await?,
        Workload::Publish => worker.repeat_publish().await?,
        Workload::Http => worker.repeat_probe().await?,
        Workload::BatchPublish => worker.repeat_batch_publish().await?,
        Workload::Life => worker.repeat_life().await?,
        Workload::BatchLife => worker.repeat_batch_life().await?,
        Workload::Drain => worker.drain().await?,
        Workload::Pickup if number == 0 => worker.publish_when_awaited().await?,
        Workload::Pickup => worker.wait_for_pickup().await?,
        Workload::Steady if number < plan.args.connections => worker.publish_at_rate(number).await?,
        Workload::Steady => worker.work_steadily().await?,
        // Implemented in the module `push`.
        Workload::Push => {}
    }
    Ok(worker.tally)
}

struct Worker<'a> {
    plan: &'a Plan,
    connection: Connection,
    tally: Tally,
    id: String,
    stop: CancellationToken,
    /// The tags to claim from, separated by commas.
    tags: String,
    /// The number of the event that comes next, which decides its namespace.
    turn: usize,
    /// The start of the run.
    started: Instant,
}

/// The parsed response to a claim of one event.
struct Claimed {
    id: u64,
    lease: u64,
    /// The due time, if the payload contains one.
    due: Option<Duration>,
}

impl Worker<'_> {
    fn is_running(&self) -> bool {
        !self.stop.is_cancelled()
    }

    /// Counts finished events and records their latency since `since`.
    fn done(&mut self, since: Instant, events: u64) {
        let now = Instant::now();
        let took = now - since;
        self.tally.latency.saturating_record(took.as_micros() as u64);
        self.tally.events += events;
        self.plan.done.fetch_add(events, Ordering::Relaxed);
        if let Some(intervals) = &self.plan.intervals {
            intervals.record(now - self.started, took, events);
        }
    }

    /// Goes on to the next namespace, if the events are spread over several.
    fn next_namespace(&mut self) {
        if let Some(name) = self.plan.namespaces.get(self.turn % self.plan.namespaces.len().max(1)) {
            self.connection.use_namespace(name);
            self.turn += self.plan.args.connections;
        }
    }

    async fn repeat_publish(&mut self) -> Result<(), String> {
        while self.is_running() {
            self.next_namespace();
            let since = Instant::now();
            self.publish().await?;
            self.done(since, 1);
        }
        Ok(())
    }

    async fn repeat_probe(&mut self) -> Result<(), String> {
        while self.is_running() {
            let since = Instant::now();
            self.tally.requests += 1;
            expect(self.connection.get("/health").await?.status, 200)?;
            self.done(since, 1);
        }
        Ok(())
    }

    async fn publish(&mut self) -> Result<(), String> {
        self.tally.requests += 1;
        if self.plan.args.idempotency_keys {
            // The tag is another one in each run.
            let key = format!("{}/{}/{}", self.plan.tags[0], self.id, self.tally.requests);
            self.connection.use_idempotency_key(&key);
        }
        expect(self.connection.post("/events", &self.plan.one).await?.status, 201)
    }

    /// Publishes in an open loop: each request has a due time, and its latency is measured from there. In
    /// `steady` the worker measures up to the response to the completion, so the event contains the due time.
    async fn publish_at_rate(&mut self, number: usize) -> Result<(), String> {
        let interval = Duration::from_secs_f64(self.plan.args.connections as f64 / self.plan.args.rate as f64);
        let mut due = self.started + interval.mul_f64(number as f64 / self.plan.args.connections as f64);
        while self.is_running() {
            tokio::time::sleep_until(due).await;
            if self.plan.args.workload == Workload::Publish {
                self.next_namespace();
                self.publish().await?;
                self.done(due, 1);
            } else {
                let event = due_event(&self.plan.tags[0], self.plan.args.payload_bytes, due - self.started);
                self.tally.requests += 1;
                expect(self.connection.post("/events", event.as_bytes()).await?.status, 201)?;
            }
            due += interval;
        }
        Ok(())
    }

    async fn repeat_batch_publish(&mut self) -> Result<(), String> {
        while self.is_running() {
            self.next_namespace();
            let since = Instant::now();
            self.tally.requests += 1;
            expect(self.connection.post("/events/batch", &self.plan.batch).await?.status, 201)?;
            self.done(since, self.plan.args.batch as u64);
        }
        Ok(())
    }

    async fn repeat_life(&mut self) -> Result<(), String> {
        while self.is_running() {
            self.next_namespace();
            let since = Instant::now();
            self.publish().await?;
            if let Some(claimed) = self.claim(self.plan.args.wait_seconds).await? {
                self.complete(&claimed).await?;
                self.done(since, 1);
            }
        }
        Ok(())
    }

    async fn claim(&mut self, wait: u32) -> Result<Option<Claimed>, String> {
        let path = format!("/events/subscribe?tags={}&worker_id={}&wait_seconds={wait}", self.tags, self.id);
        self.tally.requests += 1;
        let response = self.connection.get(&path).await?;
        if response.status == 204 {
            return Ok(None);
        }
        expect(response.status, 200)?;
        Ok(Some(Claimed {
            id: number_after(response.body, b"{\"id\":")?,
            lease: number_after(response.body, b"\"lease_id\":")?,
            due: number_after(response.body, DUE.as_bytes()).ok().map(Duration::from_micros),
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
        while self.is_running() {
            self.next_namespace();
            let since = Instant::now();
            self.tally.requests += 1;
            expect(self.connection.post("/events/batch", &self.plan.batch).await?.status, 201)?;
            let done = self.claim_and_settle_batch().await?;
            self.done(since, done);
        }
        Ok(())
    }

    async fn drain(&mut self) -> Result<(), String> {
        let stop = self.stop.clone();
        while self.is_running() && self.plan.left_to_drain.load(Ordering::Relaxed) > 0 {
            let since = Instant::now();
            // A claim that still waits when the backlog is finished is cancelled.
            let Some(done) = stop.run_until_cancelled(self.claim_and_settle()).await.transpose()? else { break };
            if done > 0 {
                self.done(since, done);
                if self.plan.left_to_drain.fetch_sub(done, Ordering::Relaxed) == done {
                    self.plan.drained.notify_one();
                }
            }
        }
        Ok(())
    }

    /// Claims and settles one event, or a batch. Returns the number of events.
    async fn claim_and_settle(&mut self) -> Result<u64, String> {
        if self.plan.args.batch > 1 {
            return self.claim_and_settle_batch().await;
        }
        let Some(claimed) = self.claim(self.plan.args.wait_seconds).await? else { return Ok(0) };
        self.complete(&claimed).await?;
        Ok(1)
    }

    async fn claim_and_settle_batch(&mut self) -> Result<u64, String> {
        let Plan { args, .. } = self.plan;
        let tags = self.tags.replace(',', "\",\"");
        let body = format!(
            "{{\"tags\":[\"{tags}\"],\"worker_id\":\"{}\",\"max\":{},\"wait_seconds\":{}}}",
            self.id, args.batch, args.wait_seconds
        );
        self.tally.requests += 1;
        let response = self.connection.post("/events/claim", body.as_bytes()).await?;
        expect(response.status, 200)?;
        let (body, count) = settle_body(response.body, &self.id)?;
        if count == 0 {
            return Ok(0);
        }
        self.tally.requests += 1;
        expect(self.connection.post("/events/settle", body.as_bytes()).await?.status, 200)?;
        Ok(count)
    }

    async fn work_steadily(&mut self) -> Result<(), String> {
        while self.is_running() {
            if let Some(claimed) = self.claim(1).await? {
                self.complete(&claimed).await?;
                let due = claimed.due.ok_or("an event without a due time")?;
                self.done(self.started + due, 1);
            }
        }
        Ok(())
    }

    /// Publishes one event each time the worker waits, for `pickup`.
    async fn publish_when_awaited(&mut self) -> Result<(), String> {
        while self.is_running() {
            self.plan.worker_waits.notified().await;
            // Gives the long poll time to arrive and to find no event.
            tokio::time::sleep(Duration::from_millis(5)).await;
            *self.plan.published_at.lock().await = Some(Instant::now());
            self.publish().await?;
            self.plan.worker_done.notified().await;
        }
        Ok(())
    }

    async fn wait_for_pickup(&mut self) -> Result<(), String> {
        let path = format!("/events/subscribe?tags={}&worker_id={}&wait_seconds=30", self.tags, self.id);
        let stop = self.stop.clone();
        while self.is_running() {
            self.plan.worker_waits.notify_one();
            // The publisher may have seen the end of the run first, and then publishes nothing more.
            let waiting = stop.run_until_cancelled(self.connection.get(&path)).await.transpose()?;
            let Some(response) = waiting else { break };
            expect(response.status, 200)?;
            let id = number_after(response.body, b"{\"id\":")?;
            let since = self.plan.published_at.lock().await.take();
            self.done(since.ok_or("an event that was not published by this run")?, 1);
            let body = format!("{{\"worker_id\":\"{}\"}}", self.id);
            expect(self.connection.post(&format!("/events/{id}/complete"), body.as_bytes()).await?.status, 200)?;
            self.plan.worker_done.notify_one();
        }
        // Unblocks the publisher.
        self.plan.worker_waits.notify_one();
        self.plan.worker_done.notify_one();
        Ok(())
    }
}

/// Returns the number after the first occurrence of `name`.
fn number_after(body: &[u8], name: &[u8]) -> Result<u64, String> {
    let start =
        body.windows(name.len()).position(|part| part == name).ok_or("the response lacks a number")? + name.len();
    let digits = body[start..].iter().take_while(|byte| byte.is_ascii_digit());
    Ok(digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}

/// Returns the body that completes all events of a claimed batch, and their number.
pub(super) fn settle_body(claimed: &[u8], worker_id: &str) -> Result<(String, u64), String> {
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
    let settlements: Vec<String> = batch
        .events
        .iter()
        .map(|event| format!("{{\"event_id\":{},\"lease_id\":{},\"action\":\"complete\"}}", event.id, event.lease_id))
        .collect();
    let body = format!("{{\"worker_id\":\"{worker_id}\",\"settlements\":[{}]}}", settlements.join(","));
    Ok((body, batch.events.len() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_due_event_has_the_requested_size_and_contains_its_due_time() {
        let event = due_event("t", 120, Duration::from_millis(1_500));
        let payload = &event[event.find("\"payload\":").unwrap() + 10..event.len() - 1];
        assert_eq!(payload.len(), 120);
        assert_eq!(number_after(event.as_bytes(), DUE.as_bytes()), Ok(1_500_000));
        serde_json::from_str::<serde_json::Value>(&event).unwrap();
    }
}
