//! `waybill workers`: who works, and on what.

use serde_json::Value;

use super::client::{ApiClient, Query};
use super::error::CliError;
use super::output::{Cell, Column, Output, word, words};
use crate::config::WorkersArgs;

pub(crate) async fn run(args: WorkersArgs) -> Result<(), CliError> {
    let output = Output::new(&args.server);
    let list = ApiClient::new(&args.server)?.list(&Query::new("/workers"), "workers", &args.pages).await?;
    output.list(&list, columns(), |worker| row(&output, worker))
}

pub(super) fn columns() -> Vec<Column> {
    vec![
        Column::flexible("WORKER", 12),
        Column::flexible("TAGS", 8),
        Column::number("HOLDING"),
        Column::flexible("EVENTS", 8),
        Column::new("LAST SEEN"),
        Column::new("STATE"),
    ]
}

pub(super) fn row(output: &Output, worker: &Value) -> Vec<Cell> {
    let is = |name: &str| worker[name].as_bool() == Some(true);
    let state = match (is("stale"), is("silent")) {
        (true, _) => "stale",
        (false, true) => "silent",
        (false, false) => "ok",
    };
    vec![
        word(&worker["worker_id"]).into(),
        words(&worker["tags"]).into(),
        word(&worker["holding"]).into(),
        words(&worker["event_ids"]).into(),
        output.ago(&worker["last_seen_at"]).into(),
        Cell::state(state),
    ]
}
