//! The secrets and tokens of sources: in the database, in logs, and without the key.

use serde_json::{Value, json};

use super::{KeyFile, dump, id_of_key, new_key, printed, rotate, start};
use crate::support::process::{Process, waybill};
use crate::support::sources::github_signature;
use crate::support::{App, Reply, database};

const OLD: &str = "0ld-secret-of-the-source";
const NEW: &str = "n3w-secret-of-the-source";

async fn send(app: &App, source: &Value, secret: &str) -> Reply {
    let signature = github_signature(secret, "{}");
    app.send_webhook(source, &[("x-hub-signature-256", &signature)], "{}").await
}

/// Creates a source, rotates its secret, and sends a webhook that is right and one that is wrong.
async fn live(app: &App) -> (Value, Vec<String>) {
    let source = app.source(json!({"provider": "github", "verify": {"secret": OLD}})).await;
    let path = format!("/sources/{}", source["id"]);
    app.post(&format!("{path}/rotate-secret"), &json!({"secret": NEW})).await.expect(200);
    for secret in [OLD, NEW] {
        send(app, &source, secret).await.expect(202);
    }
    send(app, &source, "wrong").await.problem(401, "webhook_refused");
    app.get(&path).await.expect(200);
    let token = source["path"].as_str().expect("a path").trim_start_matches("/in/").to_owned();
    (source, vec![OLD.to_owned(), NEW.to_owned(), token])
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_key_neither_secrets_nor_tokens_are_in_the_database() {
    let key = new_key();
    let app = start(&[&key], None).await;
    let (_, private) = live(&app).await;
    let dump = dump(&app.url).await;
    for text in &private {
        assert!(!dump.contains(text), "{text} is in the database");
    }
    let encrypted = format!("enc:v1:{}:", id_of_key(&key));
    assert_eq!(dump.lines().filter(|line| line.starts_with("source_secrets ") && line.contains(&encrypted)).count(), 2);
    assert_eq!(dump.lines().filter(|line| line.starts_with("sources ") && line.contains(&encrypted)).count(), 1);
}

/// Shows that the test above looks in the right places, too.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_key_they_are_stored_as_they_are_and_a_rotation_encrypts_them_while_webhooks_come_in() {
    let app = start(&[], None).await;
    let (source, private) = live(&app).await;
    let plain = dump(&app.url).await;
    for text in &private {
        assert!(plain.contains(text), "{text} is not in the database");
    }
    let key = new_key();
    let shown = printed(&rotate(&app.url, &[&key], &[]).await);
    assert!(shown.contains("2  secrets of sources"), "{shown}");
    assert!(shown.contains("1  tokens of sources"), "{shown}");
    assert!(shown.contains("3 rows were encrypted again"), "{shown}");
    let encrypted = dump(&app.url).await;
    for text in &private {
        assert!(!encrypted.contains(text), "{text} is in the database");
    }
    // A server that has the source in memory goes on, and so does one with the key.
    send(&app, &source, NEW).await.expect(202);
    let with_key = start(&[&key], Some(&app.url)).await;
    for secret in [OLD, NEW] {
        send(&with_key, &source, secret).await.expect(202);
    }
    let read = with_key.get(&format!("/sources/{}", source["id"])).await.expect(200).json();
    assert_eq!(read["path"], source["path"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_key_nothing_is_accepted_and_the_sender_is_not_to_blame() {
    let (lost, other) = (new_key(), new_key());
    let app = start(&[&lost], None).await;
    let (source, _) = live(&app).await;
    let path = format!("/sources/{}", source["id"]);
    let before = app.get(&path).await.expect(200).json()["refused"]["webhooks"].clone();
    let without = start(&[&other], Some(&app.url)).await;
    send(&without, &source, NEW).await.problem(500, "internal_error");
    let view = without.get(&path).await.expect(200).json();
    assert_eq!((&view["path"], &view["refused"]["webhooks"]), (&Value::Null, &before));
    assert_eq!(app.stored_events().await, 2);
    // A new secret is encrypted with a key that the server has.
    let rotation = json!({"secret": "fresh", "overlap_seconds": 0});
    without.post(&format!("{path}/rotate-secret"), &rotation).await.expect(200);
    send(&without, &source, "fresh").await.expect(202);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_was_moved_to_another_source_is_not_accepted() {
    let app = start(&[&new_key()], None).await;
    let one = app.source(json!({"provider": "github", "verify": {"secret": OLD}})).await;
    let other = app.source(json!({"provider": "github", "verify": {"secret": NEW}})).await;
    let moved = format!(
        "UPDATE waybill.source_secrets SET secret = (SELECT secret FROM waybill.source_secrets WHERE source_id = {}) \
         WHERE source_id = {}; UPDATE waybill.source_catalog SET generation = waybill.random_generation()",
        one["id"], other["id"]
    );
    database::execute(&app.url, &moved).await;
    app.engine().refresh_sources().await.expect("the database answers");
    for secret in [OLD, NEW] {
        send(&app, &other, secret).await.problem(500, "internal_error");
    }
    send(&app, &one, OLD).await.expect(202);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_has_no_secret_and_no_token() {
    let key = new_key();
    let file = KeyFile::of(&[&key]);
    let url = database::migrated().await;
    let flags = ["serve", "--bind", "127.0.0.1:0", "--database-url", &url, "--secret-key-file", file.path()];
    let mut command = waybill(&flags);
    command.args(["--log", "debug"]);
    let server = tokio::task::block_in_place(|| Process::start(command));
    let (source, private) = live(&server.app).await;
    // The router decodes a path before it matches.
    let escaped = source["path"].as_str().expect("a path").replace("/in/", "/%69n/");
    server.app.send_webhook_to(&escaped, &[], "{}").await.problem(401, "webhook_refused");
    let log = server.stderr();
    assert!(log.contains("path=/in/…"), "{log}");
    assert!(log.contains("a webhook came in"), "{log}");
    for text in &private {
        assert!(!log.contains(text), "{text} is in {log}");
    }
    server.stop().await;
}
