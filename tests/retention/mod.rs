//! What has ended leaves after a time.

mod bulk_replays;
mod costs;
mod crashes;
mod event_log;
mod events;
mod keys;
mod large;
mod races;
mod replays;
mod rules;
mod servers;
mod settings;
mod turns;

use serde_json::json;

use crate::support::App;

/// Publishes an event with these tags, and completes it. Returns its id.
pub(crate) async fn publish_completed(app: &App, tags: &str) -> i64 {
    let id = app.publish_tagged(tags).await;
    app.claim(tags, "w:1").await.expect("an event");
    app.complete(id, "w:1").await.expect(200);
    id
}

/// Publishes an event that fails at its first attempt. Returns its id.
pub(crate) async fn publish_failed(app: &App) -> i64 {
    let id = app.publish(json!({"title": "a job", "tags": "f", "max_retries": 1})).await;
    app.claim("f", "w:1").await.expect("an event");
    app.fail(id, "w:1").await.problem(400, "max_retries_exceeded");
    id
}

/// Returns SQL that stores `count` completed events, which finished a day ago.
pub(crate) fn old_events(count: usize) -> String {
    format!(
        "CREATE TEMP TABLE made AS SELECT nextval('waybill.ids') AS id FROM generate_series(1, {count});
         INSERT INTO waybill.events (id, title, tags, payload, created_at)
         SELECT id, 'job', CASE WHEN id % 2 = 0 THEN 'old,even' ELSE 'old' END, '{{\"n\": 1}}', now() - interval '1 day'
         FROM made;
         INSERT INTO waybill.event_tags (namespace_id, tag, event_id) SELECT 1, 'even', id FROM made WHERE id % 2 = 0;
         INSERT INTO waybill.deliveries (id, event_id, status, priority, max_retries, lease_id, worker_id, updated_at)
         SELECT id, id, 'COMPLETED', 0, 3, 1, 'w:1', now() - interval '1 day' FROM made;
         DROP TABLE made;"
    )
}
