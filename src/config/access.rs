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

    /// Hours after which a login in a browser ends.
    #[arg(long, env = "WAYBILL_SESSION_HOURS", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=720))]
    pub session_hours: u32,
}
