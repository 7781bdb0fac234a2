//! Events with more pushes than one step may remove.

use diesel_async::AsyncPgConnection;
use waybill::domain::ids::{EventId, NamespaceId};
use waybill::store::retention::events::{RemovalStep, RemovedEvents, remove_events, remove_pushes};

use crate::support::retention::{DAY, of_events};
use crate::support::{App, database};

const PUSHES: i64 = 250;
const ROWS: i64 = 100;

/// Stores an event that one step cannot remove.
async fn large_event(app: &App) -> i64 {
    event_with(app, PUSHES).await
}

/// Stores an event with pushes, of which the first third has failed. All finished a day ago. Returns the event's id.
async fn event_with(app: &App, pushes: i64) -> i64 {
    let id = app.count("SELECT nextval('waybill.ids')").await;
    let sql = format!(
        "INSERT INTO waybill.events (id, title, tags, event_type, created_at)
         VALUES ({id}, 'large', '', 't', now() - interval '1 day');
         INSERT INTO waybill.deliveries (id, event_id, status, listed_status, priority, max_retries, open_deliveries,
                                         failed_deliveries, updated_at)
         SELECT {id}, {id}, 'FAILED', 'FAILED', 0, 3, 0, {pushes} / 3, now() - interval '1 day';
         INSERT INTO waybill.deliveries (id, event_id, subscription_id, status, listed_status, priority, max_retries,
                                         lease_id, updated_at)
         SELECT nextval('waybill.ids'), {id}, n, s, nullif(s, 'COMPLETED'), 0, 3, 1, now() - interval '1 day'
         FROM generate_series(1, {pushes}) n,
              LATERAL (SELECT CASE WHEN n <= {pushes} / 3 THEN 'FAILED' ELSE 'COMPLETED' END::waybill.status AS s) status"
    );
    database::execute(&app.url, &sql).await;
    id
}

async fn connection(app: &App) -> waybill::store::connection::database::PooledConnection {
    app.engine().database().connection().await.expect("a connection")
}

async fn step(app: &App, conn: &mut AsyncPgConnection) -> RemovedEvents {
    let step = RemovalStep {
        retention_seconds: of_events(),
        created_seconds: of_events(),
        after: 0,
        max_rows: ROWS,
        key_seconds: 0.0,
    };
    remove_events(conn, &app.engine().scope_of(NamespaceId::DEFAULT), &step).await.expect("a step")
}

async fn part(app: &App, conn: &mut AsyncPgConnection, id: i64) -> i64 {
    remove_pushes(conn, &app.engine().scope_of(NamespaceId::DEFAULT), of_events(), EventId(id), ROWS)
        .await
        .expect("a part")
}

/// Returns whether the counts on the event's own row are those of its pushes, and its status follows from them.
async fn is_consistent(app: &App, id: i64) -> bool {
    let sql = format!(
        "SELECT count(*) FROM waybill.deliveries o, LATERAL (
             SELECT count(*) FILTER (WHERE status IN ('PENDING', 'PROCESSING')) AS open,
                    count(*) FILTER (WHERE status = 'FAILED') AS failed
             FROM waybill.deliveries WHERE event_id = o.id AND subscription_id IS NOT NULL) c
         WHERE o.id = {id} AND (o.open_deliveries, o.failed_deliveries) = (c.open, c.failed)
           AND o.status = waybill.roll_up_status(c.open::integer, c.failed::integer, o.cancel_requested)"
    );
    app.count(&sql).await == 1
}

/// The search pauses for what it has visited in vain.
#[tokio::test(flavor = "multi_thread")]
async fn events_for_which_a_step_has_no_room_are_not_visited_in_vain() {
    let app = App::with_fixed_clock().await;
    for _ in 0..3 {
        event_with(&app, ROWS / 2 - 5).await;
    }
    app.advance(31 * DAY);
    let mut conn = connection(&app).await;
    let full = step(&app, &mut conn).await;
    assert_eq!((full.visited, full.events, full.has_more), (2, 2, true));
    let last = step(&app, &mut conn).await;
    assert_eq!((last.visited, last.events, last.has_more), (1, 1, false));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_with_very_many_pushes_is_removed_over_several_steps_and_is_consistent_between_them() {
    let app = App::with_fixed_clock().await;
    let id = large_event(&app).await;
    app.advance(31 * DAY);
    let mut conn = connection(&app).await;
    for expected in [100, 100] {
        let stopped = step(&app, &mut conn).await;
        assert_eq!((stopped.events, stopped.large_event_id), (0, Some(EventId(id))));
        assert_eq!(part(&app, &mut conn, id).await, expected);
        assert!(is_consistent(&app, id).await);
        assert_eq!(app.event(id).await["status"], "FAILED");
    }
    let last = step(&app, &mut conn).await;
    assert_eq!((last.events, last.pushes), (1, 50));
    assert!(!app.has_event(id).await);
    assert_eq!(app.count("SELECT count(*) FROM waybill.deliveries").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_that_is_revived_between_two_parts_keeps_what_is_left_of_its_event() {
    let app = App::with_fixed_clock().await;
    let id = large_event(&app).await;
    app.advance(31 * DAY);
    let mut conn = connection(&app).await;
    assert_eq!(part(&app, &mut conn, id).await, 100);
    let revived = format!(
        "UPDATE waybill.deliveries SET status = 'PENDING', listed_status = NULL, due_at = now() + interval '1 hour'
         WHERE id = (SELECT max(id) FROM waybill.deliveries WHERE event_id = {id} AND status = 'FAILED');
         UPDATE waybill.deliveries SET status = 'PENDING', listed_status = 'PENDING', open_deliveries = 1,
                failed_deliveries = failed_deliveries - 1 WHERE id = {id}"
    );
    database::execute(&app.url, &revived).await;
    assert_eq!(part(&app, &mut conn, id).await, 0);
    assert_eq!(app.remove_old().await["deliveries"], 0);
    assert!(is_consistent(&app, id).await);
    assert_eq!(app.count("SELECT count(*) FROM waybill.deliveries").await, PUSHES - 100 + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_round_removes_large_and_small_events_alike() {
    let app = App::with_fixed_clock().await;
    for _ in 0..3 {
        large_event(&app).await;
        super::publish_completed(&app, "a").await;
    }
    app.advance(32 * DAY);
    let removed = app.remove_old().await;
    assert_eq!((removed["events"], removed["deliveries"]), (6, 3 * (PUSHES as usize + 1) + 3));
    assert_eq!(app.orphans().await, 0);
}
