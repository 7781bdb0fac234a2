//! Traces in a program that was built without them.

use crate::support::database;
use crate::support::process::{Process, waybill};

#[tokio::test(flavor = "multi_thread")]
async fn a_program_without_traces_refuses_a_collector() {
    let url = database::migrated().await;
    let arguments =
        ["serve", "--bind", "127.0.0.1:0", "--database-url", &url, "--otlp-endpoint", "http://127.0.0.1:4318"];
    let ended = tokio::task::block_in_place(|| Process::spawn(waybill(&arguments)));
    let told = ended.err().expect("it does not start").stderr;
    assert!(told.contains("built without traces") && told.contains("--features otlp"), "{told}");
}
