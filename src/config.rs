//! Settings: command-line flags and environment variables, each with a default. The doc comment of a
//! flag is its help text; a flattened group has none because clap would show it as help.
//! `docs/configuration.md` lists all settings, and a test compares it with this module.

mod access;
mod backup;
mod bench;
mod bulk;
mod documents;
pub mod edge;
pub(crate) mod events;
pub(crate) mod in_force;
mod keys;
mod logs;
mod monitoring;
mod nouns;
mod observe;
mod publish;
pub mod retention;
mod secrets;
mod server;
mod traces;
mod work;

use std::net::SocketAddr;
use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

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
use edge::EdgeArgs;
use retention::RetentionArgs;

pub use access::AccessArgs;
pub use backup::{BackupArgs, BackupVerb, RestoreArgs, VerifyArgs};
pub use bench::{BenchArgs, Workload};
pub use bulk::BulkArgs;
pub use documents::{CompletionsArgs, ManArgs};
pub use events::{
    ChangeEventsArgs, EventFilterArgs, EventsArgs, EventsVerb, ListEventsArgs, Order, ResetEventsArgs, SelectionArgs,
    ShowEventArgs, TailArgs,
};
pub use in_force::SettingsInForce;
pub use keys::{CreateKeyArgs, KeysArgs, KeysVerb, ListKeysArgs, RevokeKeyArgs, RotateKeyArgs, UpdateKeyArgs};
pub use logs::{LogArgs, LogFormat};
pub use monitoring::MonitoringArgs;
pub use nouns::{
    ActOnDeliveriesArgs, AuditArgs, AuditVerb, CheckSubscriptionArgs, CreateNamespaceArgs, CreateSourceArgs,
    CreateSubscriptionArgs, DeadLetterFilterArgs, DeadLettersArgs, DeadLettersVerb, DeleteArgs, DeleteTypeArgs,
    DeliveriesArgs, DeliveriesVerb, DeliveryFilterArgs, DoctorArgs, FromArgs, IdArgs, ListActiveArgs, ListArgs,
    ListAuditArgs, ListDeadLettersArgs, ListDeliveriesArgs, ListOperationsArgs, NameArgs, NamespaceFields,
    NamespacesArgs, NamespacesVerb, OperationFilterArgs, OperationsArgs, OperationsVerb, PutTypeArgs, ReasonArgs,
    ReplayArgs, RotateSourceSecretArgs, RotateSubscriptionSecretArgs, ShowTypeArgs, SourceFields, SourcesArgs,
    SourcesVerb, SubscriptionFields, SubscriptionsArgs, SubscriptionsVerb, TypesArgs, TypesVerb, UpdateNamespaceArgs,
    UpdateSourceArgs, UpdateSubscriptionArgs, UsageArgs,
};
pub use observe::{StatsArgs, TagsArgs, TopArgs, WorkersArgs};
pub use publish::PublishArgs;
pub use secrets::{RotateArgs, SecretKeyArgs, SecretsCommand};
pub use server::{ColorChoice, ConnectionArgs, PageArgs, ServerArgs};
pub use traces::TraceArgs;
pub use work::WorkArgs;

