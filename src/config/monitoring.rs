//! Settings of what is observed about the server.

use clap::Args;

#[derive(Debug, Clone, Args)]
pub struct MonitoringArgs {
    /// Milliseconds after which a request is logged as slow; the wait of a long poll does not count.
    #[arg(long, env = "WAYBILL_SLOW_REQUEST_MS", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub slow_request_ms: u64,

    /// Milliseconds for which /metrics reuses what it has read from the database.
    #[arg(long, env = "WAYBILL_METRICS_CACHE_MS", default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(0..=300_000))]
    pub metrics_cache_ms: u64,
}
