//! The pages about namespaces, keys, the audit log and settings.

use serde_json::json;

use crate::support::{App, Options};

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_administrators_are_refused_to_others() {
    let app = App::with_keys().await;
    let operator = app.holding(&app.make_key(json!({"scopes": ["read", "operate", "reveal"]})).await);
    for path in ["/ui/namespaces", "/ui/namespaces/default", "/ui/keys", "/ui/keys/new", "/ui/audit"] {
        app.get(path).await.expect(200);
        let refused = operator.get(path).await.expect(403).text;
        assert!(refused.contains("admin"), "{refused}");
    }
    let page = operator.get("/ui/events").await.expect(200).text;
    assert!(!page.contains("/ui/keys") && !page.contains("data-goto"), "{page}");
    assert!(!page.contains("/ui/publish"), "the key may not publish");
    operator.get("/ui/publish").await.expect(403);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_switch_lists_namespaces_and_keeps_the_page() {
    let app = App::start().await;
    app.post("/namespaces", &json!({"name": "shop"})).await.expect(201);
    let id = app.publish_tagged("reports").await;
    let page = app.get("/ui/events?q=tag%3Areports").await.expect(200).text;
    assert!(page.contains("value=\"/ui/events?q=tag%3Areports&amp;namespace=shop\""), "{page}");
    assert!(page.contains("<option selected value=\"/ui/events?q=tag%3Areports&amp;namespace=default\""), "{page}");
    let event = app.get(&format!("/ui/events/{id}")).await.expect(200).text;
    assert!(event.contains("value=\"/ui/events?namespace=shop\""), "{event}");
    let shop = app.get("/ui/events?namespace=shop").await.expect(200).text;
    assert!(
        shop.contains("<option selected value=\"/ui/events?namespace=shop\"") && !shop.contains("data-id"),
        "{shop}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_shows_its_settings_and_its_usage() {
    let app = App::start().await;
    let settings = json!({"limits": {"waiting_events": 12_345, "sources": 0}, "redact": ["payload.card.*"], "strict_event_types": true});
    app.post("/namespaces", &json!({"name": "shop", "settings": settings})).await.expect(201);
    let list = app.get("/ui/namespaces").await.expect(200).text;
    assert!(list.contains("strict_event_types, limits, redact (1)") && list.contains("/?namespace=shop"), "{list}");
    let page = app.get("/ui/namespaces/shop").await.expect(200).text;
    for text in ["12,345", "payload.card.*", "value=\"12345\"", "full", "no limit"] {
        assert!(page.contains(text), "{text} in {page}");
    }
    app.get("/ui/namespaces/unknown").await.expect(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_show_what_they_allow_and_how_many_sessions_they_have() {
    let app = App::with_keys().await;
    let fields = json!({
        "name": "<u>workers", "scopes": ["work", "read"], "tag_patterns": ["billing.*"], "publishes_per_second": 7,
        "expires_at": "2099-01-31T00:00:00Z",
    });
    let key = app.make_key(fields).await;
    app.log_in(&key.key).await;
    app.log_in(&key.key).await;
    assert_eq!(app.get("/keys").await.expect(200).json()["keys"][1]["sessions"], 2);
    let list = app.get("/ui/keys").await.expect(200).text;
    for text in
        ["&lt;u&gt;workers", "work, read", "billing.*", "7/s", "2099-01-31", &key.key[..9], "in use", "the admin"]
    {
        assert!(list.contains(text), "{text} in {list}");
    }
    let page = app.get(&format!("/ui/keys/{}", key.id)).await.expect(200).text;
    assert!(page.contains("its 2 sessions") && page.contains("/rotate\"") && !page.contains(&key.key), "{page}");
    app.post_empty(&format!("/keys/{}/revoke", key.id)).await.expect(200);
    let revoked = app.get(&format!("/ui/keys/{}", key.id)).await.expect(200).text;
    assert!(revoked.contains("revoked") && !revoked.contains("data-form"), "{revoked}");
    app.get("/ui/keys/999").await.expect(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_shows_who_did_what_from_where() {
    let app = App::with_keys().await;
    app.source(json!({"name": "a <source>", "verify": {"scheme": "none"}})).await;
    let page = app.get("/ui/audit").await.expect(200).text;
    for text in ["source.created", "the admin", "127.0.0.1", "a &lt;source&gt;", "key.created"] {
        assert!(page.contains(text), "{text} in {page}");
    }
    let rows = |text: &str| text.matches("<tr data-id").count();
    let filtered = app.get("/ui/audit?action=source.created&actor=&since=").await.expect(200).text;
    assert_eq!(rows(&filtered), 1, "{filtered}");
    assert!(app.get("/ui/audit?actor=nobody").await.expect(200).text.contains("No entry matches"));
    let first = app.get("/ui/audit?limit=1").await.expect(200).text;
    assert!(rows(&first) == 1 && first.contains("rel=\"next\""), "{first}");
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_in_force_are_shown_without_passwords_and_only_to_administrators() {
    let flags = ["--poison-after=7", "--webhook-proxy=http://me:hunter2@127.0.0.1:9"].map(str::to_owned).to_vec();
    let app = App::start_with(Options { flags, ..Options::default() }).await.with_admin_key().await;
    let page = app.get("/ui/settings").await.expect(200).text;
    for text in [
        "--poison-after",
        "<strong>7</strong>",
        "PostgreSQL 1",
        "external",
        "http://me:PASSWORD@127.0.0.1:9/",
        "WAYBILL_BIND",
    ] {
        assert!(page.contains(text), "{text} in {page}");
    }
    assert!(!page.contains("hunter2"), "{page}");
    let reader = app.holder_of("read").await.get("/ui/settings").await.expect(200).text;
    assert!(reader.contains("--retention") && reader.contains("Limits of this namespace"), "{reader}");
    for secret in ["--poison-after", "--database-url", "--bind", "PostgreSQL", "process"] {
        assert!(!reader.contains(secret), "{secret} in {reader}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_name_this_server_and_its_keys() {
    let app = App::with_keys().await;
    let page = app.get("/ui/events").await.expect(200).text;
    assert!(
        page.contains(&format!("{}/events", app.base)) && page.contains("Authorization: Bearer $WAYBILL_KEY"),
        "{page}"
    );
    app.post("/namespaces", &json!({"name": "shop"})).await.expect(201);
    assert!(app.get("/ui/workers?namespace=shop").await.expect(200).text.contains("Waybill-Namespace: shop"));
}
