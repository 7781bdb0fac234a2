//! Settings of `waybill sources` and `waybill types`.

use clap::{Args, Subcommand};

use super::{DeleteArgs, FromArgs, IdArgs, ListActiveArgs, ListArgs};
use crate::config::ServerArgs;

#[derive(Debug, Clone, Args)]
pub struct SourcesArgs {
    #[command(subcommand)]
    pub verb: SourcesVerb,
}

#[derive(Debug, Clone, Subcommand)]
pub enum SourcesVerb {
    /// List sources.
    List(ListActiveArgs),
    /// Show a source.
    Show(IdArgs),
    /// Make a source, and print the path that takes its webhooks.
    Create(CreateSourceArgs),
    /// Change a source.
    Update(UpdateSourceArgs),
    /// Delete a source. Its webhooks are refused from then on.
    Delete(DeleteArgs),
    /// Replace the secret that a source shares with its sender.
    RotateSecret(RotateSourceSecretArgs),
}

/// The fields that are often set.
#[derive(Debug, Clone, Args)]
pub struct SourceFields {
    /// Name, for people.
    #[arg(long, value_name = "TEXT")]
    pub name: Option<String>,

    /// Tags of the events, separated by commas.
    #[arg(long, value_name = "TAGS", value_delimiter = ',')]
    pub tags: Option<Vec<String>>,

    /// Type of all events.
    #[arg(long, value_name = "TYPE")]
    pub event_type: Option<String>,

    /// Whether webhooks are taken.
    #[arg(long, value_name = "BOOL")]
    pub active: Option<bool>,
}

#[derive(Debug, Clone, Args)]
pub struct CreateSourceArgs {
    #[command(flatten)]
    pub fields: SourceFields,

    /// Sender whose webhooks are known, such as github.
    #[arg(long, value_name = "PROVIDER")]
    pub provider: Option<String>,

    /// How the sender proves itself, such as github, hmac or none [default: that of the provider].
    #[arg(long, value_name = "SCHEME")]
    pub scheme: Option<String>,

    /// File with the secret that the sender has; - is standard input.
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<String>,

    #[command(flatten)]
    pub from: FromArgs,

    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Debug, Clone, Args)]
pub struct UpdateSourceArgs {
    /// Id of the source.
    pub id: i64,

    #[command(flatten)]
    pub fields: SourceFields,

    #[command(flatten)]
    pub from: FromArgs,

    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Debug, Clone, Args)]
pub struct RotateSourceSecretArgs {
    /// Id of the source.
    pub id: i64,

    /// File with the new secret; - is standard input.
    #[arg(long, value_name = "FILE")]
    pub secret_file: String,

    /// Seconds for which the old secret is accepted, too [default: the server's].
    #[arg(long, value_name = "SECONDS")]
    pub overlap_seconds: Option<f64>,

    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Debug, Clone, Args)]
pub struct TypesArgs {
    #[command(subcommand)]
    pub verb: TypesVerb,
}

#[derive(Debug, Clone, Subcommand)]
pub enum TypesVerb {
    /// List event types, declared or not.
    List(ListArgs),
    /// Show an event type with its schema.
    Show(ShowTypeArgs),
    /// Declare an event type, or change it.
    Put(PutTypeArgs),
    /// Delete what is declared about an event type.
    Delete(DeleteTypeArgs),
}

#[derive(Debug, Clone, Args)]
pub struct ShowTypeArgs {
    /// Name of the type.
    pub name: String,

    /// Version of the schema [default: the present one].
    #[arg(long = "schema-version", value_name = "N")]
    pub schema_version: Option<i32>,

    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Debug, Clone, Args)]
pub struct PutTypeArgs {
    pub name: String,

    /// Description, for people.
    #[arg(long, value_name = "TEXT")]
    pub description: Option<String>,

    /// File with the JSON Schema of payloads; - is standard input.
    #[arg(long, value_name = "FILE")]
    pub schema: Option<String>,

    /// Declare it even if the schema rejects recent events.
    #[arg(long)]
    pub force: bool,

    #[command(flatten)]
    pub from: FromArgs,

    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Debug, Clone, Args)]
pub struct DeleteTypeArgs {
    pub name: String,

    /// Do not ask before. Required where nobody can be asked: without a terminal.
    #[arg(long, short = 'y')]
    pub yes: bool,

    #[command(flatten)]
    pub server: ServerArgs,
}
