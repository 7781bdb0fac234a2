//! Settings of `waybill events`.

use clap::{Args, Subcommand, ValueEnum};

use super::{BulkArgs, PageArgs, ServerArgs};

#[derive(Debug, Clone, Args)]
pub struct EventsArgs {
    #[command(subcommand)]
    pub verb: EventsVerb,
}

#[derive(Debug, Clone, Subcommand)]
pub enum EventsVerb {
    /// List events, the newest first.
    List(ListEventsArgs),
    /// Show an event: its fields, its payload, its deliveries and its trail.
    Show(ShowEventArgs),
    /// Follow the event log: what happens to events, as it happens.
    Tail(TailArgs),
    /// Run events again that have failed or were cancelled.
    Retry(ChangeEventsArgs),
    /// Cancel events that wait or run.
    Cancel(ChangeEventsArgs),
    /// Take events back from workers that hold them.
    Reset(ResetEventsArgs),
}

/// Which events to select. An event must match all conditions.
#[derive(Debug, Clone, Default, Args)]
pub struct EventFilterArgs {
    /// Only events in this state: PENDING, PROCESSING, COMPLETED, FAILED or CANCELLED.
    #[arg(long, help_heading = "Filter", ignore_case = true)]
    pub status: Option<String>,

    /// Only events with any of these tags, separated by commas.
    #[arg(long, visible_alias = "tag", help_heading = "Filter")]
    pub tags: Option<String>,

    /// Only events of this type.
    #[arg(long = "type", value_name = "TYPE", help_heading = "Filter")]
    pub event_type: Option<String>,

    /// Only events that this worker holds, or claimed last.
    #[arg(long, value_name = "ID", help_heading = "Filter")]
    pub worker: Option<String>,

    /// Only events with this correlation id.
    #[arg(long, value_name = "ID", help_heading = "Filter")]
    pub correlation_id: Option<String>,

    /// Only events with this ordering key.
    #[arg(long, value_name = "KEY", help_heading = "Filter")]
    pub ordering_key: Option<String>,

    /// Only events with this text in their title or last error, in any case.
    #[arg(long, help_heading = "Filter")]
    pub text: Option<String>,

    /// Only events with this label. May be repeated.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_pair, help_heading = "Filter")]
    pub label: Vec<(String, String)>,

    /// Only events whose payload has this value at a dotted path, such as order.id=17. May be repeated.
    #[arg(long, value_name = "PATH=VALUE", value_parser = parse_pair, help_heading = "Filter")]
    pub payload: Vec<(String, String)>,

    /// Leave out events that match, such as status=FAILED, type=test, labels.env=dev or payload.order.id=17. May be
    /// repeated.
    #[arg(long, value_name = "FIELD=VALUE", value_parser = parse_pair, help_heading = "Filter")]
    pub not: Vec<(String, String)>,

    /// Only events published at this time or later: a time, or how long ago, such as 90s, 15m, 24h or 7d.
    #[arg(long, value_name = "TIME", help_heading = "Filter")]
    pub since: Option<String>,

    /// Only events published before this time, in the same forms.
    #[arg(long, value_name = "TIME", help_heading = "Filter")]
    pub until: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Order {
    /// The oldest first.
    Asc,
    /// The newest first.
    Desc,
}

impl Order {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Order::Asc => "asc",
            Order::Desc => "desc",
        }
    }
}

#[derive(Debug, Clone, Args)]
pub struct ListEventsArgs {
    #[command(flatten)]
    pub filter: EventFilterArgs,

    /// Whether the oldest or the newest events come first.
    #[arg(long, default_value = "desc")]
    pub order: Order,

    #[command(flatten)]
    pub pages: PageArgs,

    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Debug, Clone, Args)]
pub struct ShowEventArgs {
    /// Id of the event.
    pub id: i64,

    /// Print the payload alone, byte for byte.
    #[arg(long)]
    pub payload: bool,

    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Debug, Clone, Args)]
pub struct TailArgs {
    /// Only entries of this event.
    #[arg(long, value_name = "ID")]
    pub event: Option<i64>,

    /// Only entries of this worker.
    #[arg(long, value_name = "ID")]
    pub worker: Option<String>,

    /// Only entries with this action, such as PICKED, COMPLETED, FAILED, RESET or DEAD_LETTERED.
    #[arg(long)]
    pub action: Option<String>,

    /// Begin at this time: a time, or how long ago, such as 90s, 15m, 24h or 7d [default: now].
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,

    /// End after so many entries [default: never].
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,

    #[command(flatten)]
    pub server: ServerArgs,
}

/// Which events to change: those with these ids, or all that match.
#[derive(Debug, Clone, Args)]
pub struct SelectionArgs {
    /// Ids of events. Without ids, a filter or --all selects events.
    pub ids: Vec<i64>,

    /// Select all events that the action can change.
    #[arg(long, conflicts_with = "ids")]
    pub all: bool,

    #[command(flatten)]
    pub filter: EventFilterArgs,
}

#[derive(Debug, Clone, Args)]
pub struct ChangeEventsArgs {
    #[command(flatten)]
    pub selection: SelectionArgs,

    #[command(flatten)]
    pub bulk: BulkArgs,

    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Debug, Clone, Args)]
pub struct ResetEventsArgs {
    #[command(flatten)]
    pub selection: SelectionArgs,

    /// Also reset events under a valid lease whose worker has shown no sign of life for so many seconds [default: only
    /// events whose lease has expired].
    #[arg(long, value_name = "SECONDS", conflicts_with = "ids", help_heading = "Filter")]
    pub stale_for_seconds: Option<f64>,

    #[command(flatten)]
    pub bulk: BulkArgs,

    #[command(flatten)]
    pub server: ServerArgs,
}

/// Reads `name=value`.
pub(crate) fn parse_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("must be NAME=VALUE".to_owned()),
    }
}
