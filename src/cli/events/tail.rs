//! `waybill events tail`: the event log, as it is written.
//!
//! The stream goes on across restarts of the server, without gap or repeat.

use std::io::{self, IsTerminal};

use serde_json::Value;

use super::filter::time_of;
use super::show::{by, clock_time, detail};
use crate::cli::client::ApiClient;
use crate::cli::error::CliError;
use crate::cli::output::{Output, clean, cut, note, state_style, word};
use crate::client::{ClientError, LogFilter, LogSignal, LogStream};
use crate::config::TailArgs;

pub(super) async fn run(args: TailArgs) -> Result<(), CliError> {
    let output = Output::new(&args.server);
    let log = ApiClient::new(&args.server)?.inner().follow_log(filter_of(&args)?);
    tokio::select! {
        followed = follow(&output, log, args.limit.unwrap_or(u64::MAX)) => followed,
        // Ctrl-C is how it ends.
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}

fn filter_of(args: &TailArgs) -> Result<LogFilter, CliError> {
    let mut filter = LogFilter::new();
    if let Some(event) = args.event {
        filter = filter.with("event_id", event);
    }
    if let Some(worker) = &args.worker {
        filter = filter.with("worker_id", worker);
    }
    if let Some(action) = &args.action {
        filter = filter.with("action", action.to_uppercase());
    }
    if let Some(since) = time_of("--since", args.since.as_deref())? {
        filter = filter.with("since", since);
    }
    Ok(filter)
}

async fn follow(output: &Output, mut log: LogStream, limit: u64) -> Result<(), CliError> {
    let (mut printed, mut is_away) = (0, false);
    // Nothing may happen for long. Whoever waits at a terminal should know that it is followed.
    let mut is_unannounced = io::stderr().is_terminal();
    while printed < limit {
        match log.next().await? {
            LogSignal::Entry(entry) => {
                print(output, entry.get())?;
                printed += 1;
            }
            LogSignal::Lost(error) if !is_away => {
                note(&format!("waybill: {}; trying again", clean(&error.to_string())));
                is_away = true;
            }
            LogSignal::Lost(_) => {}
            LogSignal::Connected => {
                if std::mem::take(&mut is_unannounced) {
                    note("following the event log; Ctrl-C ends");
                }
                if std::mem::take(&mut is_away) {
                    note("waybill: the server is back");
                }
            }
        }
    }
    Ok(())
}

fn print(output: &Output, entry: &str) -> Result<(), CliError> {
    if output.json {
        return output.line(entry);
    }
    let entry: Value = serde_json::from_str(entry).map_err(|error| ClientError::Unreadable(error.to_string()))?;
    output.line(&line_of(output, &entry))
}

/// Returns an entry on one line that fits the terminal.
fn line_of(output: &Output, entry: &Value) -> String {
    let (at, id, action) = (clock_time(&entry["created_at"]), word(&entry["event_id"]), word(&entry["action"]));
    let head = format!("{at}  event {id:<7}  ");
    let tail = format!("  {}  {}", by(entry), detail(entry));
    let tail = match output.width {
        Some(width) => cut(&tail, width.saturating_sub(head.len() + 13)),
        None => tail,
    };
    let action = output.paint.paint(state_style(&action), &format!("{action:<13}"));
    format!("{head}{action}{tail}").trim_end().to_owned()
}
