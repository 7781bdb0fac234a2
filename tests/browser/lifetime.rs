//! Browsers end with the tests that started them.

use std::fs;
use std::path::Path;

use crate::support::browser::{Driver, Session};
use crate::support::until;

/// Returns the processes that were started with this text in their command or their environment.
fn processes_with(text: &str) -> Vec<String> {
    let contains = |path: &Path| fs::read(path).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(text));
    let entries = fs::read_dir("/proc").expect("processes").flatten();
    let found = entries.filter(|entry| ["cmdline", "environ"].iter().any(|file| contains(&entry.path().join(file))));
    found.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_and_its_browsers_end_when_the_pipe_to_them_is_closed() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = folder.path().display().to_string();
    let driver = Driver::start(folder.path().join("driver")).await;
    let _session = Session::start(&driver).await;
    // The shell, the driver, the browser and its helpers.
    assert!(processes_with(&name).len() > 4, "{:?}", processes_with(&name));
    drop(driver);
    until("all have ended", async || processes_with(&name).is_empty()).await;
}
