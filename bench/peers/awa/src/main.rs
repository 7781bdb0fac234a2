//! Awa under the common contract of `bench/README.md`, "Adding a peer": runs one workload
//! and prints one line of JSON. Settings and their sources: `peer.json`.

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use awa::model::insert::params_with;
use awa::{
    Client, InsertOpts, InsertParams, JobArgs, JobContext, JobError, JobResult, QueueConfig, QueueStorage,
    QueueStorageConfig, Worker, insert_with, migrations,
};
use serde::Serialize;
use serde_json::json;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::sync::Notify;

type Answer = Result<serde_json::Value, Box<dyn Error>>;

/// A JSON document of 120 bytes, the same for all systems.
#[derive(Debug, Clone, Serialize, JobArgs)]
struct Bench {
    data: String,
}

impl Bench {
    fn new() -> Self {
        Bench { data: "x".repeat(109) }
    }
}

struct Options(HashMap<String, String>);

impl Options {
    fn number(&self, name: &str) -> usize {
        self.0.get(name).and_then(|value| value.parse().ok()).unwrap_or(1)
    }

    fn seconds(&self) -> Duration {
        Duration::from_secs(self.number("seconds") as u64)
    }

    fn queue(&self) -> String {
        self.0.get("queue").cloned().unwrap_or_else(|| "bench".into())
    }

    fn opts(&self) -> InsertOpts {
        InsertOpts { queue: self.queue().into(), ..InsertOpts::default() }
    }

    fn batch(&self, count: usize) -> Result<Vec<InsertParams>, awa::AwaError> {
        let one = params_with(&Bench::new(), self.opts())?;
        Ok(vec![one; count])
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (workload, url) = (arguments.next().unwrap_or_default(), arguments.next().unwrap_or_default());
    let pairs = arguments.filter_map(|pair| pair.split_once('=').map(|(key, value)| (key.into(), value.into())));
    let options = Arc::new(Options(pairs.collect()));
    // One connection for each caller; a worker needs more for claims, completions, heartbeats and its listener.
    let connections = if workload.starts_with("publish") { options.number("callers") as u32 } else { 24 };
    let pool = PgPoolOptions::new().max_connections(connections).min_connections(1).connect(&url).await?;
    let figures = match workload.as_str() {
        "setup" => setup(&pool).await?,
        "publish-one" => publish(&pool, &options, 1).await?,
        "publish-batch" => publish(&pool, &options, options.number("batch")).await?,
        "fill" => fill(&pool, &options).await?,
        "drain" => drain(pool, &options).await?,
        "pickup" => pickup(pool, &options).await?,
        other => return Err(format!("no workload {other}").into()),
    };
    println!("{figures}");
    Ok(())
}

async fn setup(pool: &PgPool) -> Answer {
    migrations::run(pool).await?;
    store()?.install(pool).await?;
    Ok(json!({}))
}

fn store() -> Result<QueueStorage, awa::AwaError> {
    QueueStorage::new(QueueStorageConfig::default())
}

/// Runs concurrent callers; each publishes again as soon as its last call has returned.
async fn publish(pool: &PgPool, options: &Arc<Options>, batch: usize) -> Answer {
    let store = Arc::new(store()?);
    // One round before the measurement opens all connections.
    callers(Instant::now(), pool, &store, options, batch).await?;
    let started = Instant::now();
    let events = callers(started + options.seconds(), pool, &store, options, batch).await?;
    Ok(json!({ "events": events, "seconds": started.elapsed().as_secs_f64() }))
}

async fn callers(
    end: Instant,
    pool: &PgPool,
    store: &Arc<QueueStorage>,
    options: &Arc<Options>,
    batch: usize,
) -> Result<usize, Box<dyn Error>> {
    let callers: Vec<_> = (0..options.number("callers"))
        .map(|_| tokio::spawn(publish_until(end, pool.clone(), store.clone(), options.clone(), batch)))
        .collect();
    let mut events = 0;
    for caller in callers {
        events += caller.await??;
    }
    Ok(events)
}

async fn publish_until(
    end: Instant,
    pool: PgPool,
    store: Arc<QueueStorage>,
    options: Arc<Options>,
    batch: usize,
) -> Result<usize, awa::AwaError> {
    let jobs = options.batch(batch)?;
    let job = Bench::new();
    let mut events = 0;
    loop {
        if batch == 1 {
            insert_with(&pool, &job, options.opts()).await?;
        } else {
            store.enqueue_params_copy(&pool, &jobs).await?;
        }
        events += batch;
        if Instant::now() >= end {
            return Ok(events);
        }
    }
}

async fn fill(pool: &PgPool, options: &Options) -> Answer {
    let store = store()?;
    let mut left = options.number("jobs");
    while left > 0 {
        let now = left.min(1000);
        store.enqueue_params_copy(pool, &options.batch(now)?).await?;
        left -= now;
    }
    Ok(json!({}))
}

/// The observations of the handler.
#[derive(Debug)]
struct Seen {
    since: Instant,
    jobs: AtomicU64,
    first_us: AtomicU64,
    last_us: AtomicU64,
    arrived: Notify,
}

impl Seen {
    fn new() -> Arc<Self> {
        let zero = || AtomicU64::new(0);
        let arrived = Notify::new();
        Arc::new(Seen { since: Instant::now(), jobs: zero(), first_us: zero(), last_us: zero(), arrived })
    }

