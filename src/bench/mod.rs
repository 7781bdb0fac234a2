//! `waybill bench`: a load generator that speaks plain HTTP to any server.
//!
//! It shares the machine with the server when people try it, so it is lean: requests are
//! bytes that were put together before the clock started, answers are read as far as their
//! numbers are needed, and connections are kept. A [`workload`] says what each connection
//! does; [`report`] gathers how long it took.
//!
//! Closed loop: every connection sends its next request when the last is answered, and what
//! is measured is how much gets through. Open loop (`--rate`): requests are due at fixed
//! times whatever the server does, and each is measured from the time at which it was due,
//! so that a stall counts for everybody who had to wait behind it; in `steady` until its
//! completion is answered. [`intervals`] tells a slow decline from a steady pace.

pub mod connection;
pub mod intervals;
pub mod plan;
pub mod push;
pub mod report;
pub mod tally;
pub mod workload;

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
pub async fn run(args: &BenchArgs) -> Result<Report, String> {
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
    // A drained backlog ends the run before its time: what remains is not idled away, nor measured.
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
    let intervals = plan.intervals.as_ref().map(|intervals| intervals.report()).unwrap_or_default();
    Ok(Report::new(args, &tally, elapsed, intervals))
}

/// A bar on a terminal, nothing elsewhere; returns when the time is over.
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
