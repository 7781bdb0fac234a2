//! `waybill subscriptions`: where events are pushed to.

use reqwest::Method;
use serde_json::{Map, Value, json};

use super::body::{body, read_secret};
use super::{Noun, Session, document, put, yes_or_no};
use crate::cli::client::Answer;
use crate::cli::error::CliError;
use crate::cli::output::{Cell, Column, Facts, Output, time, word, words};
use crate::config::{
    CheckSubscriptionArgs, CreateSubscriptionArgs, Order, RotateSubscriptionSecretArgs, SubscriptionFields,
    SubscriptionsArgs, SubscriptionsVerb, UpdateSubscriptionArgs,
};

const SUBSCRIPTION: Noun = Noun {
    name: "subscription",
    path: "/subscriptions",
    field: "subscriptions",
    order: Order::Asc,
    columns,
    row,
    facts,
};

pub(crate) async fn run(args: SubscriptionsArgs) -> Result<(), CliError> {
    match args.verb {
        SubscriptionsVerb::List(args) => {
            let query = SUBSCRIPTION.query().maybe("is_active", args.active);
            Session::open(&args.list.server)?.list(&SUBSCRIPTION, query, &args.list).await
        }
        SubscriptionsVerb::Show(args) => Session::open(&args.server)?.show(&SUBSCRIPTION, args.id).await,
        SubscriptionsVerb::Create(args) => create(args).await,
        SubscriptionsVerb::Update(args) => update(args).await,
        SubscriptionsVerb::Delete(args) => {
            let session = Session::open(&args.server)?;
            session.delete(&SUBSCRIPTION, &SUBSCRIPTION.at(args.id), &args.id.to_string(), args.yes).await
        }
        SubscriptionsVerb::Test(args) => test(Session::open(&args.server)?, args.id).await,
        SubscriptionsVerb::Resume(args) => {
            Session::open(&args.server)?.act(&SUBSCRIPTION, args.id, "resume", None).await
        }
        SubscriptionsVerb::RotateSecret(args) => rotate(args).await,
        SubscriptionsVerb::Check(args) => check(args).await,
    }
}

fn fields_of(args: SubscriptionFields) -> Map<String, Value> {
    let mut fields = Map::new();
    put(&mut fields, "name", args.name);
    put(&mut fields, "url", args.to);
    put(&mut fields, "event_types", args.event_types);
    put(&mut fields, "tags", args.tags);
    put(&mut fields, "max_attempts", args.max_attempts);
    put(&mut fields, "timeout_ms", args.timeout_ms);
    put(&mut fields, "max_concurrency", args.max_concurrency);
    put(&mut fields, "rate_per_second", args.rate_per_second);
    put(&mut fields, "is_active", args.active);
    fields
}

async fn create(args: CreateSubscriptionArgs) -> Result<(), CliError> {
    let mut fields = fields_of(args.fields);
    put(&mut fields, "secret", args.secret_file.as_deref().map(read_secret).transpose()?);
    let body = body(args.from.from.as_deref(), fields)?;
    let session = Session::open(&args.server)?;
    let made = session.client.call(Method::POST, SUBSCRIPTION.path, Some(body)).await?;
    let (id, url) = (word(&made.value["id"]), word(&made.value["url"]));
    session.print_secret(&made, "secret", &format!("the secret of subscription {id} to {url}"))
}

async fn update(args: UpdateSubscriptionArgs) -> Result<(), CliError> {
    let body = body(args.from.from.as_deref(), fields_of(args.fields))?;
    let session = Session::open(&args.server)?;
    let updated = session.client.call(Method::PATCH, &SUBSCRIPTION.at(args.id), Some(body)).await?;
    session.print(&SUBSCRIPTION, &updated)
}

async fn rotate(args: RotateSubscriptionSecretArgs) -> Result<(), CliError> {
    let mut fields = Map::new();
    put(&mut fields, "secret", args.secret_file.as_deref().map(read_secret).transpose()?);
    put(&mut fields, "overlap_seconds", args.overlap_seconds);
    let session = Session::open(&args.server)?;
    let path = format!("{}/rotate-secret", SUBSCRIPTION.at(args.id));
    let rotated = session.client.post(&path, Some(&Value::Object(fields))).await?;
    let overlap = time::seconds(&rotated.value["overlap_seconds"]);
    session.print_secret(
        &rotated,
        "secret",
        &format!(
            "the new secret of subscription {}; requests are signed with the old one, too, for {overlap}",
            args.id
        ),
    )
}

