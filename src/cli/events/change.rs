//! `waybill events retry`, `cancel` and `reset`: by ids, one after the other, or all that match.

use serde_json::{Map, Value, json};

use super::{columns, row};
use crate::cli::bulk::{self, BulkAction};
use crate::cli::client::{ApiClient, Query};
use crate::cli::error::CliError;
use crate::cli::output::{Output, word};
use crate::config::{BulkArgs, ChangeEventsArgs, ResetEventsArgs, SelectionArgs, ServerArgs};

/// A verb, and the paths of the API for it.
struct Change {
    verb: &'static str,
    path: &'static str,
    /// Conditions of the filter that only this verb has.
    conditions: Map<String, Value>,
}

pub(super) async fn retry(args: ChangeEventsArgs) -> Result<(), CliError> {
    let change = Change { verb: "retry", path: "/events/retry", conditions: Map::new() };
    run(change, args.selection, args.bulk, args.server).await
}

pub(super) async fn cancel(args: ChangeEventsArgs) -> Result<(), CliError> {
    let change = Change { verb: "cancel", path: "/events/cancel", conditions: Map::new() };
    run(change, args.selection, args.bulk, args.server).await
}

pub(super) async fn reset(args: ResetEventsArgs) -> Result<(), CliError> {
    let conditions = args.stale_for_seconds.map(|seconds| ("stale_for_seconds".to_owned(), json!(seconds)));
    let change = Change { verb: "reset", path: "/events/reset", conditions: conditions.into_iter().collect() };
    run(change, args.selection, args.bulk, args.server).await
}

async fn run(change: Change, selection: SelectionArgs, args: BulkArgs, server: ServerArgs) -> Result<(), CliError> {
    let (client, output) = (ApiClient::new(&server)?, Output::new(&server));
    let has_filter = !selection.filter.is_empty() || !change.conditions.is_empty();
    match (selection.ids.is_empty(), has_filter || selection.all) {
        (false, false) => change_each(&client, &output, &change, &selection.ids, &args).await,
        (true, true) => change_matching(&client, &output, change, selection, &args).await,
        (false, true) => Err(CliError::Usage("give either ids or a filter".to_owned())),
        (true, false) => {
            let why = format!("which events? Give ids, a filter, or --all (see waybill events {} --help)", change.verb);
            Err(CliError::Usage(why))
        }
    }
}

/// Changes events one by one. One that is refused does not keep the others from being changed.
async fn change_each(
    client: &ApiClient,
    output: &Output,
    change: &Change,
    ids: &[i64],
    args: &BulkArgs,
) -> Result<(), CliError> {
    if args.dry_run {
        return Err(CliError::Usage("--dry-run needs a filter or --all, not ids".to_owned()));
    }
    let mut refused = None;
    for id in ids {
        let path = Query::new(format!("/events/{id}/{}", change.verb)).maybe("reason", args.reason.as_deref());
        match client.post(&path.to_string(), None).await {
            Ok(event) => output.answer(&event, |event| output.line(&changed_text(*id, event)))?,
            Err(error) => {
                // All but the last are reported here.
                if let Some(earlier) = refused.replace(error) {
                    let _ = earlier.report();
                }
            }
        }
    }
    refused.map_or(Ok(()), Err)
}

fn changed_text(id: i64, event: &Value) -> String {
    match event["cancel_requested"].as_bool() {
        Some(true) => format!("event {id} is {}; its worker is asked to cancel it", word(&event["status"])),
        _ => format!("event {id} is {}", word(&event["status"])),
    }
}

async fn change_matching(
    client: &ApiClient,
    output: &Output,
    change: Change,
    selection: SelectionArgs,
    args: &BulkArgs,
) -> Result<(), CliError> {
    let mut filter = selection.filter.to_json()?;
    filter.extend(change.conditions);
    let body = Map::from_iter([("filter".to_owned(), Value::Object(filter))]);
    let action = BulkAction { path: change.path, verb: change.verb, noun: "event", body, columns, row };
    bulk::run(client, output, &action, args).await
}
