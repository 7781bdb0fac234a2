//! `waybill bench`: a load generator that sends plain HTTP to any server.
//!
//! It often shares the machine with the server, so it uses little CPU: requests are built before the
//! measurement starts, responses are parsed only as far as needed, and connections are reused. A
//! [`workload`] defines the actions of each connection; [`report`] summarises the latencies.
//!
//! Closed loop: every connection sends its next request after the previous response, and the result is
//! the throughput. Open loop (`--rate`): requests are due at fixed times, and each latency is measured
//! from the due time. A stall therefore counts for every request that it delays. In `steady`, the
//! latency ends with the response to the completion. [`intervals`] shows whether the rate declines.

pub(crate) mod connection;
pub(crate) mod intervals;
pub(crate) mod loud;
pub(crate) mod plan;
pub(crate) mod push;
pub(crate) mod report;
pub(crate) mod tally;
pub(crate) mod workload;

use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::{BenchArgs, Workload};
use plan::Plan;
use report::Report;
use tally::Tally;

/// Runs one workload and reports it.
pub(crate) async fn run(args: &BenchArgs) -> Result<Report, String> {
    if args.workload == Workload::Push {
        return push::run(args).await;
    }
    let plan = Arc::new(Plan::new(args)?);
    plan.prepare().await?;
    let stop = CancellationToken::new();
    let started = Instant::now();
    let tasks: Vec<_> = (0..plan.connections())
        .map(|number| tokio::spawn(workload::run(plan.clone(), number, stop.clone(), started)))
        .collect();
    let neighbours: Vec<_> =
        (0..args.loud_namespace).map(|number| tokio::spawn(loud::run(plan.clone(), number, stop.clone()))).collect();
    // A drained backlog ends the run early; the idle time that remains is not measured.
    tokio::select! {
        () = show_progress(args, &plan, started) => {}
        () = plan.drained() => {}
    }
    let elapsed = started.elapsed();
    stop.cancel();
    let mut tally = Tally::new();
    for task in tasks {
        tally.add(task.await.map_err(|error| error.to_string())??)?;
    }
    for neighbour in neighbours {
        neighbour.await.map_err(|error| error.to_string())??;
    }
    let intervals = plan.intervals.as_ref().map(intervals::Intervals::report).unwrap_or_default();
    Ok(Report::new(args, &tally, elapsed, intervals))
}

/// Shows a progress bar if the output is a terminal. Returns when the duration of the run is over.
async fn show_progress(args: &BenchArgs, plan: &Plan, started: Instant) {
    let style = ProgressStyle::with_template("{spinner} {wide_bar} {pos}/{len} s  {msg}");
    let bar = ProgressBar::new(args.seconds).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let mut last = 0;
    for second in 1..=args.seconds {
        tokio::time::sleep_until(started + Duration::from_secs(second)).await;
        let done = plan.done();
        bar.set_position(second);
        bar.set_message(format!("{} /s", done - last));
        last = done;
    }
    bar.finish_and_clear();
}
