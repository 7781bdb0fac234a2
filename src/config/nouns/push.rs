//! Settings of `waybill subscriptions`, `waybill deliveries` and `waybill dead-letters`.

use clap::{Args, Subcommand};

use super::{DeleteArgs, FromArgs, IdArgs, ListActiveArgs, ListArgs, ReasonArgs};
use crate::config::{BulkArgs, ServerArgs};

#[derive(Debug, Clone, Args)]
pub struct SubscriptionsArgs {
    #[command(subcommand)]
    pub verb: SubscriptionsVerb,
}

#[derive(Debug, Clone, Subcommand)]
pub enum SubscriptionsVerb {
    /// List subscriptions.
    List(ListActiveArgs),
    /// Show a subscription.
    Show(IdArgs),
    /// Make a subscription, and print its secret.
    Create(CreateSubscriptionArgs),
    /// Change a subscription.
    Update(UpdateSubscriptionArgs),
    /// Delete a subscription. Its open pushes are cancelled.
    Delete(DeleteArgs),
    /// Send a test request to the endpoint of a subscription.
    Test(IdArgs),
    /// Close the circuit breaker of the endpoint, and send again at once.
    Resume(IdArgs),
    /// Replace the secret of a subscription, and print the new one.
    RotateSecret(RotateSubscriptionSecretArgs),
    /// Say whether an event matches, and what would be sent, without subscribing.
    Check(CheckSubscriptionArgs),
}

/// The fields that are often set.
#[derive(Debug, Clone, Args)]
pub struct SubscriptionFields {
    /// Name, for people.
    #[arg(long, value_name = "TEXT")]
    pub name: Option<String>,

    /// URL that events are pushed to.
    #[arg(long, value_name = "URL")]
    pub to: Option<String>,

    /// Types of events, such as order.*, separated by commas.
    #[arg(long, value_name = "TYPES", value_delimiter = ',')]
    pub event_types: Option<Vec<String>>,

    /// Tags of events, separated by commas.
    #[arg(long, value_name = "TAGS", value_delimiter = ',')]
    pub tags: Option<Vec<String>>,

    /// Attempts before a push is given up.
    #[arg(long, value_name = "N")]
    pub max_attempts: Option<u32>,

    /// Milliseconds that the endpoint may take to answer.
    #[arg(long, value_name = "MS")]
    pub timeout_ms: Option<u32>,

    /// Requests to the endpoint at once.
    #[arg(long, value_name = "N")]
    pub max_concurrency: Option<u32>,

    /// Requests per second.
    #[arg(long, value_name = "N")]
    pub rate_per_second: Option<f64>,

    /// Whether events are pushed.
    #[arg(long, value_name = "BOOL")]
    pub active: Option<bool>,
}

#[derive(Debug, Clone, Args)]
pub struct CreateSubscriptionArgs {
    #[command(flatten)]
    pub fields: SubscriptionFields,

    /// File with the secret to sign with; - is standard input [default: the server makes one].
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<String>,

    #[command(flatten)]
    pub from: FromArgs,

    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Debug, Clone, Args)]
pub struct UpdateSubscriptionArgs {
    /// Id of the subscription.
    pub id: i64,

    #[command(flatten)]
    pub fields: SubscriptionFields,

    #[command(flatten)]
    pub from: FromArgs,

    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Debug, Clone, Args)]
pub struct RotateSubscriptionSecretArgs {
    /// Id of the subscription.
    pub id: i64,

    /// File with the new secret; - is standard input [default: the server makes one].
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<String>,

    /// Seconds for which requests are also signed with the old secret [default: the server's].
    #[arg(long, value_name = "SECONDS")]
    pub overlap_seconds: Option<f64>,

    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Debug, Clone, Args)]
pub struct CheckSubscriptionArgs {
    /// Id of the event.
    #[arg(long, value_name = "ID")]
    pub event_id: Option<i64>,

    /// Types of events, such as order.*, separated by commas.
    #[arg(long, value_name = "TYPES", value_delimiter = ',')]
    pub event_types: Option<Vec<String>>,

    /// Tags of events, separated by commas.
    #[arg(long, value_name = "TAGS", value_delimiter = ',')]
    pub tags: Option<Vec<String>>,

