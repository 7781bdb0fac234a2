//! Sweeps work for all namespaces at once: due and expired events, expired leases, leases that nobody watches, removal.

use serde_json::json;
use waybill::background::{expirer, lease_reaper, promoter, retention, unwatched};
use waybill::domain::retention::Retention;

use super::{id_of, two_namespaces};
use crate::support::{App, database, ledger};

#[tokio::test(flavor = "multi_thread")]
async fn due_expired_and_abandoned_events_of_all_namespaces_are_swept_together() {
    let app = App::with_fixed_clock().await;
    let (north, south) = two_namespaces(&app).await;
    let teams = [&app, &north, &south];
    let mut ids = Vec::new();
    for team in teams {
        let late = team.publish(json!({"title": "t", "tags": "late", "ordering_key": "k", "delay_seconds": 10})).await;
        let expires_at = (app.now() + chrono::TimeDelta::seconds(10)).to_rfc3339();
        let brief = team.publish(json!({"title": "t", "tags": "brief", "expires_at": expires_at})).await;
        let held = team.publish_tagged("held").await;
        team.get("/events/subscribe?tags=held&worker_id=w:1&lease_seconds=5").await.expect(200);
        ids.push([late, brief, held]);
    }
    app.advance(20);
    assert_eq!(promoter::run_once(app.engine()).await.expect("a round"), 3);
    assert_eq!(expirer::run_once(app.engine()).await.expect("a round"), 3);
    assert_eq!(lease_reaper::run_once(app.engine()).await.expect("a round"), 3);
    for (team, [late, brief, held]) in teams.into_iter().zip(ids) {
        assert_eq!(id_of(&team.claim("late", "w:1").await.expect("an event")), late);
        assert_eq!(team.event(brief).await["status"], "FAILED");
        assert_eq!(team.actions(held).await, ["PICKED", "RESET"]);
    }
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_nobody_watches_is_found_in_every_namespace() {
    let app = App::with_fixed_clock().await;
    let (north, south) = two_namespaces(&app).await;
    for team in [&app, &north, &south] {
        team.publish_tagged("held").await;
        team.get("/events/subscribe?tags=held&worker_id=w:1&lease_seconds=5").await.expect(200);
    }
    database::execute(&app.url, "DELETE FROM waybill.lease_watch").await;
    app.advance(100);
    let mut cursor = unwatched::Cursor::default();
    assert_eq!(unwatched::run_once(app.engine(), &mut cursor).await.expect("a step"), 3);
    assert!(cursor.is_at_beginning());
    assert_eq!(lease_reaper::run_once(app.engine()).await.expect("a round"), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn finished_events_of_all_namespaces_are_removed() {
    let app = App::with_fixed_clock().await;
    let (north, south) = two_namespaces(&app).await;
    for team in [&app, &north, &south] {
        let id = team.publish_tagged("a").await;
        team.claim("a", "w:1").await.expect("an event");
        team.complete(id, "w:1").await.expect(200);
        team.publish_tagged("waiting").await;
    }
    app.advance(3_600);
    let retention = Retention::Seconds(600);
    retention::events::run_once(app.engine(), retention).await.expect("a round");
    assert_eq!(app.count("SELECT count(*) FROM waybill.events").await, 3);
    assert_eq!(app.count("SELECT count(DISTINCT namespace_id) FROM waybill.events WHERE tags = 'waiting'").await, 3);
}
