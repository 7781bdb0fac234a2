//! Actions on many items: counted first, confirmed, and followed to their end.
//!
//! The server carries them out as an *operation*, which goes on without the command that started it.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::client::{Answer, ApiClient};
use super::error::CliError;
use super::output::progress::{Progress, Total, Unit};
use super::output::{Cell, Column, Facts, Output, Table, clean, count, note, plural, word};
use crate::config::BulkArgs;

/// The first and the longest pause between two looks at an operation.
const FIRST_LOOK: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long the server may be away while an operation is followed.
const PATIENCE: Duration = Duration::from_secs(60);

/// An action on all items that match a filter.
pub(crate) struct BulkAction {
    /// The path to post to, such as `/events/retry`.
    pub path: &'static str,
    /// What is done, for people: `retry`.
    pub verb: &'static str,
    /// One of what it is done to: `event`.
    pub noun: &'static str,
    /// The filter and other fields of the body.
    pub body: Map<String, Value>,
    /// How some of what matches is shown.
    pub columns: fn() -> Vec<Column>,
    pub row: fn(&Output, &Value) -> Vec<Cell>,
}

/// Counts what matches, asks, starts the operation and follows it.
pub(crate) async fn run(
    client: &ApiClient,
    output: &Output,
    action: &BulkAction,
    args: &BulkArgs,
) -> Result<(), CliError> {
    if !args.dry_run && !args.yes && !can_ask() {
        let why = format!("nobody can be asked whether to {} all that match: add --yes, or --dry-run", action.verb);
        return Err(CliError::Usage(why));
    }
    let counted = client.post(action.path, Some(&body_of(action, args, true))).await?;
    if args.dry_run {
        return output.answer(&counted, |matched| show_matched(output, action, matched));
    }
    if !args.yes {
        if matched(&counted.value) == 0 {
            note(&format!("no {} matches", action.noun));
            return Ok(());
        }
        show_sample(output, action, &counted.value)?;
        ask(&format!("{} {}?", capital(action.verb), matched_text(action, &counted.value)))?;
    }
    let started = client.post(action.path, Some(&body_of(action, args, false))).await.map_err(perhaps_started)?;
    if args.no_wait {
        return output.answer(&started, |operation| show_started(output, operation));
    }
    let ended = follow(client, &started, &capital(action.verb)).await?;
    let printed = output.answer(&ended, |operation| output.line(&result_text(operation)));
    // First the verdict: it counts even if nobody reads what is printed.
    verdict(&ended.value)?;
    printed
}

/// Returns the error of a start whose answer was lost. It must not look as if it could just be repeated.
fn perhaps_started(error: CliError) -> CliError {
    match error {
        CliError::Request(error) if !error.had_no_effect() => CliError::Failed(format!(
            "{error}. It may have started: see `waybill operations list` before you repeat it"
        )),
        other => other,
    }
}

fn body_of(action: &BulkAction, args: &BulkArgs, is_dry_run: bool) -> Value {
    let mut body = action.body.clone();
    if is_dry_run {
        body.insert("dry_run".to_owned(), json!(true));
    }
    if let Some(reason) = &args.reason {
        body.insert("reason".to_owned(), json!(reason));
    }
    if let Some(rate) = args.per_second {
        body.insert("per_second".to_owned(), json!(rate));
    }
    Value::Object(body)
}

fn matched(counted: &Value) -> u64 {
    counted["matched"].as_u64().unwrap_or(0)
}

fn matched_text(action: &BulkAction, counted: &Value) -> String {
    let number = count(&counted["matched"], &counted["matched_is_exact"]);
    match number.as_str() {
        "1" => format!("1 {}", action.noun),
        _ if action.noun.ends_with("sh") => format!("{number} {}es", action.noun),
        _ => format!("{number} {}s", action.noun),
    }
}

fn show_matched(output: &Output, action: &BulkAction, counted: &Value) -> Result<(), CliError> {
    let number = match matched(counted) {
        0 => format!("no {}", action.noun),
        _ => matched_text(action, counted),
    };
    output.line(&format!("{number} would be {}", participle(action.verb)))?;
    output.table(&sample(output, action, counted))
}

/// Shows on standard error what would be changed: the result of the command is what was.
fn show_sample(output: &Output, action: &BulkAction, counted: &Value) -> Result<(), CliError> {
    let table = sample(output, action, counted);
    io::stderr().lock().write_all(table.render(output.paint, output.width).as_bytes())?;
    Ok(())
}

fn sample(output: &Output, action: &BulkAction, counted: &Value) -> Table {
    let mut table = Table::new((action.columns)());
    for item in counted["sample"].as_array().into_iter().flatten() {
        table.row((action.row)(output, item));
    }
    table
}

/// Returns whether there is somebody to ask.
fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks a question on the terminal, and returns an error unless the answer is yes.
pub(crate) fn ask(question: &str) -> Result<(), CliError> {
    let mut stderr = io::stderr().lock();
    write!(stderr, "{question} [y/N] ")?;
    stderr.flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    match answer.trim().to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(CliError::Failed("nothing was changed".to_owned())),
    }
}

