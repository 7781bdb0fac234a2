//! The `waybill` program.

use std::process::ExitCode;

use clap::Parser;

/// Chosen by measurement: see docs/decisions/0008.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The allocator's option `mi_option_purge_delay`: the milliseconds after which freed memory is returned
/// to the system. The number comes from the C header; the crate has no constant for it.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

/// Makes the allocator return freed memory to the system at once. With a delay, the buffers of 100 large
/// payloads in flight took twice the memory, and an idle server kept holding it.
#[expect(unsafe_code, reason = "the allocator's options have no safe interface")]
fn return_freed_memory() {
    // SAFETY: sets an integer option of the allocator; any thread may do so at any time.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, 0) };
}

#[tokio::main]
async fn main() -> ExitCode {
    return_freed_memory();
    waybill::cli::run(waybill::config::Cli::parse()).await
}
