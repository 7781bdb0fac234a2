//! `waybill tags`: what waits for workers, by tag.

use serde_json::Value;

use super::client::{ApiClient, Query};
use super::error::CliError;
use super::output::{Cell, Column, Output, count, time, word};
use crate::config::TagsArgs;

pub(crate) async fn run(args: TagsArgs) -> Result<(), CliError> {
    let output = Output::new(&args.server);
    let list = ApiClient::new(&args.server)?.list(&Query::new("/tags"), "tags", &args.pages).await?;
    output.list(&list, columns(), row)
}

fn columns() -> Vec<Column> {
    vec![
        Column::flexible("TAG", 12),
        Column::number("WAITING"),
        Column::number("OLDEST"),
        Column::number("WORKERS"),
        Column::new("STATE"),
    ]
}

fn row(tag: &Value) -> Vec<Cell> {
    vec![
        word(&tag["tag"]).into(),
        count(&tag["waiting"], &tag["waiting_is_exact"]).into(),
        time::seconds(&tag["oldest_age_seconds"]).into(),
        word(&tag["workers"]).into(),
        Cell::state(state(tag)),
    ]
}

/// Returns whether somebody works on the events of a tag.
pub(super) fn state(tag: &Value) -> &'static str {
    match (tag["unserved"].as_bool(), tag["waiting"].as_u64()) {
        (Some(true), _) => "unserved",
        (_, Some(0)) => "idle",
        _ => "ok",
    }
}
