//! What `waybill serve` refuses to do, and what it prints then.

use std::fs;
use std::process::Command;

use nix::unistd::geteuid;

use super::{Ended, Process, serve, start, waybill};
use crate::support::{ClusterDir, database};

/// Asserts that the server ended with an error that contains these texts.
#[track_caller]
fn assert_refused(started: Result<Process, Ended>, says: &[&str]) {
    let Err(ended) = started else { panic!("it started") };
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    for word in says {
        assert!(ended.stderr.contains(word), "{word} in {}", ended.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_server_on_the_same_directory_is_refused_and_the_first_does_not_notice() {
    let cluster_dir = ClusterDir::with_cluster();
    let first = start(&cluster_dir);
    let id = first.app.publish_tagged("a").await;
    let holder = format!("in use by another Waybill server (process {})", first.pid());
    assert_refused(Process::spawn(serve(&cluster_dir)), &[&holder, "choose another data directory"]);
    assert_eq!(first.app.event(id).await["status"], "PENDING");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_without_postgresql_is_refused_with_what_to_install() {
    let cluster_dir = ClusterDir::new();
    let mut command = serve(&cluster_dir);
    command.env("PATH", "").env("WAYBILL_PG_BIN", cluster_dir.root());
    let bin = cluster_dir.root().display().to_string();
    assert_refused(Process::spawn(command), &["WAYBILL_PG_BIN", &bin, "apt-get install postgresql-15"]);
    assert!(!cluster_dir.data_dir().exists(), "a refusal leaves nothing behind");
}

/// Hides the installed PostgreSQL behind an empty folder, if the kernel allows it.
fn without_postgresql(cluster_dir: &ClusterDir) -> Option<Command> {
    let namespaces: &[&str] =
        if geteuid().is_root() { &["--mount"] } else { &["--user", "--map-root-user", "--mount"] };
    let hide = "mount -t tmpfs none /usr/lib/postgresql";
    let works = Command::new("unshare").args(namespaces).args(["sh", "-c", hide]).status();
    if !works.is_ok_and(|status| status.success()) {
        return None;
    }
    let mut command = Command::new("unshare");
    let script = format!("{hide} && PATH=/usr/bin:/bin exec \"$0\" serve --bind 127.0.0.1:0 --data-dir \"$1\"");
    command.args(namespaces).args(["sh", "-c", &script, env!("CARGO_BIN_EXE_waybill")]).arg(cluster_dir.data_dir());
    Some(command)
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_machine_without_postgresql_the_server_prints_what_to_install() {
    let cluster_dir = ClusterDir::new();
    let Some(mut command) = without_postgresql(&cluster_dir) else {
        eprintln!("not tried: this machine does not let us hide its PostgreSQL");
        return;
    };
    command.env_remove("DATABASE_URL");
    assert_refused(Process::spawn(command), &["apt-get install postgresql-15", "WAYBILL_PG_BIN", "DATABASE_URL"]);
    assert!(!cluster_dir.data_dir().exists(), "a refusal leaves nothing behind");
}

#[tokio::test(flavor = "multi_thread")]
async fn data_of_another_version_names_the_package_that_can_read_it() {
    let cluster_dir = ClusterDir::with_cluster();
    fs::write(cluster_dir.data_dir().join("postgres/PG_VERSION"), "99\n").expect("we may");
    assert_refused(Process::spawn(serve(&cluster_dir)), &["apt-get install postgresql-99"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_is_taken_is_refused_and_no_postgresql_is_left_behind() {
    let cluster_dir = ClusterDir::with_cluster();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let mut command = waybill(&["serve", "--bind", &address, "--data-dir"]);
    command.arg(cluster_dir.data_dir());
    assert_refused(Process::spawn(command), &[&format!("cannot listen on {address}")]);
    assert_eq!(cluster_dir.postmaster(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_is_taken_is_noticed_before_a_database_is_created() {
    let cluster_dir = ClusterDir::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let mut command = waybill(&["serve", "--bind", &address, "--data-dir"]);
    command.arg(cluster_dir.data_dir());
    assert_refused(Process::spawn(command), &[&format!("cannot listen on {address}")]);
    assert!(!cluster_dir.data_dir().exists(), "a refusal leaves nothing behind");
}

fn serve_with_url(url: &str) -> Command {
    let mut command = waybill(&["serve", "--bind", "127.0.0.1:0"]);
    command.env("DATABASE_URL", url);
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_database_url_is_refused_and_not_printed() {
    let Err(ended) = Process::spawn(serve_with_url("postgres//waybill:hunter2@localhost")) else {
        panic!("it started")
    };
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.stderr.contains("DATABASE_URL"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("hunter2"), "{}", ended.stderr);
}

/// A database that cannot be reached yet is waited for; one that refuses the connection is not.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_refuses_the_connection_is_not_waited_for() {
    let url = database::empty().await;
    let wrong = [
        (url.replace("waybill:", "waybill:x"), "password authentication failed"),
        (format!("{url}_but_another"), "does not exist"),
    ];
    for (url, reason) in wrong {
        let started = Process::spawn(serve_with_url(&url));
        assert!(started.as_ref().is_err_and(|ended| !ended.stderr.contains("waiting for the database")));
        assert_refused(started, &[reason]);
    }
}
