//! What is in the log of a server.

use super::life::{IN_PATH, live};
use super::{KeyFile, id_of_key, new_key};
use crate::support::database;
use crate::support::process::{Process, waybill};
use crate::support::receiver::Receiver;

fn spawn(url: &str, flags: &[&str]) -> Process {
    let mut arguments = vec!["serve", "--bind", "127.0.0.1:0", "--database-url", url];
    arguments.extend(["--webhook-allow", "127.0.0.0/8"]);
    arguments.extend(flags);
    tokio::task::block_in_place(|| Process::start(waybill(&arguments)))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_of_a_whole_life_has_no_secret_and_no_path_of_a_url() {
    let key = new_key();
    let file = KeyFile::of(&[&key]);
    let (url, receiver) = (database::migrated().await, Receiver::start().await);
    let server = spawn(&url, &["--secret-key-file", file.path(), "--log", "debug"]);
    let life = live(&server.app, &receiver).await;
    // A breaker, a resumption and a deactivation log the URL, too.
    let path = format!("/subscriptions/{}", life.subscription["id"]);
    server.app.post_empty(&format!("{path}/resume")).await.expect(200);
    receiver.always(crate::support::receiver::Reply::gone());
    let gone = server.app.publish_typed("order.paid", serde_json::json!({})).await;
    crate::support::until("it failed", async || server.app.event(gone).await["status"] == "FAILED").await;
    let log = server.stderr();
    assert!(log.contains(" DEBUG "), "{log}");
    assert!(log.contains(&format!("endpoint={}/…", receiver.url("/hook"))), "{log}");
    for text in life.private.iter().chain(&life.private_in_url).chain([&key]) {
        assert!(!log.contains(text), "{text} is in {log}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_start_says_in_one_line_whether_secrets_are_encrypted() {
    let key = new_key();
    let file = KeyFile::of(&[&key]);
    let url = database::migrated().await;
    for (flags, expected) in [
        (vec![], "stored as they are: no secret key is set".to_owned()),
        (vec!["--secret-key-file", file.path()], format!("stored encrypted key_id={}", id_of_key(&key))),
    ] {
        let server = spawn(&url, &flags);
        let log = server.stderr();
        let lines: Vec<&str> = log.lines().filter(|line| line.contains("webhook secrets")).collect();
        assert_eq!(lines.len(), 1, "{log}");
        assert!(lines[0].contains(&expected), "{log}");
        assert!(!log.contains(&key) && !log.contains(IN_PATH), "{log}");
        server.stop().await;
    }
}
