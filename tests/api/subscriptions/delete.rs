//! `DELETE /subscriptions/{id}`.

use serde_json::json;

use super::{NOWHERE, path_of};
use crate::support::{App, Reply};

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_subscription_is_not_found_by_any_route() {
    let app = App::start().await;
    let subscription = app.subscribe(NOWHERE, json!({"event_types": ["t"]})).await;
    let path = path_of(&subscription);
    let reply = app.delete(&path).await.expect(204);
    assert_eq!(reply.text, "");
    app.delete(&path).await.problem(404, "subscription_not_found");
    app.get(&path).await.problem(404, "subscription_not_found");
    app.patch(&path, &json!({"is_active": true})).await.problem(404, "subscription_not_found");
    app.post(&format!("{path}/rotate-secret"), &json!({})).await.problem(404, "subscription_not_found");
    app.post_empty(&format!("{path}/test")).await.problem(404, "subscription_not_found");
    app.post_empty(&format!("{path}/resume")).await.problem(404, "subscription_not_found");
    let event = app.post("/events", &json!({"event_type": "t"})).await.expect(201).json();
    assert_eq!((&event["enqueued"], &event["status"]), (&json!(0), &json!("COMPLETED")));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_concurrent_deletions_one_succeeds() {
    let app = App::start().await;
    let path = path_of(&app.subscribe(NOWHERE, json!({})).await);
    let replies = futures_util::future::join_all((0..8).map(|_| app.delete(&path))).await;
    let mut statuses: Vec<u16> = replies.iter().map(|reply| reply.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [204, 404, 404, 404, 404, 404, 404, 404]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_with_a_body_is_refused_and_deletes_nothing() {
    let app = App::start().await;
    let path = path_of(&app.subscribe(NOWHERE, json!({})).await);
    let request = app.client.delete(format!("{}{path}", app.base)).json(&json!({"dry_run": true}));
    Reply::of(request.send().await.expect("a response")).await.names(&["dry_run"]);
    app.delete(&format!("{path}?force=true")).await.names(&["force"]);
    app.get(&path).await.expect(200);
}
