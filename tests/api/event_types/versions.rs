//! Every change of a schema is a version, and the latest ones are kept.

use serde_json::json;

use super::{ORDER_PAID, declare};
use crate::support::App;

#[tokio::test(flavor = "multi_thread")]
async fn the_version_grows_with_the_schema_and_the_revision_with_every_change() {
    let app = App::start().await;
    let steps = [
        (json!({"schema": {"type": "object"}}), 1, 1),
        // The same once more is no change.
        (json!({"schema": {"type": "object"}}), 1, 1),
        (json!({"schema": {"type": "object"}, "description": "Paid."}), 1, 2),
        (json!({"schema": {"type": "object"}, "description": "Paid.", "examples": [{}]}), 1, 3),
        (json!({"schema": {"type": "array"}, "description": "Paid."}), 2, 4),
        (json!({"description": "Paid."}), 3, 5),
        (json!({"schema": {"type": "array"}}), 4, 6),
    ];
    for (body, version, revision) in steps {
        let view = app.put(ORDER_PAID, &body).await.json();
        assert_eq!((&view["version"], &view["revision"]), (&json!(version), &json!(revision)), "{body}");
    }
    let older = [
        (1, json!({"type": "object"})),
        (2, json!({"type": "array"})),
        (3, json!(null)),
        (4, json!({"type": "array"})),
    ];
    for (version, schema) in older {
        let reply = app.get(&format!("{ORDER_PAID}?version={version}")).await.expect(200);
        assert_eq!(reply.header("etag"), Some("\"6\""));
        let view = reply.json();
        assert_eq!((&view["version"], &view["schema"]), (&json!(version), &schema));
        assert_eq!(view["versions"], json!([4, 3, 2, 1]));
    }
    for unknown in [5, 4711] {
        app.get(&format!("{ORDER_PAID}?version={unknown}")).await.problem(404, "event_type_version_not_found");
    }
    app.get(&format!("{ORDER_PAID}?version=0")).await.names(&["version"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_versions_are_kept() {
    let app = App::start().await;
    for n in 1..=23 {
        assert_eq!(declare(&app, json!({"maximum": n})).await["version"], n);
    }
    let view = app.get(ORDER_PAID).await.expect(200).json();
    assert_eq!(view["versions"], json!((4..=23).rev().collect::<Vec<_>>()));
    app.get(&format!("{ORDER_PAID}?version=3")).await.problem(404, "event_type_version_not_found");
    assert_eq!(app.get(&format!("{ORDER_PAID}?version=4")).await.expect(200).json()["schema"], json!({"maximum": 4}));
    app.delete(ORDER_PAID).await.expect(204);
    assert_eq!(app.count("SELECT count(*) FROM waybill.event_type_versions").await, 0);
    assert_eq!(declare(&app, json!({})).await["versions"], json!([1]));
}
