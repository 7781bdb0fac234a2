//! `waybill subscriptions`.

use serde_json::json;

use super::start_quiet;
use crate::cli::{json, run, run_with};
use crate::support::receiver::{Receiver, Reply};
use crate::support::{App, database};

const TO: &str = "http://127.0.0.1:9/hooks/orders";

#[tokio::test(flavor = "multi_thread")]
async fn subscriptions_are_made_listed_shown_and_changed() {
    let app = start_quiet().await;
    let made =
        run(&app, &["subscriptions", "create", "--name", "orders", "--to", TO, "--event-types", "order.*"]).await;
    assert_eq!(made.code, 0, "{}", made.stderr);
    assert!(made.stdout.starts_with("whsec_") && made.stdout.lines().count() == 1, "{}", made.stdout);
    assert_eq!(made.stderr, format!("the secret of subscription 1 to {TO}; it is not shown again\n"));
    let long =
        json!({"name": "a name that is rather long", "url": format!("{TO}/{}", "x".repeat(60)), "tags": ["a", "b"]});
    let made = run_with(&app.base, &[], &["subscriptions", "create", "--from", "-"], long.to_string().into()).await;
    made.expect_success();
    let list = run(&app, &["subscriptions", "list"]).await.expect_success();
    let expected = "\
ID  NAME                      URL                      EVENTS    STATE   BREAKER
 1  orders                    http://127.0.0.1:9/hoo…  order.*   active  closed
 3  a name that is rather l…  http://127.0.0.1:9/hoo…  tags a,b  active  closed
";
    assert_eq!(list, expected);
    let updated = ["subscriptions", "update", "1", "--max-attempts", "3", "--timeout-ms", "2500", "--active", "false"];
    run(&app, &updated).await.expect_success();
    let shown = run(&app, &["subscriptions", "show", "1"]).await.expect_success();
    let expected = "\
subscription:       1
name:               orders
url:                http://127.0.0.1:9/hooks/orders
state:              disabled
breaker:            closed
failures in a row:  0
event types:        order.*
method:             POST
timeout:            2.5 s
max attempts:       3
";
    assert!(shown.starts_with(expected), "{shown}");
    assert!(shown.ends_with("created:            3h ago\nupdated:            3h ago\n"), "{shown}");
    let active = json(&app, &["subscriptions", "list", "--active", "true"]).await;
    assert_eq!(active["subscriptions"].as_array().map(Vec::len), Some(1));
    assert_eq!(json(&app, &["subscriptions", "show", "1"]).await["max_attempts"], 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_read_from_a_file_and_replaced() {
    let app = start_quiet().await;
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let create = ["subscriptions", "create", "--to", TO, "--secret-file", "-"];
    let made = run_with(&app.base, &[], &create, format!("{secret}\n").into()).await.expect_success();
    assert_eq!(made, format!("{secret}\n"));
    let rotated = run(&app, &["subscriptions", "rotate-secret", "1", "--overlap-seconds", "60"]).await;
    assert!(rotated.stdout.starts_with("whsec_") && !rotated.stdout.contains(secret), "{}", rotated.stdout);
    assert!(rotated.stderr.contains("the old one, too, for 1m; it is not shown again"), "{}", rotated.stderr);
    let rotated = json(&app, &["subscriptions", "rotate-secret", "1"]).await;
    assert_eq!(rotated["subscription_id"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_test_that_the_endpoint_refuses_is_a_finding() {
    let (app, receiver) = (start_quiet().await, Receiver::start().await);
    app.subscribe(&receiver.url("/hook"), json!({})).await;
    receiver.next(Reply::ok());
    let tested = run(&app, &["subscriptions", "test", "1"]).await.expect_success();
    assert!(tested.starts_with("result:      ok\n"), "{tested}");
    receiver.next(Reply::status(500));
    let refused = run(&app, &["subscriptions", "test", "1", "--json"]).await;
    assert!(refused.stdout.contains("\"status_code\":500"), "{}", refused.stdout);
    assert_eq!(refused.expect_code(6), "waybill: the endpoint did not accept the test\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_breaker_is_closed_by_resume() {
    let app = start_quiet().await;
    app.subscribe(TO, json!({})).await;
    let open = "INSERT INTO waybill.endpoints (namespace_id, url, failures_in_row, opened_at, paused_until) \
                VALUES (1, 'http://127.0.0.1:9/hooks/orders', 20, now(), now() + interval '1 day')";
    database::execute(&app.url, open).await;
    let list = run(&app, &["subscriptions", "list"]).await.expect_success();
    assert!(list.lines().nth(1).is_some_and(|row| row.ends_with("active  open")), "{list}");
    let resumed = run(&app, &["subscriptions", "resume", "1"]).await.expect_success();
    assert!(resumed.contains("breaker:            closed\n"), "{resumed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_says_whether_an_event_matches() {
    let app = start_quiet().await;
    let id = app.publish(json!({"event_type": "order.paid", "payload": {"order": 17}})).await.to_string();
    let check = ["subscriptions", "check", "--event-id", &id, "--event-types"];
    let matching = run(&app, &[&check[..], &["order.*"]].concat()).await.expect_success();
    assert!(matching.contains("matches:") && matching.contains("yes"), "{matching}");
    let other = run(&app, &[&check[..], &["photo.*"]].concat()).await;
    assert_eq!(other.expect_code(6), "waybill: the event does not match\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_call_is_told_by_its_exit_code() {
    let app: App = start_quiet().await;
    app.subscribe(TO, json!({})).await;
    run(&app, &["subscriptions", "show", "99"]).await.expect_code(3);
    run(&app, &["subscriptions", "update", "1"]).await.expect_code(2);
    let both = run(&app, &["subscriptions", "update", "1", "--name", "x", "--from", "-"]).await.expect_code(2);
    assert!(both.contains("--from has the whole body: put name there"), "{both}");
    let invalid = run(&app, &["subscriptions", "create", "--to", "ftp://x"]).await.expect_code(1);
    assert!(invalid.contains("url"), "{invalid}");
    let unasked = run(&app, &["subscriptions", "delete", "1"]).await.expect_code(2);
    assert!(unasked.contains("Nobody can be asked: add --yes"), "{unasked}");
    let deleted = run(&app, &["subscriptions", "delete", "1", "--yes"]).await.expect_success();
    assert_eq!(deleted, "subscription 1 is deleted\n");
    run(&app, &["subscriptions", "show", "1"]).await.expect_code(3);
    assert_eq!(run(&app, &["subscriptions", "list"]).await.expect_success(), "");
}
