//! While the database is away, a scrape is answered in time and says so.

use std::time::{Duration, Instant};

use tokio::task::block_in_place;

use super::Scrape;
use crate::support::{App, ClusterDir, HeldTable, Options, until};

/// Less than Prometheus waits, by default.
const IN_TIME: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn without_the_database_its_gauges_are_absent_and_the_others_are_still_there() {
    let cluster_dir = ClusterDir::with_cluster();
    let cluster = cluster_dir.start();
    let flags = vec!["--metrics-cache-ms=0".to_owned()];
    let app = App::start_with(Options { url: Some(cluster.url("postgres")), flags, ..Options::default() }).await;
    app.publish_tagged("a").await;
    assert_eq!(Scrape::of(&app).await.value("waybill_database_up"), 1.0);

    block_in_place(|| cluster.stop()).expect("PostgreSQL stops");
    let began = Instant::now();
    let scrape = Scrape::of(&app).await;
    assert!(began.elapsed() < IN_TIME, "{:?}", began.elapsed());
    assert_eq!(scrape.value("waybill_database_up"), 0.0);
    assert_eq!(scrape.value("waybill_events_received_total"), 1.0);
    for name in ["waybill_queue_depth", "waybill_pushes_pending", "waybill_dead_letters", "waybill_database_info"] {
        assert!(!scrape.names().contains(name) && !scrape.families.contains_key(name), "{name}");
    }

    let cluster = block_in_place(|| cluster_dir.start());
    until("the gauges are back", async || Scrape::of(&app).await.value("waybill_database_up") == 1.0).await;
    assert!(Scrape::of(&app).await.names().contains("waybill_queue_depth"));
    app.stop().await;
    block_in_place(|| cluster.stop()).expect("PostgreSQL stops");
}

#[tokio::test(flavor = "multi_thread")]
async fn scrapes_of_a_database_that_hangs_wait_once_and_not_for_each_scraper() {
    // Longer than the test takes, however busy the machine is.
    let flags = vec!["--metrics-cache-ms=300000".to_owned()];
    let app = App::start_with(Options { flags, ..Options::default() }).await;
    let mut held = HeldTable::lock(&app.url, "waybill.ready").await;
    held.execute("LOCK TABLE waybill.ready IN ACCESS EXCLUSIVE MODE").await;
    let began = Instant::now();
    let first = Scrape::of(&app).await;
    let waited = began.elapsed();
    assert_eq!(first.value("waybill_database_up"), 0.0);
    assert!(waited >= Duration::from_secs(2) && waited < IN_TIME, "{waited:?}");
    let again = Instant::now();
    for _ in 0..20 {
        assert_eq!(Scrape::of(&app).await.value("waybill_database_up"), 0.0);
    }
    assert!(again.elapsed() < IN_TIME, "{:?}", again.elapsed());
    held.unlock().await;
}
