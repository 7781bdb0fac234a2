//! `waybill events`.

mod change;
pub(super) mod filter;
mod list;
mod show;
mod tail;

use serde_json::Value;

use super::error::CliError;
use super::output::{Cell, Column, Output, first_line, word};
use crate::config::{EventsArgs, EventsVerb};

pub(crate) async fn run(args: EventsArgs) -> Result<(), CliError> {
    match args.verb {
        EventsVerb::List(args) => list::run(args).await,
        EventsVerb::Show(args) => show::run(args).await,
        EventsVerb::Tail(args) => tail::run(args).await,
        EventsVerb::Retry(args) => change::retry(args).await,
        EventsVerb::Cancel(args) => change::cancel(args).await,
        EventsVerb::Reset(args) => change::reset(args).await,
    }
}

pub(super) fn columns() -> Vec<Column> {
    vec![
        Column::number("ID"),
        Column::new("STATUS"),
        Column::flexible("TAGS", 8),
        Column::flexible("TITLE", 12),
        Column::new("ATTEMPTS"),
        Column::new("CREATED"),
        Column::flexible("ERROR", 5),
    ]
}

pub(super) fn row(output: &Output, event: &Value) -> Vec<Cell> {
    // An event without tags is only pushed: its attempts and errors are those of its deliveries.
    let is_pushed = event["tags"].as_str() == Some("");
    let (attempts, error) = match is_pushed {
        true => ("–".to_owned(), "–".to_owned()),
        false => (
            format!("{}/{}", word(&event["retry_count"]), word(&event["max_retries"])),
            first_line(&event["last_error"]),
        ),
    };
    vec![
        word(&event["id"]).into(),
        Cell::state(word(&event["status"])),
        word(&event["tags"]).into(),
        word(&event["title"]).into(),
        attempts.into(),
        output.ago(&event["created_at"]).into(),
        error.into(),
    ]
}
