//! `POST /sources`.

use std::collections::BTreeSet;

use serde_json::json;

use super::{SECRET, github_source, path_of};
use crate::support::{App, Options};

#[tokio::test(flavor = "multi_thread")]
async fn a_preset_fills_in_everything_but_the_name_and_the_secret() {
    let app = App::start().await;
    let reply = app
        .post("/sources", &json!({"name": "our repository", "provider": "github", "verify": {"secret": SECRET}}))
        .await
        .expect(201);
    let source = reply.json();
    assert_eq!(reply.header("location"), Some(path_of(&source).as_str()));
    assert_eq!(reply.header("etag"), Some("\"1\""));
    let expected = json!({
        "name": "our repository", "provider": "github", "is_active": true, "version": 1,
        "verify": {
            "scheme": "github", "header": null, "algorithm": null, "encoding": null, "prefix": null,
            "tolerance_seconds": null, "username": null,
        },
        "event_type_from": {"header": "X-GitHub-Event"}, "idempotency_key_from": {"header": "X-GitHub-Delivery"},
        "tags": [], "labels": {}, "respond": {"status": 202, "body": null, "content_type": "text/plain; charset=utf-8"},
        "refused": {"webhooks": 0, "last_at": null, "last_reason": null},
    });
    for (name, value) in expected.as_object().expect("an object") {
        assert_eq!(&source[name], value, "{name}");
    }
    assert_eq!(app.get(&path_of(&source)).await.expect(200).json(), source);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_provider_of_the_document_is_known() {
    let app = App::start().await;
    for provider in ["github", "stripe", "slack", "shopify", "standard", "gitlab", "gitea", "linear"] {
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let source = app.source(json!({"provider": provider, "verify": {"secret": secret}})).await;
        assert!(source["event_type_from"].is_object() && source["idempotency_key_from"].is_object(), "{source}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_source_has_a_path_that_cannot_be_guessed() {
    let app = App::start().await;
    let mut paths = BTreeSet::new();
    for _ in 0..5 {
        let source = github_source(&app).await;
        let path = source["path"].as_str().expect("a path").to_owned();
        assert_eq!(path.strip_prefix("/in/").expect(&path).len(), 32);
        assert!(paths.insert(path));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_a_limit_of_sources_per_namespace() {
    let flags = vec!["--max-sources=2".to_owned()];
    let app = App::start_with(Options { flags, ..Options::default() }).await;
    let first = github_source(&app).await;
    github_source(&app).await;
    let fields = json!({"name": "one more", "verify": {"scheme": "none"}});
    app.post("/sources", &fields).await.problem(409, "too_many_sources");
    app.namespace("other").await.source(json!({"verify": {"scheme": "none"}})).await;
    app.delete(&path_of(&first)).await.expect(204);
    app.post("/sources", &fields).await.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_in_no_answer_and_paths_only_in_those_of_operators() {
    let app = App::with_keys().await;
    let source = github_source(&app).await;
    let path = path_of(&source);
    app.patch(&path, &json!({"name": "renamed"})).await.expect(200);
    app.post(&format!("{path}/rotate-secret"), &json!({"secret": "n3w-secret"})).await.expect(200);
    let token = source["path"].as_str().expect("a path");
    let mut answers = Vec::new();
    for path in [path.as_str(), "/sources", "/audit", "/metrics"] {
        answers.push(app.get(path).await.expect(200).text);
    }
    answers.push(source.to_string());
    for refused in [json!({"verify": {"secret": "s3cret-7"}}), json!({"verify": {"scheme": "s3cret-7"}})] {
        answers.push(app.patch(&path, &refused).await.expect(400).text);
    }
    for answer in &answers {
        for secret in [SECRET, "n3w-secret", "s3cret-7"] {
            assert!(!answer.contains(secret), "{secret} is in {answer}");
        }
    }
    assert!(!answers[2].contains(token), "the token is in the audit log: {}", answers[2]);
    let reader = app.holder_of("read").await;
    let operator = app.holding(&app.make_key(json!({"scopes": ["read", "operate"]})).await);
    for path in [path.as_str(), "/sources"] {
        let answer = reader.get(path).await.expect(200).text;
        assert!(!answer.contains(token) && answer.contains("\"path\":null"), "{answer}");
        assert!(operator.get(path).await.expect(200).text.contains(token));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_secret_of_a_sender_does_not_become_the_type_or_the_key_of_its_events() {
    let app = App::start().await;
    let from = json!({"header": "x-gitlab-token"});
    let mut fields = json!({"name": "a", "provider": "gitlab", "verify": {"secret": "hush"}, "event_type_from": from});
    app.post("/sources", &fields).await.names(&["event_type_from.header"]);
    fields["event_type_from"] = json!({"header": "X-Kind"});
    let path = path_of(&app.source(fields).await);
    app.patch(&path, &json!({"idempotency_key_from": from})).await.names(&["idempotency_key_from.header"]);
    app.patch(&path, &json!({"verify": {"header": "X-Kind"}})).await.names(&["event_type_from.header"]);
    app.patch(&path, &json!({"event_type_from": {"header": "Cookie"}})).await.names(&["event_type_from.header"]);
}
