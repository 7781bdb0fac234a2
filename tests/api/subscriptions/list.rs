//! `GET /subscriptions`.

use serde_json::{Value, json};

use super::{NOWHERE, path_of, update};
use crate::support::App;
use crate::support::work::ids;

async fn list(app: &App, query: &str) -> (Vec<i64>, Value) {
    let page = app.get(&format!("/subscriptions?{query}")).await.expect(200).json();
    (ids(page["subscriptions"].as_array().expect("subscriptions")), page["next"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_subscriptions_follow_each_other_to_the_end() {
    let app = App::start().await;
    assert_eq!(list(&app, "").await, (vec![], Value::Null));
    let mut made = Vec::new();
    for _ in 0..5 {
        made.push(app.subscribe(NOWHERE, json!({})).await);
    }
    let made = ids(&made);
    assert_eq!(app.walk_ids("/subscriptions?limit=2").await, [&made[..2], &made[2..4], &made[4..]]);
    let backwards: Vec<i64> = made.iter().rev().copied().collect();
    assert_eq!(app.walk_ids("/subscriptions?limit=2&order=desc&is_active=true").await.concat(), backwards);
    assert_eq!(list(&app, "").await, (made, Value::Null));
}

#[tokio::test(flavor = "multi_thread")]
async fn subscriptions_are_filtered_by_active_and_deleted_ones_are_not_listed() {
    let app = App::start().await;
    let on = app.subscribe(NOWHERE, json!({})).await;
    let off = app.subscribe(NOWHERE, json!({"is_active": false})).await;
    let switched = app.subscribe(NOWHERE, json!({})).await;
    update(&app, &switched, json!({"is_active": false})).await.expect(200);
    let deleted = app.subscribe(NOWHERE, json!({})).await;
    app.delete(&path_of(&deleted)).await.expect(204);
    assert_eq!(list(&app, "is_active=true").await.0, ids(std::slice::from_ref(&on)));
    assert_eq!(list(&app, "is_active=false").await.0, ids(&[off.clone(), switched.clone()]));
    assert_eq!(list(&app, "").await.0, ids(&[on, off, switched]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listed_subscription_is_the_same_as_when_read_alone() {
    let app = App::start().await;
    for n in 0..3 {
        app.subscribe(NOWHERE, json!({"name": format!("number {n}"), "headers": {"X-N": n.to_string()}})).await;
    }
    let page = app.get("/subscriptions").await.expect(200).json();
    for listed in page["subscriptions"].as_array().expect("subscriptions") {
        assert_eq!(&app.get(&path_of(listed)).await.expect(200).json(), listed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_queries_of_subscriptions_are_refused() {
    let app = App::start().await;
    for (query, named) in [
        ("limit=0", "limit"),
        ("limit=501", "limit"),
        ("after=x", "after"),
        ("after=17", "after"),
        ("order=up", "order"),
        ("is_active=maybe", "is_active"),
        ("name=x", "name"),
    ] {
        app.get(&format!("/subscriptions?{query}")).await.names(&[named]);
    }
}
