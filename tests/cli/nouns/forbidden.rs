//! Every noun needs its key, and says so by its exit code.

use crate::cli::{run, run_as};
use crate::support::App;

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_missing_or_not_enough_has_its_own_exit_code() {
    let app = App::with_keys().await;
    let reader = app.make_key(serde_json::json!({"name": "reader", "scopes": ["read"]})).await;
    let lists = ["subscriptions", "sources", "types", "deliveries", "dead-letters", "operations"];
    for noun in lists {
        let refused = run(&app, &[noun, "list"]).await.expect_code(4);
        assert!(refused.contains("Set WAYBILL_KEY"), "{refused}");
        run_as(&app, &reader.key, &[noun, "list"]).await.expect_success();
    }
    run_as(&app, &reader.key, &["usage"]).await.expect_success();
    let not_enough: [&[&str]; 6] = [
        &["subscriptions", "create", "--to", "http://127.0.0.1:9/hook"],
        &["sources", "delete", "1", "--yes"],
        &["dead-letters", "replay", "--all", "--yes"],
        &["namespaces", "list"],
        &["audit", "list"],
        &["doctor"],
    ];
    for arguments in not_enough {
        let refused = run_as(&app, &reader.key, arguments).await.expect_code(4);
        assert!(refused.contains("does not have the scope"), "{arguments:?}: {refused}");
    }
}
