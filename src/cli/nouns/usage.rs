//! `waybill usage`: where limits stand.

use serde_json::Value;

use super::Session;
use crate::cli::error::CliError;
use crate::cli::output::{Cell, Column, Output, Table, word};
use crate::config::UsageArgs;

pub(crate) async fn run(args: UsageArgs) -> Result<(), CliError> {
    let session = Session::open(&args.server)?;
    let usage = session.client.get("/usage").await?;
    session.output.answer(&usage, |usage| session.output.table(&table(&session.output, usage)))
}

fn table(_: &Output, usage: &Value) -> Table {
    let columns = vec![Column::new("OF"), Column::new("LIMIT ON"), Column::number("USED"), Column::number("LIMIT")];
    let mut table = Table::new(columns);
    for of in ["namespace", "key"] {
        for (name, limit) in usage[of].as_object().into_iter().flatten() {
            table.row(row(of, name, limit));
        }
    }
    table
}

/// Returns a row. A rate has no use but what is still available of its burst.
fn row(of: &str, name: &str, limit: &Value) -> Vec<Cell> {
    let limit_text = if limit["limit"].is_null() { "none".to_owned() } else { word(&limit["limit"]) };
    let used = match (limit["burst"].as_f64(), limit["available"].as_f64()) {
        (Some(burst), Some(available)) => format!("{:.0} of {burst:.0}", burst - available),
        _ => word(&limit["used"]),
    };
    vec![of.into(), name.replace('_', " ").into(), used.into(), limit_text.into()]
}
