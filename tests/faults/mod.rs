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
        self.cluster.take().expect("a running cluster").stop().expect("PostgreSQL stops");
    }

    async fn start_database(&mut self) {
        self.cluster = Some(self.cluster_dir.start());
        until("the server is ready again", async || self.app.get("/ready").await.status == 200).await;
    }
}
