//! The sub-commands. Only `serve` and `migrate` connect to the database; `bench` uses HTTP.

pub(crate) mod bench;
pub(crate) mod migrate;
pub(crate) mod serve;

use std::process::ExitCode;

use crate::config::{Cli, Command};

/// Runs a command and returns the exit code of the process.
pub async fn run(cli: Cli) -> ExitCode {
    let outcome = match cli.command {
        Command::Serve(args) => serve::run(args).await,
        Command::Migrate(args) => migrate::run(args).await,
        Command::Bench(args) => bench::run(args).await,
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("waybill: {error}");
            ExitCode::FAILURE
        }
    }
}
