//! Dead letters are deleted after their retention time.

use serde_json::json;

use crate::support::App;
use crate::support::receiver::Receiver;
use crate::support::records::one_attempt;
use crate::support::retention::DAY;

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_deleted_after_their_retention_time() {
    let (app, receiver) = (App::with_fixed_clock().await, Receiver::start().await);
    app.subscribe(&receiver.url("/hook"), one_attempt()).await;
    app.publish_and_fail(&receiver, "order.paid", json!("old")).await;
    app.advance(5 * DAY);
    let young = app.publish_and_fail(&receiver, "order.paid", json!("young")).await;
    app.advance(26 * DAY);
    assert_eq!(app.remove_old().await["dead_letters"], 1);
    let left = app.dead_letters("").await;
    assert_eq!((left.len(), &left[0]["event_id"]), (1, &json!(young)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_is_kept_while_its_replay_is_in_progress() {
    let (app, receiver) = (App::with_fixed_clock().await, Receiver::start().await);
    let backoff = json!({"strategy": "fixed", "seconds": 60});
    let subscription = app.subscribe(&receiver.url("/hook"), json!({"max_attempts": 1, "backoff": backoff})).await;
    let event = app.publish_and_fail(&receiver, "order.paid", json!("old")).await;
    let path = format!("/subscriptions/{}", subscription["id"]);
    app.patch(&path, &json!({"is_active": false})).await.expect(200);
    let letter = app.open_dead_letter(event).await;
    app.replay(&letter["id"], json!({"payload": "edited"})).await.expect(200);
    app.advance(31 * DAY);
    assert_eq!(app.remove_old().await["dead_letters"], 0);
    app.patch(&path, &json!({"is_active": true})).await.expect(200);
    app.until_delivery(app.only_delivery(event).await, "COMPLETED").await;
    assert_eq!(receiver.so_far()[1].text(), r#""edited""#);
    assert_eq!(app.remove_old().await["dead_letters"], 1);
}
