//! What a page shows to holders of different keys.

use serde_json::json;

use crate::support::App;

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_sees_neither_payloads_nor_buttons() {
    let app = App::with_keys().await;
    let id = app.publish(json!({"title": "x", "tags": "reports", "payload": {"card": "4242"}})).await;
    let reader = app.holder_of("read").await;
    let path = format!("/ui/events/{id}");
    let page = reader.get(&path).await.expect(200).text;
    assert!(!page.contains("4242") && page.contains("Hidden"), "{page}");
    assert!(!page.contains("data-action") && !reader.get("/ui/events").await.expect(200).text.contains("data-bulk"));
    let admin = app.get(&path).await.expect(200).text;
    assert!(admin.contains("4242") && admin.contains("data-action"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_shows_only_events_of_the_viewers_namespace() {
    let app = App::with_keys().await;
    app.post("/namespaces", &json!({"name": "other"})).await.expect(201);
    let id = app.publish_tagged("reports").await;
    assert!(app.get("/ui/events").await.expect(200).text.contains(&format!("data-id=\"{id}\"")));
    assert!(!app.get("/ui/events?namespace=other").await.expect(200).text.contains("data-id"));
    app.get(&format!("/ui/events/{id}?namespace=other")).await.expect(404);
    app.holder_of("read").await.get("/ui/events?namespace=other").await.expect(403);
}
