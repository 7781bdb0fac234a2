//! `PATCH /subscriptions/{id}`: the given fields are replaced.

use serde_json::{Value, json};

use super::{NOWHERE, path_of, update};
use crate::push::rows;
use crate::support::receiver::{Receiver, Reply};
use crate::support::{App, ledger, until};

#[tokio::test(flavor = "multi_thread")]
async fn given_fields_are_replaced_and_the_others_stay() {
    let app = App::start().await;
    let fields = json!({
        "name": "before", "event_types": ["a"], "labels": {"a": "1"}, "timeout_ms": 500, "filter": {"event_type": "a"},
    });
    let mut expected = app.subscribe(NOWHERE, fields).await;
    expected.as_object_mut().expect("an object").remove("secret");
    let changes = json!({
        "url": "https://other.example/", "labels": {"b": "2"}, "max_attempts": 7, "transform": {"envelope": true},
    });
    let view = update(&app, &expected, changes.clone()).await.expect(200).json();
    expected.as_object_mut().expect("an object").extend(changes.as_object().expect("an object").clone());
    expected["version"] = json!(2);
    expected["updated_at"] = view["updated_at"].clone();
    assert_eq!(view, expected);
    assert_eq!(app.get(&path_of(&view)).await.expect(200).json(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn null_restores_the_default() {
    let app = App::start().await;
    let mut plain = app.subscribe(NOWHERE, json!({})).await;
    let fields = json!({
        "name": "n", "method": "PUT", "event_types": ["a"], "tags": ["a"], "labels": {"a": "b"},
        "filter": {"event_type": "a"}, "headers": {"X-A": "1"}, "timeout_ms": 500, "max_attempts": 1, "backoff": {"strategy": "fixed", "seconds": 1},
        "retry_on": [], "ordering": "by_key", "on_exhausted": "block", "ordering_key_path": "a", "max_concurrency": 1,
        "rate_per_second": 1.0, "transform": {"envelope": true},
    });
    let nulls: Value = fields.as_object().expect("an object").keys().map(|name| (name.clone(), Value::Null)).collect();
    let full = app.subscribe(NOWHERE, fields).await;
    let view = update(&app, &full, nulls).await.expect(200).json();
    plain.as_object_mut().expect("an object").remove("secret");
    for own in ["id", "version", "created_at", "updated_at"] {
        plain[own] = view[own].clone();
    }
    assert_eq!(view, plain);
    update(&app, &full, json!({"url": null})).await.names(&["url"]);
    let unchanged = update(&app, &full, json!({"is_active": null, "secret": null})).await.expect(200).json();
    assert_eq!(unchanged["is_active"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_version_grows_with_every_change() {
    let app = App::with_fixed_clock().await;
    let subscription = app.subscribe(NOWHERE, json!({})).await;
    for version in 2..5 {
        app.advance(60);
        let view = update(&app, &subscription, json!({"name": format!("v{version}")})).await.expect(200).json();
        assert_eq!(view["version"], version);
        assert_eq!(view["created_at"], subscription["created_at"]);
        assert_eq!(app.seconds_ahead(&view["updated_at"]), 0);
    }
}

/// Returns the header values that are sent to the receiver.
async fn stored_headers(app: &App, subscription: &Value) -> Value {
    let sql = format!("SELECT spec->'headers' AS headers FROM waybill.subscriptions WHERE id = {}", subscription["id"]);
    rows(app, &sql).await[0]["headers"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_are_merged_by_name_and_null_removes_one() {
    let app = App::start().await;
    let headers = json!({"Authorization": "Bearer s3cret", "X-Old": "old", "X-Other": "1"});
    let subscription = app.subscribe(NOWHERE, json!({ "headers": headers })).await;
    assert_eq!(subscription["header_names"], json!(["Authorization", "X-Old", "X-Other"]));
    let changes = json!({"x-other": "2", "X-OLD": null, "X-New": "3", "X-Unknown": null});
    let changed = update(&app, &subscription, json!({ "headers": changes })).await.expect(200).json();
    assert_eq!(changed["header_names"], json!(["Authorization", "X-New", "x-other"]));
    let merged = json!({"Authorization": "Bearer s3cret", "X-New": "3", "x-other": "2"});
    assert_eq!(stored_headers(&app, &subscription).await, merged);
    for unrelated in [json!({"headers": {}}), json!({"name": "renamed"})] {
        update(&app, &subscription, unrelated).await.expect(200);
        assert_eq!(stored_headers(&app, &subscription).await, merged);
    }
    let changed = update(&app, &subscription, json!({"headers": null})).await.expect(200).json();
    assert_eq!(changed["header_names"], json!([]));
    assert_eq!(stored_headers(&app, &subscription).await, json!({}));
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_header_values_are_not_sent_to_another_host() {
    let (app, thief) = (App::start().await, Receiver::start().await);
    let headers = json!({"Authorization": "Bearer s3cret"});
    let subscription = app.subscribe(NOWHERE, json!({ "headers": headers })).await;
    for kept in [json!({"url": thief.url("/")}), json!({"url": thief.url("/"), "headers": {"X-More": "1"}})] {
        update(&app, &subscription, kept).await.names(&["headers"]);
    }
    let view = app.get(&path_of(&subscription)).await.expect(200).json();
    assert_eq!((&view["url"], &view["version"]), (&json!(NOWHERE), &json!(1)), "nothing was changed");
    update(&app, &subscription, json!({"url": format!("{NOWHERE}/moved")})).await.expect(200);
    assert_eq!(stored_headers(&app, &subscription).await, headers);
    update(&app, &subscription, json!({"url": thief.url("/"), "headers": null})).await.expect(200);
    app.post_empty(&format!("{}/test", path_of(&subscription))).await.expect(200);
    assert_eq!(thief.received(1).await[0].header("authorization"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn merged_headers_obey_the_rules_of_headers() {
    let app = App::start().await;
    let headers = |names: std::ops::Range<usize>| names.map(|n| (format!("X-{n}"), json!("1"))).collect::<Value>();
    let subscription = app.subscribe(NOWHERE, json!({"headers": headers(0..31)})).await;
    for (changes, named) in [
        (headers(31..33), "headers"),
        (json!({"Host": "a"}), "headers.Host"),
        (json!({"X-1": "2", "x-1": "3"}), "headers.x-1"),
        (json!({"X-1": "v".repeat(2001)}), "headers.X-1"),
        (json!({"X-1": 5}), "headers.X-1"),
        (json!(["X-1"]), "headers"),
    ] {
        update(&app, &subscription, json!({ "headers": changes })).await.names(&[named]);
    }
    update(&app, &subscription, json!({"header_names": []})).await.names(&["header_names"]);
    assert_eq!(stored_headers(&app, &subscription).await, headers(0..31));
    let mut replaced = headers(31..33);
    replaced["x-0"] = Value::Null;
    update(&app, &subscription, json!({ "headers": replaced })).await.expect(200);
    assert_eq!(stored_headers(&app, &subscription).await, headers(1..33));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_cannot_be_changed_by_patch() {
    let app = App::start().await;
    let subscription = app.subscribe(NOWHERE, json!({})).await;
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let reply = update(&app, &subscription, json!({"name": "x", "secret": secret})).await;
    assert!(!reply.text.contains(&secret[6..]), "{}", reply.text);
    reply.names(&["secret"]);
    assert_eq!(app.get(&path_of(&subscription)).await.json()["version"], 1, "nothing was changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_change_is_refused_as_a_whole() {
    let app = App::start().await;
    let subscription = app.subscribe(NOWHERE, json!({"name": "before"})).await;
    for (changes, named) in [
        (json!({"name": "after", "timeout_ms": 1}), "timeout_ms"),
        (json!({"name": "after", "colour": "red"}), "colour"),
        (json!({"name": "after", "id": 8}), "id"),
        (json!({"name": "after", "version": 8}), "version"),
        (json!({"name": "after", "endpoint": {}}), "endpoint"),
        (json!({"name": "after", "filter_over_budget": {}}), "filter_over_budget"),
        (json!({"name": "after", "is_active": "no"}), "is_active"),
        (
            json!({"name": "after", "filter": {"$or": [{}, {"payload.a": {"$gt": true}}]}}),
            "filter.$or[1].payload.a.$gt",
        ),
        (json!({"name": "after", "url": "http://[::1]/"}), "url"),
    ] {
        update(&app, &subscription, changes).await.names(&[named]);
    }
    let view = app.get(&path_of(&subscription)).await.expect(200).json();
    assert_eq!((&view["name"], &view["version"]), (&json!("before"), &json!(1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disabled_subscription_gets_no_events_published_meanwhile() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    let subscription = app.subscribe(&receiver.url("/hook"), json!({"event_types": ["t"]})).await;
    let enqueued = async || {
        let event = json!({"event_type": "t"});
        app.post("/events", &event).await.expect(201).json()["enqueued"].clone()
    };
    assert_eq!(enqueued().await, 1);
    receiver.received(1).await;
    assert_eq!(update(&app, &subscription, json!({"is_active": false})).await.expect(200).json()["is_active"], false);
    assert_eq!(enqueued().await, 0);
    update(&app, &subscription, json!({"is_active": true})).await.expect(200);
    assert_eq!(enqueued().await, 1);
    assert_eq!(receiver.received(2).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_disabled_by_the_server_shows_the_reason_until_it_is_enabled() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    let subscription = app.subscribe(&receiver.url("/hook"), json!({"event_types": ["t"]})).await;
    receiver.next(Reply::gone());
    app.publish_typed("t", json!(1)).await;
    let view = async || app.get(&path_of(&subscription)).await.expect(200).json();
    until("it is switched off", async || view().await["is_active"] == false).await;
    assert_eq!(view().await["inactive_reason"], "gone");
    update(&app, &subscription, json!({"name": "renamed"})).await.expect(200);
    assert_eq!(view().await["inactive_reason"], "gone");
    let back = update(&app, &subscription, json!({"is_active": true})).await.expect(200).json();
    assert_eq!((&back["is_active"], &back["inactive_reason"]), (&json!(true), &Value::Null));
    ledger::check(&app).await;
}
