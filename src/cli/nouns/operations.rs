//! `waybill operations`: work on many items, which servers carry out in the background.

use serde_json::Value;

use super::{Noun, Session};
use crate::cli::bulk;
use crate::cli::error::CliError;
use crate::cli::output::{Cell, Column, Output, count, word};
use crate::config::{OperationsArgs, OperationsVerb, Order};

const OPERATION: Noun = Noun {
    name: "operation",
    path: "/operations",
    field: "operations",
    order: Order::Desc,
    columns,
    row,
    facts: bulk::operation_facts,
};

pub(crate) async fn run(args: OperationsArgs) -> Result<(), CliError> {
    match args.verb {
        OperationsVerb::List(args) => {
            let query = OPERATION.query().maybe("status", args.filter.status).maybe("kind", args.filter.kind);
            Session::open(&args.list.server)?.list(&OPERATION, query, &args.list).await
        }
        OperationsVerb::Show(args) => Session::open(&args.server)?.show(&OPERATION, args.id).await,
        OperationsVerb::Cancel(args) => Session::open(&args.server)?.act(&OPERATION, args.id, "cancel", None).await,
        OperationsVerb::Watch(args) => watch(Session::open(&args.server)?, args.id).await,
    }
}

/// Follows an operation. One that did not do all that it should is a finding.
async fn watch(session: Session, id: i64) -> Result<(), CliError> {
    let begun = session.client.get(&OPERATION.at(id)).await?;
    let ended = bulk::follow(&session.client, &begun, &word(&begun.value["kind"])).await?;
    session.output.answer(&ended, |operation| session.output.line(&bulk::result_text(operation)))?;
    bulk::verdict(&ended.value)
}

fn columns() -> Vec<Column> {
    vec![
        Column::number("ID"),
        Column::new("KIND"),
        Column::new("STATUS"),
        Column::number("MATCHED"),
        Column::number("DONE"),
        Column::number("FAILED"),
        Column::new("CREATED"),
        Column::flexible("BY", 6),
        Column::flexible("REASON", 8),
    ]
}

fn row(output: &Output, operation: &Value) -> Vec<Cell> {
    vec![
        word(&operation["id"]).into(),
        word(&operation["kind"]).into(),
        Cell::state(word(&operation["status"])),
        count(&operation["matched"], &operation["matched_is_exact"]).into(),
        word(&operation["done"]).into(),
        word(&operation["failed"]).into(),
        output.ago(&operation["created_at"]).into(),
        word(&operation["actor"]).into(),
        word(&operation["reason"]).into(),
    ]
}
