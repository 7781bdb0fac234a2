//! `POST /subscriptions/{id}/rotate-secret`.

use serde_json::{Value, json};

use super::{NOWHERE, path_of, secret_of};
use crate::support::receiver::Receiver;
use crate::support::{App, Reply};

async fn rotate(app: &App, subscription: &Value, body: Value) -> Reply {
    app.post(&format!("{}/rotate-secret", path_of(subscription)), &body).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_new_secret_is_shown_once_and_the_old_one_is_valid_for_a_day() {
    let app = App::start().await;
    let subscription = app.subscribe(NOWHERE, json!({})).await;
    let rotated = rotate(&app, &subscription, json!({})).await.expect(200).json();
    assert_eq!((&rotated["subscription_id"], &rotated["version"]), (&subscription["id"], &json!(2)));
    assert_eq!(rotated["overlap_seconds"], 86_400);
    assert_ne!(secret_of(&rotated), secret_of(&subscription));
    let own = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let given = rotate(&app, &subscription, json!({"secret": own, "overlap_seconds": 60})).await.expect(200).json();
    assert_eq!((&given["secret"], &given["overlap_seconds"]), (&json!(own), &json!(60)));
    assert_eq!(app.get(&path_of(&subscription)).await.json()["version"], 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn null_means_that_a_field_is_not_given() {
    let app = App::start().await;
    let subscription = app.subscribe(NOWHERE, json!({})).await;
    for body in [json!({"secret": null}), json!({"secret": null, "overlap_seconds": null})] {
        let rotated = rotate(&app, &subscription, body).await.expect(200).json();
        assert_ne!(secret_of(&rotated), secret_of(&subscription));
        assert_eq!(rotated["overlap_seconds"], 86_400);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_secret_signs_until_its_overlap_ends() {
    let (app, receiver) = (App::with_fixed_clock().await, Receiver::start().await);
    let subscription = app.subscribe(&receiver.url("/hook"), json!({})).await;
    let signatures = async || {
        app.post_empty(&format!("{}/test", path_of(&subscription))).await.expect(200);
        let last = receiver.so_far().pop().expect("a request");
        last.header("webhook-signature").expect("a signature").split(' ').count()
    };
    assert_eq!(signatures().await, 1);
    rotate(&app, &subscription, json!({"overlap_seconds": 100})).await.expect(200);
    rotate(&app, &subscription, json!({"overlap_seconds": 200})).await.expect(200);
    assert_eq!(signatures().await, 3);
    app.advance(99);
    assert_eq!(signatures().await, 3);
    app.advance(2);
    assert_eq!(signatures().await, 2, "a later rotation does not extend an overlap");
    rotate(&app, &subscription, json!({"overlap_seconds": 0})).await.expect(200);
    assert_eq!(signatures().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn at_most_ten_secrets_are_in_use() {
    let app = App::with_fixed_clock().await;
    let subscription = app.subscribe(NOWHERE, json!({})).await;
    for _ in 0..9 {
        rotate(&app, &subscription, json!({"overlap_seconds": 3600})).await.expect(200);
    }
    let problem = rotate(&app, &subscription, json!({})).await.problem(409, "too_many_secrets");
    assert!(problem["detail"].as_str().expect("a detail").contains("10"), "{problem}");
    assert_eq!(app.get(&path_of(&subscription)).await.json()["version"], 10, "nothing was changed");
    app.advance(3601);
    rotate(&app, &subscription, json!({})).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_rotation_is_refused() {
    let app = App::start().await;
    let subscription = app.subscribe(NOWHERE, json!({})).await;
    for (body, named) in [
        (json!({"secret": "whsec_"}), "secret"),
        (json!({"secret": 5}), "secret"),
        (json!({"overlap_seconds": -1}), "overlap_seconds"),
        (json!({"overlap_seconds": 604_801}), "overlap_seconds"),
        (json!({"overlap_seconds": -0.5}), "overlap_seconds"),
        (json!({"overlap_seconds": "5"}), "overlap_seconds"),
        (json!({"overlap": 5}), "overlap"),
    ] {
        rotate(&app, &subscription, body).await.names(&[named]);
    }
    assert_eq!(app.get(&path_of(&subscription)).await.json()["version"], 1);
}
