//! A server without the key of stored values, and one with an unusable key.

use serde_json::json;

use super::{KeyFile, assert_signed, id_of_key, new_key, start, until_held};
use crate::support::process::{Process, waybill};
use crate::support::receiver::Receiver;
use crate::support::{App, database, ledger, until};

const TOKEN: &str = "t0ken-of-the-header";

fn spawn(url: &str, keys: &KeyFile) -> Process {
    let mut arguments = vec!["serve", "--bind", "127.0.0.1:0", "--database-url", url];
    arguments.extend(["--webhook-allow", "127.0.0.0/8", "--secret-key-file", keys.path()]);
    tokio::task::block_in_place(|| Process::start(waybill(&arguments)))
}

/// Returns the deliveries of an event that were attempted.
async fn attempts(app: &App, event: i64) -> usize {
    let delivery = app.only_delivery(event).await;
    app.delivery(delivery).await["attempts"].as_array().expect("attempts").len()
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_wrong_key_pushes_wait_and_are_sent_by_a_server_that_has_the_key() {
    let (key, wrong) = (new_key(), new_key());
    let receiver = Receiver::start().await;
    let first = start(&[&key], None).await;
    let url = first.url.clone();
    let subscription = first.subscribe(&receiver.url("/hook"), json!({"headers": {"X-Token": TOKEN}})).await;
    let path = format!("/subscriptions/{}", subscription["id"]);
    first.stop().await;

    let server = spawn(&url, &KeyFile::of(&[&wrong]));
    let log = server.stderr();
    let told: Vec<&str> = log.lines().filter(|line| line.contains("a key that this server does not have")).collect();
    assert_eq!(told.len(), 1, "{log}");
    assert!(told[0].contains(" ERROR ") && told[0].contains(&id_of_key(&key)), "{log}");
    let events = [
        server.app.publish_typed("order.paid", json!(1)).await,
        server.app.publish_typed("order.paid", json!(2)).await,
    ];
    until_held(&server.app, 1).await;
    let test = server.app.post_empty(&format!("{path}/test")).await.expect(200).json();
    assert_eq!((&test["delivered"], &test["error_kind"]), (&json!(false), &json!("secret_unreadable")));
    // What needs no plain text works as ever.
    let changed = server.app.patch(&path, &json!({"name": "renamed"})).await.expect(200).json();
    assert_eq!(changed["header_names"], json!(["X-Token"]));
    assert_eq!(receiver.count(), 0, "nothing was sent, signed or not");
    for event in events {
        assert_eq!(server.app.event(event).await["status"], "PENDING");
        assert_eq!(attempts(&server.app, event).await, 0, "no attempt was counted");
    }
    let held = "pushes are held until the secrets can be decrypted";
    assert_eq!(server.stderr().matches(held).count(), 1, "{}", server.stderr());

    // A second server, which has both keys, sends them while the first goes on.
    let able = start(&[&wrong, &key], Some(&url)).await;
    for event in events {
        until("it was sent", async || able.event(event).await["status"] == "COMPLETED").await;
    }
    for request in receiver.so_far() {
        assert_eq!(request.header("x-token"), Some(TOKEN));
        assert_signed(&request, &subscription);
    }
    assert_eq!(receiver.count(), events.len());
    ledger::check(&able).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_secret_and_new_headers_release_a_subscription_whose_key_is_lost() {
    let receiver = Receiver::start().await;
    let first = start(&[&new_key()], None).await;
    let subscription = first.subscribe(&receiver.url("/hook"), json!({"headers": {"X-Token": TOKEN}})).await;
    let (url, path) = (first.url.clone(), format!("/subscriptions/{}", subscription["id"]));
    first.stop().await;
    let app = start(&[&new_key()], Some(&url)).await;
    let event = app.publish_typed("order.paid", json!(1)).await;
    until_held(&app, 1).await;
    let rotated = app.post(&format!("{path}/rotate-secret"), &json!({"overlap_seconds": 0})).await.expect(200).json();
    until_held(&app, 1).await;
    assert_eq!(receiver.count(), 0, "the header is still unreadable");
    app.patch(&path, &json!({"headers": {"x-token": "another-token"}})).await.expect(200);
    let request = receiver.received(1).await.remove(0);
    assert_eq!(request.header("x-token"), Some("another-token"));
    assert_signed(&request, &rotated);
    until("it was sent", async || app.event(event).await["status"] == "COMPLETED").await;
    until_held(&app, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_a_key_holds_what_is_encrypted_and_sends_the_rest() {
    let receiver = Receiver::start().await;
    let with_key = start(&[&new_key()], None).await;
    let encrypted = with_key.subscribe(&receiver.url("/encrypted"), json!({"event_types": ["order.*"]})).await;
    let url = with_key.url.clone();
    with_key.stop().await;
    let app = start(&[], Some(&url)).await;
    let plain = app.subscribe(&receiver.url("/plain"), json!({"headers": {"X-Token": TOKEN}})).await;
    app.publish_typed("order.paid", json!(1)).await;
    until_held(&app, 1).await;
    let request = receiver.received(1).await.remove(0);
    assert_eq!((request.path.as_str(), request.header("x-token")), ("/plain", Some(TOKEN)));
    assert_signed(&request, &plain);
    let held = "SELECT count(*) FROM waybill.deliveries WHERE status = 'PENDING' AND subscription_id IS NOT NULL";
    until("only the held one waits", async || app.count(held).await == 1).await;
    app.delete(&format!("/subscriptions/{}", encrypted["id"])).await.expect(204);
    until_held(&app, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_header_value_that_looks_encrypted_is_sent_as_it_is() {
    let key = new_key();
    let looks_encrypted = format!("enc:v1:{}:AAAA", id_of_key(&key));
    let receiver = Receiver::start().await;
    for keys in [vec![], vec![key.as_str()]] {
        let app = start(&keys, None).await;
        let subscription =
            app.subscribe(&receiver.url("/hook"), json!({"headers": {"X-Token": looks_encrypted}})).await;
        let event = app.publish_typed("order.paid", json!(1)).await;
        until("it was sent", async || app.event(event).await["status"] == "COMPLETED").await;
        let request = receiver.so_far().pop().expect("a request");
        assert_eq!(request.header("x-token"), Some(looks_encrypted.as_str()));
        let object = json!({"headers": {"X-Token": {"encrypted": looks_encrypted}}});
        let path = format!("/subscriptions/{}", subscription["id"]);
        app.patch(&path, &object).await.names(&["headers.X-Token"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unusable_key_stops_the_start_and_is_not_repeated() {
    let url = database::migrated().await;
    let arguments = ["serve", "--bind", "127.0.0.1:0", "--database-url", &url];
    let refused = |command| tokio::task::block_in_place(|| Process::spawn(command)).err().expect("it does not start");
    for (bad, reason) in [("my-passphrase", "must be 32 bytes"), ("# nothing", "there is no key")] {
        let mut by_variable = waybill(&arguments);
        by_variable.env("WAYBILL_SECRET_KEY", bad);
        let file = KeyFile::of(&[bad]);
        let mut by_file = waybill(&arguments);
        by_file.args(["--secret-key-file", file.path()]);
        for command in [by_variable, by_file] {
            let ended = refused(command);
            assert!(ended.stderr.contains(reason) && !ended.stderr.contains(bad), "{}", ended.stderr);
            assert!(!ended.status.success());
        }
    }
    let file = KeyFile::of(&[&new_key()]);
    let mut both = waybill(&arguments);
    both.args(["--secret-key-file", file.path()]).env("WAYBILL_SECRET_KEY", new_key());
    assert!(refused(both).stderr.contains("not in both"));
}
