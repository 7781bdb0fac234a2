//! Killed servers and killed PostgreSQL processes. What was acknowledged is still there.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use nix::unistd::geteuid;
use serde_json::json;

use super::{Process, send, serve, start, until_gone};
use crate::support::{ClusterDir, until};

/// Kills both at the same time: the server must not have the time to start PostgreSQL again.
async fn kill_both(server: Process, cluster_dir: &ClusterDir) {
    let postmaster = cluster_dir.postmaster().expect("it runs");
    send(server.pid(), Signal::SIGSTOP);
    send(postmaster, Signal::SIGKILL);
    server.kill_9().await;
    until_gone(postmaster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_servers_postgresql_ends_too_and_the_next_server_finds_all_data() {
    let cluster_dir = ClusterDir::with_cluster();
    let server = start(&cluster_dir);
    let postmaster = cluster_dir.postmaster().expect("it runs");
    let id = server.app.publish_tagged("a").await;
    server.app.claim("a", "w:1").await.expect("an event");
    server.kill_9().await;
    until_gone(postmaster).await;
    let server = start(&cluster_dir);
    assert_eq!(server.app.event(id).await["status"], "PROCESSING");
    server.app.complete(id, "w:1").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_started_right_after_a_killed_one_waits_for_its_postgresql_to_end() {
    let cluster_dir = ClusterDir::with_cluster();
    let server = start(&cluster_dir);
    let id = server.app.publish_tagged("a").await;
    server.kill_9().await;
    assert_eq!(start(&cluster_dir).app.event(id).await["status"], "PENDING");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_server_restarts_a_killed_postgresql() {
    let cluster_dir = ClusterDir::with_cluster();
    let server = start(&cluster_dir);
    let event = json!({"title": "t", "tags": "a"});
    for _ in 0..2 {
        let acknowledged = server.app.publish_tagged("a").await;
        let killed = cluster_dir.postmaster().expect("it runs");
        send(killed, Signal::SIGKILL);
        until_gone(killed).await;
        let reply = server.app.post("/events", &event).await;
        if reply.status != 201 {
            // The request may have been sent to a process that was about to die.
            let is_unknown = reply.json()["code"] == "outcome_unknown";
            reply.problem(503, if is_unknown { "outcome_unknown" } else { "database_unavailable" });
        }
        until("work continues", async || server.app.post("/events", &event).await.status == 201).await;
        assert_eq!(server.app.event(acknowledged).await["status"], "PENDING");
        assert_ne!(cluster_dir.postmaster(), Some(killed));
    }
    server.app.get("/ready").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_and_a_postgresql_killed_together_recover() {
    let cluster_dir = ClusterDir::with_cluster();
    let server = start(&cluster_dir);
    let id = server.app.publish_tagged("a").await;
    kill_both(server, &cluster_dir).await;
    assert!(cluster_dir.postmaster().is_some(), "its pid file is left behind");
    assert_eq!(start(&cluster_dir).app.event(id).await["status"], "PENDING");
}

/// After a power cut the recorded pid may belong to any process, and PostgreSQL alone would refuse
/// to start as long as that process lives.
#[tokio::test(flavor = "multi_thread")]
async fn a_stale_pid_file_that_names_another_process_does_not_prevent_a_start() {
    let cluster_dir = ClusterDir::with_cluster();
    let server = start(&cluster_dir);
    let id = server.app.publish_tagged("a").await;
    kill_both(server, &cluster_dir).await;
    let owner = fs::metadata(cluster_dir.data_dir().join("postgres")).expect("a cluster");
    let mut stranger = Command::new("sleep");
    stranger.arg("600");
    if geteuid().is_root() {
        stranger.uid(owner.uid()).gid(owner.gid());
    }
    let mut stranger = stranger.spawn().expect("it runs");
    for file in ["postgres/postmaster.pid", "run/.s.PGSQL.5432.lock"].map(|file| cluster_dir.data_dir().join(file)) {
        let text = fs::read_to_string(&file).expect("it is left behind");
        let (_, rest) = text.split_once('\n').expect("several lines");
        fs::write(&file, format!("{}\n{rest}", stranger.id())).expect("we may");
    }
    let next = Process::spawn(serve(&cluster_dir));
    stranger.kill().expect("our child");
    stranger.wait().expect("our child");
    let next = next.unwrap_or_else(|ended| panic!("{}", ended.stderr));
    assert_eq!(next.app.event(id).await["status"], "PENDING");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_while_it_creates_the_database_can_be_started_again() {
    let cluster_dir = ClusterDir::new();
    let mut child = serve(&cluster_dir).stderr(Stdio::null()).spawn().expect("it runs");
    until("the database is being created", async || cluster_dir.data_dir().join("postgres.init/base").exists()).await;
    send(child.id(), Signal::SIGKILL);
    child.wait().expect("our child");
    start(&cluster_dir).app.publish_tagged("a").await;
    assert!(!cluster_dir.data_dir().join("postgres.init").exists());
}
