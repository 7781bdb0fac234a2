//! Two namespaces with the same content: each list, and the metrics, show only one of them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::two_namespaces;
use crate::support::App;
use crate::support::pages::{LISTS, add_rows};
use crate::support::records::app_that_sends_nothing;

/// The lists of what belongs to a namespace.
fn own_lists() -> impl Iterator<Item = (&'static str, &'static str)> {
    LISTS.into_iter().filter(|(list, _)| *list != "/namespaces")
}

async fn rows(app: &App, list: &str, key: &str) -> Vec<Value> {
    app.walk(list, key).await.concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_has_only_rows_of_its_namespace() {
    let app = app_that_sends_nothing().await.with_admin_key().await;
    let (north, south) = (app.team("north").await, app.team("south").await);
    add_rows(&north).await;
    for (list, key) in own_lists() {
        let own = rows(&north, list, key).await;
        assert!(own.len() >= 3, "{list}");
        for other in [&south, &app] {
            let others = rows(other, list, key).await;
            // Each namespace has the key of its administrator, and that it was made.
            let has_own_rows = matches!(list, "/keys" | "/audit");
            assert!(others.is_empty() || (has_own_rows && others.iter().all(|row| !own.contains(row))), "{list}");
        }
    }
    add_rows(&south).await;
    for (list, key) in own_lists() {
        let (one, two) = (rows(&north, list, key).await, rows(&south, list, key).await);
        assert_eq!(one.len(), two.len(), "{list}");
        if key == "id" {
            let ids = |rows: &[Value]| rows.iter().map(|id| id.as_i64().expect("an id")).collect::<BTreeSet<_>>();
            assert!(ids(&one).is_disjoint(&ids(&two)), "{list}");
        } else {
            // The same workers and tags, each counted in its own namespace.
            assert_eq!(one, two, "{list}");
        }
    }
    for team in [&north, &south] {
        let workers = team.get("/workers").await.expect(200).json();
        assert!(
            workers["workers"].as_array().expect("workers").iter().all(|worker| worker["holding"] == 1),
            "{workers}"
        );
        let held = team.get("/events?status=PROCESSING").await.expect(200).json();
        assert_eq!(held["total"], 3, "{held}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_of_an_event_of_another_namespace_is_empty() {
    let app = App::start().await;
    let (north, south) = two_namespaces(&app).await;
    let id = north.publish_tagged("a").await;
    north.claim("a", "w:1").await.expect("an event");
    assert_eq!(
        north.get(&format!("/logs?event_id={id}")).await.expect(200).json()["logs"].as_array().expect("logs").len(),
        1
    );
    for other in [&south, &app] {
        let logs = other.get(&format!("/logs?event_id={id}")).await.expect(200).json();
        assert_eq!(logs["logs"].as_array().expect("logs").len(), 0, "{logs}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_of_one_namespace_is_refused_in_another() {
    let app = app_that_sends_nothing().await.with_admin_key().await;
    let (north, south) = (app.team("north").await, app.team("south").await);
    add_rows(&north).await;
    for (list, _) in own_lists() {
        let list = format!("{list}?limit=1");
        let cursor = north.next_of(&list).await;
        let problem = south.get_after(&list, &cursor).await.problem(400, "cursor_mismatch");
        assert_eq!(problem["errors"][0]["reason"], "belongs to another list, namespace, filter or order", "{list}");
        north.get_after(&list, &cursor).await.expect(200);
    }
}
