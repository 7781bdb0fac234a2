//! Fields that nobody is shown who reads.

use serde_json::{Value, json};

use crate::support::receiver::Receiver;
use crate::support::records::app_that_sends_nothing;
use crate::support::{App, Options, Reply};

/// The word that stands in every field that is redacted here.
const SECRET: &str = "4111-1111";

/// A payload with a secret, and with what a careless parser would change.
const PAYLOAD: &str = "{\"z\" : 12345678901234567890123.4500e+2,\"card\":{ \"number\": \"4111-1111\",\"x\":[\"4111-1111\"] },\"a\":1,\"a\":2}";
const REDACTED: &str = "{\"z\" : 12345678901234567890123.4500e+2,\"card\":{ \"number\": \"[redacted]\",\"x\":\"[redacted]\" },\"a\":1,\"a\":2}";

async fn redact(app: &App, patterns: Value) {
    app.patch("/namespaces/default", &json!({"settings": {"redact": patterns}})).await.expect(200);
}

async fn publish_with_secret(app: &App, fields: &str) -> i64 {
    let event = format!("{{{fields}, \"payload\": {PAYLOAD}}}");
    app.post_text("/events", &event).await.expect(201).json()["id"].as_i64().expect("an id")
}

/// Asserts that a response has no secret, and all else of the payload byte for byte.
#[track_caller]
fn redacts(reply: Reply) -> Value {
    assert!(reply.status < 300, "{reply:?}");
    assert!(!reply.text.contains(SECRET) && reply.text.contains(REDACTED), "{}", reply.text);
    reply.json()
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_and_operators_do_not_see_redacted_fields_and_workers_do() {
    let app = App::start().await;
    redact(&app, json!(["payload.card.*", "result.token", "progress.*.code"])).await;
    let published =
        app.post_text("/events", &format!("{{\"title\": \"t\", \"tags\": \"a\", \"payload\": {PAYLOAD}}}")).await;
    let published = published.expect(201);
    assert!(published.text.contains(PAYLOAD), "a publisher gets what it has just sent: {}", published.text);
    let id = published.json()["id"].as_i64().expect("an id");
    let path = format!("/events/{id}");
    redacts(app.get(&path).await);
    let claimed = app.get("/events/subscribe?tags=a&worker_id=w:1").await.expect(200);
    assert!(claimed.text.contains(PAYLOAD), "{}", claimed.text);
    let progress = json!({"worker_id": "w:1", "progress": [{"code": SECRET, "step": 1}]});
    app.post(&format!("{path}/heartbeat"), &progress).await.expect(200);
    let seen = redacts(app.get(&format!("{path}?include_logs=true&include_deliveries=true")).await);
    assert_eq!(seen["progress"], json!([{"code": "[redacted]", "step": 1}]));
    redacts(app.post_empty(&format!("{path}/reset")).await);
    redacts(app.post_empty(&format!("{path}/cancel")).await);
    redacts(app.post_empty(&format!("{path}/retry")).await);
    let claimed = app.post("/events/claim", &json!({"tags": ["a"], "worker_id": "w:1", "max": 1})).await.expect(200);
    assert!(claimed.text.contains(PAYLOAD), "{}", claimed.text);
    let result = json!({"worker_id": "w:1", "result": {"token": SECRET, "ok": true}});
    let completed = app.post(&format!("{path}/complete"), &result).await.expect(200);
    assert!(!completed.text.contains(SECRET), "{}", completed.text);
    assert_eq!(redacts(app.get(&path).await)["result"], json!({"token": "[redacted]", "ok": true}));
    for list in ["/events", "/logs", "/deliveries", "/workers", "/tags", "/audit", "/webhooks/1", "/usage"] {
        let reply = app.get(list).await;
        assert!(!reply.text.contains(SECRET), "{list}: {}", reply.text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_publish_is_read_like_any_other_event() {
    let app = App::start().await;
    redact(&app, json!(["payload.card.*"])).await;
    let event = format!("{{\"title\": \"t\", \"tags\": \"a\", \"idempotency_key\": \"k\", \"payload\": {PAYLOAD}}}");
    assert!(app.post_text("/events", &event).await.expect(201).text.contains(PAYLOAD));
    let repeated = redacts(app.post_text("/events", &event).await.expect(200));
    assert_eq!(repeated["repeated"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_redacted_and_pushes_are_not() {
    let receiver = Receiver::start().await;
    let app = App::start().await;
    redact(&app, json!(["payload.card.*"])).await;
    app.subscribe(&receiver.url("/hook"), json!({"max_attempts": 1})).await;
    receiver.next(crate::support::receiver::Reply::status(500));
    let event = publish_with_secret(&app, "\"event_type\": \"order.paid\"").await;
    let delivery = app.only_delivery(event).await;
    app.until_delivery(delivery, "FAILED").await;
    let letter = app.open_dead_letter(event).await["id"].clone();
    redacts(app.get(&format!("/dead-letters/{letter}")).await);
    for path in ["/dead-letters", "/deliveries", &format!("/deliveries/{delivery}")] {
        assert!(!app.get(path).await.expect(200).text.contains(SECRET), "{path}");
    }
    let dry_run = app.post("/dead-letters/replay", &json!({"filter": {}, "dry_run": true})).await.expect(200);
    assert!(!dry_run.text.contains(SECRET), "{}", dry_run.text);
    redacts(app.post(&format!("/dead-letters/{letter}/replay"), &json!({})).await);
    let pushed = receiver.received(2).await;
    for request in &pushed {
        let body = String::from_utf8_lossy(&request.body);
        assert!(body.contains(PAYLOAD), "{body}");
    }
}

/// The settings are not kept in memory: what was hidden is hidden on all servers from then on.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_counts_at_once_on_all_servers_and_for_what_is_stored() {
    let flags = vec!["--poll-interval-ms=60000".to_owned(), "--notify=false".into(), "--dispatch=false".into()];
    let one = App::start_with(Options { flags: flags.clone(), ..Options::default() }).await;
    let other = App::start_with(Options { flags, url: Some(one.url.clone()), ..Options::default() }).await;
    let id = publish_with_secret(&one, "\"title\": \"t\", \"tags\": \"a\"").await;
    let path = format!("/events/{id}");
    assert!(other.get(&path).await.expect(200).text.contains(PAYLOAD));
    redact(&one, json!(["payload.card.*"])).await;
    redacts(other.get(&path).await);
    redacts(one.get(&path).await);
    // Other settings leave it alone, and other namespaces have their own.
    one.patch("/namespaces/default", &json!({"settings": {"strict_event_types": false}})).await.expect(200);
    redacts(other.get(&path).await);
    let team = one.namespace("team").await;
    let theirs = publish_with_secret(&team, "\"title\": \"t\", \"tags\": \"a\"").await;
    assert!(team.get(&format!("/events/{theirs}")).await.expect(200).text.contains(PAYLOAD));
    redact(&one, json!(null)).await;
    assert!(other.get(&path).await.expect(200).text.contains(PAYLOAD));
    assert_eq!(one.get("/namespaces/default").await.json()["settings"]["redact"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn those_who_may_not_see_contents_see_none_whatever_is_redacted() {
    let app = App::with_keys().await;
    redact(&app, json!(["payload.card.*"])).await;
    let id = publish_with_secret(&app, "\"title\": \"t\", \"tags\": \"a\"").await;
    let reader = app.holder_of("read").await.get(&format!("/events/{id}")).await.expect(200).json();
    assert_eq!((&reader["payload"], &reader["hidden"][0]), (&json!(null), &json!("payload")));
    let revealing = app.make_key(json!({"scopes": ["read", "reveal"]})).await;
    redacts(app.holding(&revealing).get(&format!("/events/{id}")).await);
    redacts(app.get(&format!("/events/{id}")).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn patterns_are_checked_and_settings_of_a_later_version_hide_everything() {
    let app = App::start().await;
    let many: Vec<String> = (0..51).map(|number| format!("payload.{number}")).collect();
    for bad in
        [json!("payload"), json!([1]), json!(["card"]), json!(["payload..x"]), json!(["payload.c*"]), json!(many)]
    {
        app.patch("/namespaces/default", &json!({"settings": {"redact": bad}})).await.names(&["settings.redact"]);
    }
    let created = json!({"name": "shop", "settings": {"redact": ["payload.card.*"]}});
    let created = app.post("/namespaces", &created).await.expect(201).json();
    assert_eq!(created["settings"]["redact"], json!(["payload.card.*"]));
    let id = publish_with_secret(&app, "\"title\": \"t\", \"tags\": \"a\"").await;
    for later in [r#"{"redact": ["payload[?@.card]"]}"#, r#"{"redact": {"paths": []}}"#] {
        let update = format!("UPDATE waybill.namespaces SET settings = '{later}' WHERE name = 'default'");
        crate::support::database::execute(&app.url, &update).await;
        assert_eq!(app.get(&format!("/events/{id}")).await.expect(200).json()["payload"], "[redacted]", "{later}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ordering_key_from_a_payload_is_hidden_like_the_payload() {
    let app = app_that_sends_nothing().await.with_admin_key().await;
    app.subscribe("http://127.0.0.1:9/", json!({"ordering": "by_key", "ordering_key_path": "card.number"})).await;
    let event = publish_with_secret(&app, "\"event_type\": \"order.paid\", \"ordering_key\": \"own\"").await;
    let delivery = app.only_delivery(event).await;
    let reader = app.holder_of("read").await;
    let revealing = app.holding(&app.make_key(json!({"scopes": ["read", "reveal", "operate"]})).await);
    let paths = [
        "/deliveries".to_owned(),
        format!("/deliveries/{delivery}"),
        format!("/events/{event}?include_deliveries=true"),
        "/ui/deliveries".to_owned(),
        format!("/ui/deliveries/{delivery}"),
    ];
    let shows = async |holder: &App, path: &str| holder.get(path).await.expect(200).text.contains(SECRET);
    for path in &paths {
        assert!(!shows(&reader, path).await, "{path}");
    }
    assert_eq!(reader.delivery(delivery).await["hidden"], json!(["last_error", "ordering_key"]));
    assert_eq!(revealing.delivery(delivery).await["ordering_key"], SECRET);
    assert!(shows(&revealing, &paths[4]).await);
    redact(&app, json!(["payload.card.*"])).await;
    for path in &paths {
        assert!(!shows(&revealing, path).await, "{path}");
    }
    assert_eq!(revealing.delivery(delivery).await["hidden"], json!(["ordering_key"]));
    let sample = revealing.post("/deliveries/cancel", &json!({"filter": {}, "dry_run": true})).await.expect(200);
    let cancelled = revealing.post_empty(&format!("/deliveries/{delivery}/cancel")).await.expect(200);
    assert!(!sample.text.contains(SECRET) && !cancelled.text.contains(SECRET), "{sample:?} {cancelled:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_events_own_ordering_key_is_shown_with_its_deliveries() {
    let app = app_that_sends_nothing().await.with_admin_key().await;
    redact(&app, json!(["payload.card.*"])).await;
    app.subscribe("http://127.0.0.1:9/", json!({"ordering": "by_key"})).await;
    let event = publish_with_secret(&app, "\"event_type\": \"order.paid\", \"ordering_key\": \"own\"").await;
    let delivery = app.only_delivery(event).await;
    assert_eq!(app.holder_of("read").await.delivery(delivery).await["ordering_key"], "own");
}
