//! The `waybill` program.

use std::process::ExitCode;

use clap::Parser;

/// Chosen by measurement: docs/decisions/0008.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    waybill::cli::run(waybill::config::Cli::parse()).await
}
