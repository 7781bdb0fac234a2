//! Namespaces are created, listed, changed and named by requests.

use serde_json::{Value, json};

use crate::support::{App, Options};

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_is_created_with_all_that_it_needs() {
    let app = App::start().await;
    let reply = app.post("/namespaces", &json!({"name": "team-7", "settings": {}})).await.expect(201);
    assert_eq!(reply.header("location"), Some("/namespaces/team-7"));
    let created = reply.json();
    assert_eq!((&created["name"], &created["settings"]), (&json!("team-7"), &json!({})));
    for wanted in ["team-7", &created["id"].to_string()] {
        assert_eq!(app.get(&format!("/namespaces/{wanted}")).await.expect(200).json(), created);
    }
    // It can be published to, worked on and subscribed to at once.
    let team = app.in_namespace("team-7");
    let id = team.publish_tagged("a").await;
    assert_eq!(team.claim("a", "w:1").await.expect("the event")["id"], id);
    team.complete(id, "w:1").await.expect(200);
    team.subscribe("http://127.0.0.1:9/", json!({})).await;
    assert_eq!(app.count("SELECT count(*) FROM waybill.subscription_catalog").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_namespace_default_is_there_from_the_beginning_and_is_that_of_requests_that_name_none() {
    let app = App::start().await;
    let names = app.walk("/namespaces", "name").await.concat();
    assert_eq!(names, [json!("default")]);
    let id = app.publish_tagged("a").await;
    assert_eq!(app.in_namespace("default").event(id).await["id"], id);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_taken_or_invalid_is_refused_and_nothing_is_made() {
    let app = App::start().await;
    app.namespace("team").await;
    app.post("/namespaces", &json!({"name": "team"})).await.problem(409, "namespace_exists");
    app.post("/namespaces", &json!({"name": "default"})).await.problem(409, "namespace_exists");
    for name in ["", "7", "7up", "Team", "a_b", "a.b", "-a", "a-", &"x".repeat(64)] {
        app.post("/namespaces", &json!({"name": name})).await.names(&["name"]);
    }
    app.post("/namespaces", &json!({})).await.names(&["name"]);
    app.post("/namespaces", &json!({"name": "b", "colour": 1, "settings": {"colour": 1}}))
        .await
        .names(&["colour", "settings.colour"]);
    assert_eq!(app.count("SELECT count(*) FROM waybill.namespaces").await, 2);
    assert_eq!(app.count("SELECT count(*) FROM waybill.subscription_catalog").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn there_are_no_more_namespaces_than_the_limit() {
    let flags = vec!["--max-namespaces".to_owned(), "3".to_owned()];
    let app = App::start_with(Options { flags, ..Options::default() }).await;
    for name in ["one", "two"] {
        app.namespace(name).await;
    }
    app.post("/namespaces", &json!({"name": "three"})).await.problem(409, "too_many_namespaces");
    // A name that is taken is reported as such even then.
    app.post("/namespaces", &json!({"name": "two"})).await.problem(409, "namespace_exists");
}

#[tokio::test(flavor = "multi_thread")]
async fn namespaces_that_are_created_at_once_get_different_ids() {
    let app = App::start().await;
    let create = |n: usize| {
        let app = &app;
        async move { app.post("/namespaces", &json!({"name": format!("team-{n}")})).await.expect(201).json() }
    };
    let created: Vec<Value> = futures_util::future::join_all((0..20).map(create)).await;
    let mut ids: Vec<i64> = created.iter().map(super::id_of).collect();
    ids.sort_unstable();
    assert_eq!(ids, (2..22).collect::<Vec<i64>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_are_changed_and_a_name_is_not() {
    let app = App::start().await;
    app.namespace("team").await;
    let changed = app.patch("/namespaces/team", &json!({"settings": {}})).await.expect(200).json();
    assert_eq!((&changed["name"], &changed["settings"]), (&json!("team"), &json!({})));
    app.patch("/namespaces/team", &json!({"settings": {"colour": 1}})).await.names(&["settings.colour"]);
    app.patch("/namespaces/team", &json!({"name": "other"})).await.names(&["name"]);
    app.patch("/namespaces/nobody", &json!({"settings": {}})).await.problem(404, "namespace_not_found");
    // What a later version has stored is kept.
    crate::support::database::execute(&app.url, "UPDATE waybill.namespaces SET settings = '{\"later\": 1}'").await;
    let kept = app.patch("/namespaces/team", &json!({"settings": {}})).await.expect(200).json();
    assert_eq!(kept["settings"], json!({"later": 1}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_does_not_exist_is_not_found_and_a_malformed_one_refused() {
    let app = App::start().await;
    let stranger = app.in_namespace("nobody");
    let problem = stranger.get("/events").await.problem(404, "namespace_not_found");
    assert_eq!(problem["detail"], "there is no namespace nobody");
    stranger.post("/events", &json!({"title": "t", "tags": "a"})).await.problem(404, "namespace_not_found");
    app.get("/namespaces/nobody").await.problem(404, "namespace_not_found");
    app.get("/namespaces/999").await.problem(404, "namespace_not_found");
    for malformed in ["", "No", "a b", "1"] {
        app.in_namespace(malformed).get("/events").await.names(&["Waybill-Namespace"]);
    }
    let twice = app.client.get(format!("{}/events", app.base)).header("Waybill-Namespace", "default");
    let twice = twice.header("Waybill-Namespace", "default").send().await.expect("a response");
    crate::support::Reply::of(twice).await.names(&["Waybill-Namespace"]);
    assert_eq!(app.count("SELECT count(*) FROM waybill.events").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_was_not_found_is_found_once_it_exists() {
    let app = App::start().await;
    app.in_namespace("late").get("/events").await.problem(404, "namespace_not_found");
    let late = app.namespace("late").await;
    late.get("/events").await.expect(200);
}
