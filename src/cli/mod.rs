//! The sub-commands. `serve`, `migrate`, `secrets rotate` and `keys create --bootstrap` connect to the database; all
//! others use HTTP.

pub(crate) mod bench;
mod client;
pub(crate) mod keys;
pub(crate) mod migrate;
pub(crate) mod secrets;
pub(crate) mod serve;

use std::process::ExitCode;

use crate::config::{Cli, Command};

/// Runs a command and returns the exit code of the process.
pub async fn run(cli: Cli) -> ExitCode {
    let outcome = match cli.command {
        Command::Serve(args) => serve::run(args).await,
        Command::Migrate(args) => migrate::run(args).await,
        Command::Secrets(command) => secrets::run(command).await,
        Command::Keys(args) => keys::run(args).await,
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
