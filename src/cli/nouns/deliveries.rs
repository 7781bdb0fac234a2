//! `waybill deliveries`: pushes of events to subscriptions.

use serde_json::{Map, Value, json};

use super::{Noun, Session, attempt_columns, attempt_row, filtered, put, refuse_bulk, refuse_unselected};
use crate::cli::bulk::{self, BulkAction};
use crate::cli::error::CliError;
use crate::cli::events::filter::time_of;
use crate::cli::output::{Cell, Column, Facts, Output, Table, first_line, word};
use crate::config::{ActOnDeliveriesArgs, DeliveriesArgs, DeliveriesVerb, DeliveryFilterArgs, Order};

const DELIVERY: Noun =
    Noun { name: "delivery", path: "/deliveries", field: "deliveries", order: Order::Desc, columns, row, facts };

pub(crate) async fn run(args: DeliveriesArgs) -> Result<(), CliError> {
    match args.verb {
        DeliveriesVerb::List(args) => {
            let query = filtered(DELIVERY.query(), &filter_of(args.filter)?);
            Session::open(&args.list.server)?.list(&DELIVERY, query, &args.list).await
        }
        DeliveriesVerb::Show(args) => show(Session::open(&args.server)?, &DELIVERY, args.id).await,
        DeliveriesVerb::Retry(args) => act(args, "retry", "/deliveries/retry").await,
        DeliveriesVerb::Cancel(args) => act(args, "cancel", "/deliveries/cancel").await,
        DeliveriesVerb::DeadLetter(args) => {
            Session::open(&args.server)?.act(&DELIVERY, args.id, "dead-letter", Some(&args.reason)).await
        }
    }
}

/// Prints something that has attempts.
pub(super) async fn show(session: Session, noun: &Noun, id: i64) -> Result<(), CliError> {
    let shown = session.client.get(&noun.at(id)).await?;
    session.output.answer(&shown, |item| {
        session.output.facts(&(noun.facts)(&session.output, item))?;
        let mut attempts = Table::new(attempt_columns());
        for attempt in item["attempts"].as_array().into_iter().flatten() {
            attempts.row(attempt_row(&session.output, attempt));
        }
        if !attempts.is_empty() {
            session.output.line("")?;
        }
        session.output.table(&attempts)
    })
}

fn filter_of(args: DeliveryFilterArgs) -> Result<Map<String, Value>, CliError> {
    let mut filter = Map::new();
    put(&mut filter, "event_id", args.event_id);
    put(&mut filter, "subscription_id", args.subscription_id);
    put(&mut filter, "status", args.status);
    put(&mut filter, "since", time_of("--since", args.since.as_deref())?);
    put(&mut filter, "until", time_of("--until", args.until.as_deref())?);
    Ok(filter)
}

async fn act(args: ActOnDeliveriesArgs, verb: &'static str, path: &'static str) -> Result<(), CliError> {
    let session = Session::open(&args.server)?;
    let filter = filter_of(args.filter)?;
    if let Some(id) = args.id {
        refuse_bulk(&filter, &args.bulk)?;
        return session.act(&DELIVERY, id, verb, args.bulk.reason.as_deref()).await;
    }
    refuse_unselected(&filter, args.all, &format!("deliveries {verb}"), "pushes")?;
    let body = Map::from_iter([("filter".to_owned(), json!(filter))]);
    let action = BulkAction { path, verb, noun: "push", body, columns, row };
    bulk::run(&session.client, &session.output, &action, &args.bulk).await
}

fn columns() -> Vec<Column> {
    vec![
        Column::number("ID"),
        Column::number("EVENT"),
        Column::number("SUBSCRIPTION"),
        Column::new("STATUS"),
        Column::new("TRIES"),
        Column::new("UPDATED"),
        Column::flexible("LAST ERROR", 10),
    ]
}

fn row(output: &Output, push: &Value) -> Vec<Cell> {
    vec![
        word(&push["id"]).into(),
        word(&push["event_id"]).into(),
        word(&push["subscription_id"]).into(),
        Cell::state(word(&push["status"])),
        tries(push).into(),
        output.ago(&push["updated_at"]).into(),
        first_line(&push["last_error"]).into(),
    ]
}

fn tries(push: &Value) -> String {
    format!("{}/{}", word(&push["attempts_made"]), word(&push["max_attempts"]))
}

fn facts(output: &Output, push: &Value) -> Facts {
    Facts::new()
        .add("delivery", word(&push["id"]))
        .add("event", word(&push["event_id"]))
        .add("subscription", word(&push["subscription_id"]))
        .state("status", word(&push["status"]))
        .add("tries", tries(push))
        .add("next try", output.ago(&push["next_attempt_at"]))
        .add_lines("last error", &push["last_error"])
        .add("cancelled because", word(&push["cancel_reason"]))
        .add("ordering key", word(&push["ordering_key"]))
        .add("replay of", word(&push["replay_of"]))
        .add("created", output.ago(&push["created_at"]))
        .add("updated", output.ago(&push["updated_at"]))
}
