//! Invalid subscriptions: the response names the place of the error, and nothing is stored.

use serde_json::{Value, json};

use super::NOWHERE;
use crate::support::App;

async fn refuses(app: &App, field: &str, cases: impl IntoIterator<Item = (Value, &str)>) {
    for (value, named) in cases {
        let mut body = json!({"url": NOWHERE});
        body[field] = value;
        app.post("/subscriptions", &body).await.names(&[named]);
    }
    assert_eq!(app.count("SELECT count(*) FROM waybill.subscriptions").await, 0);
}

/// Does the same for values that are invalid as a whole.
async fn refuses_all(app: &App, field: &str, values: impl IntoIterator<Item = Value>) {
    refuses(app, field, values.into_iter().map(|value| (value, field))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_of_the_wrong_type_are_refused() {
    let app = App::start().await;
    let types = [
        ("boolean", json!(true)),
        ("number", json!(5)),
        ("string", json!("some\u{0}text")),
        ("list", json!([1])),
        ("object", json!({"a": 1})),
    ];
    for (field, fitting) in [
        ("name", "string"),
        ("url", "string"),
        ("method", "string"),
        ("event_types", "list"),
        ("tags", "list"),
        ("labels", "object"),
        ("filter", "object"),
        ("headers", "object"),
        ("timeout_ms", "number"),
        ("max_attempts", "number"),
        ("backoff", "object"),
        ("retry_on", "list"),
        ("ordering", "string"),
        ("on_exhausted", "string"),
        ("ordering_key_path", "string"),
        ("max_concurrency", "number"),
        ("rate_per_second", "number"),
        ("transform", "object"),
        ("secret", "string"),
        ("is_active", "boolean"),
    ] {
        let wrong = types.iter().filter(|(name, _)| *name != fitting);
        refuses_all(&app, field, wrong.map(|(_, value)| value.clone())).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_enums_and_lengths_out_of_bounds_are_refused() {
    let app = App::start().await;
    refuses_all(&app, "name", [json!(""), json!("ü".repeat(256)), json!("a\u{0}")]).await;
    refuses_all(&app, "method", ["GET", "post", "PATCH", "DELETE", ""].map(Value::from)).await;
    refuses_all(&app, "timeout_ms", [json!(0), json!(99), json!(60_001), json!(-1), json!(100.5), json!(i64::MAX)])
        .await;
    refuses_all(&app, "max_attempts", [json!(0), json!(101), json!(-1), json!(1.5)]).await;
    refuses_all(&app, "max_concurrency", [json!(0), json!(1001)]).await;
    refuses_all(&app, "rate_per_second", [json!(0), json!(0.009), json!(10_000.1), json!(-1)]).await;
    refuses_all(&app, "ordering", ["by_tag", "fifo", "None", ""].map(Value::from)).await;
    refuses_all(&app, "on_exhausted", ["stop", ""].map(Value::from)).await;
    refuses_all(&app, "ordering_key_path", ["", ".", "a..b", "a.", "a\u{0}"].map(Value::from)).await;
    refuses_all(&app, "ordering_key_path", [json!("x".repeat(256)), json!(["a"; 17].join("."))]).await;
    refuses_all(&app, "tags", [json!(["a\u{0}"]), json!(["a,b"]), json!([""]), json!("t"), json!("t,t")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_invalid_pattern_and_label_is_named() {
    let app = App::start().await;
    refuses(
        &app,
        "event_types",
        [
            (json!("user.*"), "event_types"),
            (json!(["user*"]), "event_types[0]"),
            (json!(["a", "*.b"]), "event_types[1]"),
            (json!(["a", "b", 5]), "event_types[2]"),
            (json!([""]), "event_types[0]"),
            (json!(["a\u{0}"]), "event_types[0]"),
            (json!(["x".repeat(256)]), "event_types[0]"),
            (json!(vec!["a"; 101]), "event_types"),
        ],
    )
    .await;
    let many: Value = (0..33).map(|n| (format!("l{n}"), json!("v"))).collect();
    refuses(
        &app,
        "labels",
        [
            (json!({"a": 5}), "labels.a"),
            (json!({"a": null}), "labels.a"),
            (json!({"": "x"}), "labels"),
            (json!({"a": "x\u{0}"}), "labels.a"),
            (json!({"a": "v".repeat(256)}), "labels.a"),
            (many, "labels"),
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_filter_is_named_by_its_path() {
    let app = App::start().await;
    let deep = (1..9).fold(json!({"event_type": "a"}), |inner, _| json!({ "$not": inner }));
    let deepest = format!("filter{}", ".$not".repeat(8));
    refuses(
        &app,
        "filter",
        [
            (json!({"$or": [{}, {"payload.amount": {"$gt": true}}]}), "filter.$or[1].payload.amount.$gt"),
            (json!({"$and": [{"$not": {"colour": 1}}]}), "filter.$and[0].$not.colour"),
            (json!({"payload.a": {"$in": [1, "x\u{0}"]}}), "filter.payload.a.$in[1]"),
            (json!({"payload.a": {"$not": {"$regex": "a+"}}}), "filter.payload.a.$not.$regex"),
            (json!({"payload.a": {}}), "filter.payload.a"),
            (json!({"payload.a": {"b": 1}}), "filter.payload.a.b"),
            (json!({"payload.a..b": 1}), "filter.payload.a..b"),
            (json!({"payload.a": {"$exists": 1}}), "filter.payload.a.$exists"),
            (json!({"payload.a": {"$gt": null}}), "filter.payload.a.$gt"),
            (json!({"payload.a": {"$startsWith": 1}}), "filter.payload.a.$startsWith"),
            (json!({"payload.a": {"$in": vec![1; 101]}}), "filter.payload.a.$in"),
            (json!({"labels.a": 1}), "filter.labels.a"),
            (json!({"tags": {"$lt": "a"}}), "filter.tags.$lt"),
            (json!({"created_at": {"$gte": "yesterday"}}), "filter.created_at.$gte"),
            (json!({"event_type": "x".repeat(1001)}), "filter.event_type"),
            (json!({"$or": []}), "filter.$or"),
            (json!({"$nor": []}), "filter.$nor"),
            (json!({"amount": 1}), "filter.amount"),
            (json!({"payload.a": {"$in": vec!["x".repeat(170); 100]}}), "filter"),
            (deep, &deepest),
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reserved_headers_are_refused_in_any_spelling() {
    let app = App::start().await;
    for name in [
        "Host",
        "content-length",
        "Content-Type",
        "TRANSFER-ENCODING",
        "Connection",
        "Expect",
        "User-Agent",
        "traceparent",
        "Webhook-Signature",
        "webhook-id",
        "Waybill-Attempt",
        "waybill-event-id",
        "CE-id",
        "Proxy-Authorization",
    ] {
        refuses(&app, "headers", [(json!({ name: "x" }), format!("headers.{name}").as_str())]).await;
    }
    let many: Value = (0..33).map(|n| (format!("x-{n}"), json!("v"))).collect();
    refuses(
        &app,
        "headers",
        [
            (json!({"X-A": "a\r\nHost: b"}), "headers.X-A"),
            (json!({"X-A": "a\u{0}"}), "headers.X-A"),
            (json!({"X-A": "ü"}), "headers.X-A"),
            (json!({"X-A": 5}), "headers.X-A"),
            (json!({"X-A": null}), "headers.X-A"),
            (json!({"X-A": "v".repeat(2001)}), "headers.X-A"),
            (json!({"X A": "x"}), "headers.X A"),
            (json!({"": "x"}), "headers"),
            (json!({"X-A": "1", "x-a": "2"}), "headers.x-a"),
            (many, "headers"),
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_waits_and_retryable_causes_are_checked() {
    let app = App::start().await;
    refuses(
        &app,
        "backoff",
        [
            (json!({}), "backoff"),
            (json!({"strategy": "fixed"}), "backoff"),
            (json!({"strategy": "linear", "seconds": 1}), "backoff"),
            (json!({"strategy": "fixed", "seconds": -1}), "backoff.seconds"),
            (json!({"strategy": "fixed", "seconds": 2_592_001}), "backoff.seconds"),
            (json!({"strategy": "fixed", "seconds": 1, "colour": 1}), "backoff"),
            (json!({"strategy": "schedule", "seconds": []}), "backoff.seconds"),
            (json!({"strategy": "schedule", "seconds": [1, -1]}), "backoff.seconds[1]"),
            (json!({"strategy": "exponential", "base_seconds": 9, "max_seconds": 8}), "backoff.max_seconds"),
            (
                json!({"strategy": "exponential", "base_seconds": 1, "max_seconds": 8, "floor_seconds": 9}),
                "backoff.floor_seconds",
            ),
        ],
    )
    .await;
    for bad in [
        json!(503),
        json!("99"),
        json!("600"),
        json!("6xx"),
        json!("5XX"),
        json!("504-500"),
        json!("500-"),
        json!("dns"),
        json!(null),
        json!(503.5),
    ] {
        refuses(&app, "retry_on", [(json!(["500", bad]), "retry_on[1]")]).await;
    }
    refuses_all(&app, "retry_on", [json!(vec!["500"; 101])]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn transforms_are_checked_when_a_subscription_is_created() {
    let app = App::start().await;
    refuses(
        &app,
        "transform",
        [
            (json!({}), "transform"),
            (json!({"envelope": false}), "transform"),
            (json!({"colour": "red"}), "transform.colour"),
            (json!({"keep": []}), "transform.keep"),
            (json!({"keep": ["a", "b..c"]}), "transform.keep[1]"),
            (json!({"drop": [5]}), "transform.drop[0]"),
            (json!({"drop": vec!["a"; 101]}), "transform.drop"),
            (json!({"envelope": "yes"}), "transform.envelope"),
            (json!({"cloudevents": "batched"}), "transform.cloudevents"),
            (json!({"envelope": true, "cloudevents": "binary"}), "transform"),
            (json!({"template": "{{ payload"}), "transform.template"),
            (json!({"template": "{{ payload.a() }}"}), "transform.template"),
            (json!({"template": "{% include 'x' %}"}), "transform.template"),
            (json!({"template": "a\u{0}"}), "transform.template"),
            (json!({"template": "x".repeat(16 * 1024 + 1)}), "transform.template"),
            (json!({"template": "x", "content_type": "text"}), "transform.content_type"),
            (json!({"template": "x", "content_type": "text/plain\r\nHost: b"}), "transform.content_type"),
            (json!({"envelope": true, "content_type": "text/plain"}), "transform.content_type"),
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_fields_and_those_given_twice_are_refused() {
    let app = App::start().await;
    refuses_all(&app, "colour", [json!("red")]).await;
    refuses_all(&app, "id", [json!(7)]).await;
    refuses_all(&app, "version", [json!(7)]).await;
    for (body, named) in [
        (r#"{"url": "https://a.example", "url": "https://b.example"}"#, "url"),
        (r#"{"url": "https://a.example", "secret": null, "secret": null}"#, "secret"),
        (
            r#"{"url": "https://a.example", "filter": {"$or": [{"event_type": "a"}], "$or": [{"event_type": "b"}]}}"#,
            "filter.$or",
        ),
        (r#"{"url": "https://a.example", "filter": {"payload.a": {"$gt": 1, "$gt": 2}}}"#, "filter.payload.a.$gt"),
        (r#"{"url": "https://a.example", "headers": {"X-A": "1", "X-A": "2"}}"#, "headers.X-A"),
        (r#"{"url": "https://a.example", "labels": {"a": "1", "a": "2"}}"#, "labels.a"),
    ] {
        app.post_text("/subscriptions", body).await.names(&[named]);
    }
    app.post_text("/subscriptions?colour=red", "{}").await.names(&["colour"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_invalid_fields_of_a_subscription_are_named_at_once() {
    let app = App::start().await;
    let body = json!({
        "url": "ftp://a.example", "secret": "guess", "is_active": "yes", "method": "GET", "timeout_ms": 0,
        "headers": {"Host": "x", "te": "y"}, "filter": {"colour": 1}, "retry_on": ["never"], "colour": "red",
    });
    let named = [
        "url",
        "secret",
        "is_active",
        "method",
        "timeout_ms",
        "headers.Host",
        "headers.te",
        "filter.colour",
        "retry_on[0]",
        "colour",
    ];
    app.post("/subscriptions", &body).await.names(&named);
    app.post("/subscriptions", &json!({})).await.names(&["url"]);
    app.post("/subscriptions", &json!({"url": null})).await.names(&["url"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_too_large_or_too_deeply_nested_is_refused() {
    let app = App::start().await;
    let large = format!(r#"{{"url": "{NOWHERE}", "name": "{}"}}"#, "x".repeat(256 * 1024));
    app.post_text("/subscriptions", &large).await.problem(413, "payload_too_large");
    let nested =
        format!(r#"{{"url": "{NOWHERE}", "filter": {{"payload.a": {}1{}}}}}"#, "[".repeat(120), "]".repeat(120));
    app.post_text("/subscriptions", &nested).await.names(&["filter.payload.a"]);
    let endless = format!(r#"{{"url": "{NOWHERE}", "filter": {}1{}}}"#, r#"{"$not":"#.repeat(9000), "}".repeat(9000));
    app.post_text("/subscriptions", &endless).await.names(&["filter"]);
}
