//! Refused calls are counted, and not listed one by one.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Value, json};
use waybill::domain::ids::NamespaceId;
use waybill::engine::refused_calls::RefusedCall;

use super::audit;
use crate::support::{App, database};

fn note(app: &App, actor: Option<&str>, last: u8, reason: &'static str) {
    let address = Some(IpAddr::from(Ipv4Addr::new(192, 0, 2, last)));
    let call = RefusedCall { namespace: NamespaceId::DEFAULT, actor: actor.map(Into::into), address, reason };
    app.engine().refused_calls().note(call, app.engine().time());
}

async fn record(app: &App) -> usize {
    app.engine().record_refused_calls().await.expect("a round")
}

/// Returns actor, address, reason and number of calls of an entry.
fn counted(entry: &Value) -> Value {
    json!([entry["actor"], entry["address"], entry["detail"]["reason"], entry["detail"]["calls"]])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_refused_calls_of_one_kind_are_one_entry() {
    let app = App::with_fixed_clock().await;
    for _ in 0..1_000 {
        note(&app, None, 7, "unauthenticated");
    }
    note(&app, None, 8, "unauthenticated");
    note(&app, Some("ann"), 7, "scope_missing");
    assert_eq!(audit(&app, "").await, [json!(null); 0], "nothing is written for a call");
    assert_eq!(record(&app).await, 3);
    let mut found: Vec<Value> = audit(&app, "action=calls.refused").await.iter().map(counted).collect();
    found.sort_by_key(Value::to_string);
    let expected = [
        json!(["ann", "192.0.2.7", "scope_missing", 1]),
        json!([null, "192.0.2.7", "unauthenticated", 1000]),
        json!([null, "192.0.2.8", "unauthenticated", 1]),
    ];
    assert_eq!(found, expected);
    assert_eq!(audit(&app, "actor=ann").await[0]["subject"], json!(null));
    assert_eq!(record(&app).await, 0, "they were recorded");
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_wait_while_the_database_refuses_them() {
    let app = App::start().await;
    note(&app, None, 7, "unauthenticated");
    database::execute(&app.url, "ALTER TABLE waybill.audit_log RENAME TO hidden").await;
    app.engine().record_refused_calls().await.expect_err("there is no table");
    database::execute(&app.url, "ALTER TABLE waybill.hidden RENAME TO audit_log").await;
    note(&app, None, 7, "unauthenticated");
    assert_eq!(record(&app).await, 1);
    assert_eq!(audit(&app, "").await[0]["detail"]["calls"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_counts_are_written_when_the_server_stops() {
    let app = App::start().await;
    note(&app, None, 7, "unauthenticated");
    let url = app.url.clone();
    app.stop().await;
    assert_eq!(database::count(&url, "SELECT count(*) FROM waybill.audit_log").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_under_a_key_that_does_not_allow_them_or_has_ended_are_counted_with_its_name() {
    let app = App::with_keys().await;
    let key = app.make_key(json!({"name": "ann", "scopes": ["publish"], "tag_patterns": ["billing.*"]})).await;
    let holder = app.holding(&key);
    holder.post("/events", &json!({"title": "t", "tags": "mail"})).await.problem(403, "tag_not_allowed");
    let named = holder.client.post(format!("{}/events", app.base)).header("Waybill-Namespace", "other");
    let named = named.json(&json!({"title": "t", "tags": "billing.a"})).send().await.expect("a response");
    assert_eq!(named.status(), 403);
    app.post_empty(&format!("/keys/{}/revoke", key.id)).await.expect(200);
    holder.get("/events").await.problem(401, "key_revoked");
    assert_eq!(record(&app).await, 3);
    let mut found: Vec<Value> = audit(&app, "action=calls.refused&actor=ann").await.iter().map(counted).collect();
    found.sort_by_key(Value::to_string);
    let expected = ["key_revoked", "scope_missing", "tag_not_allowed"];
    assert_eq!(found, expected.map(|reason| json!(["ann", "127.0.0.1", reason, 1])));
}
