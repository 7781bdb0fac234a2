//! The `waybill` program.

use std::process::ExitCode;

use clap::Parser;

#[tokio::main]
async fn main() -> ExitCode {
    waybill::cli::run(waybill::config::Cli::parse()).await
}
