//! The `waybill` program.

use std::process::ExitCode;

use clap::Parser;

/// Chosen by measurement: docs/decisions/0008.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The allocator's number for how many milliseconds freed memory is kept before it goes back to the
/// system: `mi_option_purge_delay` of its C header, which its crate does not name.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

/// Gives freed memory back at once. Kept for a while, the buffers of a hundred large payloads that
/// come and go take twice the memory, and a server that has become quiet goes on holding it.
#[expect(unsafe_code, reason = "the allocator's options have no safe names")]
fn return_freed_memory() {
    // SAFETY: sets a number that the allocator reads; any thread may do so at any time.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, 0) };
}

#[tokio::main]
async fn main() -> ExitCode {
    return_freed_memory();
    waybill::cli::run(waybill::config::Cli::parse()).await
}