    #[command(flatten)]
    pub from: FromArgs,

    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Debug, Clone, Args)]
pub struct DeliveriesArgs {
    #[command(subcommand)]
    pub verb: DeliveriesVerb,
}

#[derive(Debug, Clone, Subcommand)]
pub enum DeliveriesVerb {
    /// List pushes, the newest first.
    List(ListDeliveriesArgs),
    /// Show a push with its attempts.
    Show(IdArgs),
    /// Try a failed or cancelled push again, or all that match.
    Retry(ActOnDeliveriesArgs),
    /// Cancel a push, or all that match.
    Cancel(ActOnDeliveriesArgs),
    /// Give a push up: it becomes a dead letter.
    DeadLetter(ReasonArgs),
}

/// Which pushes.
#[derive(Debug, Clone, Args)]
pub struct DeliveryFilterArgs {
    /// Pushes of this event.
    #[arg(long, value_name = "ID")]
    pub event_id: Option<i64>,

    /// Pushes of this subscription.
    #[arg(long, value_name = "ID")]
    pub subscription_id: Option<i64>,

    /// Status: PENDING, PROCESSING, COMPLETED, FAILED or CANCELLED.
    #[arg(long, value_name = "STATUS")]
    pub status: Option<String>,

    /// Made at this time or later: a time, or how long ago, such as 15m, 24h or 7d.
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,

    /// Made before this time.
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub struct ListDeliveriesArgs {
    #[command(flatten)]
    pub filter: DeliveryFilterArgs,

    #[command(flatten)]
    pub list: ListArgs,
}

#[derive(Debug, Clone, Args)]
pub struct ActOnDeliveriesArgs {
    /// Id of the push. Without one, a filter or --all selects pushes.
    pub id: Option<i64>,

    /// Select all pushes that the action can change.
    #[arg(long, conflicts_with = "id")]
    pub all: bool,

    #[command(flatten)]
    pub filter: DeliveryFilterArgs,

    #[command(flatten)]
    pub bulk: BulkArgs,

    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Debug, Clone, Args)]
pub struct DeadLettersArgs {
    #[command(subcommand)]
    pub verb: DeadLettersVerb,
}

#[derive(Debug, Clone, Subcommand)]
pub enum DeadLettersVerb {
    /// List dead letters, the newest first.
    List(ListDeadLettersArgs),
    /// Show a dead letter with its attempts.
    Show(IdArgs),
    /// Push a dead letter again, or all that match.
    Replay(ReplayArgs),
}

/// Which dead letters.
#[derive(Debug, Clone, Args)]
pub struct DeadLetterFilterArgs {
    /// Dead letters of this event.
    #[arg(long, value_name = "ID")]
    pub event_id: Option<i64>,

    /// Dead letters of this subscription.
    #[arg(long, value_name = "ID")]
    pub subscription_id: Option<i64>,

    /// Why it was given up: exhausted, terminal, expired, poison or manual.
    #[arg(long, value_name = "CAUSE")]
    pub cause: Option<String>,

    /// Given up at this time or later: a time, or how long ago, such as 15m, 24h or 7d.
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,

    /// Given up before this time.
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub struct ListDeadLettersArgs {
    #[command(flatten)]
    pub filter: DeadLetterFilterArgs,

    /// Only those that were replayed, or only those that were not [default: all].
    #[arg(long, value_name = "BOOL")]
    pub replayed: Option<bool>,

    #[command(flatten)]
    pub list: ListArgs,
}

#[derive(Debug, Clone, Args)]
pub struct ReplayArgs {
    /// Id of the dead letter. Without one, a filter or --all selects those that were not replayed.
    pub id: Option<i64>,

    /// Select all dead letters that were not replayed.
    #[arg(long, conflicts_with = "id")]
    pub all: bool,

    #[command(flatten)]
    pub filter: DeadLetterFilterArgs,

    /// Settings to send with: current or original, those of the time when it was given up [default: the server's].
    #[arg(long, value_name = "WHICH")]
    pub config: Option<String>,

    /// File with another payload for one dead letter; - is standard input.
    #[arg(long, value_name = "FILE", requires = "id")]
    pub payload_file: Option<String>,

    #[command(flatten)]
    pub bulk: BulkArgs,

    #[command(flatten)]
    pub server: ServerArgs,
}
