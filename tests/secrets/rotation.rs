//! The rotation of the key while servers push.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::{dump, id_of_key, is_signed_with, new_key, printed, rotate, start};
use crate::support::locks::HeldRow;
use crate::support::receiver::{Receiver, Reply};
use crate::support::sources::github_signature;
use crate::support::{App, database, ledger, until};

const TOKEN: &str = "t0ken-of-the-header";
const SOURCE_SECRET: &str = "s3cret-of-the-source";
const FAILED: &str = "SELECT count(*) FROM waybill.event_log WHERE action = 'FAILED'";
/// Pushes that are to be sent at once.
const OPEN: &str = "SELECT count(*) FROM waybill.deliveries \
                    WHERE status IN ('PENDING', 'PROCESSING') AND subscription_id IS NOT NULL AND due_at IS NULL";

/// Makes a receiver accept only requests with the right header and signature.
fn accept_only(receiver: &Receiver, subscriptions: &[Value]) {
    let secrets: Vec<(String, String)> = subscriptions
        .iter()
        .map(|each| {
            (each["name"].as_str().expect("a name").to_owned(), each["secret"].as_str().expect("a secret").to_owned())
        })
        .collect();
    receiver.answer_with(move |request| {
        let secret = secrets.iter().find(|(name, _)| request.path == format!("/{name}"));
        let is_right = request.header("x-token") == Some(TOKEN)
            && secret.is_some_and(|(_, secret)| is_signed_with(request, secret));
        Reply::status(if is_right { 200 } else { 500 })
    });
}

