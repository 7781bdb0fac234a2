//! `GET /usage`.

use serde_json::{Value, json};

use super::{limit, publish, publish_many, refresh, servers};
use crate::support::App;

async fn usage(app: &App) -> Value {
    app.get("/usage").await.expect(200).json()
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_limited_but_what_the_server_limits() {
    let [app] = servers().await;
    app.source(json!({"verify": {"scheme": "none"}})).await;
    let off = json!({"limit": null, "used": null});
    let settings = app.engine().settings();
    let expected = json!({
        "namespace": {
            "publishes_per_second": null,
            "waiting_events": off,
            "stored_bytes": off,
            "subscriptions": {"limit": settings.max_subscriptions, "used": 0},
            "sources": {"limit": settings.max_sources, "used": 1},
        },
        "key": {"publishes_per_second": null},
        "servers": 1,
    });
    assert_eq!(usage(&app).await, expected);
    app.get("/usage?a=1").await.names(&["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_shows_where_each_limit_of_the_namespace_and_of_the_key_stands() {
    let [app] = servers().await;
    let app = app.with_admin_key().await;
    let limits = json!({
        "publishes_per_second": 100, "publish_burst": 200, "waiting_events": 50, "stored_bytes": 1000,
        "subscriptions": 7, "sources": 3,
    });
    limit(&app, "default", limits).await;
    let key = json!({"scopes": ["publish", "read"], "publishes_per_second": 5, "publish_burst": 20});
    let holder = app.holding(&app.make_key(key).await);
    holder.post("/events", &json!({"title": "t", "tags": "a", "payload": "12345678"})).await.expect(201);
    publish_many(&app, 9).await.expect(201);
    let expected = json!({
        "namespace": {
            "publishes_per_second": {"limit": 100, "burst": 200, "available": 190},
            "waiting_events": {"limit": 50, "used": 10},
            "stored_bytes": {"limit": 1000, "used": 10},
            "subscriptions": {"limit": 7, "used": 0},
            "sources": {"limit": 3, "used": 0},
        },
        "key": {"publishes_per_second": {"limit": 5, "burst": 20, "available": 19}},
        "servers": 1,
    });
    assert_eq!(usage(&holder).await, expected);
    refresh([&app]).await;
    assert_eq!(usage(&holder).await, expected, "what was added is in the database");
    app.advance(60);
    assert_eq!(usage(&holder).await["key"]["publishes_per_second"]["available"], 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_about_the_namespace_of_the_caller_and_needs_the_scope_read() {
    let [app] = servers().await;
    let app = app.with_admin_key().await;
    let north = app.team("north").await;
    limit(&app, "north", json!({"waiting_events": 5})).await;
    publish(&north).await.expect(201);
    assert_eq!(usage(&north).await["namespace"]["waiting_events"], json!({"limit": 5, "used": 1}));
    assert_eq!(usage(&app).await["namespace"]["waiting_events"], json!({"limit": null, "used": null}));
    app.holder_of("publish").await.get("/usage").await.problem(403, "scope_missing");
    app.holder_of("read").await.get("/usage").await.expect(200);
}
