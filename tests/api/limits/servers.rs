//! Several servers share the rates of namespaces and keys.

use chrono::TimeDelta;
use serde_json::{Value, json};

use super::{limit, publish, publish_many, refresh, refused, servers, stored};
use crate::support::{App, database, until};

const RATE: &str = "publishes_per_second";

async fn known_servers(app: &App) -> i64 {
    app.get("/usage").await.expect(200).json()["servers"].as_i64().expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn three_servers_together_accept_what_the_rate_says_within_five_per_cent() {
    let all: [App; 3] = servers().await;
    limit(&all[0], "default", json!({RATE: 60, "publish_burst": 60})).await;
    for server in &all {
        publish(server).await.expect(201);
    }
    // The first round of the first server does not know of the others yet.
    refresh(&all).await;
    refresh(&all).await;
    for server in &all {
        assert_eq!(known_servers(server).await, 3);
    }
    // The bursts are used up.
    for server in &all {
        publish_many(server, 19).await.expect(201);
    }
    let before = stored(&all[0]).await;
    const SECONDS: i64 = 10;
    for _ in 0..SECONDS * 10 {
        for server in &all {
            server.engine().clock().advance(TimeDelta::milliseconds(100));
            // Half as much again as the share of the server.
            let reply = publish_many(server, 3).await;
            assert!([201, 429].contains(&reply.status), "{reply:?}");
        }
    }
    let accepted = stored(&all[0]).await - before;
    assert!((accepted - 60 * SECONDS).abs() * 20 <= 60 * SECONDS, "{accepted} events in {SECONDS} seconds");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_gone_leaves_its_share_to_the_others() {
    let [one, other] = servers().await;
    limit(&one, "default", json!({RATE: 10})).await;
    for _ in 0..2 {
        refresh([&one, &other]).await;
    }
    assert_eq!((known_servers(&one).await, known_servers(&other).await), (2, 2));
    publish_many(&one, 5).await.expect(201);
    refused(publish(&one).await, RATE, "namespace");
    other.stop().await;
    one.advance(6);
    refresh([&one]).await;
    assert_eq!(known_servers(&one).await, 1);
    publish_many(&one, 10).await.expect(201);
    refused(publish(&one).await, RATE, "namespace");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_forgotten_an_hour_after_its_last_sign_of_life() {
    let [app] = servers().await;
    let sign = |name: &str, seconds: i64| {
        let seen = app.now() - TimeDelta::seconds(seconds);
        format!("INSERT INTO waybill.servers (instance, seen_at) VALUES ('{name}', '{seen}');")
    };
    database::execute(&app.url, &(sign("long gone", 3_601) + &sign("gone", 3_590))).await;
    limit(&app, "default", json!({RATE: 10})).await;
    refresh([&app]).await;
    let known =
        async |name: &str| app.count(&format!("SELECT count(*) FROM waybill.servers WHERE instance = '{name}'")).await;
    assert_eq!((known("long gone").await, known("gone").await), (0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_is_set_or_raised_on_one_server_holds_on_the_other() {
    let [one, other] = servers().await;
    publish(&other).await.expect(201);
    limit(&one, "default", json!({RATE: 1})).await;
    // This one notices the change by the publish itself, the next one is judged by it.
    publish(&other).await.expect(201);
    publish(&other).await.expect(201);
    refused(publish(&other).await, RATE, "namespace");
    limit(&one, "default", json!({RATE: 50})).await;
    refresh([&other]).await;
    other.advance(1);
    publish_many(&other, 20).await.expect(201);
    limit(&one, "default", json!({})).await;
    refresh([&other]).await;
    publish_many(&other, 500).await.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rate_of_a_key_is_shared_like_that_of_a_namespace() {
    let [one, other] = servers().await;
    let one = one.with_admin_key().await;
    let key = one.make_key(json!({"scopes": ["publish"], RATE: 10})).await;
    for _ in 0..2 {
        refresh([&one, &other]).await;
    }
    for server in [&one, &other] {
        let holder = server.holding(&key);
        publish_many(&holder, 5).await.expect(201);
        refused(publish(&holder).await, RATE, "key");
    }
}

/// Returns the rate of the caller's key as its server knows it.
async fn known_rate(holder: &App) -> Value {
    holder.get("/usage").await.expect(200).json()["key"]["publishes_per_second"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rate_of_a_key_is_reached_answered_and_released_on_both_servers() {
    let [one, other] = servers().await;
    let one = one.with_admin_key().await;
    let key = one.make_key(json!({"scopes": ["publish"], RATE: 10, "publish_burst": 20})).await;
    for _ in 0..2 {
        refresh([&one, &other]).await;
    }
    let holders = [one.holding(&key), other.holding(&key)];
    for holder in &holders {
        let reply = publish_many(holder, 10).await.expect(201);
        assert_eq!(reply.header("ratelimit-policy"), Some(r#""publish-key";q=20;w=2"#));
        assert_eq!(reply.header("ratelimit"), Some(r#""publish-key";r=0;t=2"#));
        let reply = publish(holder).await;
        assert_eq!(reply.header("retry-after"), Some("1"));
        refused(reply, RATE, "key");
    }
    for (server, holder) in [&one, &other].into_iter().zip(&holders) {
        server.advance(1);
        publish_many(holder, 5).await.expect(201);
        refused(publish(holder).await, RATE, "key");
    }
    assert_eq!(stored(&one).await, 30);
}

/// The servers do not poll, so the notification alone tells the other one.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_a_keys_rate_reaches_the_other_server() {
    let [one, other] = servers().await;
    one.until_listening(2).await;
    let one = one.with_admin_key().await;
    let key = one.make_key(json!({"scopes": ["publish", "read"]})).await;
    let path = format!("/keys/{}", key.id);
    let (here, there) = (one.holding(&key), other.holding(&key));
    publish_many(&there, 50).await.expect(201);
    assert_eq!(known_rate(&there).await, json!(null));
    for (change, limit, burst) in
        [(json!({RATE: 2}), 2, 2), (json!({"publish_burst": 6}), 2, 6), (json!({RATE: 3, "publish_burst": null}), 3, 3)]
    {
        one.patch(&path, &change).await.expect(200);
        assert_eq!(known_rate(&here).await["burst"], burst, "it holds here with the response");
        let expected = json!({"limit": limit, "burst": burst, "available": burst});
        until("the other server knows", async || known_rate(&there).await == expected).await;
        publish_many(&there, burst).await.expect(201);
        refused(publish(&there).await, RATE, "key");
        other.advance(60);
    }
    one.patch(&path, &json!({RATE: null})).await.expect(200);
    until("the other server knows", async || known_rate(&there).await == json!(null)).await;
    for holder in [&here, &there] {
        publish_many(holder, 50).await.expect(201);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_renew_what_they_know_by_themselves() {
    let app = App::start().await;
    limit(&app, "default", json!({"waiting_events": 1})).await;
    publish(&app).await.expect(201);
    refused(publish(&app).await, "waiting_events", "namespace");
    app.claim_one("a", "w:1").await;
    until("there is room", async || publish(&app).await.status == 201).await;
}
