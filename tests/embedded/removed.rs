//! The data directory is removed from under the running server.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::json;

use super::start;
use crate::support::{ClusterDir, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_data_directory_that_was_removed_is_noticed_at_once_and_the_log_says_so() {
    let cluster_dir = ClusterDir::with_cluster();
    let server = start(&cluster_dir);
    server.app.publish_tagged("a").await;
    server.app.get("/ready").await.expect(200);
    let removed_at = Instant::now();
    let cluster = cluster_dir.data_dir().join("postgres");
    fs::rename(&cluster, cluster_dir.root().join("gone")).expect("we may");
    fs::remove_dir_all(cluster_dir.root().join("gone")).expect("we may");
    until("it is not ready", async || server.app.get("/ready").await.status == 503).await;
    let message = format!("the data directory {} is gone", cluster.display());
    until("the log says so", async || server.stderr().contains(&message)).await;
    server.app.get("/ready").await.problem(503, "database_unavailable");
    assert!(removed_at.elapsed() < Duration::from_secs(5), "{:?}", removed_at.elapsed());
    let event = json!({"title": "t", "tags": "a"});
    // A connection that PostgreSQL is just closing may still take a call, whose outcome is then unknown.
    until("nothing is sent to it", async || {
        let refused = server.app.post("/events", &event).await;
        assert_eq!(refused.status, 503);
        refused.json()["code"] == "database_unavailable"
    })
    .await;
    server.stop().await;
}

/// Writes to files that can no longer be opened are lost, so nothing is acknowledged meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_data_directory_that_comes_back_is_used_again_with_all_that_was_acknowledged() {
    let cluster_dir = ClusterDir::with_cluster();
    let server = start(&cluster_dir);
    let id = server.app.publish_tagged("a").await;
    let (cluster, elsewhere) = (cluster_dir.data_dir().join("postgres"), cluster_dir.root().join("elsewhere"));
    fs::rename(&cluster, &elsewhere).expect("we may");
    until("it is not ready", async || server.app.get("/ready").await.status == 503).await;
    fs::rename(&elsewhere, &cluster).expect("we may");
    until("it is ready again", async || server.app.get("/ready").await.status == 200).await;
    assert_eq!(server.app.event(id).await["status"], "PENDING");
    server.app.publish_tagged("a").await;
}
