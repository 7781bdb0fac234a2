//! Every attempt is one line of the server's log, in which operators look for the outcome of a
//! push.

use chrono::DateTime;
use serde_json::{Value, json};

use super::at_once;
use crate::support::process::{Process, waybill};
use crate::support::receiver::{Receiver, Reply};
use crate::support::{App, database, until};

/// Starts a server that logs JSON.
async fn start() -> Process {
    let url = database::migrated().await;
    let mut arguments = vec!["serve", "--bind", "127.0.0.1:0", "--database-url", &url];
    arguments.extend(["--webhook-allow", "127.0.0.0/8", "--log-format", "json"]);
    tokio::task::block_in_place(|| Process::start(waybill(&arguments)))
}

/// Returns the log lines of attempts, by delivery and attempt.
fn pushes(server: &Process) -> Vec<Value> {
    let log = server.stderr();
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).expect(line));
    let mut pushes: Vec<Value> = lines.filter(|line| line["message"] == "push").collect();
    pushes.sort_by_key(|line| (line["delivery_id"].as_i64(), line["attempt"].as_i64()));
    pushes
}

/// Publishes an event that gets these replies, and waits until it has this status. Returns the ids
/// of the event and its delivery.
async fn push(app: &App, receiver: &Receiver, replies: Vec<Reply>, status: &str) -> (i64, i64) {
    replies.into_iter().for_each(|reply| receiver.next(reply.header("x-answer", "4nswer").body("4nswer")));
    let event = app.publish_typed("t", json!("p4yload")).await;
    let delivery = app.only_delivery(event).await;
    app.until_delivery(delivery, status).await;
    (event, delivery)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_attempt_is_one_line_of_the_log() {
    let (server, receiver) = (start().await, Receiver::start().await);
    let (app, url) = (&server.app, receiver.url("/hook"));
    let with_token = format!("{url}?token=s3cret");
    let headers = json!({"Authorization": "Bearer s3cret"});
    let fields = json!({"event_types": ["t"], "backoff": at_once(), "max_attempts": 2, "headers": headers});
    let subscription = app.subscribe(&with_token, fields).await;
    let taken = push(app, &receiver, vec![Reply::ok()], "COMPLETED").await;
    let refused = push(app, &receiver, vec![Reply::status(503), Reply::status(400)], "FAILED").await;
    let lost = push(app, &receiver, vec![Reply::reset(), Reply::status(201)], "COMPLETED").await;
    until("the last attempt is logged", async || pushes(&server).len() >= 5).await;
    let expected = [
        (taken, 1, "200", "delivered"),
        (refused, 1, "503", "retry"),
        (refused, 2, "400", "dead_letter"),
        (lost, 1, "connection", "retry"),
        (lost, 2, "201", "delivered"),
    ];
    let lines = pushes(&server);
    assert_eq!(lines.len(), expected.len(), "{lines:?}");
    for (line, ((event, delivery), attempt, outcome, state)) in lines.iter().zip(expected) {
        assert_eq!((&line["event_id"], &line["delivery_id"]), (&json!(event), &json!(delivery)));
        assert_eq!((&line["endpoint"], &line["subscription_id"]), (&json!(url), &subscription["id"]));
        let logged = (&line["attempt"], &line["outcome"], &line["state"]);
        assert_eq!(logged, (&json!(attempt), &json!(outcome), &json!(state)));
        assert!(line["duration_ms"].is_u64(), "{line}");
        let next_attempt_at = line["next_attempt_at"].as_str().expect("a string");
        assert_eq!(DateTime::parse_from_rfc3339(next_attempt_at).is_ok(), state == "retry", "{line}");
        assert_eq!(next_attempt_at.is_empty(), state != "retry", "{line}");
    }
    let secret = subscription["secret"].as_str().expect("a secret");
    for kept in ["s3cret", "p4yload", "4nswer", &secret[6..]] {
        assert!(!server.stderr().contains(kept), "{kept} is in the log");
    }
    server.stop().await;
}
