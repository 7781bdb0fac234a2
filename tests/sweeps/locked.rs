//! A locked row or ordering key at the head of a sweep does not delay the work behind it.

use std::time::Duration;

use chrono::{TimeDelta, Utc};
use serde_json::json;

use super::{KINDS, Kind, UNTIL_OVERDUE, job, lock_key, lock_rows};
use crate::support::work::W1;
use crate::support::{App, ledger, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_row_at_the_head_of_a_sweep_is_skipped_and_swept_later() {
    for kind in KINDS {
        let app = App::with_fixed_clock().await;
        let first = kind.prepare(&app, 1, job).await;
        app.advance(1);
        kind.prepare(&app, 3, job).await;
        app.advance(UNTIL_OVERDUE);
        let held = lock_rows(&app, &first).await;
        assert_eq!(kind.run(&app).await, 3, "{kind:?}");
        assert_eq!(kind.run(&app).await, 0, "{kind:?}");
        held.unlock().await;
        app.advance(1);
        assert_eq!(kind.run(&app).await, 1, "{kind:?}");
        ledger::check(&app).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_key_at_the_head_of_a_sweep_is_skipped_and_swept_later() {
    for kind in KINDS {
        let app = App::with_fixed_clock().await;
        kind.prepare(&app, 1, |_| json!({"title": "a job", "tags": "a", "ordering_key": "busy"})).await;
        app.advance(1);
        let with_key = |n: usize| json!({"title": "a job", "tags": "a", "ordering_key": format!("k{n}")});
        kind.prepare(&app, 3, with_key).await;
        app.advance(UNTIL_OVERDUE);
        let held = lock_key(&app, "busy").await;
        assert_eq!(kind.run(&app).await, 3, "{kind:?}");
        assert_eq!(kind.run(&app).await, 0, "{kind:?}");
        held.unlock().await;
        app.advance(1);
        assert_eq!(kind.run(&app).await, 1, "{kind:?}");
        ledger::check(&app).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn more_locked_rows_than_a_sweep_takes_do_not_hide_those_behind_them() {
    const LOCKED: usize = 600;
    for kind in KINDS {
        let app = App::with_fixed_clock().await;
        let first = kind.prepare(&app, LOCKED, job).await;
        app.advance(1);
        kind.prepare(&app, 5, job).await;
        app.advance(UNTIL_OVERDUE);
        let held = lock_rows(&app, &first).await;
        assert_eq!(kind.run(&app).await, 5, "{kind:?}");
        held.unlock().await;
        app.advance(1);
        assert_eq!(kind.run(&app).await, LOCKED, "{kind:?}");
        ledger::check(&app).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn more_rows_of_a_locked_key_than_a_sweep_takes_do_not_hide_those_behind_them() {
    const OF_KEY: usize = 600;
    for kind in [Kind::Due, Kind::Expired] {
        let app = App::with_fixed_clock().await;
        kind.prepare(&app, OF_KEY, |_| json!({"title": "a job", "tags": "a", "ordering_key": "busy"})).await;
        app.advance(1);
        kind.prepare(&app, 5, job).await;
        app.advance(UNTIL_OVERDUE);
        let held = lock_key(&app, "busy").await;
        assert_eq!(kind.run(&app).await, 5, "{kind:?}");
        held.unlock().await;
        assert_eq!(kind.run(&app).await, OF_KEY, "{kind:?}");
        ledger::check(&app).await;
    }
}

/// With the server's own timers: no client publishes or polls, and the locked work is swept once it
/// is unlocked.
#[tokio::test(flavor = "multi_thread")]
async fn a_running_server_sweeps_locked_work_once_it_is_unlocked() {
    let app = App::start().await;
    let expires_at = json!(Utc::now() + TimeDelta::milliseconds(500));
    let due = app.publish(json!({"title": "due", "tags": "a", "delay_seconds": 0.5})).await;
    let expired = app.publish(json!({"title": "expired", "tags": "b", "expires_at": expires_at})).await;
    let lost = app.publish_tagged("c").await;
    app.get(&format!("/events/subscribe?tags=c&worker_id={W1}&lease_seconds=1")).await.expect(200);
    let held = lock_rows(&app, &[due, expired, lost]).await;
    // A second event of each kind, overdue later: once it is swept, the locked one has been
    // skipped.
    let behind_due = app.publish(json!({"title": "due", "tags": "d", "delay_seconds": 0.6})).await;
    let expires_at = json!(Utc::now() + TimeDelta::milliseconds(600));
    let behind_expired = app.publish(json!({"title": "expired", "tags": "e", "expires_at": expires_at})).await;
    let behind_lost = app.publish_tagged("f").await;
    app.get(&format!("/events/subscribe?tags=f&worker_id={W1}&lease_seconds=2")).await.expect(200);
    let is_ready =
        async |id: i64| app.count(&format!("SELECT count(*) FROM waybill.ready WHERE delivery_id = {id}")).await == 1;
    until("the work behind is swept", async || {
        is_ready(behind_due).await && app.status(behind_expired).await == "FAILED" && is_ready(behind_lost).await
    })
    .await;
    held.unlock().await;
    let let_go_at = std::time::Instant::now();
    until("the unlocked work is swept", async || {
        is_ready(due).await && app.status(expired).await == "FAILED" && is_ready(lost).await
    })
    .await;
    assert!(let_go_at.elapsed() < Duration::from_secs(3), "{:?}", let_go_at.elapsed());
    ledger::check(&app).await;
}
