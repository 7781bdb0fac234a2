//! Which connections to the database are used, and which are kept.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;

use crate::support::{App, until};

/// The default of `--db-connections`.
const CONNECTIONS: usize = 8;

/// Opens all connections of a server at once.
async fn open_all(app: &App) {
    let opened = join_all((0..CONNECTIONS).map(|_| app.engine().database().connection())).await;
    assert!(opened.into_iter().all(|connection| connection.is_ok_and(|connection| connection.is_open())));
}

/// Backends of connections that are used in turn have cold caches, and need up to a quarter more time for the same
/// statements. Services in the background may use one more connection, or two, in between.
#[tokio::test(flavor = "multi_thread")]
async fn publishes_one_after_the_other_use_the_same_few_of_many_connections() {
    let app = App::with_fixed_clock().await;
    open_all(&app).await;
    let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
    let before = app.count("SELECT (extract(epoch FROM clock_timestamp()) * 1e6)::bigint").await;
    for number in 0..4 * CONNECTIONS {
        app.publish(json!({"title": format!("job {number}"), "tags": "a"})).await;
    }
    let used = app.count(&format!("{open} AND extract(epoch FROM query_start) * 1e6 > {before}")).await;
    assert!((1..=4).contains(&used), "{used} connections were used");
    assert!(app.count(open).await >= CONNECTIONS as i64, "the others are still open");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_nobody_uses_are_closed_and_opened_again_when_needed() {
    let app = App::with_fixed_clock().await;
    open_all(&app).await;
    let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle'";
    let before = app.count(open).await;
    app.engine().database().close_connections_unused_for(Duration::from_secs(60));
    assert_eq!(app.count(open).await, before, "they were used just now");
    app.engine().database().close_connections_unused_for(Duration::ZERO);
    // Services in the background open one or two again.
    until("the connections are closed", async || app.count(open).await <= before - CONNECTIONS as i64 + 3).await;
    open_all(&app).await;
    app.publish(json!({"title": "a job", "tags": "a"})).await;
}
