//! A whole life of a subscription: pushes, a failure, a replay, an edit and a new secret.

use serde_json::{Value, json};

use super::{assert_signed, is_signed_with};
use crate::support::receiver::{Receiver, Reply};
use crate::support::{App, until};

/// The first token, which a header carries.
pub(super) const OLD_TOKEN: &str = "old-t0ken-4711";
/// The token that replaces it.
pub(super) const NEW_TOKEN: &str = "new-t0ken-0815";
/// A part of the path and a part of the query of the URL.
pub(super) const IN_PATH: &str = "p4th-t0ken";
const IN_QUERY: &str = "qu3ry-t0ken";

/// What a life has used.
pub(super) struct Life {
    pub subscription: Value,
    /// All secrets and header values.
    pub private: Vec<String>,
    /// The parts of the URL that must not be logged.
    pub private_in_url: Vec<String>,
    /// The bodies of all responses that may be read again and again.
    pub responses: Vec<String>,
}

/// Lives a life, with real pushes to a receiver that repeats what it gets.
pub(super) async fn live(app: &App, receiver: &Receiver) -> Life {
    let headers = json!({"Authorization": format!("Bearer {OLD_TOKEN}"), "X-Kept": "k3pt-forever"});
    let url = receiver.url(&format!("/hook/{IN_PATH}?key={IN_QUERY}"));
    let subscription = app.subscribe(&url, json!({"headers": headers, "max_attempts": 1})).await;
    let path = format!("/subscriptions/{}", subscription["id"]);
    receiver.answer_with(|request| {
        let said = format!("{:?} {}", request.headers, request.path);
        let status = if request.json()["fails"] == true { 500 } else { 200 };
        Reply::status(status).body(said)
    });
    let event = push(app, json!({"n": 1}), "COMPLETED").await;
    let request = receiver.received(1).await.remove(0);
    assert_eq!(request.header("authorization"), Some(format!("Bearer {OLD_TOKEN}").as_str()));
    assert_signed(&request, &subscription);

    let failed = push(app, json!({"fails": true}), "FAILED").await;
    let changes = json!({"headers": {"authorization": format!("Bearer {NEW_TOKEN}")}, "name": "changed"});
    app.patch(&path, &changes).await.expect(200);
    let rotated = app.post_text(&format!("{path}/rotate-secret"), "").await.expect(200).json();
    let new_secret = rotated["secret"].as_str().expect("a secret").to_owned();
    let letter = app.open_dead_letter(failed).await["id"].clone();
    app.replay(&letter, json!({"config": "original", "payload": {"n": 2}})).await.expect(200);
    let replayed = receiver.received(3).await.remove(2);
    assert_eq!(replayed.header("authorization"), Some(format!("Bearer {OLD_TOKEN}").as_str()));
    assert_eq!(replayed.header("x-kept"), Some("k3pt-forever"));
    assert!(is_signed_with(&replayed, &new_secret));
    assert_signed(&replayed, &subscription);
    push(app, json!({"fails": true}), "FAILED").await;
    assert_eq!(receiver.so_far()[3].header("authorization"), Some(format!("Bearer {NEW_TOKEN}").as_str()));
    assert_eq!(app.post_empty(&format!("{path}/test")).await.expect(200).json()["delivered"], true);
    let refused = json!({"headers": {"X-Bad": format!("{NEW_TOKEN}\n")}, "secret": format!("whsec_{NEW_TOKEN}")});
    let refused = app.patch(&path, &refused).await.expect(400).text;

    let mut responses = vec![refused];
    let delivery = format!("/deliveries/{}", app.only_delivery(event).await);
    let letter = format!("/dead-letters/{letter}");
    for path in [path.as_str(), "/subscriptions", "/dead-letters", "/logs", "/metrics", &delivery, &letter] {
        responses.push(app.get(path).await.expect(200).text);
    }
    responses.push(app.event(failed).await.to_string());
    let secret = |view: &Value| view["secret"].as_str().expect("a secret")["whsec_".len()..].to_owned();
    let tokens = [OLD_TOKEN, NEW_TOKEN, "k3pt-forever"].map(str::to_owned);
    let private = tokens.into_iter().chain([secret(&subscription), secret(&rotated)]).collect();
    let private_in_url = [IN_PATH, IN_QUERY].map(str::to_owned).to_vec();
    Life { subscription, private, private_in_url, responses }
}

/// Publishes an event, and waits until its only push has this outcome.
async fn push(app: &App, payload: Value, status: &str) -> i64 {
    let event = app.publish_typed("order.paid", payload).await;
    until(status, async || app.event(event).await["status"] == status).await;
    event
}
