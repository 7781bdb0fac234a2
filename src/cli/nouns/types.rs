//! `waybill types`: what is declared about the types of events.

use std::collections::BTreeMap;

use reqwest::Method;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::body::{body, read_json};
use super::{Noun, Session, document, put, yes_or_no};
use crate::cli::client::{Answer, Query, segment};
use crate::cli::error::CliError;
use crate::cli::output::json::pretty;
use crate::cli::output::{Cell, Column, Facts, Output, count, note, plural, word, words};
use crate::client::ClientError;
use crate::config::{Order, PutTypeArgs, ShowTypeArgs, TypesArgs, TypesVerb};

const TYPE: Noun =
    Noun { name: "event type", path: "/event-types", field: "event_types", order: Order::Asc, columns, row, facts };

pub(crate) async fn run(args: TypesArgs) -> Result<(), CliError> {
    match args.verb {
        TypesVerb::List(args) => Session::open(&args.server)?.list(&TYPE, TYPE.query(), &args).await,
        TypesVerb::Show(args) => show(args).await,
        TypesVerb::Put(args) => declare(args).await,
        TypesVerb::Delete(args) => {
            Session::open(&args.server)?.delete(&TYPE, &path(&args.name), &args.name, args.yes).await
        }
    }
}

fn path(name: &str) -> String {
    format!("{}/{}", TYPE.path, segment(name))
}

async fn show(args: ShowTypeArgs) -> Result<(), CliError> {
    let session = Session::open(&args.server)?;
    let query = Query::new(path(&args.name)).maybe("version", args.schema_version);
    let shown = session.client.get(&query.to_string()).await?;
    session.output.answer(&shown, |item| {
        session.output.facts(&facts(&session.output, item))?;
        print_schema(&session.output, &shown)
    })
}

/// Prints the schema, as it was written.
fn print_schema(output: &Output, shown: &Answer) -> Result<(), CliError> {
    match shown.field("schema").filter(|schema| schema != "null") {
        Some(schema) => output.line(&format!("{}\n{}", output.paint.dim("schema:"), pretty(&schema))),
        None => Ok(()),
    }
}

async fn declare(args: PutTypeArgs) -> Result<(), CliError> {
    let body = match &args.schema {
        Some(name) if args.from.from.is_none() => with_schema(name, args.description)?,
        _ => {
            let mut fields = Map::new();
            put(&mut fields, "description", args.description);
            put(&mut fields, "schema", args.schema);
            body(args.from.from.as_deref(), fields)?
        }
    };
    let session = Session::open(&args.server)?;
    let query = Query::new(path(&args.name)).maybe("force", args.force.then_some(true));
    let declared = session.client.call(Method::PUT, &query.to_string(), Some(body)).await?;
    session.print(&TYPE, &declared)?;
    let rejected = declared.value["recent_events"]["rejected"].as_u64().unwrap_or(0);
    if rejected > 0 {
        note(&format!("{} of its type would be refused", plural(rejected, "recent event")));
    }
    Ok(())
}

/// Returns a body with the schema of a file, byte for byte.
fn with_schema(name: &str, description: Option<String>) -> Result<String, CliError> {
    let unwritable = |error: serde_json::Error| ClientError::Settings(error.to_string());
    let mut fields: BTreeMap<&str, Box<RawValue>> = BTreeMap::from([("schema", read_json(name)?)]);
    if let Some(description) = description {
        fields.insert("description", serde_json::value::to_raw_value(&description).map_err(unwritable)?);
    }
    Ok(serde_json::to_string(&fields).map_err(unwritable)?)
}

fn columns() -> Vec<Column> {
    vec![
        Column::flexible("NAME", 12),
        Column::new("DECLARED"),
        Column::number("VERSION"),
        Column::new("SCHEMA"),
        Column::number("LAST DAY"),
        Column::new("LAST EVENT"),
    ]
}

fn row(output: &Output, item: &Value) -> Vec<Cell> {
    vec![
        word(&item["name"]).into(),
        yes_or_no(&item["declared"]).into(),
        word(&item["version"]).into(),
        yes_or_no(&item["has_schema"]).into(),
        count(&item["events_last_day"], &item["events_last_day_is_exact"]).into(),
        output.ago(&item["last_event_at"]).into(),
    ]
}

fn facts(output: &Output, item: &Value) -> Facts {
    Facts::new()
        .add("type", word(&item["name"]))
        .add("description", word(&item["description"]))
        .add("version", word(&item["version"]))
        .add("versions", words(&item["versions"]))
        .add("examples", document(&item["examples"]))
        .add("created", output.ago(&item["created_at"]))
        .add("updated", output.ago(&item["updated_at"]))
}
