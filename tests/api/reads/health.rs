//! `GET /health` and `GET /ready`.

use serde_json::json;

use crate::support::{App, database};

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
