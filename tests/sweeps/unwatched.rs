//! Leases that are missing in the lease watch, which should not happen, are found and added to it.

use serde_json::json;
use waybill::background::unwatched::{self, Cursor};
use waybill::engine::sweep::UNWATCHED_STEP_ROWS;

use super::{Kind, job};
use crate::support::work::{Naming, W1};
use crate::support::{App, Options, database, ledger};

async fn empty_lease_watch(app: &App) {
    database::execute(&app.url, "DELETE FROM waybill.lease_watch").await;
}

async fn search_once(app: &App, cursor: &mut Cursor) -> usize {
    unwatched::run_once(app.engine(), cursor).await.expect("a search")
}

async fn is_counted(app: &App) -> bool {
    app.get("/metrics").await.expect(200).text.contains("waybill_unwatched_leases_total 1\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_missing_in_the_lease_watch_is_counted_and_reset() {
    let app = App::with_fixed_clock().await;
    let id = app.publish_tagged("a").await;
    app.claim_one("a", W1).await;
    empty_lease_watch(&app).await;
    let mut cursor = Cursor::default();
    app.advance(300 + 59);
    assert_eq!(search_once(&app, &mut cursor).await, 0, "a lease reaper might be about to reset it");
    app.advance(1);
    assert_eq!(app.reap().await, 0, "it is not in the lease watch");
    assert_eq!(search_once(&app, &mut cursor).await, 1);
    assert!(is_counted(&app).await);
    ledger::check(&app).await;
    assert_eq!(app.reap().await, 1);
    assert_eq!(app.claim_one("a", W1).await.event_id, id);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_in_the_lease_watch_are_not_counted_even_if_resets_are_disabled() {
    let app =
        App::start_with(Options { flags: vec!["--auto-reset=false".into()], fixed_clock: true, ..Options::default() })
            .await;
    Kind::LostLeases.prepare(&app, 20, job).await;
    app.advance(100_000);
    let mut cursor = Cursor::default();
    assert_eq!(search_once(&app, &mut cursor).await, 0);
    empty_lease_watch(&app).await;
    assert_eq!(app.operate_on_all("/events/reset", json!({})).await, 0);
    assert_eq!(search_once(&app, &mut cursor).await, 20);
    assert_eq!(search_once(&app, &mut cursor).await, 0, "they are found once");
    assert_eq!(app.operate_on_all("/events/reset", json!({})).await, 20);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_search_continues_where_it_stopped_and_restarts_at_the_end() {
    let app = App::with_fixed_clock().await;
    let insert = format!(
        "INSERT INTO waybill.deliveries (id, event_id, status, priority, max_retries, lease_id) \
         SELECT n, n, 'COMPLETED', 0, 3, 1 FROM generate_series(1, {UNWATCHED_STEP_ROWS}) n; \
         SELECT setval('waybill.ids', {UNWATCHED_STEP_ROWS})"
    );
    database::execute(&app.url, &insert).await;
    app.publish_tagged("a").await;
    let claim = app.claim_one("a", W1).await;
    app.advance(1_000);
    empty_lease_watch(&app).await;
    let mut cursor = Cursor::default();
    assert_eq!((search_once(&app, &mut cursor).await, cursor.is_at_beginning()), (0, false));
    assert_eq!((search_once(&app, &mut cursor).await, cursor.is_at_beginning()), (1, true));
    app.settle(&claim, "complete", Naming::Lease).await.expect(200);
    empty_lease_watch(&app).await;
    assert_eq!((search_once(&app, &mut cursor).await, cursor.is_at_beginning()), (0, false));
    assert_eq!((search_once(&app, &mut cursor).await, cursor.is_at_beginning()), (0, true));
}