/// A durable job queue and webhook relay over PostgreSQL and plain HTTP.
#[derive(Debug, Parser)]
#[command(
    name = "waybill",
    version,
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "there is one, and it is parsed once")]
pub enum Command {
    /// Run the server. Without DATABASE_URL it runs an embedded PostgreSQL.
    Serve(ServeArgs),
    /// Bring the database schema up to date, then exit.
    Migrate(MigrateArgs),
    /// Write a backup of the database to a file, while servers run on it.
    Backup(BackupArgs),
    /// Load a backup into an empty database.
    Restore(RestoreArgs),
    /// Encrypt the secrets in the database with another key.
    #[command(subcommand)]
    Secrets(SecretsCommand),
    /// Make, list, change, revoke and rotate API keys.
    Keys(KeysArgs),
    /// Publish an event, or many from a file.
    ///
    /// A request whose answer is lost is sent again under the same idempotency key, so an event is stored once. In a
    /// batch, that needs lines with an idempotency_key of their own.
    Publish(PublishArgs),
    /// List, show, follow, retry, cancel and reset events.
    Events(EventsArgs),
    /// Work on events: run a program for each.
    ///
    /// The program gets the payload as its standard input, and the fields of the event in its environment:
    /// WAYBILL_EVENT_ID, WAYBILL_TITLE, WAYBILL_TAGS, WAYBILL_PRIORITY, WAYBILL_CREATED_AT, WAYBILL_ATTEMPT,
    /// WAYBILL_MAX_RETRIES, WAYBILL_LEASE_ID; if the event has them WAYBILL_EVENT_TYPE, WAYBILL_LABELS (JSON),
    /// WAYBILL_ORDERING_KEY, WAYBILL_CORRELATION_ID, WAYBILL_TRACEPARENT; and WAYBILL_PROGRESS_FILE, a file in which it may
    /// write its progress as JSON.
    ///
    /// Exit status 0 completes the event, with what the program has printed as its result if that is JSON. 75 fails it
    /// and lets it be tried again, 65 fails it for good. Any other status, or a signal, lets it be tried again, with the
    /// last lines of standard error as its error.
    ///
    /// SIGTERM, SIGHUP, SIGQUIT and Ctrl-C drain: no more events are claimed, and what runs is finished. Another signal
    /// aborts: what runs is stopped and released.
    Work(WorkArgs),
    /// List workers, and what they hold.
    Workers(WorkersArgs),
    /// List tags, and what waits for workers.
    Tags(TagsArgs),
    /// Manage where events are pushed to.
    Subscriptions(SubscriptionsArgs),
    /// List, show, retry and cancel pushes.
    Deliveries(DeliveriesArgs),
    /// List, show and replay pushes that were given up.
    DeadLetters(DeadLettersArgs),
    /// Manage where webhooks of other systems come in.
    Sources(SourcesArgs),
    /// Declare types of events.
    Types(TypesArgs),
    /// List, show, follow and stop work on many items.
    Operations(OperationsArgs),
    /// List, show, make and change namespaces.
    Namespaces(NamespacesArgs),
    /// List who changed what.
    Audit(AuditArgs),
    /// Show where limits stand.
    Usage(UsageArgs),
    /// Say what is wrong with a server and its database, and what to do about it.
    Doctor(DoctorArgs),
    /// Show what waits, runs and has failed, or what was done over time.
    Stats(StatsArgs),
    /// Show the state of the server on a full screen, live.
    Top(TopArgs),
    /// Run a benchmark against a server.
    Bench(BenchArgs),
    /// Print a script that completes commands in a shell.
    Completions(CompletionsArgs),
    /// Print the manual page, or write those of all commands.
    Man(ManArgs),
}

#[derive(Debug, Clone, Args)]
pub struct DatabaseArgs {
    /// URL of the PostgreSQL to use. If unset, the server runs an embedded one in the data directory.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: Option<String>,

    /// Data directory of the embedded PostgreSQL [default: /var/lib/waybill for root, else the user's
    /// data folder].
    #[arg(long, env = "WAYBILL_DATA_DIR")]
    pub data_dir: Option<PathBuf>,

    /// Folder of PostgreSQL's server binaries [default: PATH, pg_config, the usual folders].
    #[arg(long, env = "WAYBILL_PG_BIN")]
    pub pg_bin: Option<PathBuf>,
}

