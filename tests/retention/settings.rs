//! Settings that cannot work are refused at the start.

use crate::support::database;
use crate::support::process::{Process, waybill};

async fn refused(flags: &[&str]) -> String {
    let url = database::migrated().await;
    let arguments = [&["serve", "--bind", "127.0.0.1:0", "--database-url", &url], flags].concat();
    match tokio::task::block_in_place(|| Process::spawn(waybill(&arguments))) {
        Ok(_) => panic!("it started"),
        Err(ended) => ended.stderr,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_kept_for_less_time_than_events_is_refused() {
    for flags in [["--retention=90d", "--log-retention=30d"], ["--retention=forever", "--log-retention=90d"]] {
        let stderr = refused(&flags).await;
        assert!(stderr.contains("is shorter than --retention"), "{stderr}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_for_archives_that_cannot_be_written_to_is_refused() {
    let stderr = refused(&["--archive-dir=/nowhere/at/all"]).await;
    assert!(stderr.contains("--archive-dir /nowhere/at/all"), "{stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retention_without_a_unit_is_refused_with_an_example() {
    let stderr = refused(&["--retention=30"]).await;
    assert!(stderr.contains("such as 90s, 15m, 12h or 30d"), "{stderr}");
}
