//! `waybill namespaces`: the tenants of a server.

use reqwest::Method;
use serde_json::{Map, Value};

use super::body::body;
use super::{Noun, Session, document, put};
use crate::cli::client::segment;
use crate::cli::error::CliError;
use crate::cli::output::{Cell, Column, Facts, Output, word, words};
use crate::config::{CreateNamespaceArgs, NamespaceFields, NamespacesArgs, NamespacesVerb, Order, UpdateNamespaceArgs};

const NAMESPACE: Noun =
    Noun { name: "namespace", path: "/namespaces", field: "namespaces", order: Order::Asc, columns, row, facts };

pub(crate) async fn run(args: NamespacesArgs) -> Result<(), CliError> {
    match args.verb {
        NamespacesVerb::List(args) => Session::open(&args.server)?.list(&NAMESPACE, NAMESPACE.query(), &args).await,
        NamespacesVerb::Show(args) => {
            let session = Session::open(&args.server)?;
            session.print(&NAMESPACE, &session.client.get(&path(&args.name)).await?)
        }
        NamespacesVerb::Create(args) => create(args).await,
        NamespacesVerb::Update(args) => update(args).await,
    }
}

fn path(name: &str) -> String {
    format!("{}/{}", NAMESPACE.path, segment(name))
}

/// Returns the body of a namespace with these settings.
fn fields_of(name: Option<String>, args: NamespaceFields) -> Map<String, Value> {
    let mut settings = Map::new();
    put(&mut settings, "strict_event_types", args.strict_event_types);
    put(&mut settings, "redact", args.redact);
    let mut fields = Map::new();
    put(&mut fields, "name", name);
    put(&mut fields, "settings", (!settings.is_empty()).then_some(settings));
    fields
}

async fn create(args: CreateNamespaceArgs) -> Result<(), CliError> {
    let body = body(args.from.from.as_deref(), fields_of(args.name, args.fields))?;
    let session = Session::open(&args.server)?;
    session.print(&NAMESPACE, &session.client.call(Method::POST, NAMESPACE.path, Some(body)).await?)
}

async fn update(args: UpdateNamespaceArgs) -> Result<(), CliError> {
    let body = body(args.from.from.as_deref(), fields_of(None, args.fields))?;
    let session = Session::open(&args.server)?;
    session.print(&NAMESPACE, &session.client.call(Method::PATCH, &path(&args.name), Some(body)).await?)
}

fn columns() -> Vec<Column> {
    vec![Column::number("ID"), Column::flexible("NAME", 12), Column::new("CREATED"), Column::flexible("SETTINGS", 12)]
}

fn row(output: &Output, namespace: &Value) -> Vec<Cell> {
    vec![
        word(&namespace["id"]).into(),
        word(&namespace["name"]).into(),
        output.ago(&namespace["created_at"]).into(),
        document(&namespace["settings"]).into(),
    ]
}

fn facts(output: &Output, namespace: &Value) -> Facts {
    let settings = &namespace["settings"];
    Facts::new()
        .add("namespace", word(&namespace["name"]))
        .add("id", word(&namespace["id"]))
        .add("strict event types", word(&settings["strict_event_types"]))
        .add("redacts", words(&settings["redact"]))
        .add("limits", document(&settings["limits"]))
        .add("created", output.ago(&namespace["created_at"]))
}