/// Settings of `waybill serve`.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    // The first field: see there.
    #[command(flatten)]
    pub in_force: SettingsInForce,

    /// Address to listen on; port 0 picks a free port, which is printed.
    #[arg(long, env = "WAYBILL_BIND", default_value = "127.0.0.1:8080")]
    pub bind: SocketAddr,

    /// Host names that requests may carry besides `localhost` and IP addresses, separated by commas; `*`
    /// allows any.
    #[arg(long, env = "WAYBILL_ALLOWED_HOSTS", default_value = "none", value_parser = parse_allowed_hosts)]
    pub allowed_hosts: AllowedHosts,

    #[command(flatten)]
    pub access: AccessArgs,

    #[command(flatten)]
    pub edge: EdgeArgs,

    #[command(flatten)]
    pub database: DatabaseArgs,

    /// Database connections for requests; two more serve maintenance and notifications.
    #[arg(long, env = "WAYBILL_DB_CONNECTIONS", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub db_connections: u16,

    /// Threads that serve HTTP.
    #[arg(long, env = "WAYBILL_HTTP_WORKERS", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub http_workers: u16,

    /// Maximum number of open HTTP connections per thread; further ones wait to be accepted.
    #[arg(long, env = "WAYBILL_MAX_CONNECTIONS", default_value_t = 25_000)]
    pub max_connections: usize,

    /// Maximum number of workers that wait in long polls at once; further ones get 429.
    #[arg(long, env = "WAYBILL_MAX_WAITING", default_value_t = 20_000)]
    pub max_waiting: usize,

    /// Maximum number of streams of the event log that are open at once, half of them of one namespace; further ones
    /// get 429.
    #[arg(long, env = "WAYBILL_MAX_STREAMS", default_value_t = 5_000, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=100_000))]
    pub max_streams: usize,

    /// Milliseconds after which a stream of the event log without entries sends a heartbeat.
    #[arg(long, env = "WAYBILL_STREAM_HEARTBEAT_MS", default_value_t = 15_000, value_parser = clap::value_parser!(u64).range(1_000..=300_000))]
    pub stream_heartbeat_ms: u64,

    /// Maximum number of concurrent batches at the database; slow ones do not hold back others. A higher
    /// number makes batches smaller and helps only if the database has spare cores [default: the number of
    /// cores].
    #[arg(long, env = "WAYBILL_BATCHES_AT_ONCE", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub batches_at_once: Option<u16>,

    /// Maximum number of namespaces.
    #[arg(long, env = "WAYBILL_MAX_NAMESPACES", default_value_t = 1_000, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    pub max_namespaces: i64,

    /// Maximum number of sources of a namespace.
    #[arg(long, env = "WAYBILL_MAX_SOURCES", default_value_t = 100, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    pub max_sources: i64,

    /// Maximum number of event types that a namespace declares.
    #[arg(long, env = "WAYBILL_MAX_EVENT_TYPES", default_value_t = 1_000, value_parser = clap::value_parser!(i64).range(1..=100_000))]
    pub max_event_types: i64,

    /// Maximum number of calls of one verb that wait for the database; further ones get 429.
    #[arg(long, env = "WAYBILL_MAX_QUEUED", default_value_t = 10_000, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1_000_000))]
    pub max_queued: usize,

    /// Megabytes that the bodies of all requests in flight may take; further requests wait briefly and then
    /// get 429.
    #[arg(long, env = "WAYBILL_REQUEST_MEMORY_MB", default_value_t = 32, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(32..=1_000_000))]
    pub request_memory_mb: usize,

    /// Seconds to wait before a retry, for events that set no backoff; fractions are allowed.
    #[arg(long, env = "WAYBILL_BACKOFF_SECONDS", default_value_t = Seconds::whole(300))]
    pub backoff_seconds: Seconds,

    /// Whether the server resets events whose lease has expired.
    #[arg(long, env = "WAYBILL_AUTO_RESET", default_value_t = true, action = clap::ArgAction::Set)]
    pub auto_reset: bool,

    /// Leases that may expire in a row without a start or a heartbeat before an event is FAILED as
    /// poison.
    #[arg(long, env = "WAYBILL_POISON_AFTER", default_value_t = 5, value_parser = clap::value_parser!(i32).range(1..=1000))]
    pub poison_after: i32,

    /// Whether servers that share a database notify each other of new work with NOTIFY. Switch it off behind
    /// a transaction-pooling proxy.
    #[arg(long, env = "WAYBILL_NOTIFY", default_value_t = true, action = clap::ArgAction::Set)]
    pub notify: bool,

    /// Milliseconds between polls of the queues that workers wait for, in case a notification was lost.
    #[arg(long, env = "WAYBILL_POLL_INTERVAL_MS", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub poll_interval_ms: u64,

    /// Maximum number of rows that a list examines for a page, if one filter alone does not find them; one that has to
    /// pass over what does not match examines 20 times as many.
    #[arg(long, env = "WAYBILL_LIST_SCAN_ROWS", default_value_t = 10_000, value_parser = clap::value_parser!(i64).range(500..=1_000_000))]
    pub list_scan_rows: i64,

    /// Whether the database refuses rows that break a rule of the schema, for development; it costs about a
    /// tenth of the throughput. Once on, it stays on until `SELECT waybill.enforce_rules(false)` [default: true
    /// in debug builds, else false].
    #[arg(long, env = "WAYBILL_CHECK_RULES")]
    pub check_rules: Option<bool>,

    #[command(flatten)]
    pub secrets: SecretKeyArgs,

    #[command(flatten)]
    pub push: PushArgs,

    #[command(flatten)]
    pub retention: RetentionArgs,

    #[command(flatten)]
    pub traces: TraceArgs,

    #[command(flatten)]
    pub monitoring: MonitoringArgs,

    #[command(flatten)]
    pub logging: LogArgs,
}

