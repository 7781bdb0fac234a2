//! `waybill events show`.

use serde_json::Value;

use crate::cli::client::{Answer, ApiClient};
use crate::cli::error::CliError;
use crate::cli::output::json::pretty;
use crate::cli::output::{Cell, Column, Facts, Output, Table, first_line, time, word};
use crate::config::ShowEventArgs;

pub(super) async fn run(args: ShowEventArgs) -> Result<(), CliError> {
    let output = Output::new(&args.server);
    let path = format!("/events/{}?include_logs=true&include_deliveries=true", args.id);
    let event = ApiClient::new(&args.server)?.get(&path).await?;
    match args.payload {
        true => output.line(&payload(&event)?),
        false => output.answer(&event, |_| show(&output, &event)),
    }
}

/// Returns the payload as it was published.
fn payload(event: &Answer) -> Result<String, CliError> {
    let hidden = event.value["hidden"].as_array().is_some_and(|fields| fields.iter().any(|field| field == "payload"));
    let why = || CliError::NotAllowed("the payload is hidden from this key: it needs the scope reveal".to_owned());
    event.field("payload").filter(|_| !hidden).ok_or_else(why)
}

fn show(output: &Output, event: &Answer) -> Result<(), CliError> {
    output.facts(&facts(output, &event.value))?;
    for name in ["payload", "progress", "result"] {
        if let Some(text) = event.field(name).filter(|text| text != "null") {
            output.line(&format!("\n{}", output.paint.bold(name)))?;
            output.line(&pretty(&text))?;
        }
    }
    section(output, "deliveries", &deliveries(output, &event.value))?;
    section(output, "trail", &trail(&event.value))
}

fn section(output: &Output, name: &str, table: &Table) -> Result<(), CliError> {
    if table.is_empty() {
        return Ok(());
    }
    output.line(&format!("\n{}", output.paint.bold(name)))?;
    output.table(table)
}

fn facts(output: &Output, event: &Value) -> Facts {
    let at = |name: &str| match &event[name] {
        Value::Null => String::new(),
        at => format!("{} ({})", word(at), output.ago(at)),
    };
    let labels = event["labels"].as_object().into_iter().flatten();
    let labels: Vec<String> = labels.map(|(name, value)| format!("{name}={}", word(value))).collect();
    let cancel = if event["cancel_requested"].as_bool() == Some(true) { "requested" } else { "" };
    let hidden = event["hidden"].as_array().into_iter().flatten().map(word).collect::<Vec<_>>().join(", ");
    Facts::new()
        .add("event", word(&event["id"]))
        .add("title", word(&event["title"]))
        .add("description", word(&event["description"]))
        .state("status", word(&event["status"]))
        .add("type", word(&event["event_type"]))
        .add("tags", word(&event["tags"]))
        .add("labels", labels.join(", "))
        .add("priority", word(&event["priority"]))
        .add("attempts", format!("{} of {} failed", word(&event["retry_count"]), word(&event["max_retries"])))
        .add_lines("last error", &event["last_error"])
        .add("worker", word(&event["worker_id"]))
        .add("ordering key", word(&event["ordering_key"]))
        .add("correlation id", word(&event["correlation_id"]))
        .add("idempotency key", word(&event["idempotency_key"]))
        .add("published by", word(&event["published_by"]))
        .add("published from", word(&event["client_address"]))
        .add("cancel", cancel)
        .add("cancel reason", word(&event["cancel_reason"]))
        .add("created", at("created_at"))
        .add("updated", at("updated_at"))
        .add("runs at", at("run_at"))
        .add("next attempt", at("next_retry_at"))
        .add("expires", at("expires_at"))
        .add("hidden", hidden)
}

fn deliveries(output: &Output, event: &Value) -> Table {
    let mut table = Table::new(vec![
        Column::number("ID"),
        Column::new("STATUS"),
        Column::number("SUBSCRIPTION"),
        Column::new("ATTEMPTS"),
        Column::new("NEXT"),
        Column::flexible("ERROR", 10),
    ]);
    for delivery in event["deliveries"].as_array().into_iter().flatten() {
        table.row(vec![
            word(&delivery["id"]).into(),
            Cell::state(word(&delivery["status"])),
            word(&delivery["subscription_id"]).into(),
            format!("{}/{}", word(&delivery["attempts_made"]), word(&delivery["max_attempts"])).into(),
            output.ago(&delivery["next_attempt_at"]).into(),
            first_line(&delivery["last_error"]).into(),
        ]);
    }
    table
}

fn trail(event: &Value) -> Table {
    let mut table = Table::new(vec![
        Column::new("TIME"),
        Column::new("ACTION"),
        Column::number("ATTEMPT"),
        Column::flexible("BY", 10),
        Column::number("TOOK"),
        Column::flexible("DETAIL", 10),
    ]);
    for entry in event["logs"].as_array().into_iter().flatten() {
        table.row(vec![
            clock_time(&entry["created_at"]).into(),
            Cell::state(word(&entry["action"])),
            word(&entry["attempt"]).into(),
            by(entry).into(),
            time::milliseconds(&entry["execution_time_ms"]).into(),
            detail(entry).into(),
        ]);
    }
    table
}

/// Returns `2026-03-09 08:15:02` of a timestamp.
pub(super) fn clock_time(at: &Value) -> String {
    word(at).chars().take(19).collect::<String>().replace('T', " ")
}

/// Returns who acted.
pub(super) fn by(entry: &Value) -> String {
    match &entry["actor"] {
        Value::Null => word(&entry["worker_id"]),
        actor => word(actor),
    }
}

/// Returns why it was done, or what went wrong.
pub(super) fn detail(entry: &Value) -> String {
    let texts = ["reason", "error_kind", "error_message"].into_iter().map(|name| first_line(&entry[name]));
    texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join(": ")
}
