//! `waybill types`.

use super::start_quiet;
use crate::cli::{json, run, run_with};

#[tokio::test(flavor = "multi_thread")]
async fn a_type_is_declared_listed_shown_and_deleted() {
    let app = start_quiet().await;
    let put = ["types", "put", "order.paid", "--schema", "-", "--description", "An order was paid"];
    let schema = b"{\"type\": \"object\", \"required\": [\"order\"]}".to_vec();
    let declared = run_with(&app.base, &[], &put, schema).await.expect_success();
    let expected = "\
type:         order.paid
description:  An order was paid
version:      1
versions:     1
created:      3h ago
updated:      3h ago
";
    assert_eq!(declared, expected);
    let shown = run(&app, &["types", "show", "order.paid"]).await.expect_success();
    let schema = "schema:\n{\n  \"type\": \"object\",\n  \"required\": [\n    \"order\"\n  ]\n}\n";
    assert_eq!(shown, format!("{expected}{schema}"));
    let list = run(&app, &["types", "list"]).await.expect_success();
    let table = "\
NAME        DECLARED  VERSION  SCHEMA  LAST DAY  LAST EVENT
order.paid  yes             1  yes            0
";
    assert_eq!(list, table);
    assert_eq!(json(&app, &["types", "list"]).await["event_types"][0]["version"], 1);
    run(&app, &["types", "show", "order.paid", "--schema-version", "7"]).await.expect_code(3);
    run(&app, &["types", "show", "nothing"]).await.expect_code(3);
    run(&app, &["types", "put", "order.paid", "--schema", "/nowhere"]).await.expect_code(1);
    let deleted = run(&app, &["types", "delete", "order.paid", "--yes"]).await.expect_success();
    assert_eq!(deleted, "event type order.paid is deleted\n");
}
