//! Paths that do not exist, and methods that do not exist there.

use std::collections::BTreeMap;

use super::request;
use crate::support::App;

/// Returns the methods of every path that is served.
fn served() -> BTreeMap<String, Vec<String>> {
    let mut served: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for endpoint in waybill::http::routes() {
        let methods = served.entry(endpoint.path.replace("{id}", "1")).or_insert_with(|| vec!["OPTIONS".into()]);
        methods.push(endpoint.method.to_string());
        methods.extend(endpoint.has_head.then(|| "HEAD".into()));
    }
    served
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_method_is_refused_with_the_allowed_ones_on_every_route() {
    let app = App::start().await;
    for (path, allowed) in served() {
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"] {
            if allowed.iter().any(|one| one == method) {
                continue;
            }
            let reply = request(&app, method, &path, None).await;
            let mut allow: Vec<&str> = reply.header("allow").unwrap_or_default().split(", ").collect();
            let mut wanted: Vec<&str> = allowed.iter().map(String::as_str).collect();
            allow.sort_unstable();
            wanted.sort_unstable();
            assert_eq!(allow, wanted, "{method} {path}");
            reply.problem(405, "method_not_allowed");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_cannot_be_deleted() {
    let app = App::start().await;
    let id = app.publish_tagged("email").await;
    request(&app, "DELETE", &format!("/events/{id}"), None).await.problem(405, "method_not_allowed");
    app.get(&format!("/events/{id}")).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_path_is_not_found_by_any_method() {
    let app = App::start().await;
    let unknown = [
        "/nowhere",
        "/event",
        "/EVENTS",
        "/events/",
        "/events/1/",
        "/events/1/explode",
        "/events/1/start/2",
        "//events",
        "/logs/1",
        "/workers/w:1",
        "/docs/other.js",
        "/%00",
        "/%FF",
        "/.env",
        "/events%2F1",
    ];
    for path in unknown {
        for method in ["GET", "POST", "DELETE"] {
            request(&app, method, path, None).await.problem(404, "route_not_found");
        }
    }
}
