//! `waybill stats`: the present state in numbers, or what was done over time.

use serde_json::Value;

use super::client::{ApiClient, Query};
use super::error::CliError;
use super::output::sparkline::sparkline;
use super::output::{Cell, Column, Facts, Output, Table, count, note, time, word};
use super::tags;
use crate::config::StatsArgs;

/// The width of the bars of a history.
const BARS: usize = 40;

pub(crate) async fn run(args: StatsArgs) -> Result<(), CliError> {
    let output = Output::new(&args.server);
    let client = ApiClient::new(&args.server)?;
    if args.history {
        let query = Query::new("/stats/history").maybe("tag", args.tag.as_deref());
        let query = query.maybe("from", args.from.as_deref()).maybe("step", args.step.as_deref());
        let history = client.get(&query.to_string()).await?;
        return output.answer(&history, |history| show_history(&output, history));
    }
    let stats = client.get(&Query::new("/stats").maybe("tag", args.tag.as_deref()).to_string()).await?;
    output.answer(&stats, |stats| show(&output, stats))
}

fn show(output: &Output, stats: &Value) -> Result<(), CliError> {
    output.facts(&figures(stats))?;
    let tags = tag_table(stats);
    if !tags.is_empty() {
        output.line("")?;
        output.table(&tags)?;
    }
    Ok(())
}

fn figures(stats: &Value) -> Facts {
    let number = |name: &str| match &stats[name] {
        Value::Null => String::new(),
        value => count(value, &stats[format!("{name}_is_exact")]),
    };
    let delayed = match &stats["delayed"] {
        Value::Null => String::new(),
        value => {
            format!("{} ({} of them retrying)", count(value, &stats["delayed_is_exact"]), word(&stats["retrying"]))
        }
    };
    let oldest = &stats["oldest_event"];
    let oldest = match oldest["age_seconds"].as_f64() {
        Some(_) => format!("event {}, {} old", word(&oldest["id"]), time::seconds(&oldest["age_seconds"])),
        None => String::new(),
    };
    let workers = match stats["stale_workers"].as_u64() {
        Some(1..) => format!("{} ({} stale)", word(&stats["workers"]), word(&stats["stale_workers"])),
        _ => word(&stats["workers"]),
    };
    Facts::new()
        .add("waiting", number("waiting"))
        .add("delayed", delayed)
        .add("blocked", number("blocked"))
        .add("running", number("running"))
        .add("failed", number("failed"))
        .add("oldest waiting", oldest)
        .add("workers", workers)
        .add("pushes pending", number("pushes_pending"))
        .add("breakers open", number("breakers_open"))
        .add("dead letters", number("dead_letters"))
        .add("per minute", rates(&stats["per_minute"]))
}

/// Returns rates on one line: `3.7 published, 2.0 claimed, …`.
fn rates(rates: &Value) -> String {
    let rate = |name: &str| rates[name].as_f64().map(|rate| format!("{rate:.1} {name}"));
    ["published", "claimed", "completed", "failed"].into_iter().filter_map(rate).collect::<Vec<_>>().join(", ")
}

pub(super) fn tag_table(stats: &Value) -> Table {
    let mut table = Table::new(vec![
        Column::flexible("TAG", 5),
        Column::number("WAITING"),
        Column::number("OLDEST"),
        Column::number("WORKERS"),
        Column::number("IN/MIN"),
        Column::number("DONE/MIN"),
        Column::new("STATE"),
    ]);
    for tag in stats["tags"].as_array().into_iter().flatten() {
        let rate = |name: &str| tag["per_minute"][name].as_f64().map(|rate| format!("{rate:.1}")).unwrap_or_default();
        table.row(vec![
            word(&tag["tag"]).into(),
            count(&tag["waiting"], &tag["waiting_is_exact"]).into(),
            time::seconds(&tag["oldest_age_seconds"]).into(),
            word(&tag["workers"]).into(),
            rate("published").into(),
            rate("completed").into(),
            Cell::state(tags::state(tag)),
        ]);
    }
    table
}

/// Shows a line of bars for each metric in which something happened.
fn show_history(output: &Output, history: &Value) -> Result<(), CliError> {
    let step = time::seconds(&history["step_seconds"]);
    output.line(&format!("{} to {}, every {step}", word(&history["from"]), word(&history["to"])))?;
    let mut table = Table::new(vec![
        Column::new("METRIC"),
        Column::number("TOTAL"),
        Column::number("HIGHEST"),
        Column::number("LAST"),
        Column::new("HISTORY"),
    ]);
    for (name, values) in history["series"].as_object().into_iter().flatten() {
        let numbers: Vec<Option<f64>> = values.as_array().into_iter().flatten().map(Value::as_f64).collect();
        if numbers.iter().flatten().any(|number| *number > 0.0) {
            table.row(history_row(name, &numbers));
        }
    }
    if table.is_empty() {
        note("nothing happened");
    }
    output.table(&table)
}

fn history_row(name: &str, numbers: &[Option<f64>]) -> Vec<Cell> {
    // Latencies do not add up, and there is none where nothing was done.
    let is_latency = name.ends_with("_ms");
    let known: Vec<f64> = numbers.iter().map(|number| number.unwrap_or(0.0)).collect();
    let total = if is_latency { String::new() } else { format!("{:.0}", known.iter().sum::<f64>()) };
    let highest = known.iter().copied().fold(0.0, f64::max);
    let last = numbers.last().copied().flatten().map_or("–".to_owned(), |last| format!("{last:.0}"));
    vec![name.into(), total.into(), format!("{highest:.0}").into(), last.into(), sparkline(&known, BARS).into()]
}
