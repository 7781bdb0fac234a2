//! `subscriptions` and `sources`: exact, because they are checked in the transaction that creates.

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{limit, refused, servers};

const KINDS: [(&str, &str); 2] = [("/subscriptions", "subscriptions"), ("/sources", "sources")];

fn body(path: &str, number: usize) -> Value {
    match path {
        "/subscriptions" => json!({"url": format!("http://127.0.0.1:9/{number}")}),
        _ => json!({"name": format!("source {number}"), "verify": {"scheme": "none"}}),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn more_than_the_limit_are_refused_on_all_servers_until_one_is_deleted() {
    let [one, other] = servers().await;
    let north = one.namespace("north").await;
    for (path, name) in KINDS {
        limit(&one, "default", json!({name: 2})).await;
        one.post(path, &body(path, 1)).await.expect(201);
        let second = other.post(path, &body(path, 2)).await.expect(201).json();
        for server in [&one, &other] {
            refused(server.post(path, &body(path, 3)).await, name, "namespace");
        }
        for number in 0..3 {
            north.post(path, &body(path, number)).await.expect(201);
        }
        one.delete(&format!("{path}/{}", second["id"])).await.expect(204);
        other.post(path, &body(path, 4)).await.expect(201);
        refused(one.post(path, &body(path, 5)).await, name, "namespace");
        limit(&other, "default", json!({name: 0})).await;
        refused(one.post(path, &body(path, 6)).await, name, "namespace");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limit_holds_when_many_are_created_at_once() {
    let [one, other] = servers().await;
    for (path, name) in KINDS {
        limit(&one, "default", json!({name: 3})).await;
        let created = (0..16).map(|number| {
            let server = if number % 2 == 0 { &one } else { &other };
            async move { server.post(path, &body(path, number)).await.status }
        });
        let statuses = join_all(created).await;
        assert_eq!(statuses.iter().filter(|status| **status == 201).count(), 3, "{statuses:?}");
        assert!(statuses.iter().all(|status| [201, 429].contains(status)), "{statuses:?}");
    }
}