/// Sends a test request. A receiver that refuses it is a finding.
async fn test(session: Session, id: i64) -> Result<(), CliError> {
    let tested = session.client.post(&format!("{}/test", SUBSCRIPTION.at(id)), None).await?;
    session.output.answer(&tested, |result| {
        let facts = Facts::new()
            .state("result", if result["delivered"] == true { "ok" } else { "error" })
            .add("status", word(&result["status_code"]))
            .add("error", word(&result["error_kind"]))
            .add("took", time::milliseconds(&result["duration_ms"]))
            .add("webhook id", word(&result["webhook_id"]));
        session.output.facts(&facts)
    })?;
    match tested.value["delivered"].as_bool() {
        Some(true) => Ok(()),
        _ => Err(CliError::Findings("the endpoint did not accept the test".to_owned())),
    }
}

/// Says whether an event matches. One that does not is a finding, so that scripts can tell.
async fn check(args: CheckSubscriptionArgs) -> Result<(), CliError> {
    let mut fields = Map::new();
    put(&mut fields, "event_id", args.event_id);
    put(&mut fields, "event_types", args.event_types);
    put(&mut fields, "tags", args.tags);
    let body = body(args.from.from.as_deref(), fields)?;
    let session = Session::open(&args.server)?;
    let checked = session.client.call(Method::POST, "/subscriptions/check", Some(body)).await?;
    session.output.answer(&checked, |_| session.output.facts(&check_facts(&checked)))?;
    match checked.value["matches"].as_bool() {
        Some(true) => Ok(()),
        _ => Err(CliError::Findings("the event does not match".to_owned())),
    }
}

fn check_facts(checked: &Answer) -> Facts {
    let value = &checked.value;
    Facts::new()
        .add("event", word(&value["event_id"]))
        .add("matches", yes_or_no(&value["matches"]))
        .add("reason", document(&value["reason"]))
        .add("content type", word(&value["content_type"]))
        .add("body", word(&value["body"]))
        .add("body error", word(&value["body_error"]))
}

fn columns() -> Vec<Column> {
    vec![
        Column::number("ID"),
        Column::flexible("NAME", 8),
        Column::flexible("URL", 16),
        Column::flexible("EVENTS", 10),
        Column::new("STATE"),
        Column::new("BREAKER"),
    ]
}

fn row(_: &Output, subscription: &Value) -> Vec<Cell> {
    vec![
        word(&subscription["id"]).into(),
        word(&subscription["name"]).into(),
        word(&subscription["url"]).into(),
        what(subscription).into(),
        state(subscription),
        Cell::state(word(&subscription["endpoint"]["breaker"])),
    ]
}

/// Returns which events a subscription gets, by type and tag.
fn what(subscription: &Value) -> String {
    let (types, tags) = (words(&subscription["event_types"]), words(&subscription["tags"]));
    match (types.is_empty(), tags.is_empty()) {
        (true, true) => "all".to_owned(),
        (false, true) => types,
        (true, false) => format!("tags {tags}"),
        (false, false) => format!("{types} tags {tags}"),
    }
}

fn state(item: &Value) -> Cell {
    Cell::state(if item["is_active"] == json!(true) { "active" } else { "disabled" })
}

fn facts(output: &Output, subscription: &Value) -> Facts {
    let is_active = subscription["is_active"] == json!(true);
    let endpoint = &subscription["endpoint"];
    Facts::new()
        .add("subscription", word(&subscription["id"]))
        .add("name", word(&subscription["name"]))
        .add("url", word(&subscription["url"]))
        .state("state", if is_active { "active" } else { "disabled" })
        .add("disabled because", word(&subscription["inactive_reason"]))
        .state("breaker", word(&endpoint["breaker"]))
        .add("failures in a row", word(&endpoint["failures_in_row"]))
        .add("paused until", output.ago(&endpoint["paused_until"]))
        .add("event types", words(&subscription["event_types"]))
        .add("tags", words(&subscription["tags"]))
        .add("labels", document(&subscription["labels"]))
        .add("filter", document(&subscription["filter"]))
        .add("transform", document(&subscription["transform"]))
        .add("header names", words(&subscription["header_names"]))
        .add("method", word(&subscription["method"]))
        .add("timeout", time::milliseconds(&subscription["timeout_ms"]))
        .add("max attempts", word(&subscription["max_attempts"]))
        .add("backoff", document(&subscription["backoff"]))
        .add("retry on", words(&subscription["retry_on"]))
        .add("at once", word(&subscription["max_concurrency"]))
        .add("per second", word(&subscription["rate_per_second"]))
        .add("ordering", word(&subscription["ordering"]))
        .add("version", word(&subscription["version"]))
        .add("created", output.ago(&subscription["created_at"]))
        .add("updated", output.ago(&subscription["updated_at"]))
}