/// Publishes to both servers in turn until told to stop. Returns the number of events.
async fn publish_until(stop: &AtomicBool, servers: [&App; 2]) -> usize {
    let mut published = 0;
    while !stop.load(Ordering::Relaxed) {
        servers[published % 2].publish_typed("order.paid", json!({"n": published})).await;
        published += 1;
    }
    published
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_rotated_while_two_servers_push_and_no_push_fails() {
    let (old, new) = (new_key(), new_key());
    let receiver = Receiver::start().await;
    let first = start(&[&old], None).await;
    let mut subscriptions = Vec::new();
    for n in 0..5 {
        let fields = json!({"name": format!("s{n}"), "headers": {"X-Token": TOKEN}});
        subscriptions.push(first.subscribe(&receiver.url(&format!("/s{n}")), fields).await);
    }
    accept_only(&receiver, &subscriptions);
    let source = first.source(json!({"provider": "github", "verify": {"secret": SOURCE_SECRET}})).await;
    // A dead letter, whose copy is rotated, too.
    let held = first.publish(json!({"event_type": "order.paid", "delay_seconds": 3600})).await;
    let delivery = first.deliveries_of(held).await[0]["id"].as_i64().expect("an id");
    first.dead_letter(delivery, "test").await.expect(200);
    let url = first.url.clone();
    first.stop().await;

    // The old key still encrypts on one server, and the new one on the other already.
    let (one, other) = (start(&[&old, &new], Some(&url)).await, start(&[&new, &old], Some(&url)).await);
    let stop = Arc::new(AtomicBool::new(false));
    let rotation = async {
        until("pushes are under way", async || receiver.count() > 20).await;
        let rotated = rotate(&url, &[&new, &old], &[]).await;
        let received = receiver.count();
        until("pushes go on", async || receiver.count() > received + 20).await;
        stop.store(true, Ordering::Relaxed);
        rotated
    };
    let (rotated, published) = tokio::join!(rotation, publish_until(&stop, [&one, &other]));
    let shown = printed(&rotated);
    // Five secrets and five settings of subscriptions, one dead letter, and a secret and a token of a source.
    assert!(shown.contains("13 rows were encrypted again"), "{shown}");
    until("all are sent", async || one.count(OPEN).await == 0).await;
    assert_eq!(one.count(FAILED).await, 0);
    assert!(receiver.count() >= published * subscriptions.len());
    let dump = dump(&url).await;
    assert!(!dump.contains(&id_of_key(&old)), "a value is under the old key");
    assert!(dump.contains(&id_of_key(&new)));
    one.stop().await;
    other.stop().await;

    // The old key is gone for good.
    let last = start(&[&new], Some(&url)).await;
    let read = last.get(&format!("/sources/{}", source["id"])).await.expect(200).json();
    assert_eq!(read["path"], source["path"]);
    let signature = github_signature(SOURCE_SECRET, "{}");
    last.send_webhook(&source, &[("x-hub-signature-256", &signature)], "{}").await.expect(202);
    let event = last.publish_typed("order.paid", json!({})).await;
    until("it is sent", async || last.event(event).await["status"] == "COMPLETED").await;
    receiver.always(Reply::ok());
    let letter = last.open_dead_letter(held).await["id"].clone();
    last.replay(&letter, json!({"config": "original"})).await.expect(200);
    last.until_delivery(delivery, "COMPLETED").await;
    let replayed =
        receiver.so_far().into_iter().find(|request| request.header("waybill-event-id") == Some(&held.to_string()));
    assert_eq!(replayed.expect("the replay").header("x-token"), Some(TOKEN));
    assert_eq!(last.count(FAILED).await, 0);
    ledger::check(&last).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotation_may_be_repeated_and_encrypts_plain_values_in_many_steps() {
    const LETTERS: i64 = 1_200;
    let key = new_key();
    let app = start(&[], None).await;
    app.subscribe("http://127.0.0.1:9/", json!({"headers": {"X-Token": TOKEN}, "is_active": true, "max_attempts": 1}))
        .await;
    let event = app.publish(json!({"event_type": "a", "delay_seconds": 3600})).await;
    let delivery = app.only_delivery(event).await;
    app.dead_letter(delivery, "test").await.expect(200);
    let copies = format!(
        "INSERT INTO waybill.dead_letters (subscription_version, delivery_id, event_id, subscription_id, created_at, \
             replayed_at, replay_config, reason, event, subscription, attempts) \
         SELECT subscription_version, delivery_id, event_id, subscription_id, created_at, now(), 'current', reason, event, \
             subscription, attempts FROM waybill.dead_letters CROSS JOIN generate_series(2, {LETTERS})"
    );
    database::execute(&app.url, &copies).await;
    let shown = printed(&rotate(&app.url, &[&key], &[]).await);
    let all = format!("{LETTERS}  header values in dead letters   key {} (the first)", id_of_key(&key));
    assert!(shown.contains(&all) && shown.contains(&format!("{} rows were encrypted again", LETTERS + 2)), "{shown}");
    let after = dump(&app.url).await;
    assert!(!after.contains(TOKEN));
    let again = printed(&rotate(&app.url, &[&key], &[]).await);
    assert!(again.contains("0 rows were encrypted again"), "{again}");
    assert_eq!(dump(&app.url).await, after);
}

/// A `PATCH` that commits while the rotation waits for the same row is not undone.
#[tokio::test(flavor = "multi_thread")]
async fn a_concurrent_change_of_a_subscription_wins() {
    let key = new_key();
    let (app, receiver) = (start(&[&key], None).await, Receiver::start().await);
    let subscription = app.subscribe(&receiver.url("/hook"), json!({})).await;
    let set = |token: &str| {
        let headers = format!("{{\"headers\": {{\"X-Token\": \"{token}\"}}}}");
        format!(
            "UPDATE waybill.subscriptions SET version = version + 1, spec = (spec::jsonb || '{headers}')::json \
             WHERE id = {}; UPDATE waybill.subscription_catalog SET generation = generation + 1",
            subscription["id"]
        )
    };
    database::execute(&app.url, &set("before-the-change")).await;
    let held = HeldRow::with_uncommitted(&app, &set("after-the-change")).await;
    let change = async {
        app.until_blocked_calls(1).await;
        held.unlock().await;
    };
    let (url, keys) = (app.url.clone(), [key.as_str()]);
    let ((), rotated) = tokio::join!(change, rotate(&url, &keys, &[]));
    printed(&rotated);
    let dump = dump(&app.url).await;
    assert!(!dump.contains("before-the-change") && !dump.contains("after-the-change"));
    app.publish_typed("order.paid", json!(1)).await;
    assert_eq!(receiver.received(1).await[0].header("x-token"), Some("after-the-change"));
}

/// A transaction has copied a value under the old key, and nothing that others see is left under that key.
#[tokio::test(flavor = "multi_thread")]
async fn a_rotation_that_finds_nothing_waits_for_what_others_have_not_committed() {
    let (old, new) = (new_key(), new_key());
    let (app, receiver) = (start(&[&old], None).await, Receiver::start().await);
    app.subscribe(&receiver.url("/hook"), json!({"max_attempts": 1, "headers": {"X-Token": TOKEN}})).await;
    app.publish_and_fail(&receiver, "order.paid", json!(1)).await;
    let copy = "INSERT INTO waybill.dead_letters (subscription_version, delivery_id, event_id, subscription_id, \
             created_at, replayed_at, replay_config, reason, event, subscription, attempts) \
         SELECT subscription_version, delivery_id, event_id, subscription_id, created_at, now(), 'current', reason, \
             event, subscription, attempts FROM waybill.dead_letters";
    let held = HeldRow::with_uncommitted(&app, copy).await;
    let rest = "DELETE FROM waybill.dead_letters; DELETE FROM waybill.subscription_secrets; \
         UPDATE waybill.subscriptions SET spec = (spec::jsonb - 'headers')::json";
    database::execute(&app.url, rest).await;
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                   AND query LIKE '%pg_snapshot_xmin%' AND pid <> pg_backend_pid()";
    let commit = async {
        until("the rotation waits", async || app.count(waiting).await > 0).await;
        held.unlock().await;
    };
    let (url, keys) = (app.url.clone(), [new.as_str(), old.as_str()]);
    let ((), rotated) = tokio::join!(commit, rotate(&url, &keys, &[]));
    let shown = printed(&rotated);
    assert!(shown.contains("1 row was encrypted again") || shown.contains("1 rows were encrypted again"), "{shown}");
    let is_new =
        format!("SELECT count(*) FROM waybill.dead_letters WHERE subscription::text LIKE '%{}%'", id_of_key(&new));
    assert_eq!(app.count(&is_new).await, 1);
}

/// The rotation changes the row of a dead letter just before a replay closes it.
#[tokio::test(flavor = "multi_thread")]
async fn a_replay_that_waits_for_the_rotation_closes_its_dead_letter() {
    let (app, receiver) = (start(&[&new_key()], None).await, Receiver::start().await);
    app.subscribe(&receiver.url("/hook"), json!({"max_attempts": 1})).await;
    let event = app.publish_and_fail(&receiver, "order.paid", json!(1)).await;
    let letter = app.open_dead_letter(event).await["id"].clone();
    let rotation = "UPDATE waybill.dead_letters SET subscription = subscription";
    let held = HeldRow::with_uncommitted(&app, rotation).await;
    let commit = async {
        app.until_blocked_calls(1).await;
        held.unlock().await;
    };
    let order = json!({});
    let (replayed, ()) = tokio::join!(app.replay(&letter, order), commit);
    let replayed = replayed.expect(200).json();
    assert!(replayed["replay"].is_object(), "{replayed}");
    app.until_delivery(app.only_delivery(event).await, "COMPLETED").await;
    assert_eq!(app.dead_letters("replayed=false").await, [json!(null); 0]);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotation_is_in_the_audit_log_of_each_namespace_that_it_changes() {
    let (old, new) = (new_key(), new_key());
    let app = start(&[&old], None).await;
    let (team, idle) = (app.namespace("team").await, app.namespace("idle").await);
    for namespace in [&app, &team] {
        namespace.subscribe("http://127.0.0.1:9/", json!({"headers": {"X-Token": TOKEN}})).await;
    }
    let entries = async |namespace: &App| {
        namespace.get("/audit?action=secrets.rotated").await.expect(200).json()["entries"].clone()
    };
    printed(&rotate(&app.url, &[&new, &old], &["--dry-run"]).await);
    assert_eq!(entries(&app).await, json!([]), "nothing was changed");
    // The second rotation has nothing to do.
    for _ in 0..2 {
        printed(&rotate(&app.url, &[&new, &old], &[]).await);
        for namespace in [&app, &team] {
            let entries = entries(namespace).await;
            assert_eq!(entries.as_array().map(Vec::len), Some(1), "{entries}");
            assert_eq!(entries[0]["actor"], "waybill secrets rotate");
            assert_eq!(entries[0]["detail"], json!({"key_id": id_of_key(&new)}));
        }
        assert_eq!(entries(&idle).await, json!([]));
    }
}
