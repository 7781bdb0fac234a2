//! The walk-throughs of the README and of sources, pasted into a shell as they are printed.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::support::process::{Process, waybill};
use crate::support::{database, until};

const README: &str = include_str!("../../README.md");

const SOURCES: &str = include_str!("../../docs/sources.md");

/// Returns the blocks of shell commands in a section.
fn blocks_of(heading: &str) -> Vec<&'static str> {
    blocks_in(README, heading)
}

fn blocks_in(document: &'static str, heading: &str) -> Vec<&'static str> {
    let (_, section) = document.split_once(&format!("\n## {heading}\n")).expect(heading);
    let section = section.split("\n## ").next().unwrap_or_default();
    let blocks: Vec<&str> =
        section.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default()).collect();
    assert!(!blocks.is_empty(), "{heading}");
    blocks
}

/// Runs blocks in one shell, against this server instead of the one on port 8080.
fn paste(server: &Process, blocks: &[&str]) -> String {
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
    let script = blocks
        .concat()
        .replace("localhost:8080", server.app.base.trim_start_matches("http://"))
        .replace("9000", &port.to_string());
    let mut command = Command::new("sh");
    command.args(["-eu", "-c", &script]).current_dir(env!("CARGO_MANIFEST_DIR")).stdin(Stdio::null());
    let output = command.output().expect("a shell");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {out}\n{err}\n{script}", output.status);
    assert!(!out.contains("/problems/"), "{out}");
    assert_eq!(err, "");
    out.into_owned()
}

fn serve(url: &str, variables: &[(&str, &str)]) -> Process {
    let mut command = waybill(&["serve", "--bind", "127.0.0.1:0"]);
    command.env("DATABASE_URL", url).envs(variables.iter().copied());
    Process::start(command)
}

/// Returns how many rows of a terminal of 80 columns a text takes.
fn rows(text: &str) -> usize {
    text.lines().map(|line| line.chars().count().max(1).div_ceil(80)).sum()
}

#[test]
fn the_first_screen_shows_how_any_program_becomes_a_worker() {
    let (before, _) = README.split_once("\nwaybill work ").expect("the command");
    assert!(rows(before) < 20, "{}", rows(before));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_commands_can_be_pasted() {
    let url = database::empty().await;
    let server = serve(&url, &[]);
    let block = README.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a block");
    let programs = Path::new(env!("CARGO_BIN_EXE_waybill")).parent().expect("a folder");
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").expect("a path"));
    let mut command = Command::new("sh");
    command.args(["-eu", "-c", block]).current_dir(env!("CARGO_MANIFEST_DIR")).env("PATH", path);
    command.env("WAYBILL_URL", &server.app.base).env_remove("WAYBILL_KEY").stdin(Stdio::null());
    // A group of its own, which the terminal of a reader would signal.
    let mut shell = command.stdout(Stdio::null()).process_group(0).spawn().expect("a shell");
    let completed = "SELECT count(*) FROM waybill.deliveries WHERE status = 'COMPLETED'";
    until("the event is completed", async || database::count(&url, completed).await == 1).await;
    let id = database::count(&url, "SELECT max(id) FROM waybill.events").await;
    assert_eq!(server.app.event(id).await["result"], serde_json::json!({"resized": 17}));
    killpg(Pid::from_raw(shell.id().cast_signed()), Signal::SIGINT).expect("the group");
    until("it ends", async || shell.try_wait().expect("our child").is_some()).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_walk_through_of_an_event_can_be_pasted_repeatedly() {
    let server = serve(&database::empty().await, &[]);
    for _ in 0..2 {
        let printed = paste(&server, &blocks_of("An event's life, with `curl`"));
        let trail = printed.rsplit("\"logs\":").next().expect("a trail");
        let actions: Vec<&str> =
            trail.split("\"action\":\"").skip(1).map(|rest| rest.split('"').next().unwrap_or_default()).collect();
        assert_eq!(actions, ["PICKED", "FAILED", "PICKED", "COMPLETED"], "{printed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_walk_through_of_sending_twice_and_of_a_webhook_can_be_pasted() {
    let url = database::empty().await;
    let server = serve(&url, &[]);
    let life = blocks_of("An event's life, with `curl`");
    let define_field = life.first().expect("blocks");
    let printed = paste(&server, &[&[*define_field], blocks_of("Send twice, count once").as_slice()].concat());
    let statuses: Vec<&str> = printed.lines().filter(|line| line.len() == 3).collect();
    assert_eq!(statuses, ["201", "200", "202"], "{printed}");
    assert!(printed.contains(r#""event_type":"push""#), "{printed}");
    assert_eq!(database::count(&url, "SELECT count(*) FROM waybill.events").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_walk_through_of_a_push_can_be_pasted() {
    let blocks = blocks_of("An event pushed");
    let (start, paste_these) = blocks.split_first().expect("blocks");
    let setting = start.strip_suffix(" make run\n").expect("how to start the server");
    let server = serve(&database::empty().await, &[setting.split_once('=').expect("a setting")]);
    let printed = paste(&server, paste_these);
    let last = printed.lines().last().expect("what the receiver printed");
    assert!(last.contains("verified evt_"), "{printed}");
    assert!(last.ends_with(r#"{"order": 17, "amount": 99.90}"#), "{printed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_three_commands_about_keys_can_be_pasted() {
    let server = serve(&database::empty().await, &[]);
    server.app.publish_tagged("images").await;
    let script = blocks_of("Keys in three commands")
        .concat()
        .replace("localhost:8080", server.app.base.trim_start_matches("http://"))
        .replace("target/release/waybill", env!("CARGO_BIN_EXE_waybill"));
    let mut command = Command::new("sh");
    command.args(["-eu", "-c", &script]).env("WAYBILL_URL", &server.app.base).env_remove("WAYBILL_KEY");
    let output = command.stdin(Stdio::null()).output().expect("a shell");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    assert!(out.contains("\"status\":\"PROCESSING\""), "{out}\n{err}");
    server.app.get("/events").await.problem(401, "unauthenticated");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_webhook_that_is_signed_as_github_does_can_be_pasted() {
    let server = serve(&database::empty().await, &[]);
    let printed = paste(&server, &blocks_in(SOURCES, "A webhook from GitHub, by hand"));
    assert!(printed.starts_with("HTTP/1.1 202 Accepted"), "{printed}");
    assert!(printed.contains("\"event_type\":\"push\"") && printed.contains("\"payload\":{\"ref\": "), "{printed}");
}
