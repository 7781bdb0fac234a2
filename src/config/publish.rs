//! Settings of `waybill publish`.

use std::path::PathBuf;

use clap::Args;

use super::ServerArgs;
use super::events::parse_pair;

// The description of the command is that of its variant in `Command`, which clap prefers.
#[derive(Debug, Clone, Args)]
pub struct PublishArgs {
    /// Title of the event [default: its type].
    #[arg(long, required_unless_present_any = ["event_type", "batch"])]
    pub title: Option<String>,

    /// Tags of the event, separated by commas: which workers may claim it.
    #[arg(long, value_delimiter = ',', required_unless_present_any = ["event_type", "batch"])]
    pub tags: Vec<String>,

    /// Payload as JSON; @FILE reads it from a file, and - from standard input.
    #[arg(long, value_name = "JSON|@FILE|-")]
    pub payload: Option<String>,

    /// Type of the event.
    #[arg(long = "type", value_name = "TYPE")]
    pub event_type: Option<String>,

    /// A longer text for people.
    #[arg(long, value_name = "TEXT")]
    pub description: Option<String>,

    /// A label. May be repeated.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_pair)]
    pub label: Vec<(String, String)>,

    /// Priority, from -100 to 100; higher ones are claimed first.
    #[arg(long, allow_negative_numbers = true)]
    pub priority: Option<i32>,

    /// Seconds until the event can be claimed.
    #[arg(long, value_name = "SECONDS", conflicts_with = "run_at")]
    pub delay: Option<f64>,

    /// Time before which the event cannot be claimed, such as 2027-01-31T08:00:00Z.
    #[arg(long, value_name = "TIME")]
    pub run_at: Option<String>,

    /// Time at which the event expires if nobody has claimed it.
    #[arg(long, value_name = "TIME")]
    pub expires_at: Option<String>,

    /// Events with the same key are worked on one at a time, in order.
    #[arg(long, value_name = "KEY")]
    pub ordering_key: Option<String>,

    /// Connects related events.
    #[arg(long, value_name = "ID")]
    pub correlation_id: Option<String>,

    /// Attempts in total, including the first [default: the server's].
    #[arg(long, value_name = "N")]
    pub max_retries: Option<i32>,

    /// Key under which the event is stored once, however often it is published [default: a random one].
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,

    /// File with one event on each line, as JSON with the fields of POST /events; - reads standard input.
    #[arg(
        long,
        value_name = "FILE|-",
        conflicts_with_all = [
            "title", "tags", "payload", "event_type", "description", "label", "priority", "delay", "run_at",
            "expires_at", "ordering_key", "correlation_id", "max_retries", "idempotency_key",
        ]
    )]
    pub batch: Option<PathBuf>,

    /// Seconds for which a request is sent again while the server is away.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub retry_seconds: u64,

    #[command(flatten)]
    pub server: ServerArgs,
}
