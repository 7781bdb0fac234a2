//! Settings about who may call.

use clap::Args;

#[derive(Debug, Clone, Args)]
pub struct AccessArgs {
    /// Listen on an address that others can reach although there is no API key: anybody may do everything, until the
    /// first key is made.
    #[arg(long)]
    pub open: bool,

    /// Serve /metrics without an API key.
    #[arg(long)]
    pub open_metrics: bool,
}