/// Asks before something is changed that cannot be undone, unless `--yes` was given.
pub(crate) fn confirm(question: &str, is_confirmed: bool) -> Result<(), CliError> {
    match (is_confirmed, can_ask()) {
        (true, _) => Ok(()),
        (false, true) => ask(question),
        (false, false) => Err(CliError::Usage(format!("{question} Nobody can be asked: add --yes"))),
    }
}

fn show_started(output: &Output, operation: &Value) -> Result<(), CliError> {
    let id = word(&operation["id"]);
    output.line(&format!("operation {id} has started; see: waybill operations show {id}"))
}

/// Waits for the end of an operation, and shows its progress under a label. Ctrl-C leaves it running.
pub(crate) async fn follow(client: &ApiClient, started: &Answer, label: &str) -> Result<Answer, CliError> {
    let id = word(&started.value["id"]);
    let goes_on = format!("operation {id} goes on; stop it with: waybill operations cancel {id}");
    tokio::select! {
        ended = follow_to_end(client, started, &id, label) => ended,
        _ = tokio::signal::ctrl_c() => Err(CliError::Interrupted(goes_on)),
    }
}

async fn follow_to_end(client: &ApiClient, started: &Answer, id: &str, label: &str) -> Result<Answer, CliError> {
    let progress = Progress::new(label, Unit::Items);
    show_progress(&progress, &started.value);
    let (mut pause, mut heard) = (FIRST_LOOK, Instant::now());
    loop {
        match client.get(&format!("/operations/{id}")).await {
            Ok(operation) => {
                heard = Instant::now();
                if operation.value["status"] != "RUNNING" {
                    return Ok(operation);
                }
                show_progress(&progress, &operation.value);
            }
            Err(CliError::Request(error)) if error.is_retryable() && heard.elapsed() < PATIENCE => {
                progress.say("the server is away");
            }
            Err(CliError::Request(error)) if error.is_retryable() => {
                let text = format!("{}; operation {id} goes on when it is back", clean(&error.to_string()));
                return Err(CliError::Unavailable(text));
            }
            Err(error) => return Err(error),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn show_progress(progress: &Progress, operation: &Value) {
    let number = |name: &str| operation[name].as_u64().unwrap_or(0);
    let done = number("done") + number("skipped") + number("failed");
    // What matches is counted when the operation starts, up to a limit of the server.
    let total = match operation["matched_is_exact"].as_bool() {
        Some(true) => Total::About(number("matched")),
        _ => Total::MoreThan(number("matched")),
    };
    let failed = if number("failed") > 0 { format!("({} failed)", number("failed")) } else { String::new() };
    progress.set(done, total, &failed);
}

/// Returns what an operation has done, for people.
pub(crate) fn result_text(operation: &Value) -> String {
    let number = |name: &str| operation[name].as_u64().unwrap_or(0);
    format!(
        "operation {} is {}: {} done, {} skipped, {} failed",
        word(&operation["id"]),
        word(&operation["status"]),
        number("done"),
        number("skipped"),
        number("failed")
    )
}

/// Returns an error if an operation did not do all that it should.
pub(crate) fn verdict(operation: &Value) -> Result<(), CliError> {
    let failed = operation["failed"].as_u64().unwrap_or(0);
    match operation["status"].as_str() {
        Some("COMPLETED") if failed == 0 => Ok(()),
        Some("COMPLETED") => Err(CliError::Findings(format!("{} failed", plural(failed, "item")))),
        status => Err(CliError::Findings(format!("the operation ended as {}", clean(status.unwrap_or("unknown"))))),
    }
}

/// Returns an operation as facts.
pub(crate) fn operation_facts(output: &Output, operation: &Value) -> Facts {
    Facts::new()
        .add("operation", word(&operation["id"]))
        .add("kind", word(&operation["kind"]))
        .state("status", word(&operation["status"]))
        .add("filter", operation["filter"].to_string())
        .add("reason", word(&operation["reason"]))
        .add("matched", count(&operation["matched"], &operation["matched_is_exact"]))
        .add("done", word(&operation["done"]))
        .add("skipped", word(&operation["skipped"]))
        .add("failed", word(&operation["failed"]))
        .add("started by", word(&operation["actor"]))
        .add("created", output.ago(&operation["created_at"]))
        .add("finished", output.ago(&operation["finished_at"]))
}

fn participle(verb: &str) -> String {
    match verb {
        "reset" => "reset".to_owned(),
        "cancel" => "cancelled".to_owned(),
        "retry" => "retried".to_owned(),
        regular => format!("{regular}ed"),
    }
}

fn capital(verb: &str) -> String {
    let mut chars = verb.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_with_rows_that_failed_is_a_finding() {
        let verdict_of = |status: &str, failed: u64| verdict(&json!({"status": status, "failed": failed}));
        assert!(verdict_of("COMPLETED", 0).is_ok());
        let finding = |ended: Result<(), CliError>| match ended {
            Err(CliError::Findings(text)) => text,
            other => panic!("{other:?}"),
        };
        assert_eq!(finding(verdict_of("COMPLETED", 2)), "2 items failed");
        assert_eq!(finding(verdict_of("FAILED", 0)), "the operation ended as FAILED");
    }

    #[test]
    fn what_would_be_done_is_said_in_words() {
        let words = ["retry", "cancel", "reset", "replay"].map(participle);
        assert_eq!(words, ["retried", "cancelled", "reset", "replayed"]);
    }
}
