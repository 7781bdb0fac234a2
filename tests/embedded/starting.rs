//! First starts and later ones, as root and as an ordinary user.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;

use nix::sys::signal::Signal;
use nix::unistd::geteuid;

use super::{OrdinaryUser, Process, send, serve, start, waybill};
use crate::support::{ClusterDir, database};

#[tokio::test(flavor = "multi_thread")]
async fn a_first_start_needs_no_setup_and_a_later_one_finds_the_data() {
    let cluster_dir = ClusterDir::new();
    let server = start(&cluster_dir);
    let id = server.app.publish_tagged("a").await;
    let data = cluster_dir.data_dir().canonicalize().expect("a folder");
    let mentions = server.stderr().matches(&format!("the data is in {}", data.display())).count();
    assert_eq!(mentions, 1, "{}", server.stderr());
    server.stop().await;
    let server = start(&cluster_dir);
    assert_eq!(server.app.claim("a", "w:1").await.expect("an event")["id"], id);
    server.stop().await;
    let server = start(&cluster_dir);
    server.app.complete(id, "w:1").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ordinary_user_needs_no_arguments() {
    let cluster_dir = ClusterDir::new();
    let user = OrdinaryUser::find();
    let home = user.home(&cluster_dir);
    let start = || {
        let mut command = user.waybill(&cluster_dir, &["serve", "--bind", "127.0.0.1:0"]);
        command.env("HOME", &home).current_dir("/");
        Process::spawn(command).unwrap_or_else(|ended| panic!("{}", ended.stderr))
    };
    let server = start();
    let id = server.app.publish_tagged("a").await;
    let data = home.join(".local/share/waybill");
    assert_eq!(
        fs::metadata(data.join("postgres")).expect("a cluster").uid(),
        fs::metadata(&home).expect("a folder").uid()
    );
    server.stop().await;
    assert_eq!(start().app.event(id).await["status"], "PENDING");
}

#[tokio::test(flavor = "multi_thread")]
async fn postgresql_never_runs_as_root() {
    let cluster_dir = ClusterDir::with_cluster();
    let server = start(&cluster_dir);
    let process = |pid: u32| fs::metadata(format!("/proc/{pid}")).expect("a process").uid();
    let postmaster = process(cluster_dir.postmaster().expect("it runs"));
    assert_ne!(postmaster, 0);
    if !geteuid().is_root() {
        assert_eq!(postmaster, process(server.pid()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_may_come_from_the_environment() {
    let cluster_dir = ClusterDir::with_cluster();
    let mut command = waybill(&["serve"]);
    command.env("WAYBILL_BIND", "127.0.0.1:0").env("WAYBILL_DATA_DIR", cluster_dir.data_dir());
    command.env("WAYBILL_LOG_FORMAT", "json").env("DATABASE_URL", "");
    let server = Process::spawn(command).unwrap_or_else(|ended| panic!("{}", ended.stderr));
    server.app.publish_tagged("a").await;
    for line in server.stderr().lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn port_0_picks_a_port_and_prints_it() {
    let cluster_dir = ClusterDir::with_cluster();
    let server = start(&cluster_dir);
    let port: u16 = server.app.base.strip_prefix("http://127.0.0.1:").expect("an address").parse().expect("a port");
    assert_ne!(port, 0);
    server.app.get("/health").await.expect(200);
    server.app.get("/ready").await.expect(200);
}

/// The address is bound, but the server does not listen yet.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_waits_for_its_database_refuses_connections() {
    let free = || std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let (address, nobody) = (free(), free());
    let mut command = waybill(&["serve", "--bind", &address.to_string()]);
    command.env("DATABASE_URL", format!("postgres://a:b@{nobody}/c")).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    let mut log = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    assert!(log.any(|line| line.expect("text").contains("waiting for the database")));
    let error = std::net::TcpStream::connect(address).expect_err("nobody listens");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    send(child.id(), Signal::SIGTERM);
    assert!(child.wait().expect("our child").success());
}

#[tokio::test(flavor = "multi_thread")]
async fn other_files_in_the_data_directory_are_kept() {
    let cluster_dir = ClusterDir::new();
    let data = cluster_dir.data_dir();
    fs::create_dir_all(data.join("backups")).expect("a folder");
    fs::write(data.join("notes.txt"), "mine").expect("a file");
    fs::write(data.join("backups/monday"), "also mine").expect("a file");
    start(&cluster_dir).stop().await;
    start(&cluster_dir).stop().await;
    assert_eq!(fs::read_to_string(data.join("notes.txt")).expect("a file"), "mine");
    assert_eq!(fs::read_to_string(data.join("backups/monday")).expect("a file"), "also mine");
}

#[tokio::test(flavor = "multi_thread")]
async fn four_servers_may_start_at_once_on_one_empty_database() {
    let url = database::empty().await;
    let starting: Vec<_> = (0..4)
        .map(|_| {
            let mut command = waybill(&["serve", "--bind", "127.0.0.1:0"]);
            command.env("DATABASE_URL", &url);
            std::thread::spawn(|| Process::spawn(command).unwrap_or_else(|ended| panic!("{}", ended.stderr)))
        })
        .collect();
    let servers: Vec<Process> = starting.into_iter().map(|thread| thread.join().expect("a server")).collect();
    for server in &servers {
        server.app.get("/ready").await.expect(200);
        server.app.publish_tagged("a").await;
    }
    assert_eq!(servers[0].app.claim_batch("a", "w:1", 10).await.len(), servers.len());
    for server in servers {
        assert!(!server.stderr().contains("ERROR"), "{}", server.stderr());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_a_database_url_starts_no_postgresql() {
    let cluster_dir = ClusterDir::new();
    let mut command = serve(&cluster_dir);
    command.env("DATABASE_URL", database::empty().await);
    let server = Process::spawn(command).unwrap_or_else(|ended| panic!("{}", ended.stderr));
    server.app.publish_tagged("a").await;
    assert!(!cluster_dir.data_dir().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_embedded_postgresql_allows_as_many_connections_as_the_server_may_use() {
    let cluster_dir = ClusterDir::with_cluster();
    let mut command = serve(&cluster_dir);
    command.args(["--db-connections", "200"]);
    let _server = Process::start(command);
    let allowed = database::count(&cluster_dir.url(), "SELECT current_setting('max_connections')").await;
    assert!(allowed >= 202, "{allowed}");
}
