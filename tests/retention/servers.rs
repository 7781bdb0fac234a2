//! Several servers remove events of one database.

use std::time::Duration;

use diesel_async::SimpleAsyncConnection;
use waybill::background::retention::events::run_once;
use waybill::domain::retention::Retention;

use super::old_events;
use crate::support::{App, Options, database, until};

const HOUR: Retention = Retention::Seconds(3_600);

#[tokio::test(flavor = "multi_thread")]
async fn two_servers_remove_each_event_once_and_do_not_hinder_each_other() {
    let one = App::start().await;
    let other = App::start_with(Options { url: Some(one.url.clone()), ..Options::default() }).await;
    database::execute(&one.url, &old_events(3_000)).await;
    let mut removed = 0;
    while one.count("SELECT count(*) FROM waybill.events").await > 0 {
        let (first, second) = tokio::join!(run_once(one.engine(), HOUR), run_once(other.engine(), HOUR));
        for rows in [first, second] {
            removed += rows.expect("no server fails because of the other")["events"];
        }
    }
    assert_eq!(removed, 3_000);
    assert_eq!(one.orphans().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_does_not_wait_for_another_that_is_removing() {
    let app = App::start().await;
    database::execute(&app.url, &old_events(10)).await;
    let mut conn = database::connection(&app.url).await;
    conn.batch_execute("BEGIN; SELECT pg_advisory_xact_lock(1463900483, 1)").await.expect("the other's turn");
    let removed = tokio::time::timeout(Duration::from_secs(5), run_once(app.engine(), HOUR)).await;
    assert_eq!(removed.expect("no waiting").expect("a round")["events"], 0);
    conn.batch_execute("ROLLBACK").await.expect("its end");
    assert_eq!(run_once(app.engine(), HOUR).await.expect("a round")["events"], 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_removes_events_on_its_own() {
    let url = database::migrated().await;
    database::execute(&url, &old_events(2_500)).await;
    let flags = vec!["--retention=1h".to_owned(), "--log-retention=1h".to_owned()];
    let app = App::start_with(Options { flags, url: Some(url), ..Options::default() }).await;
    let young = app.publish_tagged("a").await;
    until("all old events are removed", async || app.count("SELECT count(*) FROM waybill.events").await == 1).await;
    assert!(app.has_event(young).await);
}
