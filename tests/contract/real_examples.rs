//! The examples of responses are recorded: each has the fields and the types of a response that a server
//! has given. `WAYBILL_UPDATE_EXAMPLES=1 cargo test contract::real_examples` records them anew.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::fs;

use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use waybill::background::{limit_refresher, promoter, stats_recorder};

use super::document::Document;
use crate::support::keys::MadeKey;
use crate::support::receiver::{Receiver, Reply as Answer};
use crate::support::{App, Options, Reply};

const WORKER: &str = "render-3:4127";

/// How many secrets of a subscription can be in use at once.
const MAX_SECRETS: usize = 10;

/// The line after which the document has nothing but recorded examples.
const SECTION: &str = "\n  examples:\n";

/// The time at which the examples begin, whenever they are recorded.
const BEGINNING: &str = "2026-03-09T08:15:02.113045Z";

/// A server, and the responses that it has given.
struct Recorder {
    app: App,
    document: Document,
    examples: BTreeMap<String, Recorded>,
}

/// A response, and its text, which has the order of the fields.
struct Recorded {
    value: Value,
    text: String,
}

impl Recorder {
    /// Sends a request, and records the response under a name.
    async fn record(&mut self, name: &str, method: &str, path: &str, body: Option<Value>, status: u16) -> Value {
        let url = format!("{}{path}", self.app.base);
        let request = self.app.client.request(method.parse().expect("a method"), url);
        let request = body.iter().fold(request, reqwest::RequestBuilder::json);
        let reply = Reply::of(request.send().await.expect("a response")).await;
        self.keep(name, reply.expect(status))
    }

    fn keep(&mut self, name: &str, reply: Reply) -> Value {
        let value = reply.json();
        self.examples.insert(name.to_owned(), Recorded { value: value.clone(), text: reply.text });
        value
    }

    /// Returns an example of an operation's request, with some fields replaced.
    fn request(&self, operation_id: &str, example: &str, replaced: Value) -> Value {
        let operation = self.document.operation(operation_id);
        let examples = format!("{}/requestBody/content/application~1json/examples", operation.pointer());
        let mut body = self.document.at(&format!("{examples}/{example}/value")).clone();
        body.as_object_mut().expect("an object").extend(replaced.as_object().expect("an object").clone());
        body
    }

    async fn post(&mut self, name: &str, path: &str, example: &str, replaced: Value, status: u16) -> Value {
        let body = self.request(name, example, replaced);
        self.record(name, "POST", path, Some(body), status).await
    }

    async fn get(&mut self, name: &str, path: &str) -> Value {
        self.record(name, "GET", path, None, 200).await
    }

    async fn act(&mut self, name: &str, path: &str) -> Value {
        self.record(name, "POST", path, None, 200).await
    }

    /// Records what an operation would do, and its start.
    async fn start(&mut self, name: &str, path: &str, examples: [&str; 2], replaced: Value) -> Value {
        let count = self.request(name, examples[1], json!({}));
        self.record(&format!("{name}_dry_run"), "POST", path, Some(count), 200).await;
        self.post(name, path, examples[0], replaced, 202).await
    }

