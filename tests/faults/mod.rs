//! What happens to callers when something happens to the database.

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

use crate::support::{App, Options, Place, until};

/// A server on a PostgreSQL that can be stopped and started under it.
struct Fragile {
    app: App,
    cluster: Option<Cluster>,
    place: Place,
}

impl Fragile {
    async fn start() -> Self {
        let place = Place::with_cluster();
        let cluster = place.start();
        let url = Some(cluster.url("postgres"));
        Self { app: App::start_with(Options { url, ..Options::default() }).await, cluster: Some(cluster), place }
    }

    fn stop_database(&mut self) {
        self.cluster.take().expect("a running cluster").stop().expect("PostgreSQL stops");
    }

    async fn start_database(&mut self) {
        self.cluster = Some(self.place.start());
        until("the server is ready again", async || self.app.get("/ready").await.status == 200).await;
    }
}