#[derive(Debug, Clone, Args)]
pub struct PushArgs {
    /// Whether this server pushes events to subscribers. At least one server must.
    #[arg(long, env = "WAYBILL_DISPATCH", default_value_t = true, action = clap::ArgAction::Set)]
    pub dispatch: bool,

    /// Maximum number of requests to subscribers in flight.
    #[arg(long, env = "WAYBILL_MAX_PUSHES", default_value_t = 1_000, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=MAX_CLAIMED as u64))]
    pub max_pushes: usize,

    /// Maximum number of subscriptions of a namespace.
    #[arg(long, env = "WAYBILL_MAX_SUBSCRIPTIONS", default_value_t = 10_000, value_parser = clap::value_parser!(i64).range(1..=1_000_000))]
    pub max_subscriptions: i64,

    /// Networks with private or otherwise special addresses that pushes may go to: CIDRs, separated by commas.
    #[arg(long, env = "WAYBILL_WEBHOOK_ALLOW", default_value = "none", value_parser = parse_allow_list)]
    pub webhook_allow: AllowList,

    /// PEM file of certificates to trust besides the system's [default: only the system's].
    #[arg(long, env = "WAYBILL_WEBHOOK_CA_FILE")]
    pub webhook_ca_file: Option<PathBuf>,

    /// Proxy for pushes. Proxy variables of the environment are ignored [default: none, pushes go directly to
    /// the receiver].
    #[arg(long, env = "WAYBILL_WEBHOOK_PROXY")]
    pub webhook_proxy: Option<String>,

    /// Failures in a row after which an endpoint's circuit breaker opens.
    #[arg(long, env = "WAYBILL_BREAKER_FAILURES", default_value_t = 20, value_parser = clap::value_parser!(i32).range(1..=10_000))]
    pub breaker_failures: i32,

    /// Seconds for which a circuit breaker stays open; then one request is tried.
    #[arg(long, env = "WAYBILL_BREAKER_SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub breaker_seconds: u32,
}

/// Settings of `waybill migrate`.
#[derive(Debug, Clone, Args)]
pub struct MigrateArgs {
    /// Declare that the database was restored from a backup, for restores that the server cannot detect. New
    /// event ids and lease ids start far above all that were issued before.
    #[arg(long)]
    pub restored: bool,

    #[command(flatten)]
    pub database: DatabaseArgs,

    #[command(flatten)]
    pub logging: LogArgs,
}

impl ServeArgs {
    /// Returns the settings of the engine, or the reason why the keys for secrets cannot be used.
    pub fn engine_settings(&self) -> Result<EngineSettings, String> {
        Ok(EngineSettings {
            default_backoff: Backoff::Fixed { seconds: self.backoff_seconds },
            poison_after: self.poison_after,
            max_waiting: self.max_waiting,
            max_queued: self.max_queued,
            batches_at_once: self.batches_at_once.map_or_else(number_of_cores, usize::from),
            list_scan_rows: self.list_scan_rows,
            max_streams: self.max_streams,
            breaker: BreakerRule {
                failures: self.push.breaker_failures,
                seconds: f64::from(self.push.breaker_seconds),
            },
            max_namespaces: self.max_namespaces,
            max_subscriptions: self.push.max_subscriptions,
            idempotency_retention: self.retention.idempotency_retention,
            max_sources: self.max_sources,
            max_event_types: self.max_event_types,
            webhook_allow: self.push.webhook_allow.clone(),
            secret_keys: self.secrets.keyring()?,
        })
    }

    pub fn background_settings(&self) -> BackgroundSettings {
        BackgroundSettings {
            auto_reset: self.auto_reset,
            notify: self.notify,
            poll_interval: Duration::from_millis(self.poll_interval_ms),
            dispatch: self.push.dispatch.then_some(DispatcherSettings { max_pushes: self.push.max_pushes }),
            retention: self.retention.settings(),
        }
    }

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
