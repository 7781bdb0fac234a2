//! The requests that a receiver gets.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono::Utc;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;
use waybill::domain::ids::{NamespaceId, SubscriptionId};
use waybill::engine::push::PushClaim;

use super::by_hand::idle;
use super::{at_once, attempts, id_of, publish, publish_id, until_status};
use crate::support::receiver::{Gate, Receiver, Recorded, Reply};
use crate::support::{App, ledger};

/// Computes the signature as Standard Webhooks defines it, without Waybill's own code.
fn signature(secret: &str, request: &Recorded) -> String {
    let key = STANDARD.decode(secret.strip_prefix("whsec_").expect("a prefix")).expect("base64");
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).expect("a key");
    for part in [header(request, "webhook-id"), ".", header(request, "webhook-timestamp"), "."] {
        mac.update(part.as_bytes());
    }
    mac.update(&request.body);
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

#[track_caller]
fn header<'a>(request: &'a Recorded, name: &str) -> &'a str {
    request.header(name).unwrap_or_else(|| panic!("no {name} in {request:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_is_sent_byte_for_byte() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    app.subscribe(&receiver.url("/"), json!({"max_concurrency": 1})).await;
    let payloads = [
        r#"{"z":1.00,"a":1E+05,"z":-0.0e-0}"#,
        "{ \"b\" :\t[ 1 ,\n 123456789012345678901234567890 ] }",
        r#""a\u0000b \ud800 \/ é\u00e9""#,
        "1e400",
        "null",
    ];
    for (index, payload) in payloads.iter().enumerate() {
        app.post_text("/events", &format!(r#"{{"event_type":"t","payload":{payload}}}"#)).await.expect(201);
        assert_eq!(receiver.received(index + 1).await[index].text(), *payload);
    }
    app.post_text("/events", r#"{"event_type":"t"}"#).await.expect(201);
    assert_eq!(receiver.received(6).await[5].text(), "null", "there is always something to sign");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_signed_and_has_headers_that_describe_it() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    let subscription = app.subscribe(&receiver.url("/hook?x=1"), json!({})).await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let event = json!({"event_type": "user.created", "payload": {"n": 1}, "correlation_id": "Bestellung 7 für Ü"});
    let publishing = app.client.post(format!("{}/events", app.base)).header("traceparent", trace).json(&event);
    let id = id_of(&publishing.send().await.expect("a response").json::<Value>().await.expect("JSON"));
    let request = receiver.received(1).await.remove(0);
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/hook?x=1"));
    let expected = [
        ("content-type", "application/json"),
        ("user-agent", concat!("Waybill/", env!("CARGO_PKG_VERSION"))),
        ("webhook-id", &app.webhook_id(id)),
        ("waybill-event-id", &id.to_string()),
        ("waybill-event-type", "user.created"),
        ("waybill-correlation-id", "Bestellung%207%20f%C3%BCr%20%C3%9C"),
        ("waybill-attempt", "1"),
        ("traceparent", trace),
        ("content-length", "7"),
    ];
    for (name, value) in expected {
        assert_eq!(header(&request, name), value, "{name}");
    }
    let timestamp: i64 = header(&request, "webhook-timestamp").parse().expect("a number");
    assert!((Utc::now().timestamp() - timestamp).abs() < 30);
    let secret = subscription["secret"].as_str().expect("a secret");
    assert_eq!(header(&request, "webhook-signature"), signature(secret, &request));
    until_status(&app, id, "COMPLETED").await;
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_attempt_is_signed_anew_and_keeps_its_id() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    let secret = format!("whsec_{}", STANDARD.encode([7; 32]));
    app.subscribe(&receiver.url("/"), json!({"secret": secret, "backoff": at_once()})).await;
    receiver.next(Reply::status(500));
    let id = publish_id(&app, "a").await;
    let requests = receiver.received(2).await;
    for (number, request) in requests.iter().enumerate() {
        assert_eq!(header(request, "webhook-id"), app.webhook_id(id));
        assert_eq!(header(request, "waybill-event-id"), id.to_string());
        assert_eq!(header(request, "waybill-attempt"), (number + 1).to_string());
        assert_eq!(header(request, "webhook-signature"), signature(&secret, request));
    }
    until_status(&app, id, "COMPLETED").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn during_a_secret_rotation_both_secrets_sign_the_new_one_first() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    let subscription = app.subscribe(&receiver.url("/"), json!({})).await;
    let path = format!("/subscriptions/{}/rotate-secret", id_of(&subscription));
    let rotated = app.post(&path, &json!({"overlap_seconds": 60})).await.expect(200).json();
    publish_id(&app, "a").await;
    let request = receiver.received(1).await.remove(0);
    let by = |view: &Value| signature(view["secret"].as_str().expect("a secret"), &request);
    assert_eq!(header(&request, "webhook-signature"), format!("{} {}", by(&rotated), by(&subscription)));
    let last = app.post(&path, &json!({"overlap_seconds": 0})).await.expect(200).json();
    publish_id(&app, "a").await;
    let request = receiver.received(2).await.remove(1);
    let secret = last["secret"].as_str().expect("a secret");
    assert_eq!(header(&request, "webhook-signature"), signature(secret, &request));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_may_set_the_method_and_headers() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    let headers = json!({"Authorization": "Bearer t0k3n", "X-Team": "billing"});
    app.subscribe(&receiver.url("/"), json!({"method": "PUT", "headers": headers})).await;
    publish_id(&app, "a").await;
    let request = receiver.received(1).await.remove(0);
    assert_eq!(request.method, "PUT");
    assert_eq!((header(&request, "authorization"), header(&request, "x-team")), ("Bearer t0k3n", "billing"));
    let names: std::collections::BTreeSet<&String> = request.headers.iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), request.headers.len(), "each header once: {request:?}");
}

/// Returns the request that a subscription with this transform gets.
async fn transformed(app: &App, receiver: &Receiver, name: &str, transform: Value) -> Recorded {
    app.subscribe(&receiver.url(&format!("/{name}")), json!({"event_types": [name], "transform": transform})).await;
    let payload = r#"{"user":{"id":7.0,"name":"Ada \"A\"","password":"x"},"amount":1e2}"#;
    let event =
        format!(r#"{{"event_type":"{name}","labels":{{"tenant":"acme"}},"ordering_key":"k 1","payload":{payload}}}"#);
    app.post_text("/events", &event).await.expect(201);
    receiver.received(1).await.remove(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_transform_reaches_the_receiver() {
    let app = App::start().await;
    let transformed = async |name: &str, transform: Value| {
        let receiver = Receiver::start().await;
        transformed(&app, &receiver, name, transform).await
    };
    let keep = transformed("keep", json!({"keep": ["user.id", "amount"]})).await;
    assert_eq!(keep.text(), r#"{"user":{"id":7.0},"amount":1e2}"#);
    let drop = transformed("drop", json!({"drop": ["user.password"]})).await;
    assert_eq!(drop.text(), r#"{"user":{"id":7.0,"name":"Ada \"A\""},"amount":1e2}"#);

    let template = json!({"template": "{\"text\": \"{{ payload.user.name }}\", \"type\": \"{{ event_type }}\"}"});
    let template = transformed("template", template).await;
    assert_eq!(template.json(), json!({"text": "Ada \"A\"", "type": "template"}));
    let plain = json!({"template": "Hello {{ payload.user.name }}", "content_type": "text/plain"});
    let plain = transformed("plain", plain).await;
    assert_eq!((plain.text(), header(&plain, "content-type")), ("Hello Ada \"A\"", "text/plain"));

    let envelope = transformed("envelope", json!({"envelope": true, "keep": ["amount"]})).await;
    assert!(envelope.text().ends_with(r#""payload":{"amount":1e2}}"#), "{}", envelope.text());
    assert_eq!(envelope.json()["webhook_id"], header(&envelope, "webhook-id"));
    assert_eq!(envelope.json()["labels"], json!({"tenant": "acme"}));
    assert_eq!(envelope.json()["event_type"], "envelope");
    let published = app.event(header(&envelope, "waybill-event-id").parse().expect("an id")).await;
    assert_eq!(envelope.json()["created_at"], published["created_at"]);

    let structured = transformed("structured", json!({"cloudevents": "structured", "keep": ["user.id"]})).await;
    assert_eq!(header(&structured, "content-type"), "application/cloudevents+json");
    let body = structured.json();
    assert_eq!((&body["specversion"], &body["type"]), (&json!("1.0"), &json!("structured")));
    assert_eq!((&body["partitionkey"], &body["data"]), (&json!("k 1"), &json!({"user": {"id": 7.0}})));

    let binary = transformed("binary", json!({"cloudevents": "binary", "keep": ["amount"]})).await;
    assert_eq!((binary.text(), header(&binary, "ce-type")), (r#"{"amount":1e2}"#, "binary"));
    assert_eq!(
        (header(&binary, "ce-id"), header(&binary, "ce-partitionkey")),
        (header(&binary, "webhook-id"), "k%201")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_signature_covers_the_transformed_body() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    let subscription = app.subscribe(&receiver.url("/"), json!({"transform": {"envelope": true}})).await;
    publish_id(&app, "a").await;
    let request = receiver.received(1).await.remove(0);
    let secret = subscription["secret"].as_str().expect("a secret");
    assert_eq!(header(&request, "webhook-signature"), signature(secret, &request));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_applies_to_pushes_not_yet_sent_and_its_version_is_recorded() {
    let (app, before, after) = (App::start().await, Receiver::start().await, Receiver::start().await);
    let gate = Gate::closed();
    before.always(Reply::status(500).held_by(&gate));
    let subscription = app.subscribe(&before.url("/"), json!({"max_concurrency": 1, "backoff": at_once()})).await;
    let (under_way, waiting) = (publish_id(&app, "a").await, publish_id(&app, "a").await);
    before.until_in_flight(1).await;
    let edit =
        json!({"url": after.url("/new"), "method": "PUT", "headers": {"x-new": "1"}, "transform": {"envelope": true}});
    app.patch(&format!("/subscriptions/{}", id_of(&subscription)), &edit).await.expect(200);
    gate.open();
    for id in [under_way, waiting] {
        until_status(&app, id, "COMPLETED").await;
    }
    for request in after.received(2).await {
        assert_eq!((request.method.as_str(), request.path.as_str(), header(&request, "x-new")), ("PUT", "/new", "1"));
        assert_eq!(request.json()["payload"], json!({}));
    }
    let versions = async |id| {
        let known = attempts(&app, id).await;
        known.iter().map(|line| line["subscription_version"].as_i64().expect("a version")).collect::<Vec<_>>()
    };
    assert_eq!((versions(under_way).await, versions(waiting).await), (vec![1, 2], vec![2]));
    assert_eq!(before.count(), 1);
    ledger::check(&app).await;
}

/// A dispatcher has read a subscription just before it was edited, and claims afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_claimed_for_an_old_version_of_a_subscription() {
    let app = idle(&[]).await;
    let subscription_id = SubscriptionId(id_of(&app.subscribe("http://127.0.0.1:9/", json!({})).await));
    let subscription = NamespaceId::DEFAULT.subscription(subscription_id);
    let claim = async |version: i32| {
        let claim = PushClaim { subscription, version, limit: 10, lease_seconds: 30 };
        app.engine().claim_pushes(&[claim]).await.expect("a claim").len()
    };
    let path = format!("/subscriptions/{subscription_id}");
    app.patch(&path, &json!({"name": "edited"})).await.expect(200);
    publish_id(&app, "a").await;
    assert_eq!((claim(1).await, claim(2).await), (0, 1));
    publish_id(&app, "a").await;
    app.patch(&path, &json!({"is_active": false})).await.expect(200);
    assert_eq!((claim(2).await, claim(3).await), (0, 0), "nothing while it is disabled");
    app.delete(&path).await.expect(204);
    assert_eq!((claim(3).await, claim(4).await), (0, 0), "nothing once it is deleted");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_test_is_a_signed_request_and_nothing_is_stored() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    let subscription = app.subscribe(&receiver.url("/"), json!({"event_types": ["never"], "is_active": false})).await;
    let path = format!("/subscriptions/{}/test", id_of(&subscription));
    let outcome = app.post_empty(&path).await.expect(200).json();
    assert_eq!((&outcome["delivered"], &outcome["status_code"]), (&json!(true), &json!(200)));
    let request = receiver.received(1).await.remove(0);
    assert_eq!(header(&request, "waybill-event-type"), "waybill.test");
    assert_eq!(header(&request, "webhook-id"), outcome["webhook_id"].as_str().expect("an id"));
    assert_eq!(request.json(), json!({"test": true, "subscription_id": id_of(&subscription)}));
    let secret = subscription["secret"].as_str().expect("a secret");
    assert_eq!(header(&request, "webhook-signature"), signature(secret, &request));

    receiver.next(Reply::status(500).body("the secrets of a stranger"));
    let outcome = app.post_empty(&path).await.expect(200);
    assert!(!outcome.text.contains("stranger"), "{}", outcome.text);
    assert_eq!((&outcome.json()["delivered"], &outcome.json()["status_code"]), (&json!(false), &json!(500)));
    receiver.next(Reply::reset());
    let outcome = app.post_empty(&path).await.expect(200).json();
    assert_eq!((&outcome["delivered"], &outcome["error_kind"]), (&json!(false), &json!("connection")));
    app.post_empty("/subscriptions/999999/test").await.problem(404, "subscription_not_found");
    assert_eq!(app.count("SELECT count(*) FROM waybill.events").await, 0);
    assert_eq!(app.count("SELECT count(*) FROM waybill.endpoints").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_reused() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    app.subscribe(&receiver.url("/"), json!({"max_concurrency": 1})).await;
    for n in 0..10 {
        receiver.next(Reply::status(if n % 2 == 0 { 200 } else { 400 }).body("with a body"));
        let id = id_of(&publish(&app, "a", json!(n)).await);
        until_status(&app, id, if n % 2 == 0 { "COMPLETED" } else { "FAILED" }).await;
    }
    assert_eq!((receiver.count(), receiver.connections()), (10, 1));
}