    /// Publishes an event and claims it. Returns its id and its lease.
    async fn hold(&self) -> (i64, i64) {
        let event = self.request("publish_event", "basic", json!({}));
        let id = self.app.publish(event).await;
        let claimed = self.app.claim("thumbnails", WORKER).await.expect("an event");
        assert_eq!(claimed["id"], id);
        (id, claimed["lease_id"].as_i64().expect("a lease"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_examples_of_responses_are_real() {
    // Limits that are low enough to be exceeded.
    let flags = vec![
        "--max-waiting=0".into(),
        "--max-subscriptions=2".into(),
        "--max-namespaces=2".into(),
        "--max-sources=2".into(),
        "--max-event-types=1".into(),
    ];
    let app = App::start_with(Options { fixed_clock: true, flags, ..Options::default() }).await;
    let start = app.now();
    let mut recorder = Recorder { app, document: Document::load(), examples: BTreeMap::new() };
    let receiver = Receiver::start().await;
    // The first of all, so that its id is the one in the requests.
    let settings = json!({"url": receiver.url("/hooks/orders"), "max_attempts": 1});
    let subscription = recorder.request("create_subscription", "basic", settings);
    let subscription = recorder.app.post("/subscriptions", &subscription).await.expect(201).json();
    assert_eq!(subscription["id"], 1);
    work(&mut recorder).await;
    settle(&mut recorder).await;
    operate(&mut recorder).await;
    push(&mut recorder, &receiver).await;
    subscribe(&mut recorder).await;
    sources(&mut recorder).await;
    repeat(&mut recorder).await;
    declare(&mut recorder).await;
    observe(&mut recorder).await;
    refuse(&mut recorder).await;
    check(&mut recorder).await;
    // The last, since from then on keys are required.
    keys(&mut recorder).await;
    let Recorder { document, examples, .. } = recorder;
    if std::env::var_os("WAYBILL_UPDATE_EXAMPLES").is_some() {
        return write(&examples, start, &receiver);
    }
    let documented = document.at("/components/examples").as_object().expect("examples");
    for (name, real) in &examples {
        let example = documented.get(name).unwrap_or_else(|| panic!("{name} has no example"));
        assert_eq!(shape(&example["value"]), shape(&real.value), "{name}: {:#}", real.value);
        // A problem is named after its code.
        assert_eq!(real.value["code"].as_str().unwrap_or(name), name);
    }
    for name in documented.keys() {
        assert!(examples.contains_key(name), "{name} is not recorded");
    }
}

/// Returns a value with the names of types instead of values.
fn shape(value: &Value) -> Value {
    match value {
        Value::Null => Value::Null,
        Value::Bool(_) => "a boolean".into(),
        Value::Number(_) => "a number".into(),
        Value::String(_) => "a string".into(),
        Value::Array(items) => items.iter().map(shape).collect(),
        Value::Object(members) => members.iter().map(|(name, value)| (name.clone(), shape(value))).collect(),
    }
}

/// The life of an event: claimed, failed, claimed again and completed.
async fn work(recorder: &mut Recorder) {
    let event = recorder.post("publish_event", "/events", "basic", json!({}), 201).await;
    let ask = format!("/events/subscribe?tags=thumbnails&worker_id={WORKER}");
    let claimed = recorder.get("claim_event", &ask).await;
    let (id, lease) = (event["id"].clone(), json!({"lease_id": claimed["lease_id"]}));
    let of = |verb: &str| format!("/events/{id}/{verb}");
    recorder.post("start_event", &of("start"), "exact", lease.clone(), 200).await;
    recorder.post("send_heartbeat", &of("heartbeat"), "with_progress", lease.clone(), 200).await;
    recorder.post("fail_event", &of("fail"), "retry_by_backoff", lease, 200).await;
    recorder.app.advance(301);
    promoter::run_once(recorder.app.engine()).await.expect("a sweep");
    let again = recorder.app.claim("thumbnails", WORKER).await.expect("the same event");
    let other = recorder.request("complete_event", "with_result", json!({"lease_id": 4711}));
    recorder.record("lease_lost", "POST", &of("complete"), Some(other), 409).await;
    recorder.post("complete_event", &of("complete"), "with_result", json!({"lease_id": again["lease_id"]}), 200).await;
    let other = json!({"worker_id": WORKER, "lease_id": again["lease_id"], "result": null, "status_code": 1});
    recorder.record("already_settled", "POST", &of("complete"), Some(other), 409).await;
    recorder.get("get_event", &format!("/events/{id}?include_logs=true")).await;
    let (id, lease) = recorder.hold().await;
    recorder
        .post("release_event", &format!("/events/{id}/release"), "in_a_while", json!({"lease_id": lease}), 200)
        .await;
}

async fn settle(recorder: &mut Recorder) {
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(recorder.hold().await.0);
    }
    recorder.post("publish_events", "/events/batch", "two", json!({}), 201).await;
    // The settlements of the example name these events, and one that nobody holds.
    let body = recorder.request("settle_events", "settle_and_claim", json!({}));
    let ids = body["settlements"].as_array().expect("settlements").iter().map(|one| one["event_id"].clone());
    assert_eq!(ids.take(3).collect::<Vec<_>>(), held.iter().map(|id| json!(id)).collect::<Vec<_>>(), "in the document");
    recorder.record("settle_events", "POST", "/events/settle", Some(body), 200).await;
    recorder.app.publish(recorder.request("publish_event", "typed", json!({}))).await;
    let claimed = recorder.post("claim_events", "/events/claim", "batch", json!({}), 200).await;
    let ask = json!({"tags": ["face-search"], "idempotency_key": "render-3:4127/919"});
    let ask = recorder.request("claim_events", "batch", ask);
    recorder.record("claim_events_nothing", "POST", "/events/claim", Some(ask), 200).await;
    let fail_all = json!({"worker_id": WORKER, "retryable": false, "error_message": "the photo is gone"});
    let id = &claimed["events"][0]["id"];
    recorder.record("not_retryable", "POST", &format!("/events/{id}/fail"), Some(fail_all), 400).await;
    let last = json!({"title": "Thumbnails for photo 7044", "tags": "last", "max_retries": 1});
    let id = recorder.app.publish(last).await;
    recorder.app.claim("last", WORKER).await.expect("an event");
    let body = json!({"worker_id": WORKER, "error_message": "the disk is full"});
    recorder.record("max_retries_exceeded", "POST", &format!("/events/{id}/fail"), Some(body), 400).await;
    let (id, lease) = recorder.hold().await;
    let settlement = json!({"event_id": id, "lease_id": lease, "action": "complete"});
    let claim = json!({"tags": ["thumbnails"], "wait_seconds": 20});
    let body = json!({"worker_id": WORKER, "settlements": [settlement], "claim": claim});
    recorder.record("settle_events_claim_refused", "POST", "/events/settle", Some(body), 200).await;
}

async fn operate(recorder: &mut Recorder) {
    let (id, _) = recorder.hold().await;
    recorder.act("reset_event", &format!("/events/{id}/reset?reason=worker_timeout")).await;
    recorder.act("cancel_event", &format!("/events/{id}/cancel?reason=published+by+mistake")).await;
    recorder.act("retry_event", &format!("/events/{id}/retry?reason=needed+after+all")).await;
    recorder.record("wrong_state", "POST", &format!("/events/{id}/retry"), None, 409).await;
    recorder.app.post_empty(&format!("/events/{id}/cancel")).await.expect(200);
    let typed = recorder.request("publish_event", "typed", json!({"tags": "other", "correlation_id": "import-77"}));
    recorder.app.publish(typed).await;
    let held = recorder.hold().await.0;
    recorder.app.advance(301);
    recorder.start("reset_events", "/events/reset", ["silent_workers", "count_expired"], json!({})).await;
    let retrying = recorder.start("retry_events", "/events/retry", ["of_a_type", "count_all"], json!({})).await;
    recorder.start("cancel_events", "/events/cancel", ["obsolete", "count_all"], json!({})).await;
    recorder.app.until_complete(&retrying).await;
    recorder.get("get_operation", &format!("/operations/{}", retrying["id"])).await;
    let slow = recorder.request("cancel_events", "obsolete", json!({"filter": {}, "per_second": 0.1}));
    let slow = recorder.app.post("/events/cancel", &slow).await.expect(202).json();
    recorder.act("cancel_operation", &format!("/operations/{}/cancel", slow["id"])).await;
    assert_eq!(recorder.app.status(held).await, "PENDING");
}

async fn push(recorder: &mut Recorder, receiver: &Receiver) {
    receiver.next(Answer::status(204));
    recorder.act("test_subscription", "/subscriptions/1/test").await;
    let app = &recorder.app;
    let event = app.publish_and_fail(receiver, "order.paid", json!({"order": 17})).await;
    let delivery = app.only_delivery(event).await;
    let letter = app.open_dead_letter(event).await["id"].clone();
    recorder.get("list_deliveries", &format!("/deliveries?event_id={event}")).await;
    recorder.get("get_delivery", &format!("/deliveries/{delivery}")).await;
    recorder.get("list_dead_letters", &format!("/dead-letters?event_id={event}")).await;
    recorder.get("get_dead_letter", &format!("/dead-letters/{letter}")).await;
    let path = format!("/dead-letters/{letter}/replay");
    recorder.post("replay_dead_letter", &path, "as_it_is_now", json!({}), 200).await;
    recorder.record("not_replayable", "POST", &path, Some(json!({})), 409).await;
    // Before the next answer of the receiver is set.
    recorder.app.until_delivery(delivery, "COMPLETED").await;
    let later = json!({"event_type": "order.paid", "delay_seconds": 3600});
    let event = recorder.app.publish(later.clone()).await;
    let delivery = recorder.app.only_delivery(event).await;
    recorder.act("cancel_delivery", &format!("/deliveries/{delivery}/cancel?reason=obsolete")).await;
    let event = recorder.app.publish(later.clone()).await;
    let delivery = recorder.app.only_delivery(event).await;
    recorder
        .act(
            "dead_letter_delivery",
            &format!("/deliveries/{delivery}/dead-letter?reason=the+receiver+cannot+read+this+one"),
        )
        .await;
    recorder.act("retry_delivery", &format!("/deliveries/{delivery}/retry?reason=the+receiver+is+back")).await;
    recorder.app.until_delivery(delivery, "COMPLETED").await;
    recorder.app.publish(later).await;
    recorder.app.publish_and_fail(receiver, "order.refunded", json!({"order": 17})).await;
    recorder.start("replay_dead_letters", "/dead-letters/replay", ["of_a_subscription", "count_all"], json!({})).await;
    recorder.start("retry_deliveries", "/deliveries/retry", ["of_a_subscription", "count_all"], json!({})).await;
    recorder.start("cancel_deliveries", "/deliveries/cancel", ["of_a_subscription", "count_all"], json!({})).await;
}

async fn check(recorder: &mut Recorder) {
    let paid = json!({"event_type": "order.checked", "payload": {"order": 17, "amount": 99.9}});
    let paid = recorder.app.publish(paid).await;
    recorder.post("check_subscription", "/subscriptions/check", "template", json!({"event_id": paid}), 200).await;
}

async fn subscribe(recorder: &mut Recorder) {
    let created = recorder.post("create_subscription", "/subscriptions", "basic", json!({}), 201).await;
    let path = format!("/subscriptions/{}", created["id"]);
    recorder.get("get_subscription", &path).await;
    recorder.act("resume_subscription", &format!("{path}/resume")).await;
    let slower = recorder.request("update_subscription", "slower", json!({}));
    recorder.record("update_subscription", "PATCH", &path, Some(slower.clone()), 200).await;
    let outdated = recorder.app.client.patch(format!("{}{path}", recorder.app.base)).header("if-match", "\"1\"");
    let refused = Reply::of(outdated.json(&slower).send().await.expect("a response")).await;
    recorder.keep("precondition_failed", refused.expect(412));
    let rotate = format!("{path}/rotate-secret");
    recorder.post("rotate_subscription_secret", &rotate, "overlapping", json!({}), 200).await;
    recorder.get("list_subscriptions", "/subscriptions?limit=1").await;
    let one_more = recorder.request("create_subscription", "basic", json!({}));
    recorder.record("too_many_subscriptions", "POST", "/subscriptions", Some(one_more), 409).await;
    // Two secrets are in use.
    for _ in 2..MAX_SECRETS {
        recorder.app.post(&rotate, &json!({})).await.expect(200);
    }
    recorder.record("too_many_secrets", "POST", &rotate, Some(json!({})), 409).await;
}

async fn sources(recorder: &mut Recorder) {
    let created = recorder.post("create_source", "/sources", "basic", json!({}), 201).await;
    let path = format!("/sources/{}", created["id"]);
    let refused = recorder.app.send_webhook(&created, &[], "{}").await;
    recorder.keep("webhook_refused", refused.expect(401));
    recorder.get("get_source", &path).await;
    let other_tags = recorder.request("update_source", "other_tags", json!({}));
    recorder.record("update_source", "PATCH", &path, Some(other_tags), 200).await;
    recorder.post("rotate_source_secret", &format!("{path}/rotate-secret"), "overlapping", json!({}), 200).await;
    recorder.app.source(recorder.request("create_source", "own", json!({}))).await;
    recorder.get("list_sources", "/sources?limit=1").await;
    let one_more = recorder.request("create_source", "basic", json!({}));
    recorder.record("too_many_sources", "POST", "/sources", Some(one_more), 409).await;
}

async fn observe(recorder: &mut Recorder) {
    recorder.get("list_events", "/events?limit=2&tags=thumbnails").await;
    recorder.get("list_log_entries", "/logs?limit=4").await;
    recorder.get("list_operations", "/operations?limit=1").await;
    recorder.get("list_audit_entries", "/audit?limit=3").await;
    recorder.get("list_workers", "/workers?limit=1").await;
    recorder.get("list_tags", "/tags?limit=1").await;
    stats_recorder::run_once(recorder.app.engine()).await.expect("a round");
    recorder.get("get_stats", "/stats").await;
    recorder.get("get_stats_of_tag", "/stats?tag=thumbnails").await;
    recorder.get("get_stats_history", "/stats/history?metric=published,completed&from=2m&step=1m").await;
    administer(recorder).await;
    limits(recorder).await;
    recorder.get("get_health", "/health").await;
    recorder.get("get_readiness", "/ready").await;
}

async fn limits(recorder: &mut Recorder) {
    let limits = json!({
        "publishes_per_second": 100, "publish_burst": 500, "waiting_events": 1000, "stored_bytes": 1_000_000,
        "subscriptions": 10,
    });
    let path = "/namespaces/default";
    recorder.app.patch(path, &json!({"settings": {"limits": limits}})).await.expect(200);
    limit_refresher::run_once(recorder.app.engine()).await.expect("a round");
    recorder.get("get_usage", "/usage").await;
    recorder.app.patch(path, &json!({"settings": {"limits": {"publishes_per_second": 1}}})).await.expect(200);
    recorder.app.publish_tagged("thumbnails").await;
    let one_more = json!({"title": "Thumbnails for photo 7043", "tags": "thumbnails"});
    recorder.record("limit_exceeded", "POST", "/events", Some(one_more), 429).await;
    recorder.app.patch(path, &json!({"settings": {"limits": {}}})).await.expect(200);
}

async fn administer(recorder: &mut Recorder) {
    recorder.post("create_namespace", "/namespaces", "basic", json!({}), 201).await;
    let basic = recorder.request("create_namespace", "basic", json!({}));
    recorder.record("namespace_exists", "POST", "/namespaces", Some(basic), 409).await;
    let one_more = recorder.request("create_namespace", "basic", json!({"name": "team-maps"}));
    recorder.record("too_many_namespaces", "POST", "/namespaces", Some(one_more), 409).await;
    recorder.get("list_namespaces", "/namespaces?limit=1").await;
    recorder.get("get_namespace", "/namespaces/team-photos").await;
    let strict = recorder.request("update_namespace", "strict", json!({}));
    recorder.record("update_namespace", "PATCH", "/namespaces/team-photos", Some(strict), 200).await;
}

async fn declare(recorder: &mut Recorder) {
    let path = "/event-types/order.paid";
    let declaration = recorder.request("put_event_type", "order_paid", json!({}));
    recorder.record("put_event_type", "PUT", path, Some(declaration.clone()), 201).await;
    recorder.app.publish(json!({"event_type": "order.paid", "payload": {"order": 18}})).await;
    let stricter = json!({"schema": {"type": "object", "required": ["order", "customer"]}});
    recorder.record("schema_rejects_recent_events", "PUT", path, Some(stricter.clone()), 409).await;
    let forced = format!("{path}?force=true");
    recorder.record("put_event_type_again", "PUT", &forced, Some(stricter), 200).await;
    recorder.get("get_event_type", &format!("{path}?version=1")).await;
    recorder.record("event_type_version_not_found", "GET", &format!("{path}?version=9"), None, 404).await;
    recorder.record("event_type_not_found", "GET", "/event-types/order.lost", None, 404).await;
    recorder.record("too_many_event_types", "PUT", "/event-types/order.lost", Some(json!({})), 409).await;
    recorder.get("list_event_types", "/event-types?limit=2").await;
}

/// The same event, and the same webhook, twice.
async fn repeat(recorder: &mut Recorder) {
    let event = json!({"title": "Invoice 5512", "tags": "invoices", "idempotency_key": "order-5512"});
    recorder.app.publish(event.clone()).await;
    recorder.record("publish_event_again", "POST", "/events", Some(event.clone()), 200).await;
    let other = json!({"title": "Invoice 5513", "tags": "invoices", "idempotency_key": "order-5512"});
    recorder.record("idempotency_key_reused", "POST", "/events", Some(other), 422).await;
    let webhook = recorder.post("accept_webhook", "/webhooks", "basic", json!({}), 202).await;
    let again = recorder.request("accept_webhook", "basic", json!({}));
    recorder.record("accept_webhook_again", "POST", "/webhooks", Some(again), 200).await;
    recorder.get("find_webhook", "/webhooks?idempotency_key=pay-7041").await;
    recorder.get("get_webhook", &format!("/webhooks/{}", webhook["id"])).await;
    recorder.record("webhook_not_found", "GET", "/webhooks?idempotency_key=pay-7042", None, 404).await;
}

async fn refuse(recorder: &mut Recorder) {
    for (name, path) in [
        ("route_not_found", "/problems/no_such_code"),
        ("event_not_found", "/events/4711"),
        ("subscription_not_found", "/subscriptions/4711"),
        ("source_not_found", "/sources/4711"),
        ("delivery_not_found", "/deliveries/4711"),
        ("dead_letter_not_found", "/dead-letters/4711"),
        ("operation_not_found", "/operations/4711"),
        ("namespace_not_found", "/namespaces/nobody"),
    ] {
        recorder.record(name, "GET", path, None, 404).await;
    }
    let wrong = json!({"title": "Thumbnails", "tags": "thumbnails", "priority": 101, "colour": "red"});
    recorder.record("invalid_request", "POST", "/events", Some(wrong), 400).await;
    let cut = recorder.app.post_text("/events", "{\"title\": \"Thumbnai").await.expect(400);
    recorder.keep("malformed_json", cut);
    let large = json!({"title": "Thumbnails", "tags": "thumbnails", "payload": "x".repeat(1_100_000)});
    recorder.record("payload_too_large", "POST", "/events", Some(large), 413).await;
    let page = recorder.app.get("/events?limit=1&status=PENDING").await.expect(200).json();
    let foreign = format!("/events?status=FAILED&after={}", page["next"].as_str().expect("a cursor"));
    recorder.record("cursor_mismatch", "GET", &foreign, None, 400).await;
    let endless = json!({"filter": {}, "per_second": 0.1});
    let refused = loop {
        let reply = recorder.app.post("/deliveries/cancel", &endless).await;
        if reply.status == 409 {
            break reply;
        }
        reply.expect(202);
    };
    recorder.keep("too_many_operations", refused);
}

async fn keys(recorder: &mut Recorder) {
    let admin = recorder.app.make_key(json!({"name": "ops", "scopes": ["admin"]})).await;
    recorder.record("unauthenticated", "GET", "/keys", None, 401).await;
    recorder.app.client = recorder.app.holding(&admin).client;
    let made = recorder.post("create_key", "/keys", "workers", json!({}), 201).await;
    let again = recorder.request("create_key", "workers", json!({}));
    recorder.record("key_name_taken", "POST", "/keys", Some(again), 409).await;
    let worker = recorder.app.holding(&MadeKey::of(&made));
    recorder.app.advance(60);
    let event = recorder.request("publish_event", "basic", json!({}));
    recorder.keep("scope_missing", worker.post("/events", &event).await.expect(403));
    let foreign = worker.get(&format!("/events/subscribe?tags=billing&worker_id={WORKER}")).await;
    recorder.keep("tag_not_allowed", foreign.expect(403));
    let path = format!("/keys/{}", made["id"]);
    let slower = recorder.request("update_key", "slower", json!({}));
    recorder.record("update_key", "PATCH", &path, Some(slower), 200).await;
    let unlimited = recorder.request("update_key", "unlimited", json!({}));
    recorder.app.patch(&path, &unlimited).await.expect(200);
    let overlap = json!({"overlap_seconds": 1});
    recorder.post("rotate_key", &format!("{path}/rotate"), "overlapping", overlap, 200).await;
    recorder.app.advance(1);
    recorder.keep("key_expired", worker.get("/events/subscribe").await.expect(401));
    recorder.get("list_keys", "/keys?limit=2").await;
    recorder.act("revoke_key", &format!("{path}/revoke")).await;
    recorder.keep("key_revoked", worker.get("/events/subscribe").await.expect(401));
    recorder.record("key_not_in_use", "POST", &format!("{path}/rotate"), Some(json!({})), 409).await;
    recorder.record("last_admin_key", "POST", &format!("/keys/{}/revoke", admin.id), None, 409).await;
    recorder.record("key_not_found", "POST", "/keys/4711/revoke", None, 404).await;
}

/// Writes the examples into the document.
fn write(examples: &BTreeMap<String, Recorded>, start: DateTime<Utc>, receiver: &Receiver) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.yaml");
    let text = fs::read_to_string(path).expect("the document");
    let (before, _) = text.split_once(SECTION).expect("examples");
    let mut text = format!("{before}{SECTION}");
    for (name, recorded) in examples {
        let _ = write!(text, "    {name}:\n      value:");
        append_yaml(&mut text, &tidy(&recorded.value, start, receiver), &recorded.text, 8);
    }
    fs::write(path, text).expect("the document is ours");
}

/// Moves times to the beginning of the examples, and replaces what differs from run to run.
fn tidy(value: &Value, start: DateTime<Utc>, receiver: &Receiver) -> Value {
    match value {
        Value::Array(items) => items.iter().map(|item| tidy(item, start, receiver)).collect(),
        Value::Object(members) => {
            let members = members.iter().map(|(name, value)| (name.clone(), tidy(value, start, receiver)));
            members.collect::<Map<_, _>>().into()
        }
        // Not a key of anybody, but one with a right checksum.
        Value::String(text) if text.starts_with("wb_") => {
            "wb_0123456789ABCDEFGHIJKLMNOPQRST4PMbyp"[..text.len()].into()
        }
        Value::String(text) if text.starts_with("/in/") => "/in/hOZ8Lrvi3UPqPaWQ1xdGTq4mYk0Bn5sC".into(),
        Value::String(text) if text.starts_with("whsec_") => "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".into(),
        Value::String(text) => {
            let beginning = DateTime::parse_from_rfc3339(BEGINNING).expect("a time").to_utc();
            match DateTime::parse_from_rfc3339(text) {
                // Times in requests are round, and stay.
                Ok(time) if time.timestamp_subsec_micros() > 0 => {
                    let moved = beginning + (time.to_utc() - start);
                    moved.to_rfc3339_opts(SecondsFormat::Micros, true).into()
                }
                _ => text.replace(&receiver.url(""), "https://shop.example").into(),
            }
        }
        _ => value.clone(),
    }
}

/// Appends a value in YAML, after a colon. The fields have the order that they have in `original`, the JSON of
/// the value.
fn append_yaml(text: &mut String, value: &Value, original: &str, indent: usize) {
    let space = " ".repeat(indent);
    match value {
        Value::Object(members) if !members.is_empty() => {
            let originals: HashMap<String, &RawValue> = serde_json::from_str(original).expect("an object");
            let mut members: Vec<_> = members.iter().collect();
            // What comes first in the text has the lowest address.
            members.sort_by_key(|(name, _)| originals[*name].get().as_ptr());
            text.push('\n');
            for (name, value) in members {
                let _ = write!(text, "{space}{name}:");
                append_yaml(text, value, originals[name].get(), indent + 2);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            let originals: Vec<&RawValue> = serde_json::from_str(original).expect("a list");
            text.push('\n');
            for (item, original) in items.iter().zip(originals) {
                let mut inner = String::new();
                append_yaml(&mut inner, item, original.get(), indent + 2);
                let _ = write!(text, "{space}- {}", inner.trim_start());
            }
        }
        // JSON is YAML.
        _ => {
            let _ = writeln!(text, " {value}");
        }
    }
}
