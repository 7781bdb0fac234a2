//! The sub-commands. `serve`, `migrate`, `backup`, `restore`, `secrets rotate` and `keys create --bootstrap` connect to
//! the database; all others use HTTP.

pub(crate) mod backup;
pub(crate) mod bench;
mod bulk;
mod client;
mod documents;
mod error;
mod events;
pub(crate) mod keys;
pub(crate) mod migrate;
mod nouns;
mod output;
mod publish;
pub(crate) mod restore;
pub(crate) mod secrets;
pub(crate) mod serve;
mod stats;
mod tags;
mod top;
mod transfer_progress;
pub(crate) mod work;
mod workers;

use std::process::ExitCode;

use crate::config::{Cli, Command};
use error::CliError;

/// Runs a command and returns the exit code of the process.
pub async fn run(cli: Cli) -> ExitCode {
    match outcome_of(cli.command).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(),
    }
}

async fn outcome_of(command: Command) -> Result<(), CliError> {
    match command {
        Command::Serve(args) => Ok(serve::run(args).await?),
        Command::Migrate(args) => Ok(migrate::run(args).await?),
        Command::Backup(args) => backup::run(args).await,
        Command::Restore(args) => restore::run(args).await,
        Command::Secrets(command) => Ok(secrets::run(command).await?),
        Command::Keys(args) => keys::run(args).await,
        Command::Publish(args) => publish::run(args).await,
        Command::Events(args) => events::run(args).await,
        Command::Work(args) => work::run(args).await,
        Command::Workers(args) => workers::run(args).await,
        Command::Tags(args) => tags::run(args).await,
        Command::Subscriptions(args) => nouns::subscriptions::run(args).await,
        Command::Deliveries(args) => nouns::deliveries::run(args).await,
        Command::DeadLetters(args) => nouns::dead_letters::run(args).await,
        Command::Sources(args) => nouns::sources::run(args).await,
        Command::Types(args) => nouns::types::run(args).await,
        Command::Operations(args) => nouns::operations::run(args).await,
        Command::Namespaces(args) => nouns::namespaces::run(args).await,
        Command::Audit(args) => nouns::audit::run(args).await,
        Command::Usage(args) => nouns::usage::run(args).await,
        Command::Doctor(args) => nouns::doctor::run(args).await,
        Command::Stats(args) => stats::run(args).await,
        Command::Top(args) => top::run(args).await,
        Command::Bench(args) => Ok(bench::run(args).await?),
        Command::Completions(args) => documents::completions(&args),
        Command::Man(args) => documents::man(&args),
    }
}
