//! `publishes_per_second` and `publish_burst`, of namespaces and keys.

use serde_json::json;

use super::{limit, publish, publish_many, refused, stored};
use crate::support::App;

const RATE: &str = "publishes_per_second";

#[tokio::test(flavor = "multi_thread")]
async fn publishes_beyond_the_rate_are_refused_until_time_has_passed() {
    let app = App::with_fixed_clock().await;
    publish_many(&app, 50).await.expect(201);
    limit(&app, "default", json!({RATE: 2, "publish_burst": 3})).await;
    for _ in 0..3 {
        publish(&app).await.expect(201);
    }
    let reply = publish(&app).await;
    assert_eq!(reply.header("retry-after"), Some("1"));
    refused(reply, RATE, "namespace");
    assert_eq!(stored(&app).await, 53, "nothing is stored of what is refused");
    app.advance(1);
    for _ in 0..2 {
        publish(&app).await.expect(201);
    }
    refused(publish(&app).await, RATE, "namespace");
    app.advance(3600);
    for _ in 0..3 {
        publish(&app).await.expect(201);
    }
    refused(publish(&app).await, RATE, "namespace");
    assert_eq!(app.engine().metrics().publishes_limited.get(), 3);
    limit(&app, "default", json!(null)).await;
    publish_many(&app, 50).await.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_of_a_batch_counts_as_one_and_a_batch_is_accepted_or_refused_as_a_whole() {
    let app = App::with_fixed_clock().await;
    limit(&app, "default", json!({RATE: 10})).await;
    publish_many(&app, 6).await.expect(201);
    refused(publish_many(&app, 5).await, RATE, "namespace");
    publish_many(&app, 4).await.expect(201);
    refused(publish(&app).await, RATE, "namespace");
    assert_eq!(stored(&app).await, 10);
    // A batch that is larger than the burst needs a full bucket, and is paid for afterwards.
    app.advance(1);
    publish_many(&app, 40).await.expect(201);
    app.advance(2);
    let reply = publish_many(&app, 40).await;
    assert_eq!(reply.header("retry-after"), Some("2"));
    refused(reply, RATE, "namespace");
    app.advance(2);
    publish_many(&app, 40).await.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn namespaces_and_keys_have_rates_of_their_own() {
    let app = App::with_fixed_clock().await.with_admin_key().await;
    limit(&app, "default", json!({RATE: 4})).await;
    let north = app.team("north").await;
    let slow = app.holding(&app.make_key(json!({"scopes": ["publish"], RATE: 1, "publish_burst": 2})).await);
    let other = app.holding(&app.make_key(json!({"scopes": ["publish"], RATE: 1})).await);
    publish_many(&slow, 2).await.expect(201);
    refused(publish(&slow).await, RATE, "key");
    publish(&other).await.expect(201);
    refused(publish(&other).await, RATE, "key");
    // What a key was refused is not taken from the namespace, and one publish is left there.
    publish(&app).await.expect(201);
    refused(publish(&app).await, RATE, "namespace");
    publish_many(&north, 50).await.expect(201);
    app.advance(1);
    // What the namespace refuses is not taken from the key.
    publish_many(&app, 4).await.expect(201);
    refused(publish(&slow).await, RATE, "namespace");
    limit(&app, "default", json!({})).await;
    publish(&slow).await.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotated_key_keeps_its_rate_and_what_it_has_used() {
    let app = App::with_fixed_clock().await.with_admin_key().await;
    let key = app.make_key(json!({"scopes": ["publish"], RATE: 3})).await;
    publish_many(&app.holding(&key), 2).await.expect(201);
    let rotated = app.post(&format!("/keys/{}/rotate", key.id), &json!({})).await.expect(200).json();
    let holder = app.sending(rotated["key"].as_str().expect("a key"));
    publish(&holder).await.expect(201);
    refused(publish(&holder).await, RATE, "key");
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_say_where_the_rates_stand() {
    let app = App::with_fixed_clock().await.with_admin_key().await;
    let reply = publish(&app).await.expect(201);
    assert_eq!((reply.header("ratelimit-policy"), reply.header("ratelimit")), (None, None), "nothing is limited");
    limit(&app, "default", json!({RATE: 100})).await;
    let reply = publish(&app).await.expect(201);
    assert_eq!(reply.header("ratelimit-policy"), Some(r#""publish";q=100;w=1"#));
    assert_eq!(reply.header("ratelimit"), Some(r#""publish";r=99;t=1"#));
    let reply = publish_many(&app, 49).await.expect(201);
    assert_eq!(reply.header("ratelimit"), Some(r#""publish";r=50;t=1"#));
    let key = app.make_key(json!({"scopes": ["publish"], RATE: 5, "publish_burst": 20})).await;
    let reply = publish_many(&app.holding(&key), 10).await.expect(201);
    assert_eq!(reply.header("ratelimit-policy"), Some(r#""publish";q=100;w=1, "publish-key";q=20;w=4"#));
    assert_eq!(reply.header("ratelimit"), Some(r#""publish";r=40;t=1, "publish-key";r=10;t=2"#));
    let repeated = json!({"title": "a job", "tags": "a", "idempotency_key": "k"});
    app.post("/events", &repeated).await.expect(201);
    let reply = app.post("/events", &repeated).await.expect(200);
    assert_eq!(reply.header("ratelimit"), Some(r#""publish";r=38;t=1"#), "a repeated event counts, too");
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_checked_when_they_are_set() {
    let app = App::with_fixed_clock().await.with_admin_key().await;
    let settings = |limits| json!({"settings": {"limits": limits}});
    let wrong = [
        (json!({RATE: 0}), vec!["settings.limits.publishes_per_second"]),
        (json!({RATE: 1.5}), vec!["settings.limits.publishes_per_second"]),
        (json!({RATE: 1_000_001}), vec!["settings.limits.publishes_per_second"]),
        (json!({"publish_burst": 5}), vec!["settings.limits.publish_burst"]),
        (
            json!({"waiting_events": 0, "sources": -1}),
            vec!["settings.limits.waiting_events", "settings.limits.sources"],
        ),
        (json!({"stored_bytes": "1"}), vec!["settings.limits.stored_bytes"]),
        (json!({"workers": 1}), vec!["settings.limits.workers"]),
        (json!(7), vec!["settings.limits"]),
    ];
    for (limits, fields) in wrong {
        app.patch("/namespaces/default", &settings(limits)).await.names(&fields);
    }
    let limits = json!({RATE: 7, "sources": 0});
    limit(&app, "default", limits.clone()).await;
    let view = app.get("/namespaces/default").await.expect(200).json();
    assert_eq!(view["settings"], json!({"limits": limits}));
    app.post("/keys", &json!({"name": "k", "scopes": ["publish"], RATE: 0})).await.names(&[RATE]);
    app.post("/keys", &json!({"name": "k", "scopes": ["publish"], "publish_burst": 1})).await.names(&["publish_burst"]);
    let key = json!({"name": "k", "scopes": ["publish"], RATE: 3, "publish_burst": 4});
    let made = app.post("/keys", &key).await.expect(201).json();
    assert_eq!((&made[RATE], &made["publish_burst"]), (&json!(3), &json!(4)));
    let created = json!({"name": "south", "settings": {"limits": {RATE: 1}}});
    app.post("/namespaces", &created).await.expect(201);
    let south = json!({"scopes": ["publish"], "name": "s"});
    let request = app.client.post(format!("{}/keys", app.base)).header("Waybill-Namespace", "south").json(&south);
    let made: serde_json::Value = request.send().await.expect("a response").json().await.expect("JSON");
    let south = app.sending(made["key"].as_str().expect("a key"));
    publish(&south).await.expect(201);
    refused(publish(&south).await, RATE, "namespace");
}
