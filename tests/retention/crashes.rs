//! A server is killed while it removes.

use super::old_events;
use crate::support::process::{Process, waybill};
use crate::support::records::app_that_sends_nothing;
use crate::support::{database, until};

const EVENTS: i64 = 30_000;

fn serve(url: &str) -> Process {
    let settings =
        ["serve", "--bind", "127.0.0.1:0", "--database-url", url, "--retention", "1h", "--log-retention", "1h"];
    tokio::task::block_in_place(|| Process::start(waybill(&settings)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_while_it_removes_leaves_whole_events_and_the_next_goes_on() {
    let front = app_that_sends_nothing().await;
    database::execute(&front.url, &old_events(EVENTS as usize)).await;
    let count = async |table: &str| front.count(&format!("SELECT count(*) FROM waybill.{table}")).await;
    let mut left = EVENTS;
    // The second and the third go on where the one before was killed.
    for _ in 0..3 {
        let server = serve(&front.url);
        until("it has begun", async || count("events").await < left).await;
        server.kill_9().await;
        until("its connections are closed", async || {
            let others = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 1463900483";
            front.count(others).await == 0
        })
        .await;
        // In one statement: the last step of the killed server may be committed between two.
        let difference = "SELECT (SELECT count(*) FROM waybill.events) - (SELECT count(*) FROM waybill.deliveries)";
        assert_eq!(front.count(difference).await, 0);
        left = count("events").await;
        assert_eq!(front.orphans().await, 0);
    }
    let _last = serve(&front.url);
    until("all are removed", async || count("events").await == 0).await;
    assert_eq!((count("deliveries").await, count("event_tags").await), (0, 0));
}
