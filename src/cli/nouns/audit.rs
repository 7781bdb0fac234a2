//! `waybill audit`: who changed what.

use serde_json::Value;

use super::{Noun, Session, document};
use crate::cli::error::CliError;
use crate::cli::events::filter::time_of;
use crate::cli::output::{Cell, Column, Facts, Output, word};
use crate::config::{AuditArgs, AuditVerb, Order};

const ENTRY: Noun = Noun { name: "entry", path: "/audit", field: "entries", order: Order::Desc, columns, row, facts };

pub(crate) async fn run(args: AuditArgs) -> Result<(), CliError> {
    let AuditVerb::List(args) = args.verb;
    let query = ENTRY
        .query()
        .maybe("action", args.action)
        .maybe("actor", args.actor)
        .maybe("since", time_of("--since", args.since.as_deref())?)
        .maybe("until", time_of("--until", args.until.as_deref())?);
    Session::open(&args.list.server)?.list(&ENTRY, query, &args.list).await
}

fn columns() -> Vec<Column> {
    vec![
        Column::number("ID"),
        Column::new("WHEN"),
        Column::new("ACTION"),
        Column::flexible("ACTOR", 8),
        Column::new("ADDRESS"),
        Column::flexible("SUBJECT", 10),
        Column::flexible("DETAIL", 10),
    ]
}

fn row(output: &Output, entry: &Value) -> Vec<Cell> {
    vec![
        word(&entry["id"]).into(),
        output.ago(&entry["created_at"]).into(),
        word(&entry["action"]).into(),
        word(&entry["actor"]).into(),
        word(&entry["address"]).into(),
        subject(entry).into(),
        document(&entry["detail"]).into(),
    ]
}

fn subject(entry: &Value) -> String {
    let subject = &entry["subject"];
    format!("{} {}", word(&subject["kind"]), word(&subject["id"])).trim().to_owned()
}

fn facts(output: &Output, entry: &Value) -> Facts {
    Facts::new()
        .add("entry", word(&entry["id"]))
        .add("action", word(&entry["action"]))
        .add("actor", word(&entry["actor"]))
        .add("address", word(&entry["address"]))
        .add("subject", subject(entry))
        .add("detail", document(&entry["detail"]))
        .add("when", output.ago(&entry["created_at"]))
}
