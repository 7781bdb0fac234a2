//! Settings of `waybill work`.

use std::ffi::OsString;

use clap::Args;

use super::{ConnectionArgs, LogArgs};
use crate::domain::limits::LEASE_SECONDS;
use crate::domain::seconds::Seconds;

// The description of the command is that of its variant in `Command`, which clap prefers.
#[derive(Debug, Clone, Args)]
pub struct WorkArgs {
    /// Tags of the events to work on, separated by commas.
    #[arg(long, value_delimiter = ',', required = true)]
    pub tags: Vec<String>,

    /// Number of programs that run at once.
    #[arg(long, default_value_t = 1, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1_000))]
    pub concurrency: usize,

    /// Seconds for which an event is held without a heartbeat, from 1 to 43200.
    #[arg(long, default_value_t = Seconds::whole(300), value_parser = parse_lease)]
    pub lease_seconds: Seconds,

    /// Seconds between heartbeats. A cancelled event is noticed with the next one.
    #[arg(long, default_value_t = Seconds::whole(10))]
    pub heartbeat_seconds: Seconds,

    /// Seconds that a program has after SIGTERM before it is killed, at most a quarter of the lease.
    #[arg(long, default_value_t = Seconds::whole(10))]
    pub kill_after_seconds: Seconds,

    /// Give the program the worker's key, as WAYBILL_KEY. Without this, that variable is removed from its environment.
    #[arg(long)]
    pub pass_key: bool,

    #[command(flatten)]
    pub connection: ConnectionArgs,

    #[command(flatten)]
    pub logging: LogArgs,

    /// The program and its arguments.
    #[arg(last = true, required = true)]
    pub program: Vec<OsString>,
}

/// Reads the length of a lease that the server takes.
fn parse_lease(text: &str) -> Result<Seconds, String> {
    let (least, most) = (Seconds::whole(*LEASE_SECONDS.start()), Seconds::whole(*LEASE_SECONDS.end()));
    match text.parse() {
        Ok(lease) if (least..=most).contains(&lease) => Ok(lease),
        _ => Err(format!("must be between {least} and {most}")),
    }
}
