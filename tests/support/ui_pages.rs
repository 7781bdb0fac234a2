//! All pages of the dashboard, for tests that go through them.

use std::collections::BTreeSet;

use super::App;

/// Lists and forms. The others are about one thing: see [`pages_of_one`].
pub(crate) const LISTS_AND_FORMS: [&str; 19] = [
    "/",
    "/ui/events",
    "/ui/workers",
    "/ui/tags",
    "/ui/publish",
    "/ui/event-types",
    "/ui/sources",
    "/ui/sources/new",
    "/ui/operations",
    "/ui/namespaces",
    "/ui/keys",
    "/ui/keys/new",
    "/ui/audit",
    "/ui/settings",
    "/ui/subscriptions",
    "/ui/subscriptions/new",
    "/ui/deliveries",
    "/ui/dead-letters",
    "/ui/session",
];

/// Returns the page of the newest of each thing in the default namespace. An event type must be declared.
pub(crate) async fn pages_of_one(app: &App) -> Vec<String> {
    let newest =
        async |table: &str| app.count(&format!("SELECT max(id) FROM waybill.{table} WHERE namespace_id = 1")).await;
    let push = "SELECT max(id) FROM waybill.deliveries WHERE namespace_id = 1 AND subscription_id IS NOT NULL";
    let push = app.count(push).await;
    let (event, subscription) = (newest("events").await, newest("subscriptions").await);
    let mut pages = vec![
        format!("/ui/events/{event}"),
        format!("/ui/subscriptions/{subscription}"),
        format!("/ui/subscriptions/{subscription}/edit"),
        format!("/ui/deliveries/{push}"),
        "/ui/event-types/order.paid".to_owned(),
        "/ui/namespaces/default".to_owned(),
    ];
    for (page, table) in
        [("sources", "sources"), ("operations", "operations"), ("keys", "api_keys"), ("dead-letters", "dead_letters")]
    {
        pages.push(format!("/ui/{page}/{}", newest(table).await));
    }
    pages
}

/// Returns the routes of pages that none of these paths belongs to.
pub(crate) fn missing_from<'a>(paths: impl Iterator<Item = &'a str> + Clone) -> Vec<&'static str> {
    let source = include_str!("../../src/http/mod.rs");
    let all = source.split(" page(\"").skip(1).filter_map(|rest| rest.split('"').next());
    // The login is not part of the frame.
    let routes: BTreeSet<&str> = all.filter(|route| *route != "/login").collect();
    assert!(routes.len() > 20, "{routes:?}");
    routes.into_iter().filter(|route| !paths.clone().any(|path| is_of(route, path))).collect()
}

/// Returns whether a path is that of a route such as `/ui/events/{id}`.
fn is_of(route: &str, path: &str) -> bool {
    let path = path.split('?').next().unwrap_or_default();
    let (route, path): (Vec<&str>, Vec<&str>) = (route.split('/').collect(), path.split('/').collect());
    route.len() == path.len() && route.iter().zip(&path).all(|(part, given)| part == given || part.starts_with('{'))
}
