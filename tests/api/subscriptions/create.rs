//! `POST /subscriptions`: the fields of a subscription and their defaults.

use serde_json::{Value, json};

use super::{NOWHERE, path_of, secret_of, with_flags};
use crate::support::App;
use crate::support::work::time;

#[tokio::test(flavor = "multi_thread")]
async fn a_url_is_enough_and_all_other_fields_have_defaults() {
    let app = App::start().await;
    let reply = app.post("/subscriptions", &json!({"url": NOWHERE})).await.expect(201);
    let mut view = reply.json();
    assert_eq!(reply.header("location"), Some(path_of(&view).as_str()));
    assert_eq!(reply.header("etag"), Some("\"1\""));
    assert!(view["id"].as_i64() > Some(0));
    assert_eq!(time(&view["created_at"]), time(&view["updated_at"]));
    let fields = view.as_object_mut().expect("an object");
    for own in ["id", "secret", "created_at", "updated_at"] {
        fields.remove(own).expect(own);
    }
    let expected = json!({
        "version": 1, "is_active": true, "inactive_reason": null, "name": null, "url": NOWHERE, "method": "POST",
        "event_types": [], "tags": [], "labels": {}, "filter": null, "header_names": [], "timeout_ms": 10_000,
        "max_attempts": 4, "backoff": {"strategy": "schedule", "seconds": [5, 30, 300]},
        "retry_on": ["408", "425", "429", "5xx", "timeout", "connection"], "ordering": "none", "on_exhausted": "skip",
        "ordering_key_path": null, "max_concurrency": 16, "rate_per_second": null, "transform": null,
        "endpoint": {"breaker": "closed", "failures_in_row": 0, "paused_until": null},
        "filter_over_budget": {"events": 0, "last_at": null, "last_event_id": null},
    });
    assert_eq!(view, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn null_means_that_a_field_is_not_given() {
    let app = App::start().await;
    let plain = app.subscribe(NOWHERE, json!({})).await;
    let nulls = plain.as_object().expect("an object").keys().map(|name| (name.clone(), Value::Null));
    let own = [
        "id",
        "version",
        "inactive_reason",
        "endpoint",
        "filter_over_budget",
        "created_at",
        "updated_at",
        "url",
        "header_names",
    ];
    let mut nulls: Value = nulls.filter(|(name, _)| !own.contains(&name.as_str())).collect();
    nulls["headers"] = Value::Null;
    let mut view = app.subscribe(NOWHERE, nulls).await;
    for own in ["id", "secret", "created_at", "updated_at"] {
        view[own] = plain[own].clone();
    }
    assert_eq!(view, plain);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_field_is_stored_and_returned() {
    let app = App::start().await;
    let fields = json!({
        "name": "Zoës orders", "url": "HTTPS://Shop.Example:8443/a?b=c%20d", "method": "PUT",
        "event_types": ["order.paid", "user.*", "*"], "tags": ["a", "b c"], "labels": {"region": "eu", "empty": ""},
        "filter": {
            "$or": [{"payload.amount": {"$gt": 10.5, "$lte": 1e3}}, {"$not": {"tags": ["x"]}}],
            "event_type": {"$exists": true},
        },
        "headers": {"Authorization": "Bearer x", "X-Empty": ""}, "timeout_ms": 100, "max_attempts": 100,
        "backoff": {
            "strategy": "exponential", "base_seconds": 2, "max_seconds": 60, "jitter": "full", "floor_seconds": 2,
        },
        "retry_on": ["404", "4xx", "500-504", "timeout"], "ordering": "by_key", "on_exhausted": "block",
        "ordering_key_path": "customer.0.id", "max_concurrency": 1, "rate_per_second": 0.25, "is_active": false,
        "transform": {
            "keep": ["a.b", "c"], "drop": ["c.d"], "template": "{{ payload.a }}", "content_type": "text/plain",
        },
    });
    let created = app.post("/subscriptions", &fields).await.expect(201).json();
    for (name, value) in fields.as_object().expect("an object").iter().filter(|(name, _)| *name != "headers") {
        assert_eq!(&created[name], value, "{name}");
    }
    assert_eq!(created["header_names"], json!(["Authorization", "X-Empty"]));
    assert_eq!(created.get("headers"), None, "their values are secrets");
    let mut read = app.get(&path_of(&created)).await.expect(200).json();
    read["secret"] = created["secret"].clone();
    assert_eq!(read, created);
}

#[tokio::test(flavor = "multi_thread")]
async fn short_forms_are_returned_in_full() {
    let app = App::start().await;
    let fields = json!({
        "event_types": ["user.*", "user.*"], "tags": ["a", " b", "a"], "transform": {"template": "1"},
        "backoff": {"strategy": "exponential", "base_seconds": 5, "max_seconds": 60, "jitter": "full"},
    });
    let view = app.subscribe(NOWHERE, fields).await;
    assert_eq!((&view["event_types"], &view["tags"]), (&json!(["user.*"]), &json!(["a", "b"])));
    assert_eq!(view["backoff"]["floor_seconds"], 1, "full jitter alone may mean no wait at all");
    assert_eq!(view["transform"], json!({"template": "1", "content_type": "application/json"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_generated_if_none_is_given() {
    let app = App::start().await;
    let secrets =
        [app.subscribe(NOWHERE, json!({})).await, app.subscribe(NOWHERE, json!({})).await].map(|s| secret_of(&s));
    assert_ne!(secrets[0], secrets[1]);
    for secret in secrets {
        let encoded = secret.strip_prefix("whsec_").expect(&secret);
        assert_eq!(encoded.len(), 44, "32 bytes in base64");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_given_secret_is_used_and_an_invalid_one_is_refused_without_being_echoed() {
    let app = App::start().await;
    let own = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    assert_eq!(app.subscribe(NOWHERE, json!({"secret": own})).await["secret"], own);
    let long = format!("whsec_{}", "A".repeat(88));
    for bad in [
        "",
        "whsec_",
        "whsec_c2hvcnRzaG9ydA==",
        &own[6..],
        "WHSEC_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        &long,
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS\u{0}",
    ] {
        let reply = app.post("/subscriptions", &json!({"url": NOWHERE, "secret": bad})).await;
        assert!(bad.len() < 10 || !reply.text.contains(&bad[6..20]), "{}", reply.text);
        reply.names(&["secret"]);
    }
    app.post("/subscriptions", &json!({"url": NOWHERE, "secret": 5})).await.names(&["secret"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_subscriptions_is_limited() {
    let app = with_flags(&["--max-subscriptions=2"]).await;
    let first = app.subscribe(NOWHERE, json!({})).await;
    app.subscribe(NOWHERE, json!({"is_active": false})).await;
    let problem = app.post("/subscriptions", &json!({"url": NOWHERE})).await.problem(409, "too_many_subscriptions");
    assert!(problem["detail"].as_str().expect("a detail").contains('2'), "{problem}");
    app.delete(&path_of(&first)).await.expect(204);
    app.subscribe(NOWHERE, json!({})).await;
    app.post("/subscriptions", &json!({"url": NOWHERE})).await.problem(409, "too_many_subscriptions");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_creations_do_not_exceed_the_limit_of_subscriptions() {
    let app = with_flags(&["--max-subscriptions=3"]).await;
    let body = json!({"url": NOWHERE});
    let replies = futures_util::future::join_all((0..12).map(|_| app.post("/subscriptions", &body))).await;
    let statuses: Vec<u16> = replies.iter().map(|reply| reply.status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 201).count(), 3, "{statuses:?}");
    assert!(statuses.iter().all(|status| [201, 409].contains(status)), "{statuses:?}");
    assert_eq!(app.count("SELECT count(*) FROM waybill.subscriptions").await, 3);
}
