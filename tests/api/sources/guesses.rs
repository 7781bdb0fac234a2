//! Tokens that do not exist, and what look-ups cost.

use serde_json::json;

use super::{SECRET, github_source, send_as_github};
use crate::support::wire::DatabaseProxy;
use crate::support::{App, Options, database};

/// Returns a path that has the right form and leads to no source.
fn unknown_path(n: usize) -> String {
    format!("/in/{n:032}")
}

/// Returns how often sources were looked up by their tokens. Statements about sources that no webhook causes are not
/// among them: a late notification compares generations, and refused webhooks are recorded now and then.
fn look_ups(proxy: &DatabaseProxy) -> usize {
    proxy.statements("token_hash = wanted.token_hash")
}

async fn behind_proxy() -> (App, DatabaseProxy) {
    let proxy = DatabaseProxy::to(&database::migrated().await).await;
    let flags = vec!["--poll-interval-ms".into(), "60000".into()];
    let app = App::start_with(Options { url: Some(proxy.url()), flags, ..Options::default() }).await;
    (app, proxy)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_costs_no_statement_but_the_one_that_stores_it() {
    let (app, proxy) = behind_proxy().await;
    let source = github_source(&app).await;
    send_as_github(&app, &source, SECRET, "{}").await.expect(202);
    let before = look_ups(&proxy);
    for _ in 0..20 {
        send_as_github(&app, &source, SECRET, "{}").await.expect(202);
        send_as_github(&app, &source, "wrong", "{}").await.expect(401);
    }
    assert_eq!(look_ups(&proxy), before);
    assert_eq!(app.stored_events().await, 21);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_guesses_has_to_wait_and_known_sources_still_work() {
    let (app, proxy) = behind_proxy().await;
    let source = github_source(&app).await;
    send_as_github(&app, &source, SECRET, "{}").await.expect(202);
    for n in 0..10 {
        app.send_webhook_to(&unknown_path(n), &[], "{}").await.problem(404, "source_not_found");
    }
    let before = look_ups(&proxy);
    for n in 10..30 {
        let refused = app.send_webhook_to(&unknown_path(n), &[], "{}").await;
        assert!(refused.header("retry-after").is_some());
        refused.problem(429, "too_many_guesses");
    }
    // One that was found unknown is still known as such, and what cannot be a token is never looked up.
    app.send_webhook_to(&unknown_path(0), &[], "{}").await.problem(404, "source_not_found");
    for garbage in ["x", "%00", &"ä".repeat(16), &"a".repeat(33)] {
        app.send_webhook_to(&format!("/in/{garbage}"), &[], "{}").await.expect(404);
    }
    assert_eq!(look_ups(&proxy), before);
    send_as_github(&app, &source, SECRET, "{}").await.expect(202);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_another_source_does_not_forget_those_in_memory() {
    let (app, _proxy) = behind_proxy().await;
    let source = github_source(&app).await;
    send_as_github(&app, &source, SECRET, "{}").await.expect(202);
    for n in 0..10 {
        app.send_webhook_to(&unknown_path(n), &[], "{}").await.problem(404, "source_not_found");
    }
    // The address may look up nothing more, and the sources change.
    app.source(json!({"verify": {"scheme": "none"}})).await;
    send_as_github(&app, &source, SECRET, "{}").await.expect(202);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_token_is_refused_before_the_body_is_read() {
    let app = App::start().await;
    let body = "x".repeat(2 * 1024 * 1024);
    app.send_webhook_to(&unknown_path(1), &[], body).await.problem(404, "source_not_found");
}
