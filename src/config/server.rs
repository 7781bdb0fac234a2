//! Settings of commands that ask a server: where it is, and how its answers are printed.

use clap::{Args, ValueEnum};

/// The heading of these settings in help texts.
const SERVER: &str = "Server";
const OUTPUT: &str = "Output";

/// How to reach the server.
#[derive(Debug, Clone, Args)]
pub struct ConnectionArgs {
    /// URL of the server.
    #[arg(long, env = "WAYBILL_URL", default_value = "http://127.0.0.1:8080", help_heading = SERVER)]
    pub url: String,

    /// API key of the caller [default: none].
    #[arg(long, env = "WAYBILL_KEY", hide_env_values = true, help_heading = SERVER)]
    pub key: Option<String>,

    /// Namespace to act in, for an administrator's key [default: that of the key].
    #[arg(long, env = "WAYBILL_NAMESPACE", help_heading = SERVER)]
    pub namespace: Option<String>,
}

/// How to ask the server, and how to print its answer.
#[derive(Debug, Clone, Args)]
pub struct ServerArgs {
    #[command(flatten)]
    pub connection: ConnectionArgs,

    /// Print the server's JSON instead of text.
    #[arg(long, help_heading = OUTPUT)]
    pub json: bool,

    /// When to use colours; auto is: on a terminal, unless NO_COLOR is set.
    #[arg(long, value_name = "WHEN", default_value = "auto", help_heading = OUTPUT)]
    pub color: ColorChoice,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ColorChoice {
    Auto,
    Always,
    Never,
}

/// How much of a list to read.
#[derive(Debug, Clone, Args)]
pub struct PageArgs {
    /// Number of items to print.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=100_000))]
    pub limit: usize,

    /// Print all items, up to 100,000.
    #[arg(long, conflicts_with = "limit")]
    pub all: bool,

    /// Continue behind this cursor: the `next` of an earlier answer with the same filters.
    #[arg(long, value_name = "CURSOR")]
    pub after: Option<String>,
}
