//! `waybill dead-letters`: pushes that were given up.

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

use reqwest::Method;

use super::body::read_json;
use super::deliveries::show;
use super::{Noun, Session, filtered, put, refuse_bulk, refuse_unselected};
use crate::cli::bulk::{self, BulkAction};
use crate::cli::error::CliError;
use crate::cli::events::filter::time_of;
use crate::cli::output::{Cell, Column, Facts, Output, first_line, word};
use crate::client::ClientError;
use crate::config::{DeadLetterFilterArgs, DeadLettersArgs, DeadLettersVerb, Order, ReplayArgs};

const DEAD_LETTER: Noun =
    Noun { name: "dead letter", path: "/dead-letters", field: "dead_letters", order: Order::Desc, columns, row, facts };

pub(crate) async fn run(args: DeadLettersArgs) -> Result<(), CliError> {
    match args.verb {
        DeadLettersVerb::List(args) => {
            let query = filtered(DEAD_LETTER.query(), &filter_of(args.filter)?).maybe("replayed", args.replayed);
            Session::open(&args.list.server)?.list(&DEAD_LETTER, query, &args.list).await
        }
        DeadLettersVerb::Show(args) => show(Session::open(&args.server)?, &DEAD_LETTER, args.id).await,
        DeadLettersVerb::Replay(args) => replay(args).await,
    }
}

fn filter_of(args: DeadLetterFilterArgs) -> Result<Map<String, Value>, CliError> {
    let mut filter = Map::new();
    put(&mut filter, "event_id", args.event_id);
    put(&mut filter, "subscription_id", args.subscription_id);
    put(&mut filter, "reason", args.cause);
    put(&mut filter, "since", time_of("--since", args.since.as_deref())?);
    put(&mut filter, "until", time_of("--until", args.until.as_deref())?);
    Ok(filter)
}

async fn replay(mut args: ReplayArgs) -> Result<(), CliError> {
    let filter = filter_of(args.filter.clone())?;
    if let Some(id) = args.id {
        refuse_bulk(&filter, &args.bulk)?;
        return replay_one(id, &args).await;
    }
    refuse_unselected(&filter, args.all, "dead-letters replay", "dead letters")?;
    let mut body = Map::from_iter([("filter".to_owned(), json!(filter))]);
    put(&mut body, "config", args.config.take());
    let action = BulkAction { path: "/dead-letters/replay", verb: "replay", noun: "dead letter", body, columns, row };
    let session = Session::open(&args.server)?;
    bulk::run(&session.client, &session.output, &action, &args.bulk).await
}

async fn replay_one(id: i64, args: &ReplayArgs) -> Result<(), CliError> {
    let unwritable = |error: serde_json::Error| ClientError::Settings(error.to_string());
    let raw = |text: &String| serde_json::value::to_raw_value(text).map_err(unwritable);
    let mut fields: BTreeMap<&str, Box<RawValue>> = BTreeMap::new();
    if let Some(reason) = &args.bulk.reason {
        fields.insert("reason", raw(reason)?);
    }
    if let Some(config) = &args.config {
        fields.insert("config", raw(config)?);
    }
    if let Some(name) = &args.payload_file {
        fields.insert("payload", read_json(name)?);
    }
    let body = serde_json::to_string(&fields).map_err(unwritable)?;
    let session = Session::open(&args.server)?;
    let path = format!("{}/replay", DEAD_LETTER.at(id));
    session.print(&DEAD_LETTER, &session.client.call(Method::POST, &path, Some(body)).await?)
}

fn columns() -> Vec<Column> {
    vec![
        Column::number("ID"),
        Column::number("EVENT"),
        Column::number("SUBSCRIPTION"),
        Column::new("CAUSE"),
        Column::new("GIVEN UP"),
        Column::new("REPLAYED"),
        Column::flexible("DETAIL", 10),
    ]
}

fn row(output: &Output, letter: &Value) -> Vec<Cell> {
    vec![
        word(&letter["id"]).into(),
        word(&letter["event_id"]).into(),
        word(&letter["subscription_id"]).into(),
        word(&letter["reason"]).into(),
        output.ago(&letter["created_at"]).into(),
        replayed(output, letter).into(),
        first_line(&letter["detail"]).into(),
    ]
}

fn replayed(output: &Output, letter: &Value) -> String {
    if letter["replay"].is_null() { "no".to_owned() } else { output.ago(&letter["replay"]["replayed_at"]) }
}

fn facts(output: &Output, letter: &Value) -> Facts {
    let replay = &letter["replay"];
    Facts::new()
        .add("dead letter", word(&letter["id"]))
        .add("event", word(&letter["event_id"]))
        .add("event type", word(&letter["event"]["event_type"]))
        .add("subscription", word(&letter["subscription_id"]))
        .add("url", word(&letter["subscription"]["url"]))
        .add("delivery", word(&letter["delivery_id"]))
        .add("cause", word(&letter["reason"]))
        .add_lines("detail", &letter["detail"])
        .add("given up by", word(&letter["actor"]))
        .add("given up", output.ago(&letter["created_at"]))
        .add("replayed", replayed(output, letter))
        .add("replayed by", word(&replay["actor"]))
        .add("replayed because", word(&replay["reason"]))
        .add("payload", word(&letter["event"]["payload"]))
}
