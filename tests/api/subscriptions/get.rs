//! `GET /subscriptions/{id}`.

use serde_json::{Value, json};

use super::{NOWHERE, path_of, secret_of};
use crate::support::receiver::{Receiver, Reply};
use crate::support::records::app_that_sends_nothing;
use crate::support::work::time;
use crate::support::{App, until};

#[tokio::test(flavor = "multi_thread")]
async fn the_secret_is_shown_once_and_never_again() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    receiver.always(Reply::status(500));
    let fields = json!({"event_types": ["t"], "max_attempts": 1});
    let subscription = app.subscribe(&receiver.url("/hook"), fields).await;
    let path = path_of(&subscription);
    let event = app.publish_typed("t", json!(1)).await;
    let delivery = app.only_delivery(event).await;
    app.until_delivery(delivery, "FAILED").await;
    let letter = app.open_dead_letter(event).await["id"].clone();
    let mut secrets = vec![secret_of(&subscription)];
    let rotated = app.post(&format!("{path}/rotate-secret"), &json!({})).await.expect(200).json();
    secrets.push(secret_of(&rotated));
    let answers = [
        app.patch(&path, &json!({"name": "renamed"})).await,
        app.post_empty(&format!("{path}/test")).await,
        app.get(&path).await,
        app.get("/subscriptions").await,
        app.get(&format!("/events/{event}?include_logs=true&include_deliveries=true")).await,
        app.get(&format!("/deliveries/{delivery}")).await,
        app.get(&format!("/dead-letters/{letter}")).await,
        app.get("/dead-letters").await,
        app.get("/logs").await,
        app.get("/metrics").await,
    ];
    for answer in answers {
        let answer = answer.expect(200);
        assert!(!answer.text.contains("whsec_"), "{}", answer.text);
        for secret in &secrets {
            assert!(!answer.text.contains(&secret[6..]), "{}", answer.text);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn header_values_are_sent_and_never_shown() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    let fields = json!({"event_types": ["t"], "headers": {"Authorization": "Bearer s3cret"}});
    let body = json!({"url": receiver.url("/hook"), "event_types": ["t"], "headers": fields["headers"]});
    let created = app.post("/subscriptions", &body).await.expect(201);
    let path = path_of(&created.json());
    app.publish_typed("t", json!(1)).await;
    assert_eq!(receiver.received(1).await[0].header("authorization"), Some("Bearer s3cret"));
    let answers = [
        created,
        app.get(&path).await,
        app.patch(&path, &json!({"name": "renamed"})).await,
        app.patch(&path, &fields).await,
        app.get("/subscriptions").await,
    ];
    for answer in answers {
        assert!(answer.status < 300 && !answer.text.contains("s3cret"), "{}", answer.text);
        assert!(answer.text.contains(r#""header_names":["Authorization"]"#), "{}", answer.text);
        assert!(!answer.text.contains(r#""headers""#), "{}", answer.text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_shows_the_state_of_its_endpoint() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    let subscription = app.subscribe(&receiver.url("/hook"), json!({"event_types": ["t"], "max_attempts": 1})).await;
    let endpoint = async || app.get(&path_of(&subscription)).await.expect(200).json()["endpoint"].clone();
    assert_eq!(endpoint().await, json!({"breaker": "closed", "failures_in_row": 0, "paused_until": null}));
    receiver.next(Reply::status(500));
    app.publish_typed("t", json!(1)).await;
    until("the failure is counted", async || endpoint().await["failures_in_row"] == 1).await;
    assert_eq!(endpoint().await["breaker"], "closed");
    receiver.next(Reply::too_many_requests("3600"));
    app.publish_typed("t", json!(2)).await;
    until("the endpoint is paused", async || endpoint().await["paused_until"].is_string()).await;
    let paused = endpoint().await;
    assert_eq!(paused["breaker"], "closed", "the endpoint asked for the pause");
    let paused_until = time(&paused["paused_until"]);
    assert!(paused_until > chrono::Utc::now() + chrono::TimeDelta::seconds(3000), "{paused_until}");
    let others = app.subscribe(&receiver.url("/hook"), json!({"is_active": false})).await;
    let of_others = app.get(&path_of(&others)).await.expect(200).json()["endpoint"].clone();
    assert_eq!(
        of_others["paused_until"], paused["paused_until"],
        "the pause belongs to the URL, not to the subscription"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_subscription_is_not_found() {
    let app = App::start().await;
    let event = app.publish_tagged("a").await;
    for id in [event + 1000, i64::MAX] {
        let path = format!("/subscriptions/{id}");
        app.get(&path).await.problem(404, "subscription_not_found");
        app.patch(&path, &json!({"name": "x"})).await.problem(404, "subscription_not_found");
        app.delete(&path).await.problem(404, "subscription_not_found");
        app.post(&format!("{path}/rotate-secret"), &json!({})).await.problem(404, "subscription_not_found");
        app.post_empty(&format!("{path}/test")).await.problem(404, "subscription_not_found");
    }
    for id in ["9007199254740992", "9223372036854775808"] {
        app.get(&format!("/subscriptions/{id}")).await.problem(404, "subscription_not_found");
    }
    for id in ["0", "-1", "one"] {
        app.get(&format!("/subscriptions/{id}")).await.names(&["id"]);
    }
    let subscription = app.subscribe(NOWHERE, json!({})).await;
    assert_ne!(app.get(&path_of(&subscription)).await.expect(200).json()["id"], Value::Null);
}

/// Receivers often put a token into the path.
#[tokio::test(flavor = "multi_thread")]
async fn of_a_url_those_who_may_not_change_it_see_only_the_beginning() {
    let app = app_that_sends_nothing().await.with_admin_key().await;
    let url = "https://shop.example/hooks/s3cret?token=s3cret";
    let id = app.subscribe(url, json!({"event_types": ["order.*"]})).await["id"].clone();
    let event = app.publish_typed("order.paid", json!(1)).await;
    let delivery = app.only_delivery(event).await;
    app.post_empty(&format!("/deliveries/{delivery}/dead-letter?reason=gone")).await.expect(200);
    let letter = app.open_dead_letter(event).await["id"].clone();
    let reader = app.holding(&app.make_key(json!({"scopes": ["read", "reveal"]})).await);
    let operator = app.holding(&app.make_key(json!({"scopes": ["read", "operate"]})).await);
    for path in ["/subscriptions".to_owned(), format!("/subscriptions/{id}"), format!("/dead-letters/{letter}")] {
        let (read, operated) = (reader.get(&path).await.expect(200).text, operator.get(&path).await.expect(200).text);
        assert!(read.contains("https://shop.example/hooks/…") && !read.contains("s3cret"), "{path}: {read}");
        assert!(operated.contains(url), "{path}: {operated}");
    }
    let audit = app.get("/audit").await.expect(200).text;
    assert!(audit.contains("https://shop.example/hooks/…") && !audit.contains("s3cret"), "{audit}");
}
