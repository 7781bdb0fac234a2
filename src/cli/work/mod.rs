//! `waybill work`: makes any program a worker.

mod output;
mod program;
mod progress_file;
mod signals;

use std::env;
use std::path::Path;
use std::time::Duration;

use nix::unistd::{AccessFlags, access};
use tokio::time::{Instant, sleep_until};

use self::program::Program;
use self::signals::StopSignals;
use super::client::connect;
use super::error::CliError;
use crate::client::{Worker, WorkerOptions};
use crate::config::WorkArgs;
use crate::logging;

/// The time between the end of a program that was killed and the end of its lease.
const MARGIN: Duration = Duration::from_secs(2);

/// How long after the first signal others count as the same one. `timeout` signals the worker and then its process group,
/// and a terminal that closes may do so twice, too.
const SAME_SIGNAL: Duration = Duration::from_millis(500);

/// Works until it is asked to stop, and then until what runs has ended.
pub(crate) async fn run(args: WorkArgs) -> Result<(), CliError> {
    logging::init(&args.logging);
    let lease = args.lease_seconds.as_duration();
    // A program that should stop must have ended before its lease does.
    let kill_after = args.kill_after_seconds.as_duration().min(lease / 4);
    let key = args.connection.key.clone().filter(|_| args.pass_key);
    let program = Program::new(&args.program, kill_after, key).map_err(CliError::Failed)?;
    check_program(program.path())?;
    let client = connect(&args.connection)?;
    let options = WorkerOptions {
        concurrency: args.concurrency,
        lease,
        heartbeat: args.heartbeat_seconds.as_duration(),
        margin: kill_after + MARGIN.min(lease / 10),
        ..WorkerOptions::new(args.tags)
    };
    let mut signals = StopSignals::listen()?;
    log::info!(
        worker_id = options.worker_id.as_str(),
        tags = options.tags.join(",").as_str(),
        concurrency = options.concurrency,
        url = client.url();
        "working"
    );
    let worker = Worker::new(client, options);
    let working = worker.run(program);
    tokio::pin!(working);
    tokio::select! {
        ended = &mut working => return Ok(ended?),
        () = signals.next() => {}
    }
    log::info!("draining: finishing what runs");
    worker.drain();
    let until = Instant::now() + SAME_SIGNAL;
    loop {
        tokio::select! {
            biased;
            ended = &mut working => return Ok(ended?),
            () = signals.next() => {}
            () = sleep_until(until) => break,
        }
    }
    log::info!("programs still run, or events are not settled yet; another signal aborts");
    tokio::select! {
        ended = &mut working => return Ok(ended?),
        () = signals.next() => {}
    }
    worker.abort();
    let _ = working.await;
    Err(CliError::Failed(aborted_text(worker.unsettled())))
}

fn aborted_text(unsettled: usize) -> String {
    match unsettled {
        0 => "aborted: what ran was stopped and released".to_owned(),
        1 => "aborted: what ran was stopped; the server did not answer, and 1 event comes back when its lease ends"
            .to_owned(),
        events => format!(
            "aborted: what ran was stopped; the server did not answer, and {events} events come back when their leases end"
        ),
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
