//! `waybill namespaces`, `waybill audit` and `waybill usage`.

use super::start_quiet;
use crate::cli::{json, run, run_with};

#[tokio::test(flavor = "multi_thread")]
async fn namespaces_are_made_listed_and_changed() {
    let app = start_quiet().await;
    let made = run(&app, &["namespaces", "create", "photos", "--redact", "payload.card"]).await.expect_success();
    assert_eq!(made, "namespace:  photos\nid:         2\nredacts:    payload.card\ncreated:    3h ago\n");
    let list = run(&app, &["namespaces", "list"]).await.expect_success();
    let rows: Vec<&str> = list.lines().collect();
    assert_eq!((rows[0], rows.len()), ("ID  NAME     CREATED  SETTINGS", 3), "{list}");
    assert_eq!(rows[2], " 2  photos   3h ago   {\"redact\":[\"payload.card\"]}");
    let changed = run(&app, &["namespaces", "update", "photos", "--strict-event-types", "true"]).await.expect_success();
    assert!(changed.contains("strict event types:  true\n"), "{changed}");
    let limits = br#"{"settings": {"limits": {"waiting_events": 10}}}"#.to_vec();
    run_with(&app.base, &[], &["namespaces", "update", "photos", "--from", "-"], limits).await.expect_success();
    let shown = json(&app, &["namespaces", "show", "photos"]).await;
    assert_eq!(shown["settings"]["limits"]["waiting_events"], 10);
    run(&app, &["namespaces", "show", "nobody"]).await.expect_code(3);
    run(&app, &["namespaces", "create", "photos"]).await.expect_code(1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_log_is_listed_newest_first() {
    let app = start_quiet().await;
    run(&app, &["namespaces", "create", "photos"]).await.expect_success();
    run(&app, &["sources", "create", "--name", "ours", "--scheme", "none"]).await.expect_success();
    let list = run(&app, &["audit", "list"]).await.expect_success();
    let rows: Vec<&str> = list.lines().collect();
    assert!(rows[0].starts_with("ID  WHEN    ACTION "), "{list}");
    assert!(rows[1].contains("3h ago  source.created ") && rows[2].contains("3h ago  namespace.created "), "{list}");
    assert!(rows.iter().all(|row| row.chars().count() <= 80), "{list}");
    let made = json(&app, &["audit", "list", "--action", "source.created"]).await;
    assert_eq!(made["entries"].as_array().map(Vec::len), Some(1));
    run(&app, &["audit", "list", "--action", "nothing"]).await.expect_code(1);
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_shows_limits_and_where_they_stand() {
    let app = start_quiet().await;
    run(&app, &["sources", "create", "--name", "ours", "--scheme", "none"]).await.expect_success();
    let expected = "\
OF         LIMIT ON              USED  LIMIT
namespace  publishes per second         none
namespace  sources                  1    100
namespace  stored bytes                 none
namespace  subscriptions            0  10000
namespace  waiting events               none
key        publishes per second         none
";
    assert_eq!(run(&app, &["usage"]).await.expect_success(), expected);
    assert_eq!(json(&app, &["usage"]).await["namespace"]["sources"]["used"], 1);
}
