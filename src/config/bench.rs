//! The settings of `waybill bench`.

use clap::{Args, ValueEnum};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// Publish one event per request.
    Publish,
    /// Send requests that need no database: what HTTP alone takes.
    Http,
    /// Publish, claim and complete one event, each in its own request.
    Life,
    /// Publish `--batch` events per request.
    BatchPublish,
    /// Publish, claim and settle `--batch` events, each step in one request.
    BatchLife,
    /// Claim and settle a backlog of `--prefill` events, in batches.
    Drain,
    /// One waiting worker, one publisher: the time from the publish to the worker's response.
    Pickup,
    /// Publishers at `--rate`, and the same number of workers that wait for events.
    Steady,
    /// Push events to a receiver: at `--rate`, or a backlog of `--prefill` events.
    Push,
}

impl std::fmt::Display for Workload {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // No variant is skipped, so every variant has a name.
        out.write_str(self.to_possible_value().as_ref().map_or("", |value| value.get_name()))
    }
}

/// Settings of `waybill bench`.
#[derive(Debug, Clone, Args)]
pub struct BenchArgs {
    /// URL of the server.
    #[arg(long, env = "WAYBILL_URL", default_value = "http://127.0.0.1:8080")]
    pub url: String,

    /// API key to send with every request [default: none].
    #[arg(long, env = "WAYBILL_KEY", hide_env_values = true)]
    pub key: Option<String>,

    /// Workload to run.
    #[arg(long, value_enum, default_value = "publish")]
    pub workload: Workload,

    /// Number of connections; `steady` opens the same number again for workers.
    #[arg(long, default_value_t = 64)]
    pub connections: usize,

    /// Duration of the run in seconds.
    #[arg(long, default_value_t = 10)]
    pub seconds: u64,

    /// Also report every interval of this many seconds; 0 reports only the total.
    #[arg(long, default_value_t = 0)]
    pub interval_seconds: u64,

    /// Events per second in total, at fixed times (open loop); 0 is as fast as possible.
    #[arg(long, default_value_t = 0)]
    pub rate: u64,

    /// Events per request, for the batch workloads and `drain`.
    #[arg(long, default_value_t = 100, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1000))]
    pub batch: usize,

    /// Seconds that each claim of `life` and `drain` waits for events, 0 to 60.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=60))]
    pub wait_seconds: u32,

    /// Number of tags over which the events of `drain` are spread.
    #[arg(long, default_value_t = 1, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1000))]
    pub tags: usize,

    /// Number of tags that each worker of `drain` claims from.
    #[arg(long, default_value_t = 1, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=32))]
    pub tags_per_worker: usize,

    /// Size of each payload in bytes.
    #[arg(long, default_value_t = 120)]
    pub payload_bytes: usize,

    /// Events to publish before `drain` begins.
    #[arg(long, default_value_t = 100_000)]
    pub prefill: usize,

    /// Events of another tag to publish first; they wait in the same table and are never claimed.
    #[arg(long, default_value_t = 0)]
    pub foreign: usize,

    /// Maximum number of concurrent requests to the receiver of `push`.
    #[arg(long, default_value_t = 100)]
    pub concurrency: u32,

    /// Milliseconds after which the receiver of `push` responds to a request.
    #[arg(long, default_value_t = 0)]
    pub hold_ms: u64,

    /// Events to push to another receiver, which never responds, before `push` begins.
    #[arg(long, default_value_t = 0)]
    pub hanging: usize,

    /// Number of namespaces, `bench-1` and so on, over which each connection spreads its events in turn. They are
    /// created if they do not exist. 0 uses the namespace `default`.
    #[arg(long, default_value_t = 0, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(0..=10_000))]
    pub namespaces: usize,

    /// Connections that keep the namespace `bench-loud` busy meanwhile, half of them with publishing and half with
    /// working, in batches and as fast as possible. They are not measured.
    #[arg(long, default_value_t = 0)]
    pub loud_namespace: usize,

    /// Send a new `Idempotency-Key` with each event of `publish`, to compare publishing with keys and without.
    #[arg(long)]
    pub idempotency_keys: bool,

    /// Prefix of the tags; a random part is added to separate runs from each other.
    #[arg(long, default_value = "bench")]
    pub tag: String,

    /// Print one line of JSON instead of a table.
    #[arg(long)]
    pub json: bool,
}
