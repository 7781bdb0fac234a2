//! Settings of actions on many items.

use clap::Args;

/// How to carry out an action on all items that match a filter.
#[derive(Debug, Clone, Args)]
pub struct BulkArgs {
    /// Only count what matches, and print some of it.
    #[arg(long)]
    pub dry_run: bool,

    /// Do not ask before anything is changed. Required where nobody can be asked: without a terminal.
    #[arg(long, short = 'y')]
    pub yes: bool,

    /// Why; it is recorded.
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,

    /// Maximum number of items per second [default: the server's].
    #[arg(long, value_name = "N")]
    pub per_second: Option<f64>,

    /// Return as soon as the server has accepted the operation, and do not wait for its end.
    #[arg(long)]
    pub no_wait: bool,
}
