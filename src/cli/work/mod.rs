//! `waybill work`: makes any program a worker.

mod output;
mod program;
mod progress_file;

use std::env;
use std::path::Path;
use std::time::Duration;

use nix::unistd::{AccessFlags, access};
use tokio::signal::unix::{Signal, SignalKind, signal};

use self::program::Program;
use super::client::connect;
use super::error::CliError;
use crate::client::{Worker, WorkerOptions};
use crate::config::WorkArgs;
use crate::logging;

/// The time between the end of a program that was killed and the end of its lease.
const MARGIN: Duration = Duration::from_secs(2);

/// Works until SIGTERM or Ctrl-C, and then until what runs has ended.
pub(crate) async fn run(args: WorkArgs) -> Result<(), CliError> {
    logging::init(&args.logging);
    let lease = args.lease_seconds.as_duration();
    // A program that should stop must have ended before its lease does.
    let kill_after = args.kill_after_seconds.as_duration().min(lease / 4);
    let program = Program::new(&args.program, kill_after).map_err(CliError::Failed)?;
    check_program(program.path())?;
    let client = connect(&args.connection)?;
    let options = WorkerOptions {
        concurrency: args.concurrency,
        lease,
        heartbeat: args.heartbeat_seconds.as_duration(),
        margin: kill_after + MARGIN.min(lease / 10),
        ..WorkerOptions::new(args.tags)
    };
    let (mut terminate, mut interrupt) = (listen_for(SignalKind::terminate())?, listen_for(SignalKind::interrupt())?);
    log::info!(worker_id = options.worker_id.as_str(), tags = options.tags.join(",").as_str(); "working");
    let worker = Worker::new(client, options);
    let working = worker.run(program);
    tokio::pin!(working);
    tokio::select! {
        ended = &mut working => return Ok(ended?),
        () = either(&mut terminate, &mut interrupt) => {}
    }
    log::info!("draining: finishing what runs; another signal aborts");
    worker.drain();
    tokio::select! {
        ended = &mut working => return Ok(ended?),
        () = either(&mut terminate, &mut interrupt) => {}
    }
    worker.abort();
    let _ = working.await;
    Err(CliError::Failed("aborted: what ran was stopped and released".to_owned()))
}

fn listen_for(kind: SignalKind) -> Result<Signal, CliError> {
    signal(kind).map_err(|error| CliError::Failed(format!("cannot listen for signals: {error}")))
}

async fn either(one: &mut Signal, other: &mut Signal) {
    tokio::select! {
        _ = one.recv() => {}
        _ = other.recv() => {}
    }
}

/// Checks that there is such a program: otherwise every event would be claimed in vain.
fn check_program(program: &Path) -> Result<(), CliError> {
    let is_program = |path: &Path| path.is_file() && access(path, AccessFlags::X_OK).is_ok();
    let is_found = match program.components().count() {
        1 if !program.is_absolute() => {
            let folders = env::var_os("PATH").unwrap_or_default();
            env::split_paths(&folders).any(|folder| is_program(&folder.join(program)))
        }
        _ => is_program(program),
    };
    match is_found {
        true => Ok(()),
        false => Err(CliError::Failed(format!("{} is not a program that can be run", program.display()))),
    }
}
