//! Settings of `waybill keys`.

use clap::{ArgGroup, Args, Subcommand};

use super::{DatabaseArgs, LogArgs, PageArgs, ServerArgs};

#[derive(Debug, Clone, Args)]
pub struct KeysArgs {
    #[command(subcommand)]
    pub verb: KeysVerb,
}

#[derive(Debug, Clone, Subcommand)]
pub enum KeysVerb {
    /// Make an API key and print it; it is shown this once.
    Create(CreateKeyArgs),
    /// List the API keys, without the keys themselves.
    List(ListKeysArgs),
    /// Change how much may be published with an API key.
    Update(UpdateKeyArgs),
    /// End an API key at once.
    Revoke(RevokeKeyArgs),
    /// Give an API key a new secret and print it. The old one stays good for a while.
    Rotate(RotateKeyArgs),
}

#[derive(Debug, Clone, Args)]
pub struct CreateKeyArgs {
    /// Name of the key, by which logs and records call its holder.
    #[arg(long, default_value = "admin")]
    pub name: String,

    /// What the key allows, separated by commas: publish, work, read, reveal, operate, admin.
    #[arg(long, value_delimiter = ',', default_value = "admin")]
    pub scopes: Vec<String>,

    /// Tags that the key may publish to and work on, separated by commas, such as `billing.*` [default: all].
    #[arg(long, value_delimiter = ',')]
    pub tags: Vec<String>,

    /// Time at which the key expires, such as 2027-01-31T00:00:00Z [default: never].
    #[arg(long)]
    pub expires_at: Option<String>,

    /// Events that may be published with the key per second [default: as many as its namespace may].
    #[arg(long)]
    pub publishes_per_second: Option<u32>,

    /// Events that may be published with the key at once [default: as many as per second].
    #[arg(long, requires = "publishes_per_second")]
    pub publish_burst: Option<u32>,

    /// Write to the database instead of asking a server: for the first key, or when no key is left.
    #[arg(long)]
    pub bootstrap: bool,

    /// With --bootstrap: create the embedded database if its data directory has none, for a key before the first start.
    #[arg(long, requires = "bootstrap")]
    pub init: bool,

    /// With --bootstrap: make no key, and print nothing, if there is one with the scope admin. For scripts that start a
    /// server.
    #[arg(long, requires = "bootstrap")]
    pub if_none: bool,

    #[command(flatten)]
    pub server: ServerArgs,

    #[command(flatten)]
    pub database: DatabaseArgs,

    #[command(flatten)]
    pub logging: LogArgs,
}

#[derive(Debug, Clone, Args)]
pub struct ListKeysArgs {
    #[command(flatten)]
    pub pages: PageArgs,

    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Debug, Clone, Args)]
#[command(group = ArgGroup::new("change").required(true).multiple(true))]
pub struct UpdateKeyArgs {
    /// Id of the key, as `waybill keys list` shows it.
    pub id: i64,

    /// Events that may be published with the key per second; 0 removes the rate [default: unchanged].
    #[arg(long, group = "change")]
    pub publishes_per_second: Option<u32>,

    /// Events that may be published with the key at once; 0 means as many as per second [default: unchanged].
    #[arg(long, group = "change")]
    pub publish_burst: Option<u32>,

    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Debug, Clone, Args)]
pub struct RevokeKeyArgs {
    /// Id of the key, as `waybill keys list` shows it.
    pub id: i64,

    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Debug, Clone, Args)]
pub struct RotateKeyArgs {
    /// Id of the key, as `waybill keys list` shows it.
    pub id: i64,

    /// Seconds for which the old secret stays good; 0 ends it at once.
    #[arg(long, default_value_t = 86_400.0)]
    pub overlap_seconds: f64,

    #[command(flatten)]
    pub server: ServerArgs,
}
