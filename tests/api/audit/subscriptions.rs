//! Changes of subscriptions leave their entries, without secrets.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Value, json};
use waybill::domain::ids::{NamespaceId, SubscriptionId};
use waybill::domain::scope::Scope;

use super::{actions, audit};
use crate::support::receiver::{Receiver, Reply};
use crate::support::{App, database, until};

/// A word that must be nowhere in the audit log.
const SECRET: &str = "s3cret";

async fn subscribed(app: &App) -> Value {
    let fields = json!({
        "name": "orders", "event_types": ["order.*"], "max_attempts": 3, "is_active": false,
        "headers": {"Authorization": format!("Bearer {SECRET}"), "X-Old": SECRET},
    });
    app.subscribe(&format!("http://127.0.0.1:9/hooks/{SECRET}?token={SECRET}"), fields).await
}

fn path(subscription: &Value, verb: &str) -> String {
    format!("/subscriptions/{}{verb}", subscription["id"])
}

#[tokio::test(flavor = "multi_thread")]
async fn editing_a_subscription_records_what_changed() {
    let app = App::start().await;
    let subscription = subscribed(&app).await;
    let changes = json!({
        "max_attempts": 5, "url": format!("http://127.0.0.1:9/other/{SECRET}"), "is_active": true, "name": "orders",
        "headers": {"Authorization": format!("Bearer {SECRET}2"), "X-Old": null, "X-New": SECRET},
    });
    app.patch(&path(&subscription, ""), &changes).await.expect(200);
    let entry = &audit(&app, "action=subscription.updated").await[0];
    let expected = json!({
        "id": entry["id"], "created_at": entry["created_at"], "action": "subscription.updated", "actor": null,
        "address": "127.0.0.1", "subject": {"kind": "subscription", "id": subscription["id"]},
        "detail": {"version": 2, "changes": {
            "max_attempts": {"from": 3, "to": 5},
            "url": {"from": "http://127.0.0.1:9/hooks/…", "to": "http://127.0.0.1:9/other/…"},
            "headers": {"added": ["X-New"], "changed": ["Authorization"], "removed": ["X-Old"]},
            "is_active": {"from": false, "to": true},
        }},
    });
    assert_eq!(*entry, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_change_of_a_subscription_has_an_entry_and_no_entry_has_a_secret() {
    let app = App::start().await;
    let subscription = subscribed(&app).await;
    app.patch(&path(&subscription, ""), &json!({"headers": {"X-New": SECRET}})).await.expect(200);
    let rotated = app.post(&path(&subscription, "/rotate-secret"), &json!({})).await.expect(200).json();
    app.post_empty(&path(&subscription, "/resume")).await.expect(200);
    app.delete(&path(&subscription, "")).await.expect(204);
    let expected = ["created", "updated", "secret_rotated", "resumed", "deleted"];
    assert_eq!(actions(&app).await, expected.map(|word| format!("subscription.{word}")));
    let entries = audit(&app, "").await;
    assert!(entries.iter().all(|entry| entry["subject"]["id"] == subscription["id"]), "{entries:?}");
    let settings = &entries[0]["detail"]["settings"];
    assert_eq!((&settings["max_attempts"], &settings["headers"]), (&json!(3), &json!(["Authorization", "X-Old"])));
    assert_eq!(entries[2]["detail"]["version"], rotated["version"]);
    let text = format!("{entries:?}");
    for secret in [SECRET, subscription["secret"].as_str().expect("a secret"), rotated["secret"].as_str().expect("one")]
    {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_names_the_caller_and_the_clients_address() {
    let app = App::start().await;
    let id = subscribed(&app).await["id"].as_i64().expect("an id");
    let address = IpAddr::from(Ipv4Addr::new(192, 0, 2, 7));
    let scope =
        Scope { actor: Some("ann".into()), address: Some(address), ..app.engine().scope_of(NamespaceId::DEFAULT) };
    app.engine().resume_subscription(scope, SubscriptionId(id)).await.expect("a resume");
    let entry = &audit(&app, "actor=ann").await[0];
    assert_eq!((&entry["action"], &entry["address"]), (&json!("subscription.resumed"), &json!("192.0.2.7")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_that_the_server_switches_off_names_the_dispatcher() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    let subscription = app.subscribe(&receiver.url("/hook"), json!({"event_types": ["order"]})).await;
    receiver.always(Reply::gone());
    app.publish_typed("order", json!(1)).await;
    until("it is switched off", async || audit(&app, "action=subscription.deactivated").await.len() == 1).await;
    let entry = &audit(&app, "action=subscription.deactivated").await[0];
    assert_eq!((&entry["actor"], &entry["address"]), (&json!("server:dispatcher"), &json!(null)));
    assert_eq!((&entry["subject"]["id"], &entry["detail"]["reason"]), (&subscription["id"], &json!("gone")));
}

/// Refuses changes of a table with this name, when they are written or when they are committed.
fn refuse(table: &str, when: &str) -> String {
    format!(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no''; END'; \
         CREATE CONSTRAINT TRIGGER refuse AFTER INSERT OR UPDATE ON waybill.{table} DEFERRABLE INITIALLY {when} \
         FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_entry_a_change_is_not_made() {
    let app = App::start().await;
    let subscription = subscribed(&app).await;
    database::execute(&app.url, &refuse("audit_log", "IMMEDIATE")).await;
    app.patch(&path(&subscription, ""), &json!({"max_attempts": 5})).await.expect(500);
    app.post(&path(&subscription, "/rotate-secret"), &json!({})).await.expect(500);
    app.delete(&path(&subscription, "")).await.expect(500);
    let after = app.get(&path(&subscription, "")).await.expect(200).json();
    assert_eq!((&after["version"], &after["max_attempts"]), (&json!(1), &json!(3)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_is_rolled_back_leaves_no_entry() {
    let app = App::start().await;
    let subscription = subscribed(&app).await;
    database::execute(&app.url, &refuse("subscriptions", "DEFERRED")).await;
    app.patch(&path(&subscription, ""), &json!({"max_attempts": 5})).await.expect(500);
    app.patch(&path(&subscription, ""), &json!({"max_attempts": 0})).await.expect(400);
    assert_eq!(actions(&app).await, ["subscription.created"]);
}
