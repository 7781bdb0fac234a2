//! Work that does not go on.

use serde_json::json;

use super::assert_says;
use crate::support::receiver::{Receiver, Reply};
use crate::support::work::W1;
use crate::support::{App, Options, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_that_nobody_asks_for_is_found_until_a_worker_comes() {
    let app = App::with_fixed_clock().await;
    app.assert_check("unserved_tags", "ok").await;
    app.publish_tagged("reports").await;
    app.publish_tagged("reports").await;
    app.publish_tagged("mail").await;
    app.advance(120);
    let unserved = app.assert_check("unserved_tags", "warning").await;
    assert_says(
        &unserved["summary"],
        "no worker asks for 2 tags: mail (1 waiting), reports (2 waiting); waiting for 2 min",
    );
    assert_says(&unserved["advice"], "waybill work --tags ");
    app.claim("mail,reports", W1).await.expect("an event");
    app.assert_check("unserved_tags", "ok").await;
    app.advance(3_600);
    app.assert_check("unserved_tags", "problem").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tags_of_all_namespaces_are_looked_at() {
    let app = App::start().await;
    app.post("/namespaces", &json!({"name": "photos"})).await.expect(201);
    let event = json!({"title": "a job", "tags": "thumbnails"});
    let request = app.client.post(format!("{}/events", app.base)).header("Waybill-Namespace", "photos").json(&event);
    assert_eq!(request.send().await.expect("a response").status(), 201);
    let unserved = app.assert_check("unserved_tags", "warning").await;
    assert_eq!(unserved["details"]["tags"][0]["namespace"], "photos");
    assert_eq!(unserved["details"]["tags"][0]["tag"], "thumbnails");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_lease_that_nobody_resets_is_found_with_its_worker() {
    let flags = vec!["--auto-reset=false".into()];
    let app = App::start_with(Options { fixed_clock: true, flags, ..Options::default() }).await;
    let id = app.publish_tagged("a").await;
    app.claim("a", W1).await.expect("an event");
    app.assert_check("expired_leases", "ok").await;
    app.advance(29);
    app.assert_check("stale_workers", "ok").await;
    app.advance(2);
    let stale = app.assert_check("stale_workers", "warning").await;
    assert_says(&stale["advice"], "waybill events reset --worker NAME --stale-for-seconds N");
    app.advance(309);
    let expired = app.assert_check("expired_leases", "problem").await;
    assert_eq!(expired["details"]["events"][0]["id"], id);
    assert_says(&expired["advice"], "This server runs with --auto-reset false. Run waybill events reset --all");
    let stale = app.assert_check("stale_workers", "warning").await;
    assert_says(&stale["summary"], &format!("1 worker silent for up to 5 min: {W1} (holds 1)"));
    app.reap().await;
    app.assert_check("expired_leases", "ok").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pushes_that_are_given_up_and_open_breakers_are_found() {
    let flags = vec!["--breaker-failures=1".into()];
    let app = App::start_with(Options { flags, ..Options::default() }).await;
    let receiver = Receiver::start().await;
    receiver.always(Reply::status(500));
    app.assert_check("dead_letters", "ok").await;
    app.assert_check("breakers", "ok").await;
    let fields = json!({"event_types": ["t"], "max_attempts": 1});
    let id = app.subscribe(&receiver.url("/hooks/secret-token"), fields).await["id"].clone();
    app.publish_typed("t", json!({})).await;
    until("it is given up", async || app.check("dead_letters").await["status"] == "warning").await;
    let dead_letters = app.check("dead_letters").await;
    assert_says(
        &dead_letters["summary"],
        &format!("1 push became dead letters in the last hour, most of subscription {id}"),
    );
    let breakers = app.assert_check("breakers", "warning").await;
    assert_eq!(breakers["details"]["open"], 1);
    assert!(!breakers.to_string().contains("secret-token"), "{breakers}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_that_nobody_carries_out_is_found() {
    let app = App::with_fixed_clock().await;
    app.publish_tagged("a").await;
    let operation = app.post("/events/cancel", &json!({"filter": {}})).await.expect(202).json();
    app.assert_check("operations", "ok").await;
    app.advance(120);
    let stuck = app.assert_check("operations", "problem").await;
    assert_says(&stuck["summary"], &format!("operation {} (cancel_events) has waited", operation["id"]));
    assert_says(&stuck["advice"], &format!("waybill operations cancel {}.", operation["id"]));
}
