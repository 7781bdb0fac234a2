//! Backups and restores that are killed half-way.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::Signal;

use super::{Place, programs_with, refused, summary_of};
use crate::support::process::{send, waybill};
use crate::support::{App, database, until};

/// Starts a command, waits until a file exists, and kills the command.
async fn kill_when_there(mut command: Command, mark: &Path) {
    let mut child: Child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
    until("the program has come this far", async || mark.exists()).await;
    send(child.id(), Signal::SIGKILL);
    child.wait().expect("our child");
}

async fn until_disconnected(url: &str) {
    let sessions = "SELECT count(*) FROM pg_stat_activity \
         WHERE datname = current_database() AND application_name = 'waybill backup'";
    until("its programs are gone", async || database::count(url, sessions).await == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_that_is_killed_leaves_no_file_under_its_name_and_can_be_repeated() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, mark) = (folder.path().join("a.backup"), folder.path().join("mark"));
    let app = App::start().await;
    app.publish_tagged("a").await;
    let hanging = format!("printf PGDMP; echo $$ >'{0}.pid'; : >'{0}'; exec sleep 1000", mark.display());
    let programs = programs_with("pg_dump", &hanging);
    let mut command = Place::Url(&app.url).backup(&file);
    command.arg("--pg-bin").arg(programs.path());
    kill_when_there(command, &mark).await;
    assert!(!file.exists());
    let partial = folder.path().join("a.backup.partial");
    assert_eq!(fs::metadata(&partial).expect("a file").permissions().mode() & 0o777, 0o600);
    let pid = fs::read_to_string(folder.path().join("mark.pid")).expect("a pid");
    until("its program is gone", async || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with('Z'))
    })
    .await;
    let mut verify = waybill(&["backup", "verify"]);
    verify.arg(&partial);
    refused(verify, &["not a backup"]).await;

    let summary = summary_of(Place::Url(&app.url).backup(&file)).await;
    assert_eq!(summary["tables"]["events"], 1);
    assert!(!partial.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_that_is_killed_changes_nothing_keeps_servers_away_and_can_be_repeated() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, mark) = (folder.path().join("a.backup"), folder.path().join("mark"));
    let app = App::start().await;
    app.publish_tagged("a").await;
    summary_of(Place::Url(&app.url).backup(&file)).await;
    for _ in 0..2 {
        app.publish_tagged("a").await;
    }
    let url = app.url.clone();
    app.stop().await;

    let hanging = format!("\"$REAL/pg_restore\" \"$@\" | head -c 60000; : >'{}'; exec sleep 1000", mark.display());
    let programs = programs_with("pg_restore", &hanging);
    for target in [url, database::empty().await] {
        let events = "SELECT count(*) FROM pg_tables WHERE schemaname = 'waybill' AND tablename = 'events'";
        let had_events = database::count(&target, events).await;
        let mut command = Place::Url(&target).restore(&file);
        command.args(["--replace", "--pg-bin"]).arg(programs.path());
        kill_when_there(command, &mark).await;
        fs::remove_file(&mark).expect("the mark");
        until_disconnected(&target).await;
        assert_eq!(database::count(&target, events).await, had_events, "nothing is half-restored");
        if had_events == 1 {
            assert_eq!(database::count(&target, "SELECT count(*) FROM waybill.events").await, 3);
        }
        // A server would work on the old data, or make an empty schema.
        for verb in ["migrate", "serve"] {
            let mut command = waybill(&[verb]);
            command.env("DATABASE_URL", &target);
            refused(command, &["was interrupted", "waybill restore"]).await;
        }
        summary_of(with_replace(Place::Url(&target).restore(&file))).await;
        let server = Place::Url(&target).serve(&[]);
        assert_eq!(server.app.drain("a", "worker:1").await, [1]);
        server.stop().await;
    }
}

fn with_replace(mut command: Command) -> Command {
    command.arg("--replace");
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_that_fails_leaves_the_database_as_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("a.backup");
    let app = App::start().await;
    app.publish_tagged("a").await;
    summary_of(Place::Url(&app.url).backup(&file)).await;
    let id = app.publish_tagged("a").await;
    let url = app.url.clone();
    app.stop().await;
    let broken = [
        // It ends early, and says so; it ends early, and does not.
        ("\"$REAL/pg_restore\" \"$@\" | head -c 60000; exit 1", "pg_restore failed"),
        ("\"$REAL/pg_restore\" \"$@\" | grep -v 'COPY waybill.events ' ; exit 0", "psql failed"),
        (
            "\"$REAL/pg_restore\" \"$@\" | sed 's/^CREATE TABLE waybill.ready .*/CREATE NOTHING (/' ; exit 0",
            "psql failed",
        ),
    ];
    for (script, word) in broken {
        let programs = programs_with("pg_restore", script);
        let mut command = with_replace(Place::Url(&url).restore(&file));
        command.arg("--pg-bin").arg(programs.path());
        refused(command, &[word]).await;
    }
    let server = Place::Url(&url).serve(&[]);
    assert_eq!(server.app.event(id).await["status"], "PENDING");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_restore_is_refused_while_the_first_runs_and_leaves_its_mark() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, mark) = (folder.path().join("a.backup"), folder.path().join("mark"));
    let app = App::start().await;
    summary_of(Place::Url(&app.url).backup(&file)).await;
    let target = database::empty().await;
    let hanging = format!("\"$REAL/pg_restore\" \"$@\" | head -c 60000; : >'{}'; exec sleep 1000", mark.display());
    let programs = programs_with("pg_restore", &hanging);
    let mut first = Place::Url(&target).restore(&file);
    first.arg("--pg-bin").arg(programs.path());
    let mut first = first.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
    until("the first restore loads", async || mark.exists()).await;
    refused(Place::Url(&target).restore(&file), &["another restore"]).await;
    let marks = "SELECT count(*) FROM pg_namespace WHERE nspname = 'waybill_restoring'";
    assert_eq!(database::count(&target, marks).await, 1, "servers stay away");
    send(first.id(), Signal::SIGKILL);
    first.wait().expect("our child");
    until_disconnected(&target).await;
    summary_of(Place::Url(&target).restore(&file)).await;
}

/// As a server that had no connection when the restore looked for servers.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_runs_gets_no_new_connection_while_a_restore_does() {
    let app = App::start().await;
    app.publish_tagged("a").await;
    database::execute(&app.url, "CREATE SCHEMA waybill_restoring").await;
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE datname = current_database() AND application_name = 'waybill' AND pid <> pg_backend_pid()";
    database::execute(&app.url, cut).await;
    // Those that are cut off are noticed one by one.
    until("there are no connections left", async || app.engine().database().connection().await.is_err()).await;
    database::execute(&app.url, "DROP SCHEMA waybill_restoring").await;
    app.publish_tagged("a").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_ends_the_sessions_of_the_backup() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("a.backup");
    let app = App::start().await;
    let key = app.make_key(serde_json::json!({"scopes": ["admin"]})).await;
    let session = app.log_in(&key.key).await;
    app.in_session(&session).get("/ui/session").await.expect(200);
    summary_of(Place::Url(&app.url).backup(&file)).await;
    app.stop().await;
    let target = database::empty().await;
    summary_of(Place::Url(&target).restore(&file)).await;
    let server = Place::Url(&target).serve(&[]);
    server.app.in_session(&session).get("/events").await.problem(401, "unauthenticated");
    server.app.holding(&key).get("/events").await.expect(200);
    server.stop().await;
}
