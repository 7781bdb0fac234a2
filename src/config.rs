//! Settings: flags and environment variables, each with a default. `docs/configuration.md`
//! lists them all, and a test holds the two together.

use std::net::SocketAddr;
use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::background::BackgroundSettings;
use crate::background::dispatcher::DispatcherSettings;
use crate::background::dispatcher::slots::MAX_CLAIMED;
use crate::domain::address::AllowList;
use crate::domain::backoff::Backoff;
use crate::domain::hosts::AllowedHosts;
use crate::domain::seconds::Seconds;
use crate::engine::EngineSettings;
use crate::store::tables::endpoints::BreakerRule;
use crate::webhook::WebhookSettings;

/// A durable job queue and webhook relay over PostgreSQL and plain HTTP.
#[derive(Debug, Parser)]
#[command(name = "waybill", version, propagate_version = true, flatten_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The sub-commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the server. Without DATABASE_URL it runs a PostgreSQL of its own.
    Serve(ServeArgs),
    /// Bring the database's schema up to date, and stop.
    Migrate(MigrateArgs),
    /// Put load on a server and measure it.
    Bench(BenchArgs),
}

/// Where the database is.
#[derive(Debug, Clone, Args)]
pub struct DatabaseArgs {
    /// The PostgreSQL to use. Left out, the server runs its own in the data directory.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: Option<String>,

    /// Where the server's own PostgreSQL keeps its data [default: /var/lib/waybill for root,
    /// else the user's data folder].
    #[arg(long, env = "WAYBILL_DATA_DIR")]
    pub data_dir: Option<PathBuf>,

    /// The folder of PostgreSQL's server binaries [default: PATH, pg_config, the usual places].
    #[arg(long, env = "WAYBILL_PG_BIN")]
    pub pg_bin: Option<PathBuf>,
}

/// How to log.
#[derive(Debug, Clone, Args)]
pub struct LogArgs {
    /// What to log: a level, or a list such as `info,waybill::background=debug`.
    #[arg(long, env = "WAYBILL_LOG", default_value = "info")]
    pub log: String,

    /// How to write it.
    #[arg(long, env = "WAYBILL_LOG_FORMAT", value_enum, default_value = "text")]
    pub log_format: LogFormat,
}

/// The shape of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Settings of `waybill serve`.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// The address to listen on; port 0 picks one and prints it.
    #[arg(long, env = "WAYBILL_BIND", default_value = "127.0.0.1:8080")]
    pub bind: SocketAddr,

    /// Host names under which clients may address this server besides `localhost` and addresses,
    /// separated by commas; `*` for any.
    #[arg(long, env = "WAYBILL_ALLOWED_HOSTS", default_value = "none", value_parser = parse_allowed_hosts)]
    pub allowed_hosts: AllowedHosts,

    #[command(flatten)]
    #[expect(missing_docs, reason = "clap would show the comment as help")]
    pub database: DatabaseArgs,

    /// Connections to the database for requests; two more serve upkeep and notifications.
    #[arg(long, env = "WAYBILL_DB_CONNECTIONS", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub db_connections: u16,

    /// Threads that serve HTTP.
    #[arg(long, env = "WAYBILL_HTTP_WORKERS", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub http_workers: u16,

    /// Open HTTP connections per thread; more wait to be accepted.
    #[arg(long, env = "WAYBILL_MAX_CONNECTIONS", default_value_t = 25_000)]
    pub max_connections: usize,

    /// Workers that may wait in long polls at once; more are answered 429.
    #[arg(long, env = "WAYBILL_MAX_WAITING", default_value_t = 20_000)]
    pub max_waiting: usize,

    /// Batched batches at the database at a time; a slow one does not count. More, and smaller
    /// ones, gain only where the database has cores to spare [default: the number of cores].
    #[arg(long, env = "WAYBILL_BATCHES_AT_ONCE", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub batches_at_once: Option<u16>,

    /// Calls of one verb that may wait for the database; more are answered 429.
    #[arg(long, env = "WAYBILL_MAX_QUEUED", default_value_t = 10_000, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1_000_000))]
    pub max_queued: usize,

    /// Megabytes that the bodies of all requests under way may take; more wait a little, and are
    /// then answered 429.
    #[arg(long, env = "WAYBILL_REQUEST_MEMORY_MB", default_value_t = 32, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(32..=1_000_000))]
    pub request_memory_mb: usize,

    /// Seconds to wait after a failure, for events that bring no backoff of their own; fractions
    /// are allowed.
    #[arg(long, env = "WAYBILL_BACKOFF_SECONDS", default_value_t = Seconds::whole(300))]
    pub backoff_seconds: Seconds,

    /// Whether the server resets events whose lease has run out.
    #[arg(long, env = "WAYBILL_AUTO_RESET", default_value_t = true, action = clap::ArgAction::Set)]
    pub auto_reset: bool,

    /// Leases that may run out in a row, with no sign of life, before an event is FAILED as poison.
    #[arg(long, env = "WAYBILL_POISON_AFTER", default_value_t = 5, value_parser = clap::value_parser!(i32).range(1..=1000))]
    pub poison_after: i32,

    /// Whether servers on one database tell each other of new work by NOTIFY. Switch it off
    /// behind a transaction-pooling proxy.
    #[arg(long, env = "WAYBILL_NOTIFY", default_value_t = true, action = clap::ArgAction::Set)]
    pub notify: bool,

    /// Milliseconds between two looks at the queues that workers wait for, in case no word came.
    #[arg(long, env = "WAYBILL_POLL_INTERVAL_MS", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub poll_interval_ms: u64,

    /// Rows that a list reads at most for filters that no index serves, and counts at most
    /// for `total`.
    #[arg(long, env = "WAYBILL_LIST_SCAN_ROWS", default_value_t = 10_000, value_parser = clap::value_parser!(i64).range(500..=1_000_000))]
    pub list_scan_rows: i64,

    #[command(flatten)]
    #[expect(missing_docs, reason = "clap would show the comment as help")]
    pub push: PushArgs,

    #[command(flatten)]
    #[expect(missing_docs, reason = "clap would show the comment as help")]
    pub logging: LogArgs,
}

