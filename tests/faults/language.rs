//! A database whose messages are in German: errors are recognised by their codes.

use diesel_async::SimpleAsyncConnection;
use serde_json::json;

use crate::support::foreign::ForeignPostgres;
use crate::support::process::{Process, waybill};
use crate::support::{App, ClusterDir, HeldTable, Options, Reply, database};

/// Starts a PostgreSQL with German messages, if its translations are installed. Messages follow
/// `LANGUAGE` unless the locale is plain C.
async fn german() -> ForeignPostgres {
    let variables = [("LC_ALL", "C.UTF-8"), ("LANGUAGE", "de")];
    let postgres = ForeignPostgres::start(ClusterDir::with_cluster(), &["lc_messages=C.UTF-8"], &variables).await;
    let mut conn = database::connection(&postgres.url()).await;
    let complaint = conn.batch_execute("SELECT 1/0").await.expect_err("it complains").to_string();
    if !complaint.contains("Division durch Null") {
        eprintln!("tried in another language than German: {complaint}");
    }
    postgres
}

#[tokio::test(flavor = "multi_thread")]
async fn database_errors_are_recognised_in_another_language() {
    let german = german().await;
    let url = german.url();
    let app = App::start_with(Options { url: Some(url.clone()), ..Options::default() }).await;
    let event = json!({"title": "t", "tags": "a"});

    // A lock that is not released.
    let held = HeldTable::lock(&url, "waybill.events").await;
    app.post("/events", &event).await.problem(503, "database_unavailable");
    held.unlock().await;

    // A connection that is cut in the middle of a statement.
    let mut held = HeldTable::lock(&url, "waybill.events").await;
    let request = app.client.post(format!("{}/events", app.base)).json(&event);
    let publish = tokio::spawn(async move { Reply::of(request.send().await.expect("a response")).await });
    held.terminate_blocked().await;
    publish.await.expect("no panic").problem(503, "database_unavailable");
    held.unlock().await;

    // A statement that is itself at fault.
    database::execute(&url, "ALTER TABLE waybill.events ADD CHECK (title <> 'culprit')").await;
    app.post("/events", &json!({"title": "culprit", "tags": "a"})).await.problem(500, "internal_error");
    app.publish(event).await;
    app.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_connection_is_recognised_in_another_language_and_not_retried() {
    let german = german().await;
    let url = german.url();
    for (url, code) in [(url.replace("waybill:", "waybill:x"), "28P01"), (format!("{url}_but_another"), "3D000")] {
        let mut command = waybill(&["serve", "--bind", "127.0.0.1:0"]);
        command.env("DATABASE_URL", url);
        let Err(ended) = Process::spawn(command) else { panic!("it started") };
        assert!(!ended.stderr.contains("waiting for the database"), "{}", ended.stderr);
        assert!(ended.stderr.contains(code), "{}", ended.stderr);
    }
}
