//! Settings of traces.

use std::fs;

use super::Collector;
use crate::support::database;
use crate::support::process::{Process, waybill};

async fn refusal(flags: &[&str]) -> String {
    let url = database::migrated().await;
    let arguments = [&["serve", "--bind", "127.0.0.1:0", "--database-url", &url], flags].concat();
    let ended = tokio::task::block_in_place(|| Process::spawn(waybill(&arguments)));
    match ended {
        Ok(_) => panic!("it starts with {flags:?}"),
        Err(ended) => ended.stderr,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_of_a_file_are_sent_to_the_collector() {
    let collector = Collector::start().await;
    let file = tempfile::NamedTempFile::new().expect("a file");
    fs::write(file.path(), "authorization: Bearer sesame\nx-tenant: 7\n").expect("a file");
    let app = collector.app(&[&format!("--otlp-headers-file={}", file.path().display())]).await;
    app.get("/tags").await.expect(200);
    let request = collector.receiver.received(1).await.remove(0);
    assert_eq!(request.header("authorization"), Some("Bearer sesame"));
    assert_eq!(request.header("x-tenant"), Some("7"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_settings_that_cannot_work_does_not_start() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    fs::write(file.path(), "sesame\n").expect("a file");
    let headers = format!("--otlp-headers-file={}", file.path().display());
    let endpoint = "--otlp-endpoint=http://127.0.0.1:1";
    let told = refusal(&[endpoint, &headers]).await;
    assert!(told.contains("line 1 must be a name") && !told.contains("sesame"), "{told}");
    let told = refusal(&["--otlp-endpoint=localhost:4317"]).await;
    assert!(told.contains("--otlp-endpoint: it must be an http or https URL"), "{told}");
    let told = refusal(&[endpoint, "--trace-ratio=2"]).await;
    assert!(told.contains("must be a number from 0 to 1"), "{told}");
}
