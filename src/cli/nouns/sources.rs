//! `waybill sources`: where webhooks of other systems come in.

use reqwest::Method;
use serde_json::{Map, Value, json};

use super::body::{body, read_secret};
use super::{Noun, Session, document, put};
use crate::cli::error::CliError;
use crate::cli::output::{Cell, Column, Facts, Output, time, word, words};
use crate::config::{
    CreateSourceArgs, Order, RotateSourceSecretArgs, SourceFields, SourcesArgs, SourcesVerb, UpdateSourceArgs,
};

const SOURCE: Noun =
    Noun { name: "source", path: "/sources", field: "sources", order: Order::Asc, columns, row, facts };

pub(crate) async fn run(args: SourcesArgs) -> Result<(), CliError> {
    match args.verb {
        SourcesVerb::List(args) => {
            let query = SOURCE.query().maybe("is_active", args.active);
            Session::open(&args.list.server)?.list(&SOURCE, query, &args.list).await
        }
        SourcesVerb::Show(args) => Session::open(&args.server)?.show(&SOURCE, args.id).await,
        SourcesVerb::Create(args) => create(args).await,
        SourcesVerb::Update(args) => update(args).await,
        SourcesVerb::Delete(args) => {
            Session::open(&args.server)?.delete(&SOURCE, &SOURCE.at(args.id), &args.id.to_string(), args.yes).await
        }
        SourcesVerb::RotateSecret(args) => rotate(args).await,
    }
}

fn fields_of(args: SourceFields) -> Map<String, Value> {
    let mut fields = Map::new();
    put(&mut fields, "name", args.name);
    put(&mut fields, "tags", args.tags);
    put(&mut fields, "event_type_from", args.event_type.map(|value| json!({ "value": value })));
    put(&mut fields, "is_active", args.active);
    fields
}

async fn create(args: CreateSourceArgs) -> Result<(), CliError> {
    let mut fields = fields_of(args.fields);
    put(&mut fields, "provider", args.provider);
    let mut verify = Map::new();
    // A provider has its own scheme.
    put(&mut verify, "scheme", args.scheme);
    put(&mut verify, "secret", args.secret_file.as_deref().map(read_secret).transpose()?);
    if !verify.is_empty() {
        fields.insert("verify".to_owned(), verify.into());
    }
    let body = body(args.from.from.as_deref(), fields)?;
    let session = Session::open(&args.server)?;
    session.print(&SOURCE, &session.client.call(Method::POST, SOURCE.path, Some(body)).await?)
}

async fn update(args: UpdateSourceArgs) -> Result<(), CliError> {
    let body = body(args.from.from.as_deref(), fields_of(args.fields))?;
    let session = Session::open(&args.server)?;
    session.print(&SOURCE, &session.client.call(Method::PATCH, &SOURCE.at(args.id), Some(body)).await?)
}

async fn rotate(args: RotateSourceSecretArgs) -> Result<(), CliError> {
    let mut fields = Map::new();
    put(&mut fields, "secret", Some(read_secret(&args.secret_file)?));
    put(&mut fields, "overlap_seconds", args.overlap_seconds);
    let session = Session::open(&args.server)?;
    let path = format!("{}/rotate-secret", SOURCE.at(args.id));
    let rotated = session.client.post(&path, Some(&Value::Object(fields))).await?;
    session.output.answer(&rotated, |rotated| {
        let overlap = time::seconds(&rotated["overlap_seconds"]);
        session.output.line(&format!("source {} has a new secret; the old one is accepted for {overlap}", args.id))
    })
}

fn columns() -> Vec<Column> {
    vec![
        Column::number("ID"),
        Column::flexible("NAME", 8),
        Column::new("VERIFIES"),
        Column::flexible("TAGS", 8),
        Column::new("STATE"),
        Column::number("REFUSED"),
        Column::new("LAST REFUSED"),
    ]
}

fn row(output: &Output, source: &Value) -> Vec<Cell> {
    let is_active = source["is_active"] == json!(true);
    vec![
        word(&source["id"]).into(),
        word(&source["name"]).into(),
        word(&source["verify"]["scheme"]).into(),
        words(&source["tags"]).into(),
        Cell::state(if is_active { "active" } else { "disabled" }),
        word(&source["refused"]["webhooks"]).into(),
        output.ago(&source["refused"]["last_at"]).into(),
    ]
}

fn facts(output: &Output, source: &Value) -> Facts {
    let is_active = source["is_active"] == json!(true);
    Facts::new()
        .add("source", word(&source["id"]))
        .add("name", word(&source["name"]))
        .add("path", word(&source["path"]))
        .state("state", if is_active { "active" } else { "disabled" })
        .add("provider", word(&source["provider"]))
        .add("verifies", word(&source["verify"]["scheme"]))
        .add("tags", words(&source["tags"]))
        .add("labels", document(&source["labels"]))
        .add("event type from", document(&source["event_type_from"]))
        .add("idempotency key from", document(&source["idempotency_key_from"]))
        .add("responds", word(&source["respond"]["status"]))
        .add("refused", word(&source["refused"]["webhooks"]))
        .add("last refused", output.ago(&source["refused"]["last_at"]))
        .add("last refusal", word(&source["refused"]["last_reason"]))
        .add("version", word(&source["version"]))
        .add("created", output.ago(&source["created_at"]))
        .add("updated", output.ago(&source["updated_at"]))
}