    fn seconds_from_first_to_last(&self) -> f64 {
        let (first, last) = (self.first_us.load(Ordering::Relaxed), self.last_us.load(Ordering::Relaxed));
        (last - first) as f64 / 1e6
    }
}

struct Handler(Arc<Seen>);

#[async_trait::async_trait]
impl Worker for Handler {
    fn kind(&self) -> &'static str {
        Bench::kind()
    }

    async fn perform(&self, _job: &JobContext) -> Result<JobResult, JobError> {
        let seen = &self.0;
        let now = seen.since.elapsed().as_micros() as u64;
        if seen.jobs.fetch_add(1, Ordering::Relaxed) == 0 {
            seen.first_us.store(now, Ordering::Relaxed);
        }
        seen.last_us.fetch_max(now, Ordering::Relaxed);
        seen.arrived.notify_one();
        Ok(JobResult::Completed)
    }
}

async fn work(pool: PgPool, seen: Arc<Seen>, max_workers: u32) -> Result<Client, Box<dyn Error>> {
    let queue = QueueConfig {
        max_workers,
        poll_interval: Duration::from_millis(50),
        deadline_duration: Duration::ZERO,
        ..QueueConfig::default()
    };
    let client = Client::builder(pool).queue("bench", queue).register_worker(Handler(seen)).build()?;
    client.start().await?;
    Ok(client)
}

/// Measures from the first job that reaches the handler, which is not counted, to the last, or to the end of the time.
async fn drain(pool: PgPool, options: &Options) -> Answer {
    let seen = Seen::new();
    let client = work(pool, seen.clone(), 512).await?;
    let jobs = options.number("jobs") as u64;
    let end = Instant::now() + options.seconds() + Duration::from_secs(5);
    while seen.jobs.load(Ordering::Relaxed) < jobs
        && Instant::now() < end
        && seen.seconds_from_first_to_last() < options.seconds().as_secs_f64()
    {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let figures =
        json!({ "events": seen.jobs.load(Ordering::Relaxed) - 1, "seconds": seen.seconds_from_first_to_last() });
    client.shutdown(Duration::from_secs(5)).await;
    Ok(figures)
}

/// Measures one waiting worker, from before the publish to the start of its handler.
async fn pickup(pool: PgPool, options: &Options) -> Answer {
    let seen = Seen::new();
    let client = work(pool.clone(), seen.clone(), 1).await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let (started, job) = (Instant::now(), Bench::new());
    let mut times = Vec::new();
    // The first five jobs open connections and fill caches; they are not counted.
    for number in 0..options.number("samples") + 5 {
        if started.elapsed() > options.seconds() {
            break;
        }
        // Enough time for the worker to settle its last job and to wait again.
        tokio::time::sleep(Duration::from_millis(20)).await;
        let published = seen.since.elapsed().as_micros() as u64;
        insert_with(&pool, &job, options.opts()).await?;
        seen.arrived.notified().await;
        if number >= 5 {
            times.push((seen.last_us.load(Ordering::Relaxed) - published) as f64 / 1000.0);
        }
    }
    client.shutdown(Duration::from_secs(5)).await;
    times.sort_by(f64::total_cmp);
    let at = |quantile: f64| times[((times.len() as f64 * quantile) as usize).min(times.len() - 1)];
    Ok(json!({ "samples": times.len(), "p50_ms": at(0.5), "p99_ms": at(0.99) }))
}
