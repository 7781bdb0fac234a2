//! The pages about event types, sources and operations.

use serde_json::json;

use crate::support::App;

#[tokio::test(flavor = "multi_thread")]
async fn event_types_show_what_is_declared_and_what_events_have() {
    let app = App::start().await;
    let empty = app.get("/ui/event-types").await.expect(200).text;
    assert!(empty.contains(&format!("{}/event-types/order.charged", app.base)), "{empty}");
    let schema = json!({"type": "object", "required": ["order"]});
    app.put("/event-types/order.charged", &json!({"schema": schema, "examples": [{"order": 17}]})).await.expect(201);
    app.publish(json!({"title": "x", "tags": "a", "event_type": "mail <sent>"})).await;
    let list = app.get("/ui/event-types").await.expect(200).text;
    assert!(list.contains("checked by schema") && list.contains("not declared"), "{list}");
    assert!(list.contains("mail &lt;sent&gt;") && list.contains("/ui/event-types/mail%20%3Csent%3E"), "{list}");
    let page = app.get("/ui/event-types/order.charged").await.expect(200).text;
    for text in ["version 1", "&quot;required&quot;", "17", "data-if-match=\"&quot;1&quot;\"", "Delete"] {
        assert!(page.contains(text), "{text} in {page}");
    }
    let undeclared = app.get("/ui/event-types/mail%20%3Csent%3E").await.expect(200).text;
    assert!(undeclared.contains("not declared") && undeclared.contains("data-path=\"/event-types/mail%20%3Csent%3E\""));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_latest_events_are_checked_against_a_schema_on_demand() {
    let app = App::start().await;
    let event = |payload| json!({"title": "x", "tags": "a", "event_type": "order.charged", "payload": payload});
    let id = app.publish(event(json!({"amount": 3}))).await;
    app.publish(event(json!({"order": 3}))).await;
    let schema = json!({"type": "object", "required": ["order"]});
    app.put("/event-types/order.charged?force=true", &json!({"schema": schema})).await.expect(201);
    let page = app.get("/ui/event-types/order.charged").await.expect(200).text;
    assert!(page.contains("?check=true") && !page.contains("rejected"), "{page}");
    let checked = app.get("/ui/event-types/order.charged?check=true").await.expect(200).text;
    assert!(checked.contains("1 rejected") && checked.contains(&format!("/ui/events/{id}\"")), "{checked}");
}

#[tokio::test(flavor = "multi_thread")]
async fn older_versions_of_a_schema_are_shown() {
    let app = App::start().await;
    app.put("/event-types/a", &json!({"schema": {"type": "object"}})).await.expect(201);
    app.put("/event-types/a", &json!({"schema": {"type": "string"}})).await.expect(200);
    let old = app.get("/ui/event-types/a?version=1").await.expect(200).text;
    assert!(old.contains("of version 1") && old.contains("&quot;object&quot;"), "{old}");
    app.get("/ui/event-types/a?version=7").await.expect(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_address_of_a_source_is_for_those_who_may_change_it() {
    let app = App::with_keys().await;
    let source = app
        .source(json!({"name": "<b>shop", "provider": "github", "tags": ["ci"], "verify": {"secret": "s3cret"}}))
        .await;
    let (id, path) = (source["id"].as_i64().expect("an id"), source["path"].as_str().expect("a path"));
    app.send_webhook(&source, &[], "{}").await.problem(401, "webhook_refused");
    let reader = app.holder_of("read").await;
    for page in ["/ui/sources".to_owned(), format!("/ui/sources/{id}")] {
        let shown = app.get(&page).await.expect(200).text;
        assert!(shown.contains(path) && shown.contains("github") && shown.contains("&lt;b&gt;shop"), "{shown}");
        assert!(!shown.contains("s3cret") && shown.contains("missing"), "the reason of the refusal: {shown}");
        let hidden = reader.get(&page).await.expect(200).text;
        assert!(!hidden.contains(path) && hidden.contains("/in/…") && !hidden.contains("data-form"), "{hidden}");
    }
    let page = app.get(&format!("/ui/sources/{id}")).await.expect(200).text;
    assert!(page.contains(&format!("{}{path}", app.base)) && page.contains("rotate-secret"), "{page}");
    reader.get("/ui/sources/new").await.expect(403);
    assert!(app.get("/ui/sources/new?provider=stripe").await.expect(200).text.contains("value=\"stripe\" selected"));
    assert!(!app.get("/ui/sources?namespace=default&is_active=false").await.expect(200).text.contains("data-id"));
}

#[tokio::test(flavor = "multi_thread")]
async fn operations_show_their_progress_and_can_be_stopped_by_operators() {
    let app = App::with_keys().await;
    assert!(app.get("/ui/operations").await.expect(200).text.contains("/events/retry"));
    for _ in 0..3 {
        app.publish_tagged("reports").await;
    }
    let body = json!({"filter": {"tags": ["reports"]}, "reason": "<i>not wanted", "per_second": 0.1});
    let id = app.post("/events/cancel", &body).await.expect(202).json()["id"].as_i64().expect("an id");
    let list = app.get("/ui/operations?status=RUNNING").await.expect(200).text;
    for text in ["cancel_events", "RUNNING", "<progress", "of 3", "the admin", &format!("/operations/{id}/cancel")] {
        assert!(list.contains(text), "{text} in {list}");
    }
    assert!(!app.get("/ui/operations?status=FAILED").await.expect(200).text.contains("data-id"));
    let page = app.get(&format!("/ui/operations/{id}")).await.expect(200).text;
    assert!(page.contains("&lt;i&gt;not wanted") && page.contains("&quot;reports&quot;"), "{page}");
    let reader = app.holder_of("read").await;
    assert!(!reader.get(&format!("/ui/operations/{id}")).await.expect(200).text.contains("data-action"));
    app.post("/namespaces", &json!({"name": "other"})).await.expect(201);
    app.get(&format!("/ui/operations/{id}?namespace=other")).await.expect(404);
}
