//! The nouns of the API: each can be listed, shown, made and changed, as far as the API allows.
//!
//! A [`Noun`] says how one of them is shown as a row and as facts. A [`Session`] does for all of them what is the same.

pub(crate) mod audit;
mod body;
pub(crate) mod dead_letters;
pub(crate) mod deliveries;
pub(crate) mod doctor;
pub(crate) mod namespaces;
pub(crate) mod operations;
pub(crate) mod sources;
pub(crate) mod subscriptions;
pub(crate) mod types;
pub(crate) mod usage;

use serde_json::{Map, Value};

use super::bulk;
use super::client::{Answer, ApiClient, Query};
use super::error::CliError;
use super::output::{Cell, Column, Facts, Output, clean, first_line, note, word};
use crate::config::{BulkArgs, ListArgs, Order, ServerArgs};

/// One kind of thing that the server has.
pub(super) struct Noun {
    /// One of it, for people.
    name: &'static str,
    /// The path of the list, such as `/subscriptions`.
    path: &'static str,
    /// The field of the list that has the items.
    field: &'static str,
    /// The order of a list that nobody has chosen one for.
    order: Order,
    columns: fn() -> Vec<Column>,
    row: fn(&Output, &Value) -> Vec<Cell>,
    facts: fn(&Output, &Value) -> Facts,
}

impl Noun {
    /// Returns the path of one.
    fn at(&self, id: i64) -> String {
        format!("{}/{id}", self.path)
    }

    fn query(&self) -> Query {
        Query::new(self.path)
    }
}

/// A command that asks a server.
pub(super) struct Session {
    client: ApiClient,
    output: Output,
}

impl Session {
    fn open(args: &ServerArgs) -> Result<Self, CliError> {
        Ok(Session { client: ApiClient::new(args)?, output: Output::new(args) })
    }

    /// Prints a list.
    async fn list(&self, noun: &Noun, query: Query, args: &ListArgs) -> Result<(), CliError> {
        let query = query.with("order", args.order.unwrap_or(noun.order).as_str());
        let list = self.client.list(&query, noun.field, &args.pages).await?;
        self.output.list(&list, (noun.columns)(), |item| (noun.row)(&self.output, item))
    }

    /// Prints one thing as facts.
    fn print(&self, noun: &Noun, answer: &Answer) -> Result<(), CliError> {
        self.output.answer(answer, |item| self.output.facts(&(noun.facts)(&self.output, item)))
    }

    async fn show(&self, noun: &Noun, id: i64) -> Result<(), CliError> {
        self.print(noun, &self.client.get(&noun.at(id)).await?)
    }

    /// Does something to one thing, and prints what the server says about it.
    async fn act(&self, noun: &Noun, id: i64, verb: &str, reason: Option<&str>) -> Result<(), CliError> {
        let query = Query::new(format!("{}/{verb}", noun.at(id))).maybe("reason", reason);
        self.print(noun, &self.client.post(&query.to_string(), None).await?)
    }

    /// Deletes one thing, after asking.
    async fn delete(&self, noun: &Noun, path: &str, name: &str, is_confirmed: bool) -> Result<(), CliError> {
        bulk::confirm(&format!("Delete {} {}?", noun.name, clean(name)), is_confirmed)?;
        let answer = self.client.delete(path).await?;
        self.output.answer(&answer, |_| self.output.line(&format!("{} {} is deleted", noun.name, clean(name))))
    }

    /// Prints a secret that is shown once: alone, so that a program can read it.
    fn print_secret(&self, answer: &Answer, field: &str, what: &str) -> Result<(), CliError> {
        self.output.answer(answer, |made| {
            self.output.line(&word(&made[field]))?;
            note(&format!("{what}; it is not shown again"));
            Ok(())
        })
    }
}

/// Refuses flags of actions on many items for an action on one.
fn refuse_bulk(filter: &Map<String, Value>, bulk: &BulkArgs) -> Result<(), CliError> {
    match filter.is_empty() && !bulk.dry_run && !bulk.no_wait && bulk.per_second.is_none() {
        true => Ok(()),
        false => {
            Err(CliError::Usage("an id names one item: leave out the filter, --dry-run and --per-second".to_owned()))
        }
    }
}

/// Refuses an action that names neither an id nor a filter: an empty variable must not select everything.
fn refuse_unselected(filter: &Map<String, Value>, all: bool, command: &str, nouns: &str) -> Result<(), CliError> {
    if all || !filter.is_empty() {
        return Ok(());
    }
    let why = format!("which {nouns}? Give an id, a filter, or --all (see waybill {command} --help)");
    Err(CliError::Usage(why))
}

/// Adds a field if there is a value.
fn put<T: Into<Value>>(fields: &mut Map<String, Value>, name: &str, value: Option<T>) {
    if let Some(value) = value {
        fields.insert(name.to_owned(), value.into());
    }
}

/// Returns a query with the fields of a filter.
fn filtered(query: Query, filter: &Map<String, Value>) -> Query {
    filter.iter().fold(query, |query, (name, value)| query.with(name, word(value)))
}

/// Returns `yes`, `no`, or nothing if it is not known.
fn yes_or_no(value: &Value) -> &'static str {
    match value.as_bool() {
        Some(true) => "yes",
        Some(false) => "no",
        None => "",
    }
}

/// Returns the text of a value that is an object or a list, or nothing if it is empty.
fn document(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Object(members) if members.is_empty() => String::new(),
        Value::Array(items) if items.is_empty() => String::new(),
        other => word(other),
    }
}

/// The columns of the attempts of a push.
fn attempt_columns() -> Vec<Column> {
    vec![
        Column::number("TRY"),
        Column::new("STARTED"),
        Column::number("TOOK"),
        Column::number("CODE"),
        Column::flexible("ERROR", 12),
    ]
}

fn attempt_row(output: &Output, attempt: &Value) -> Vec<Cell> {
    vec![
        word(&attempt["attempt"]).into(),
        output.ago(&attempt["started_at"]).into(),
        super::output::time::milliseconds(&attempt["duration_ms"]).into(),
        word(&attempt["status_code"]).into(),
        first_line(&attempt["error_message"]).into(),
    ]
}
