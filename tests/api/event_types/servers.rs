//! Two servers: what is declared on one holds on the other from the response on.

use futures_util::future::join_all;
use serde_json::json;

use super::{ORDER_PAID, declare, needs_id, pay};
use crate::support::{App, HeldTable, Options};

/// Two servers that have published, and so have loaded what is declared.
async fn two_servers() -> (App, App) {
    let flags = || vec!["--poll-interval-ms".to_owned(), "60000".to_owned()];
    let one = App::start_with(Options { flags: flags(), ..Options::default() }).await;
    let other = App::start_with(Options { flags: flags(), url: Some(one.url.clone()), ..Options::default() }).await;
    for server in [&one, &other] {
        pay(server, json!({"id": 1})).await.expect(201);
    }
    (one, other)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_publish_after_a_change_is_judged_by_it_on_every_server() {
    let (one, other) = two_servers().await;
    declare(&one, needs_id()).await;
    pay(&other, json!({})).await.names(&["payload.id"]);
    pay(&other, json!({"id": 1})).await.expect(201);
    // What was forbidden is allowed, what was allowed is forbidden.
    one.put(&format!("{ORDER_PAID}?force=true"), &json!({"schema": {"type": "string"}})).await.expect(200);
    pay(&other, json!("x")).await.expect(201);
    one.put(&format!("{ORDER_PAID}?force=true"), &json!({"schema": {"type": "null"}})).await.expect(200);
    pay(&other, json!("x")).await.names(&["payload"]);
    one.delete(ORDER_PAID).await.expect(204);
    pay(&other, json!("x")).await.expect(201);
    let strict = |is_strict: bool| json!({"settings": {"strict_event_types": is_strict}});
    one.patch("/namespaces/default", &strict(true)).await.expect(200);
    pay(&other, json!("x")).await.names(&["event_type"]);
    one.patch("/namespaces/default", &strict(false)).await.expect(200);
    pay(&other, json!("x")).await.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn alternating_schemas_are_never_mixed_up() {
    let (one, other) = two_servers().await;
    for round in 0..20 {
        let (accepted, rejected) = if round % 2 == 0 { (json!("x"), json!(7)) } else { (json!(7), json!("x")) };
        let kind = if round % 2 == 0 { "string" } else { "integer" };
        let changer = if round % 3 == 0 { &one } else { &other };
        let status = changer.put(&format!("{ORDER_PAID}?force=true"), &json!({"schema": {"type": kind}})).await.status;
        assert!([200, 201].contains(&status));
        let publishes = [&one, &other].map(|server| {
            let (accepted, rejected) = (accepted.clone(), rejected.clone());
            async move {
                pay(server, rejected).await.names(&["payload"]);
                pay(server, accepted).await.expect(201);
            }
        });
        join_all(publishes).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_under_way_holds_no_publisher_up_and_counts_from_its_response_on() {
    let (one, other) = two_servers().await;
    let mut held = HeldTable::lock(&one.url, "waybill.subscription_catalog").await;
    // A publish takes no lock that this one excludes, and a change does.
    let declaring = tokio::spawn({
        let client = one.client.clone();
        let url = format!("{}{ORDER_PAID}", one.base);
        async move { client.put(url).json(&json!({"schema": needs_id()})).send().await.expect("a response").status() }
    });
    held.until_blocked().await;
    pay(&other, json!({})).await.expect(201);
    held.unlock().await;
    assert_eq!(declaring.await.expect("no panic"), 201);
    pay(&other, json!({})).await.names(&["payload.id"]);
}
