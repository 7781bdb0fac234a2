//! `waybill serve`.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};

use crate::config::ServeArgs;
use crate::engine::clock::Clock;
use crate::error::Error;
use crate::logging;
use crate::startup::{Server, StartError};

/// Serves until SIGTERM or Ctrl-C.
pub(crate) async fn run(args: ServeArgs) -> Result<(), StartError> {
    logging::init(&args.logging);
    raise_file_limit();
    let no_signals = |error: std::io::Error| Error::Internal(format!("cannot listen for signals: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(no_signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(no_signals)?;
    let starting = Server::start(&args, Clock::Database);
    let server = tokio::select! {
        server = starting => server?,
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    };
    println!("waybill is listening on {}", server.url());
    tokio::select! {
        _ = terminate.recv() => log::info!("SIGTERM: stopping"),
        _ = interrupt.recv() => log::info!("Ctrl-C: stopping"),
    }
    server.stop().await;
    log::info!("stopped");
    Ok(())
}

/// Raises the limit of open files to the hard limit. Every waiting worker is an open file, and the usual
/// soft limit of 1,024 exists only for programs that call `select`.
fn raise_file_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| match soft < hard {
        true => setrlimit(Resource::RLIMIT_NOFILE, hard, hard),
        false => Ok(()),
    });
    if let Err(error) = raised {
        log::warn!("cannot raise the limit of open files: {error}");
    }
}
