//! `GET /health` and `GET /ready`.

use serde_json::json;
use tokio::task::JoinSet;

use crate::support::locks::BLOCKED_CALLS;
use crate::support::locks::HeldRow;
use crate::support::{App, Options, database, within_patience};

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_runs_is_healthy_and_ready() {
    let app = App::start().await;
    let health = app.get("/health").await.expect(200).json();
    assert_eq!(health, json!({"status": "ok", "version": env!("CARGO_PKG_VERSION")}));
    assert_eq!(app.get("/ready").await.expect(200).json(), json!({"status": "ready"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_schema_is_behind_is_healthy_and_not_ready() {
    let app = App::start().await;
    let forget = "DELETE FROM waybill.__diesel_schema_migrations \
                  WHERE version = (SELECT max(version) FROM waybill.__diesel_schema_migrations)";
    database::execute(&app.url, forget).await;
    app.get("/health").await.expect(200);
    let reply = app.get("/ready").await;
    assert_eq!(reply.header("retry-after"), Some("1"));
    reply.problem(503, "database_unavailable");
}

/// `/ready` needs no key, so anybody can send many requests for it.
#[tokio::test(flavor = "multi_thread")]
async fn many_checks_that_are_held_up_leave_connections_for_the_work() {
    let app = App::start_with(Options { flags: vec!["--db-connections=4".into()], ..Options::default() }).await;
    let lock = "LOCK TABLE waybill.__diesel_schema_migrations IN ACCESS EXCLUSIVE MODE";
    let held = HeldRow::with_uncommitted(&app, lock).await;
    let mut checks = JoinSet::new();
    for _ in 0..12 {
        checks.spawn(app.client.get(format!("{}/ready", app.base)).send());
    }
    app.until_blocked_calls(1).await;
    // The first response is that of a check that has waited for as long as it may. By then all of them have arrived.
    let refused = within_patience(checks.join_next()).await.expect("a check").expect("no panic").expect("a response");
    assert!(app.count(&format!("SELECT count(*) {BLOCKED_CALLS}")).await <= 1, "one check at a time uses the database");
    app.post("/events", &json!({"title": "t", "tags": "a"})).await.expect(201);
    assert_eq!(refused.status(), 503);
    held.unlock().await;
    checks.join_all().await;
    app.get("/ready").await.expect(200);
}