/// How events are pushed.
#[derive(Debug, Clone, Args)]
pub struct PushArgs {
    /// Whether this server pushes events to subscribers. Of several servers at least one must.
    #[arg(long, env = "WAYBILL_DISPATCH", default_value_t = true, action = clap::ArgAction::Set)]
    pub dispatch: bool,

    /// Requests to subscribers under way at once.
    #[arg(long, env = "WAYBILL_MAX_PUSHES", default_value_t = 1_000, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=MAX_CLAIMED as u64))]
    pub max_pushes: usize,

    /// Subscriptions that there may be.
    #[arg(long, env = "WAYBILL_MAX_SUBSCRIPTIONS", default_value_t = 10_000, value_parser = clap::value_parser!(i64).range(1..=1_000_000))]
    pub max_subscriptions: i64,

    /// Networks that pushes may go to although their addresses are private or otherwise
    /// special: CIDRs, separated by commas.
    #[arg(long, env = "WAYBILL_WEBHOOK_ALLOW", default_value = "none", value_parser = parse_allow_list)]
    pub webhook_allow: AllowList,

    /// Certificates to trust besides the system's: a file in PEM [default: only the system's].
    #[arg(long, env = "WAYBILL_WEBHOOK_CA_FILE")]
    pub webhook_ca_file: Option<PathBuf>,

    /// The proxy through which pushes go. Those of the environment are ignored [default:
    /// straight to the receiver].
    #[arg(long, env = "WAYBILL_WEBHOOK_PROXY")]
    pub webhook_proxy: Option<String>,

    /// Failures in a row after which nothing is sent to an endpoint for a while.
    #[arg(long, env = "WAYBILL_BREAKER_FAILURES", default_value_t = 20, value_parser = clap::value_parser!(i32).range(1..=10_000))]
    pub breaker_failures: i32,

    /// For how many seconds; then one request is tried.
    #[arg(long, env = "WAYBILL_BREAKER_SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub breaker_seconds: u32,

    /// Days for which dead letters are kept.
    #[arg(long, env = "WAYBILL_DEAD_LETTER_DAYS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3_650))]
    pub dead_letter_days: u32,
}

/// Settings of `waybill migrate`.
#[derive(Debug, Clone, Args)]
pub struct MigrateArgs {
    /// Say that the database was restored from a backup, for restores that the server cannot notice:
    /// ids and leases go on far behind those that were given out before.
    #[arg(long)]
    pub restored: bool,

    #[command(flatten)]
    #[expect(missing_docs, reason = "clap would show the comment as help")]
    pub database: DatabaseArgs,

    #[command(flatten)]
    #[expect(missing_docs, reason = "clap would show the comment as help")]
    pub logging: LogArgs,
}

/// What `waybill bench` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// One event per request.
    Publish,
    /// Publish, claim and complete, each its own request.
    Life,
    /// `--batch` events per request.
    BatchPublish,
    /// Publish, claim and settle `--batch` events, each its own request.
    BatchLife,
    /// Claim and settle what was published before (`--prefill`), in batches.
    Drain,
    /// One waiting worker, one publisher: from the publish to the worker's answer.
    Pickup,
    /// Publishers at `--rate`, and as many workers that wait for their events.
    Steady,
    /// Events are pushed to a receiver: at `--rate`, or a backlog (`--prefill`).
    Push,
}

