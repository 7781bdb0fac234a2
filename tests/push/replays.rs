//! Replayed dead letters: what the receiver gets.

use serde_json::{Value, json};
use waybill::domain::signature::{Secret, sign};

use crate::support::receiver::{Receiver, Recorded, Reply};
use crate::support::records::one_attempt;
use crate::support::{App, Options, ledger, until};

/// Asserts that a request was signed with a subscription's secret.
#[track_caller]
fn assert_signed(request: &Recorded, subscription: &Value) {
    let secret = Secret::parse(subscription["secret"].as_str().expect("a secret")).expect("a secret");
    let header = |name| request.header(name).expect(name);
    let timestamp = header("webhook-timestamp").parse().expect("a number");
    let signature = sign(&[secret], header("webhook-id"), timestamp, &request.body);
    assert_eq!(request.header("webhook-signature"), Some(signature.as_str()));
}

/// Creates a subscription whose push has failed and all of whose settings have changed since.
async fn failed_and_changed(app: &App, old: &Receiver, new: &Receiver) -> (Value, i64) {
    let before = json!({"max_attempts": 1, "headers": {"X-Which": "old"}, "transform": {"keep": ["n"]}});
    let subscription = app.subscribe(&old.url("/old"), before).await;
    let event = app.publish_and_fail(old, "order.paid", json!({"n": 1, "more": 2})).await;
    let after = json!({"url": new.url("/new"), "headers": {"X-Which": "new"}, "transform": {"envelope": true}});
    app.patch(&format!("/subscriptions/{}", subscription["id"]), &after).await.expect(200);
    (subscription, event)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_with_the_original_configuration_is_sent_as_at_first() {
    let (app, old, new) = (App::start().await, Receiver::start().await, Receiver::start().await);
    let (subscription, event) = failed_and_changed(&app, &old, &new).await;
    let letter = app.open_dead_letter(event).await;
    app.replay(&letter["id"], json!({"config": "original"})).await.expect(200);
    let requests = old.received(2).await;
    assert_eq!(requests[1].path, "/old");
    assert_eq!(requests[1].header("x-which"), Some("old"));
    assert_eq!(requests[1].text(), requests[0].text());
    assert_eq!(requests[1].header("webhook-id"), requests[0].header("webhook-id"));
    assert_signed(&requests[1], &subscription);
    let delivery = app.until_delivery(app.only_delivery(event).await, "COMPLETED").await;
    assert_eq!(delivery["attempts"][1]["subscription_version"], 1);
    assert_eq!(new.count(), 0);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_with_the_current_configuration_is_sent_like_a_new_event() {
    let (app, old, new) = (App::start().await, Receiver::start().await, Receiver::start().await);
    let (subscription, event) = failed_and_changed(&app, &old, &new).await;
    let letter = app.open_dead_letter(event).await;
    app.replay(&letter["id"], json!({})).await.expect(200);
    let request = new.received(1).await.remove(0);
    assert_eq!((request.path.as_str(), request.header("x-which")), ("/new", Some("new")));
    assert_eq!(request.json()["payload"], json!({"n": 1, "more": 2}));
    assert_eq!(request.header("webhook-id"), old.so_far()[0].header("webhook-id"));
    assert_signed(&request, &subscription);
    let delivery = app.until_delivery(app.only_delivery(event).await, "COMPLETED").await;
    assert_eq!(delivery["attempts"][1]["subscription_version"], 2);
    assert_eq!(old.count(), 1);
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_attempt_of_a_replay_sends_its_edited_body_and_new_id() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    let backoff = json!({"strategy": "fixed", "seconds": 0});
    let subscription = app.subscribe(&receiver.url("/hook"), json!({"max_attempts": 2, "backoff": backoff})).await;
    receiver.next(Reply::status(500));
    receiver.next(Reply::status(500));
    receiver.next(Reply::status(500));
    let event = app.publish_typed("order.paid", json!({"n": 1})).await;
    let id = app.only_delivery(event).await;
    app.until_delivery(id, "FAILED").await;
    let letter = app.open_dead_letter(event).await["id"].clone();
    let order = r#"{"payload": {"n" :  2.0}, "new_webhook_id": true}"#;
    app.post_text(&format!("/dead-letters/{letter}/replay"), order).await.expect(200);
    app.until_delivery(id, "COMPLETED").await;
    let requests = receiver.so_far();
    assert_eq!(requests.len(), 4);
    for request in &requests[2..] {
        assert_eq!(request.text(), r#"{"n" :  2.0}"#);
        assert_eq!(request.header("webhook-id"), Some(format!("{}_r{letter}", app.webhook_id(event)).as_str()));
        assert_signed(request, &subscription);
    }
    assert_eq!(requests[0].header("webhook-id"), Some(app.webhook_id(event).as_str()));
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_that_fails_is_dead_lettered_as_sent_and_a_plain_retry_starts_from_the_event() {
    let (app, old, new) = (App::start().await, Receiver::start().await, Receiver::start().await);
    let (_, event) = failed_and_changed(&app, &old, &new).await;
    let id = app.only_delivery(event).await;
    let first = app.open_dead_letter(event).await;
    old.next(Reply::status(500));
    app.replay(&first["id"], json!({"config": "original", "payload": {"n": "edited"}})).await.expect(200);
    old.received(2).await;
    app.until_delivery(id, "FAILED").await;
    let second = app.open_dead_letter(event).await;
    assert_ne!(second["id"], first["id"]);
    assert_eq!(second["event"]["payload"], json!({"n": "edited"}));
    assert_eq!(second["subscription"], first["subscription"]);
    assert_eq!(second["subscription_version"], 1);
    assert_eq!(second["attempts"].as_array().unwrap().len(), 2);
    app.replay(&first["id"], json!({})).await.problem(409, "not_replayable");

    new.next(Reply::status(500));
    app.replay(&second["id"], json!({})).await.expect(200);
    assert_eq!(new.received(1).await[0].json()["payload"], json!({"n": "edited"}), "what the dead letter holds");
    app.until_delivery(id, "FAILED").await;
    app.operate_on_delivery(id, "retry").await.expect(200);
    assert_eq!(new.received(2).await[1].json()["payload"], json!({"n": 1, "more": 2}), "what was published");
    assert_eq!(app.until_delivery(id, "COMPLETED").await["replay_of"], json!(null));
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replayed_push_whose_dead_letter_was_deleted_is_sent_like_any_other() {
    let (app, receiver) = (App::start().await, Receiver::start().await);
    let subscription = app.subscribe(&receiver.url("/hook"), one_attempt()).await;
    let event = app.publish_and_fail(&receiver, "order.paid", json!({"n": 1})).await;
    let path = format!("/subscriptions/{}", subscription["id"]);
    app.patch(&path, &json!({"is_active": false})).await.expect(200);
    let letter = app.open_dead_letter(event).await["id"].clone();
    app.replay(&letter, json!({"payload": "edited"})).await.expect(200);
    crate::support::database::execute(&app.url, "DELETE FROM waybill.dead_letters").await;
    app.patch(&path, &json!({"is_active": true})).await.expect(200);
    assert_eq!(receiver.received(2).await[1].json(), json!({"n": 1}));
    app.until_delivery(app.only_delivery(event).await, "COMPLETED").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_push_can_be_replayed() {
    let (app, receiver) = (App::with_fixed_clock().await, Receiver::start().await);
    let subscription = app.subscribe(&receiver.url("/hook"), json!({})).await;
    let path = format!("/subscriptions/{}", subscription["id"]);
    let soon = (app.now() + chrono::TimeDelta::seconds(5)).to_rfc3339();
    let event = json!({"event_type": "order.paid", "expires_at": soon, "delay_seconds": 3600});
    let event = app.publish(event).await;
    app.advance(6);
    assert_eq!(app.expire().await, 1);
    let letter = app.open_dead_letter(event).await;
    assert_eq!(letter["reason"], "expired");
    app.patch(&path, &json!({"name": "changed"})).await.expect(200);
    app.replay(&letter["id"], json!({})).await.expect(200);
    app.until_delivery(app.only_delivery(event).await, "COMPLETED").await;
    ledger::check(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_in_the_middle_of_a_bulk_replay_neither_skips_nor_repeats() {
    const COUNT: usize = 40;
    // A breaker would open long before all pushes had failed.
    let flags = || vec!["--breaker-failures=1000".to_owned()];
    let app = App::start_with(Options { flags: flags(), ..Options::default() }).await;
    let receiver = Receiver::start().await;
    app.subscribe(&receiver.url("/hook"), one_attempt()).await;
    receiver.always(Reply::status(500));
    for n in 0..COUNT {
        app.publish_typed("order.paid", json!(n)).await;
    }
    let open = "SELECT count(*) FROM waybill.dead_letters WHERE replayed_at IS NULL";
    until("all pushes have failed", async || app.count(open).await == COUNT as i64).await;
    receiver.always(Reply::ok());
    let order = json!({"filter": {}, "per_second": 5});
    let job = app.post("/dead-letters/replay", &order).await.expect(202).json()["id"].clone();
    until("some were sent again", async || app.count(open).await <= COUNT as i64 - 3).await;
    let url = app.url.clone();
    app.stop().await;

    // Two servers at once, which must not disturb each other.
    let options = || Options { url: Some(url.clone()), flags: flags(), ..Options::default() };
    let (app, other) = (App::start_with(options()).await, App::start_with(options()).await);
    let job = async || app.get(&format!("/operations/{job}")).await.expect(200).json();
    let before = job().await;
    assert_eq!(before["status"], "RUNNING", "the restart came in the middle: {before}");
    until("the replay is over", async || job().await["status"] == "COMPLETED").await;
    let done = job().await;
    assert_eq!((&done["done"], &done["skipped"]), (&json!(COUNT), &json!(0)));
    let completed =
        "SELECT count(*) FROM waybill.deliveries WHERE subscription_id IS NOT NULL AND status = 'COMPLETED'";
    until("all were taken", async || app.count(completed).await == COUNT as i64).await;
    let replayed = "SELECT count(*) FROM waybill.event_log WHERE action = 'REPLAYED'";
    assert_eq!(app.count(replayed).await, COUNT as i64);
    let twice = "SELECT count(*) FROM (SELECT delivery_id FROM waybill.event_log WHERE action = 'REPLAYED' \
                 GROUP BY delivery_id HAVING count(*) > 1) twice";
    assert_eq!(app.count(twice).await, 0);
    ledger::check(&app).await;
    other.stop().await;
}
