//! `POST /events`.

use serde_json::json;

use crate::support::App;

#[tokio::test(flavor = "multi_thread")]
async fn a_published_event_is_answered_whole_and_can_be_read_back() {
    let app = App::start().await;
    let reply = app
        .post("/events", &json!({"title": "Send Email", "tags": "email, urgent,email", "payload": {"to": "a@b.c"}}))
        .await
        .expect(201);
    let event = reply.json();
    assert_eq!(event["tags"], "email,urgent");
    assert_eq!(event["status"], "PENDING");
    assert_eq!(event["max_retries"], 3);
    assert_eq!(reply.header("location"), Some(&*format!("/events/{}", event["id"])));
    assert_eq!(app.get(&format!("/events/{}", event["id"])).await.expect(200).json(), event);
}
