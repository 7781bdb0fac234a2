//! The task that sends spans to the collector.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::collector::{Collector, Refusal};
use super::recorder::FinishedSpan;

/// The maximum number of spans in a request.
const BATCH_SPANS: usize = 512;

/// The time for which the first span of a batch waits for more.
const BATCH_INTERVAL: Duration = Duration::from_secs(1);

/// The number of times that a batch is sent, if the collector is away or asks for patience.
const TRIES: u32 = 3;

/// The time between the first two tries; doubled each time.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The maximum time between two tries, even if the collector asks for more.
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(10);

/// The time between two log lines about spans that were lost.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

pub(super) struct Exporter {
    collector: Collector,
    spans: mpsc::Receiver<FinishedSpan>,
    batch: Vec<FinishedSpan>,
    losses: Losses,
    exported: Counter,
    stopping: CancellationToken,
}

/// Spans that were lost: counted, and told about once in a while.
pub(super) struct Losses {
    failed: Counter,
    /// The number of spans that the full queue dropped since the last report.
    dropped: Arc<AtomicU64>,
    /// The number of spans that the collector did not take since the last report, and why.
    untaken: u64,
    cause: String,
    reported_at: Option<Instant>,
}

impl Exporter {
    pub(super) fn new(
        collector: Collector,
        spans: mpsc::Receiver<FinishedSpan>,
        losses: Losses,
        exported: Counter,
        stopping: CancellationToken,
    ) -> Self {
        Exporter { collector, spans, batch: Vec::new(), losses, exported, stopping }
    }

    /// Sends batches until the server stops and nothing is left.
    pub(super) async fn run(mut self) {
        let mut is_open = true;
        while is_open {
            is_open = self.collect().await;
            let batch = std::mem::take(&mut self.batch);
            if !batch.is_empty() {
                self.export(batch).await;
            }
            self.losses.report();
        }
    }

    /// Collects a batch. Returns whether there may be more spans.
    async fn collect(&mut self) -> bool {
        let mut interval = None;
        while self.batch.len() < BATCH_SPANS {
            let room = BATCH_SPANS - self.batch.len();
            let until_sent = async {
                match interval {
                    Some(ends_at) => tokio::time::sleep_until(ends_at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.stopping.cancelled() => return self.take_queued(),
                () = until_sent => return true,
                received = self.spans.recv_many(&mut self.batch, room) => if received == 0 {
                    return false;
                },
            }
            interval = interval.or_else(|| Some(Instant::now() + BATCH_INTERVAL));
        }
        true
    }

    /// Fills the batch with what waits already. Returns whether there may be more.
    fn take_queued(&mut self) -> bool {
        while self.batch.len() < BATCH_SPANS {
            match self.spans.try_recv() {
                Ok(span) => self.batch.push(span),
                Err(_) => return false,
            }
        }
        true
    }

    async fn export(&mut self, batch: Vec<FinishedSpan>) {
        let count = batch.len() as u64;
        let body = self.collector.encode(batch);
        let mut pause = RETRY_PAUSE;
        for attempt in 1..=TRIES {
            let refusal = match self.collector.send(body.clone()).await {
                Ok(accepted) => {
                    let rejected = accepted.rejected.min(count);
                    self.exported.inc_by(count - rejected);
                    return self.losses.add(rejected, accepted.message);
                }
                Err(refusal) => refusal,
            };
            let Refusal { retry: Some(wanted), .. } = refusal else { return self.losses.add(count, refusal.cause) };
            if attempt == TRIES {
                return self.losses.add(count, refusal.cause);
            }
            // A server that stops does not wait.
            self.stopping.run_until_cancelled(sleep(pause.max(wanted).min(MAX_RETRY_PAUSE))).await;
            pause *= 2;
        }
    }
}

impl Losses {
    pub(super) fn new(failed: Counter, dropped: Arc<AtomicU64>) -> Self {
        Losses { failed, dropped, untaken: 0, cause: String::new(), reported_at: None }
    }

    fn add(&mut self, spans: u64, cause: String) {
        if spans > 0 {
            self.failed.inc_by(spans);
            self.untaken += spans;
            self.cause = cause;
        }
    }

    /// Logs what was lost, unless the last line is too recent.
    fn report(&mut self) {
        let is_recent = self.reported_at.is_some_and(|at| at.elapsed() < REPORT_INTERVAL);
        if is_recent || (self.untaken == 0 && self.dropped.load(Ordering::Relaxed) == 0) {
            return;
        }
        let (untaken, dropped) = (std::mem::take(&mut self.untaken), self.dropped.swap(0, Ordering::Relaxed));
        let cause = std::mem::take(&mut self.cause);
        log::warn!(untaken, dropped, cause = cause.as_str(); "spans of traces were lost");
        self.reported_at = Some(Instant::now());
    }
}
