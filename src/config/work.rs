//! Settings of `waybill work`.

use std::ffi::OsString;

use clap::Args;

use super::{ConnectionArgs, LogArgs};
use crate::domain::seconds::Seconds;

/// Claims events, and runs a program for each: the payload is its standard input, and the fields of the event are in its
/// environment (WAYBILL_EVENT_ID, WAYBILL_TITLE, WAYBILL_ATTEMPT, …).
///
/// Exit status 0 completes the event, with what the program has printed as its result if that is JSON. 75 fails it and
/// lets it be tried again, 65 fails it for good. Any other status fails it with the last lines of standard error.
///
/// SIGTERM and Ctrl-C drain: no more events are claimed, and what runs is finished. A second one aborts.
#[derive(Debug, Clone, Args)]
#[command(verbatim_doc_comment)]
pub struct WorkArgs {
    /// Tags of the events to work on, separated by commas.
    #[arg(long, value_delimiter = ',', required = true)]
    pub tags: Vec<String>,

    /// Number of programs that run at once.
    #[arg(long, default_value_t = 1, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1_000))]
    pub concurrency: usize,

    /// Seconds for which an event is held without a heartbeat.
    #[arg(long, default_value_t = Seconds::whole(300))]
    pub lease_seconds: Seconds,

    /// Seconds between heartbeats. A cancelled event is noticed with the next one.
    #[arg(long, default_value_t = Seconds::whole(10))]
    pub heartbeat_seconds: Seconds,

    /// Seconds that a program has after SIGTERM before it is killed, at most a quarter of the lease.
    #[arg(long, default_value_t = Seconds::whole(10))]
    pub kill_after_seconds: Seconds,

    #[command(flatten)]
    pub connection: ConnectionArgs,

    #[command(flatten)]
    pub logging: LogArgs,

    /// The program and its arguments.
    #[arg(last = true, required = true)]
    pub program: Vec<OsString>,
}
