//! `POST /sources/{id}/rotate-secret`.

use serde_json::json;

use super::{SECRET, github_source, path_of, send_as_github};
use crate::support::App;

#[tokio::test(flavor = "multi_thread")]
async fn a_new_secret_is_not_shown_and_the_old_one_stays_good_for_a_day() {
    let app = App::with_fixed_clock().await;
    let source = github_source(&app).await;
    let rotate = format!("{}/rotate-secret", path_of(&source));
    let reply = app.post(&rotate, &json!({"secret": "new"})).await.expect(200);
    assert_eq!(reply.header("etag"), Some("\"2\""));
    assert_eq!(reply.json(), json!({"source_id": source["id"], "version": 2, "overlap_seconds": 86_400}));
    app.advance(86_399);
    send_as_github(&app, &source, SECRET, "{}").await.expect(202);
    app.advance(1);
    send_as_github(&app, &source, SECRET, "{}").await.problem(401, "webhook_refused");
    send_as_github(&app, &source, "new", "{}").await.expect(202);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_overlap_the_old_secret_ends_at_once() {
    let app = App::start().await;
    let source = github_source(&app).await;
    let rotate = format!("{}/rotate-secret", path_of(&source));
    app.post(&rotate, &json!({"secret": "new", "overlap_seconds": 0})).await.expect(200);
    send_as_github(&app, &source, SECRET, "{}").await.problem(401, "webhook_refused");
    send_as_github(&app, &source, "new", "{}").await.expect(202);
}

#[tokio::test(flavor = "multi_thread")]
async fn at_most_ten_secrets_are_in_use() {
    let app = App::start().await;
    let source = github_source(&app).await;
    let rotate = format!("{}/rotate-secret", path_of(&source));
    for n in 0..9 {
        app.post(&rotate, &json!({"secret": format!("s{n}")})).await.expect(200);
    }
    app.post(&rotate, &json!({"secret": "one more"})).await.problem(409, "too_many_secrets");
    send_as_github(&app, &source, "one more", "{}").await.problem(401, "webhook_refused");
    send_as_github(&app, &source, SECRET, "{}").await.expect(202);
    app.post(&rotate, &json!({"secret": "one more", "overlap_seconds": 0})).await.expect(200);
    send_as_github(&app, &source, "s8", "{}").await.problem(401, "webhook_refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_must_fit_the_scheme() {
    let app = App::start().await;
    let refuse = async |verify: serde_json::Value, secret: &str| {
        let source = app.source(json!({"verify": verify})).await;
        let rotate = format!("{}/rotate-secret", path_of(&source));
        app.post(&rotate, &json!({"secret": secret})).await.names(&["secret"]);
        assert_eq!(app.get(&path_of(&source)).await.json()["version"], 1);
    };
    refuse(json!({"scheme": "none"}), "s").await;
    refuse(json!({"scheme": "standard", "secret": "whsec_c2VjcmV0"}), "secret").await;
    refuse(json!({"scheme": "token", "header": "X-Token", "secret": "s"}), "ü").await;
    refuse(json!({"scheme": "github", "secret": "s"}), &"s".repeat(1_001)).await;
    let source = github_source(&app).await;
    let rotate = format!("{}/rotate-secret", path_of(&source));
    app.post(&rotate, &json!({})).await.names(&["secret"]);
    app.post(&rotate, &json!({"secret": "s", "overlap_seconds": 604_801})).await.names(&["overlap_seconds"]);
}