impl std::fmt::Display for Workload {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // No variant is skipped, so each has a name.
        out.write_str(self.to_possible_value().as_ref().map_or("", |value| value.get_name()))
    }
}

/// Settings of `waybill bench`.
#[derive(Debug, Clone, Args)]
pub struct BenchArgs {
    /// The server to put load on.
    #[arg(long, env = "WAYBILL_URL", default_value = "http://127.0.0.1:8080")]
    pub url: String,

    /// What to do.
    #[arg(long, value_enum, default_value = "publish")]
    pub workload: Workload,

    /// Connections; `steady` opens as many again for workers.
    #[arg(long, default_value_t = 64)]
    pub connections: usize,

    /// For how long.
    #[arg(long, default_value_t = 10)]
    pub seconds: u64,

    /// Report per interval of so many seconds as well; 0: only in all.
    #[arg(long, default_value_t = 0)]
    pub interval_seconds: u64,

    /// Events per second, in all, due at fixed times (open loop); 0: as many as get through.
    #[arg(long, default_value_t = 0)]
    pub rate: u64,

    /// Events per request, for the batch workloads and `drain`.
    #[arg(long, default_value_t = 100, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1000))]
    pub batch: usize,

    /// Seconds that each claim of `life` and `drain` waits for work, 0 to 60.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=60))]
    pub wait: u32,

    /// Tags over which the events of `drain` are spread.
    #[arg(long, default_value_t = 1, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1000))]
    pub tags: usize,

    /// Tags that each worker of `drain` asks for; more than the tags per worker overlap.
    #[arg(long, default_value_t = 1, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=32))]
    pub tags_per_worker: usize,

    /// Bytes of each payload.
    #[arg(long, default_value_t = 120)]
    pub payload_bytes: usize,

    /// Events to publish before `drain` begins.
    #[arg(long, default_value_t = 100_000)]
    pub prefill: usize,

    /// Events of another tag to publish first, to lie in the way.
    #[arg(long, default_value_t = 0)]
    pub foreign: usize,

    /// Requests that the receiver of `push` lets come at once.
    #[arg(long, default_value_t = 100)]
    pub concurrency: u32,

    /// Milliseconds for which the receiver of `push` keeps each request waiting.
    #[arg(long, default_value_t = 0)]
    pub hold_ms: u64,

    /// Events to push to another receiver, which never answers, before `push` begins.
    #[arg(long, default_value_t = 0)]
    pub hanging: usize,

    /// The tag, to which a random part is added so that runs do not meet.
    #[arg(long, default_value = "bench")]
    pub tag: String,

    /// Print one line of JSON instead of a table.
    #[arg(long)]
    pub json: bool,
}

impl ServeArgs {
    /// What the engine has to know.
    pub fn engine_settings(&self) -> EngineSettings {
        EngineSettings {
            default_backoff: Backoff::Fixed { seconds: self.backoff_seconds },
            poison_after: self.poison_after,
            max_waiting: self.max_waiting,
            max_queued: self.max_queued,
            batches_at_once: self.batches_at_once.map_or_else(number_of_cores, usize::from),
            list_scan_rows: self.list_scan_rows,
            breaker: BreakerRule {
                failures: self.push.breaker_failures,
                seconds: f64::from(self.push.breaker_seconds),
            },
            max_subscriptions: self.push.max_subscriptions,
            webhook_allow: self.push.webhook_allow.clone(),
        }
    }

    /// What the background services have to know.
    pub fn background_settings(&self) -> BackgroundSettings {
        BackgroundSettings {
            auto_reset: self.auto_reset,
            notify: self.notify,
            poll_interval: Duration::from_millis(self.poll_interval_ms),
            dispatch: self.push.dispatch.then_some(DispatcherSettings { max_pushes: self.push.max_pushes }),
            dead_letter_days: self.push.dead_letter_days,
        }
    }

    /// What sending has to know.
    pub fn webhook_settings(&self) -> WebhookSettings {
        WebhookSettings {
            allow: self.push.webhook_allow.clone(),
            ca_file: self.push.webhook_ca_file.clone(),
            proxy: self.push.webhook_proxy.clone(),
            ..WebhookSettings::default()
        }
    }
}

fn parse_allow_list(text: &str) -> Result<AllowList, String> {
    if text == "none" { Ok(AllowList::default()) } else { text.parse() }
}

fn parse_allowed_hosts(text: &str) -> Result<AllowedHosts, String> {
    if text == "none" { Ok(AllowedHosts::default()) } else { text.parse() }
}

fn number_of_cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}
