//! `examples/publish_and_work.rs`, against a real server.

#[path = "../../examples/publish_and_work.rs"]
#[expect(dead_code, reason = "the test calls what `main` calls")]
mod publish_and_work;

use serde_json::json;

use crate::support::{App, ledger};

#[tokio::test(flavor = "multi_thread")]
async fn the_rust_example_publishes_events_and_completes_them() {
    let app = App::start().await;
    let mut ids = publish_and_work::run(&app.base, None).await.expect("it works");
    ids.sort_unstable();
    assert_eq!(ids, [1, 2, 3]);
    for id in ids {
        let event = app.event(id).await;
        assert_eq!(
            (&event["status"], &event["result"]),
            (&json!("COMPLETED"), &json!({"file": format!("{id}-640.webp")}))
        );
    }
    ledger::check(&app).await;
}
