//! What callers see when the database fails.

mod batched;
mod connections;
mod encrypted;
mod frozen;
mod language;
mod notices;
mod outage;
mod outcomes;
mod partitions;
mod unwritable;

use tokio::task::block_in_place;
use waybill::postgres::Cluster;

use crate::support::{App, ClusterDir, Options, until};

/// A server on a PostgreSQL that the test can stop and start.
struct Fragile {
    app: App,
    cluster: Option<Cluster>,
    cluster_dir: ClusterDir,
}

impl Fragile {
    async fn start() -> Self {
        let cluster_dir = ClusterDir::with_cluster();
        let cluster = cluster_dir.start();
        let url = Some(cluster.url("postgres"));
        Self { app: App::start_with(Options { url, ..Options::default() }).await, cluster: Some(cluster), cluster_dir }
    }

    fn stop_database(&mut self) {
        let cluster = self.cluster.take().expect("a running cluster");
        // Other tasks of the test go on meanwhile.
        block_in_place(|| cluster.stop()).expect("PostgreSQL stops");
    }

    async fn start_database(&mut self) {
        self.cluster = Some(block_in_place(|| self.cluster_dir.start()));
        until("the server is ready again", async || self.app.get("/ready").await.status == 200).await;
    }
}
