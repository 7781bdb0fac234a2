//! Where a backup may be restored, and moving from the embedded PostgreSQL to one's own.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use diesel_async::SimpleAsyncConnection;
use serde_json::json;

use super::{Place, refused, summary_of};
use crate::support::{App, ClusterDir, database, ledger, within_patience};

#[tokio::test(flavor = "multi_thread")]
async fn data_moves_from_the_embedded_database_to_another_one() {
    let cluster_dir = ClusterDir::with_cluster();
    let file = cluster_dir.root().join("waybill.backup");
    let server = Place::Embedded(&cluster_dir).serve(&[]);
    let subscription = json!({"event_types": ["order.*"], "headers": {"Authorization": "secret"}});
    let made = server.app.subscribe("https://shop.example/hooks", subscription).await;
    let id = server.app.publish_tagged("a").await;
    server.stop().await;
    // The server is stopped, so the backup starts the database, and stops it again.
    let summary = summary_of(Place::Embedded(&cluster_dir).backup(&file)).await;
    assert_eq!(summary["tables"]["subscriptions"], 1);
    assert_eq!(cluster_dir.postmaster(), None);

    // Another role than that of the embedded database, which may create a schema.
    let url = database::empty().await;
    let name = url.rsplit_once('/').expect("a database").1.to_owned();
    let role = format!("mover_{name}");
    database::execute(
        &url,
        &format!("CREATE ROLE {role} LOGIN PASSWORD 'word'; GRANT CREATE ON DATABASE {name} TO {role}"),
    )
    .await;
    let (_, place) = url.split_once('@').expect("a user");
    let url = format!("postgres://{role}:word@{place}");
    let restored = summary_of(Place::Url(&url).restore(&file)).await;
    assert_eq!(restored["tables"], summary["tables"]);
    let server = Place::Url(&url).serve(&[]);
    ledger::check(&server.app).await;
    assert_eq!(server.app.get("/subscriptions").await.expect(200).json()["subscriptions"][0]["id"], made["id"]);
    assert_eq!(server.app.drain("a", "worker:1").await, [id]);
    assert!(server.app.publish_tagged("a").await > id);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_in_use_or_with_data_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("a.backup");
    let app = App::start().await;
    app.publish_tagged("a").await;
    summary_of(Place::Url(&app.url).backup(&file)).await;
    let mut replacing = Place::Url(&app.url).restore(&file);
    replacing.arg("--replace");
    refused(replacing, &["stop all servers"]).await;
    let url = app.url.clone();
    app.stop().await;
    refused(Place::Url(&url).restore(&file), &["--replace"]).await;
    assert_eq!(database::count(&url, "SELECT count(*) FROM waybill.histories").await, 1, "nothing has changed");

    let cluster_dir = ClusterDir::with_cluster();
    let server = Place::Embedded(&cluster_dir).serve(&[]);
    let mut replacing = Place::Embedded(&cluster_dir).restore(&file);
    replacing.arg("--replace");
    refused(replacing, &["in use by another Waybill server"]).await;
    server.stop().await;
}

/// PostgreSQL closes the connections of a server a moment after the server has stopped.
#[tokio::test(flavor = "multi_thread")]
async fn a_restore_waits_for_connections_that_are_about_to_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("a.backup");
    let app = App::start().await;
    summary_of(Place::Url(&app.url).backup(&file)).await;
    let target = database::empty().await;
    let mut ending = database::connection(&target).await;
    ending.batch_execute("SET application_name = 'waybill'").await.expect("a name");

    let mut restore = Place::Url(&target).restore(&file);
    let mut restore = restore.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it runs");
    let stderr = BufReader::new(restore.stderr.take().expect("a pipe"));
    let lines = tokio::task::spawn_blocking(move || {
        let mut ending = Some(ending);
        let mut lines = Vec::new();
        for line in stderr.lines().map_while(Result::ok) {
            if line.contains("waiting for 1 connections") {
                drop(ending.take());
            }
            lines.push(line);
        }
        lines
    });
    let lines = within_patience(lines).await.expect("no panic");
    assert!(restore.wait().expect("our child").success(), "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("waiting for 1 connections")), "{lines:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_a_schema_that_this_version_does_not_know_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("a.backup");
    let app = App::start().await;
    let newer = "INSERT INTO waybill.__diesel_schema_migrations (version) VALUES ('99991231000001')";
    database::execute(&app.url, newer).await;
    summary_of(Place::Url(&app.url).backup(&file)).await;
    let target = ClusterDir::new();
    refused(Place::Embedded(&target).restore(&file), &["newer Waybill"]).await;
    assert!(!target.data_dir().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_password_of_the_database_is_not_among_the_arguments_of_a_program() {
    let folder = tempfile::tempdir().expect("a folder");
    let app = App::start().await;
    let said = folder.path().join("arguments");
    let script = format!("tr '\\0' '\\n' </proc/$$/cmdline >'{}'\nexec \"$REAL/pg_dump\" \"$@\"", said.display());
    let programs = super::programs_with("pg_dump", &script);
    let mut command = Place::Url(&app.url).backup(&folder.path().join("a.backup"));
    command.arg("--pg-bin").arg(programs.path());
    summary_of(command).await;
    let arguments = std::fs::read_to_string(said).expect("the arguments");
    let password = app.url.split([':', '@']).nth(2).expect("a password");
    assert!(arguments.contains("--snapshot") && !arguments.contains(password), "{arguments}");
}
