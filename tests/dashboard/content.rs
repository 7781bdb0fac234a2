//! What the pages show.

use serde_json::json;

use crate::support::App;

#[tokio::test(flavor = "multi_thread")]
async fn a_title_with_markup_is_shown_as_text() {
    let app = App::start().await;
    let title = "<script>alert(1)</script><img src=x onerror=alert(2)>";
    let id = app.publish(json!({"title": title, "tags": "reports", "payload": {"a": "</pre><script>"}})).await;
    for path in ["/ui/events".to_owned(), format!("/ui/events/{id}")] {
        let page = app.get(&path).await.expect(200).text;
        assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "{path}");
        assert!(!page.contains("<script>alert") && !page.contains("<img"), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_is_shown_with_every_digit() {
    let app = App::start().await;
    let body = r#"{"title": "x", "tags": "reports", "payload": {"order": 9007199254740993, "price": 1.10}}"#;
    let id = app.post_text("/events", body).await.expect(201).json()["id"].as_i64().expect("an id");
    let page = app.get(&format!("/ui/events/{id}")).await.expect(200).text;
    assert!(page.contains("9007199254740993") && page.contains("1.10"), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_life_of_an_event_shows_its_claims_and_failures() {
    let app = App::start().await;
    let id = app.publish_tagged("reports").await;
    app.claim("reports", "host:1").await.expect("an event");
    app.fail(id, "host:1").await.expect(200);
    let page = app.get(&format!("/ui/events/{id}")).await.expect(200).text;
    for text in ["published", "PICKED", "host:1", "FAILED", "held for", "waits "] {
        assert!(page.contains(text), "{text} in {page}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_filter_line_finds_what_the_api_finds() {
    let app = App::start().await;
    let [billing, mail] = [app.publish_tagged("billing").await, app.publish_tagged("mail").await];
    let shows = async |query: &str| {
        let page = app.get(&format!("/ui/events?q={query}")).await.expect(200).text;
        [billing, mail].map(|id| page.contains(&format!("data-id=\"{id}\"")))
    };
    assert_eq!(shows("").await, [true, true]);
    assert_eq!(shows("tag:billing").await, [true, false]);
    assert_eq!(shows("status:PENDING+tag:mail").await, [false, true]);
    assert_eq!(shows("status:FAILED").await, [false, false]);
    let wrong = app.get("/ui/events?q=status:WRONG+since:x").await.expect(200).text;
    assert!(wrong.contains("role=\"alert\"") && wrong.contains("since:x"), "{wrong}");
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_pages_say_what_to_do() {
    let app = App::start().await;
    assert!(app.get("/ui/events").await.expect(200).text.contains("Publish one:"));
    assert!(app.get("/ui/workers").await.expect(200).text.contains("/events/subscribe"));
    assert!(app.get("/").await.expect(200).text.contains("First steps"));
    app.get("/ui/events/123").await.expect(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_without_a_worker_needs_attention() {
    let app = App::start().await;
    app.publish_tagged("reports").await;
    let page = app.get("/").await.expect(200).text;
    assert!(page.contains("tag reports has 1 waiting and no worker"), "{page}");
    app.claim("reports", "host:1").await.expect("an event");
    assert!(!app.get("/").await.expect(200).text.contains("no worker"));
}
