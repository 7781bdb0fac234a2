//! `GET /tags`.

use serde_json::{Value, json};

use crate::support::App;

async fn tags(app: &App) -> Vec<Value> {
    app.get("/tags").await.expect(200).json()["tags"].as_array().expect("tags").clone()
}

async fn tag(app: &App, name: &str) -> Value {
    let found = tags(app).await.into_iter().find(|tag| tag["tag"] == name);
    found.unwrap_or_else(|| panic!("{name} is not listed"))
}

#[tokio::test(flavor = "multi_thread")]
async fn no_tag_is_listed_before_one_is_used() {
    let app = App::start().await;
    assert_eq!(app.get("/tags").await.expect(200).json(), json!({"tags": [], "next": null}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_with_work_and_no_workers_is_shown_as_unserved() {
    let app = App::with_fixed_clock().await;
    let published = app.post("/events", &json!({"title": "a job", "tags": "email"})).await.expect(201).json();
    app.advance(90);
    let expected = json!({
        "tag": "email", "waiting": 1, "waiting_is_exact": true, "oldest_waiting_since": published["created_at"],
        "oldest_age_seconds": 90.0, "workers": 0, "unserved": true,
    });
    assert_eq!(tags(&app).await, [expected]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_counted_under_each_of_its_tags() {
    let app = App::start().await;
    app.publish_tagged("email,eu").await;
    app.publish_tagged("email").await;
    assert_eq!(tag(&app, "email").await["waiting"], 2);
    assert_eq!(tag(&app, "eu").await["waiting"], 1);
    app.claim("eu", "ann:1").await.expect("an event");
    assert_eq!(tag(&app, "email").await["waiting"], 1);
    assert_eq!(tag(&app, "eu").await["waiting"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_lists_the_number_of_workers_that_recently_polled_it() {
    let app = App::with_fixed_clock().await;
    app.claim("email,sms", "ann:1").await;
    app.claim("email", "bob:2").await;
    app.publish_tagged("email").await;
    let email = tag(&app, "email").await;
    assert_eq!((&email["workers"], &email["waiting"], &email["unserved"]), (&json!(2), &json!(1), &json!(false)));
    let sms = tag(&app, "sms").await;
    assert_eq!((&sms["workers"], &sms["waiting"], &sms["unserved"]), (&json!(1), &json!(0), &json!(false)));
    assert_eq!((&sms["oldest_waiting_since"], &sms["oldest_age_seconds"]), (&Value::Null, &Value::Null));

    app.advance(100);
    let left = tags(&app).await;
    assert_eq!(left.len(), 1, "a tag with neither work nor workers is gone: {left:?}");
    assert_eq!(
        (&left[0]["tag"], &left[0]["workers"], &left[0]["unserved"]),
        (&json!("email"), &json!(0), &json!(true))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_counts_for_its_tag_as_long_as_a_poll_may_last() {
    let app = App::with_fixed_clock().await;
    app.claim("email", "ann:1").await;
    assert_eq!(tag(&app, "email").await["workers"], 1);
    app.advance(60);
    assert_eq!(tag(&app, "email").await["workers"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_oldest_waiting_event_is_found_whatever_its_priority() {
    let app = App::with_fixed_clock().await;
    app.publish(json!({"title": "a job", "tags": "email", "priority": 5})).await;
    app.advance(10);
    app.publish(json!({"title": "a job", "tags": "email", "priority": -5})).await;
    app.advance(10);
    app.publish(json!({"title": "a job", "tags": "email", "priority": 0})).await;
    app.advance(10);
    assert_eq!(tag(&app, "email").await["oldest_age_seconds"], 30.0);
    app.claim("email", "ann:1").await.expect("an event");
    assert_eq!(tag(&app, "email").await["oldest_age_seconds"], 20.0);
    app.claim("email", "ann:1").await.expect("an event");
    assert_eq!(tag(&app, "email").await["oldest_age_seconds"], 20.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delayed_event_counts_as_waiting_from_its_due_time() {
    let app = App::with_fixed_clock().await;
    app.publish(json!({"title": "later", "tags": "email", "delay_seconds": 60})).await;
    assert_eq!(tags(&app).await, [Value::Null; 0]);
    app.advance(61);
    waybill::background::promoter::run_once(app.engine()).await.expect("a round");
    app.advance(5);
    let email = tag(&app, "email").await;
    assert_eq!((&email["waiting"], &email["oldest_age_seconds"]), (&json!(1), &json!(5.0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_events_are_counted_up_to_a_thousand() {
    let app = App::start().await;
    let jobs = vec![json!({"title": "a job", "tags": "email"}); 1_000];
    app.post("/events/batch", &json!({"events": jobs})).await.expect(201);
    let email = tag(&app, "email").await;
    assert_eq!((&email["waiting"], &email["waiting_is_exact"]), (&json!(1_000), &json!(true)));
    app.publish_tagged("email").await;
    let email = tag(&app, "email").await;
    assert_eq!((&email["waiting"], &email["waiting_is_exact"]), (&json!(1_000), &json!(false)));
}

#[tokio::test(flavor = "multi_thread")]
async fn tags_are_listed_in_pages_whether_they_have_work_or_workers() {
    let app = App::start().await;
    for name in ["alpha", "delta", "Beta", "zulu", "ä", "t:t", "t;"] {
        app.publish(json!({"title": "a job", "tags": [name]})).await;
    }
    app.claim("charlie,bravo", "ann:1").await;
    app.claim("yankee,!", "bob:2").await;
    let wanted = ["!", "Beta", "alpha", "bravo", "charlie", "delta", "t:t", "t;", "yankee", "zulu", "ä"];
    let backwards: Vec<&str> = wanted.iter().rev().copied().collect();
    for limit in [1, 2, 3, 11, 12] {
        let list = format!("/tags?limit={limit}");
        assert_eq!(app.walk(&list, "tag").await.concat(), wanted, "limit {limit}");
        assert_eq!(app.walk(&format!("{list}&order=desc"), "tag").await.concat(), backwards, "limit {limit}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tags_of_any_length_and_alphabet_are_listed_in_pages() {
    let app = App::start().await;
    let longest = |character: &str| character.repeat(100);
    let wanted = [longest("a"), longest("\u{e9}"), longest("\u{20ac}"), longest("\u{10ffff}")];
    for tag in &wanted {
        app.publish(json!({"title": "a job", "tags": [tag]})).await;
    }
    assert_eq!(app.walk("/tags?limit=1", "tag").await.concat(), wanted);
}
