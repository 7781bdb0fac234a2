//! `POST /subscriptions/{id}/test`: a signed request, and its outcome.

use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::{path_of, update};
use crate::support::receiver::{Receiver, Reply};
use crate::support::{App, Options};

async fn test(app: &App, subscription: &Value) -> Value {
    app.post_empty(&format!("{}/test", path_of(subscription))).await.expect(200).json()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_test_is_sent_like_any_other_event_and_stores_nothing() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    let fields = json!({"method": "PUT", "event_types": ["never"], "headers": {"X-Token": "t"}, "is_active": false});
    let subscription = app.subscribe(&receiver.url("/hook?a=b"), fields).await;
    let outcome = test(&app, &subscription).await;
    assert_eq!((&outcome["delivered"], &outcome["status_code"]), (&json!(true), &json!(200)));
    assert_eq!(outcome["error_kind"], Value::Null);
    let request = receiver.received(1).await.remove(0);
    assert_eq!((request.method.as_str(), request.path.as_str()), ("PUT", "/hook?a=b"));
    assert_eq!(request.header("webhook-id"), outcome["webhook_id"].as_str());
    assert_eq!(request.header("waybill-event-type"), Some("waybill.test"));
    assert_eq!(request.header("waybill-event-id"), None, "there is no event");
    assert_eq!(request.header("x-token"), Some("t"));
    assert!(request.header("webhook-signature").expect("a signature").starts_with("v1,"));
    assert_eq!(request.json(), json!({"test": true, "subscription_id": subscription["id"]}));
    for table in ["events", "deliveries", "event_log"] {
        assert_eq!(app.count(&format!("SELECT count(*) FROM waybill.{table}")).await, 0, "{table}");
    }
    assert_ne!(test(&app, &subscription).await["webhook_id"], outcome["webhook_id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_test_shows_its_outcome_and_nothing_of_the_response() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    let subscription = app.subscribe(&receiver.url("/hook"), json!({"timeout_ms": 100})).await;
    let response_text = "the-keys-of-the-house";
    let cases = [
        (Reply::status(201).body(response_text), true, json!(201), Value::Null),
        (Reply::status(500).body(response_text).header("x-token", response_text), false, json!(500), Value::Null),
        (Reply::redirect_to(&format!("http://{response_text}/")), false, json!(302), Value::Null),
        (Reply::gone(), false, json!(410), Value::Null),
        (Reply::never(), false, Value::Null, json!("timeout")),
        (Reply::reset(), false, Value::Null, json!("connection")),
        (Reply::raw(format!("{response_text}\r\n\r\n")), false, Value::Null, json!("invalid_response")),
    ];
    for (reply, delivered, status, kind) in cases {
        receiver.next(reply);
        let outcome = test(&app, &subscription).await;
        assert_eq!(
            (&outcome["delivered"], &outcome["status_code"], &outcome["error_kind"]),
            (&json!(delivered), &status, &kind)
        );
        assert!(!outcome.to_string().contains(response_text), "{outcome}");
        let fields: Vec<&String> = outcome.as_object().expect("an object").keys().collect();
        assert_eq!(fields.len(), 5, "{fields:?}");
    }
    let view = app.get(&path_of(&subscription)).await.expect(200).json();
    assert_eq!(view["is_active"], true, "a test does not disable the subscription");
    assert_eq!(view["endpoint"]["failures_in_row"], 0, "a test does not count as a failure of the endpoint");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_test_of_an_unreachable_receiver_shows_the_kind_of_error() {
    let app = App::start().await;
    let nobody = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("an address");
    let subscription = app.subscribe(&format!("http://{nobody}/hook"), json!({})).await;
    let outcome = test(&app, &subscription).await;
    assert_eq!((&outcome["delivered"], &outcome["error_kind"]), (&json!(false), &json!("connect")));
    let stranger = Receiver::start_tls().await;
    update(&app, &subscription, json!({"url": stranger.url("/hook")})).await.expect(200);
    assert_eq!(test(&app, &subscription).await["error_kind"], "tls");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_test_is_not_sent_to_forbidden_addresses() {
    let (generous, receiver) = (App::start().await, Receiver::start().await);
    let flags = vec!["--webhook-allow=10.0.0.0/8".to_owned()];
    let strict = App::start_with(Options { url: Some(generous.url.clone()), flags, ..Options::default() }).await;
    let port = receiver.address().port();
    for host in ["127.0.0.1", "localhost", "2130706433"] {
        let subscription = generous.subscribe(&format!("http://{host}:{port}/hook"), json!({"is_active": false})).await;
        let outcome = test(&strict, &subscription).await;
        assert_eq!(
            (&outcome["delivered"], &outcome["error_kind"]),
            (&json!(false), &json!("address_refused")),
            "{host}"
        );
    }
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_test_whose_body_cannot_be_rendered_shows_the_error_and_sends_nothing() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    let transform = json!({"template": "{\"user\": {{ payload.user }}}"});
    let subscription = app.subscribe(&receiver.url("/hook"), json!({"transform": transform})).await;
    app.post_empty(&format!("{}/test", path_of(&subscription))).await.names(&["transform"]);
    assert_eq!(receiver.connections(), 0);
}
