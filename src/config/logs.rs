//! Settings of the log.

use clap::{Args, ValueEnum};

#[derive(Debug, Clone, Args)]
pub struct LogArgs {
    /// Log filter: a level, or a list such as `info,waybill::background=debug`.
    #[arg(long, env = "WAYBILL_LOG", default_value = "info")]
    pub log: String,

    /// Format of log lines.
    #[arg(long, env = "WAYBILL_LOG_FORMAT", value_enum, default_value = "text")]
    pub log_format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Human-readable lines.
    Text,
    /// One JSON object per line.
    Json,
}
