//! The command line: the real program against a real server, at 80 columns.
//!
//! A server of these tests has a clock that stands three hours in the past, so that `3h ago` is what tables say however
//! long a test takes.

mod documented;
mod documents;
mod events;
mod failures;
mod nouns;
mod observe;
mod publish;
mod tail;
mod terminal;

use std::io::Write;
use std::process::{Output, Stdio};

use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};

use crate::support::App;
use crate::support::process::waybill;

/// Starts a server whose clock stands still, three hours ago.
async fn start() -> App {
    let app = App::with_fixed_clock().await;
    app.advance(-3 * 3600);
    app
}

/// What a command did.
struct Ran {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Ran {
    fn of(output: Output) -> Self {
        Ran {
            code: output.status.code().expect("it exited"),
            stdout: String::from_utf8(output.stdout).expect("text"),
            stderr: String::from_utf8(output.stderr).expect("text"),
        }
    }

    /// Asserts that the command succeeded, and returns what it printed.
    #[track_caller]
    fn expect_success(self) -> String {
        assert_eq!(self.code, 0, "{}{}", self.stdout, self.stderr);
        self.stdout
    }

    /// Asserts that the command failed with this code, and returns what it said.
    #[track_caller]
    fn expect_code(self, code: i32) -> String {
        assert_eq!(self.code, code, "{}{}", self.stdout, self.stderr);
        self.stderr
    }
}

/// Runs `waybill` with these arguments against a server, without a terminal.
async fn run(app: &App, arguments: &[&str]) -> Ran {
    run_with(&app.base, &[], arguments, Vec::new()).await
}

/// Runs `waybill` with a key.
async fn run_as(app: &App, key: &str, arguments: &[&str]) -> Ran {
    run_with(&app.base, &[("WAYBILL_KEY", key)], arguments, Vec::new()).await
}

/// Runs `waybill` with variables, and with this as its standard input.
async fn run_with(url: &str, variables: &[(&str, &str)], arguments: &[&str], stdin: Vec<u8>) -> Ran {
    let mut command = waybill(arguments);
    command.env("WAYBILL_URL", url).env("COLUMNS", "80").envs(variables.iter().copied());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // The server runs in this process: its threads must not wait for the program.
    let ran = tokio::task::spawn_blocking(move || {
        let mut child = command.spawn().expect("it runs");
        let mut pipe = child.stdin.take().expect("a pipe");
        // A program that refuses its arguments reads nothing.
        let writer = std::thread::spawn(move || drop(pipe.write_all(&stdin)));
        let output = child.wait_with_output().expect("it ends");
        writer.join().expect("it was written");
        output
    });
    Ran::of(ran.await.expect("it ran"))
}

/// Runs `waybill … --json`, and returns what it printed.
async fn json(app: &App, arguments: &[&str]) -> Value {
    let text = run(app, &[arguments, &["--json"]].concat()).await.expect_success();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Starts a proxy in front of a server that swallows the answer to its first request. Returns its URL.
async fn forgetful_proxy(base: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let server = base.trim_start_matches("http://").to_owned();
    tokio::spawn(async move {
        let mut is_first = true;
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(&server).await.expect("the server");
            tokio::spawn(carry(client, server, std::mem::take(&mut is_first)));
        }
    });
    url
}

/// Carries requests and answers, or only a request: as soon as it is answered, the client is left.
async fn carry(mut client: TcpStream, mut server: TcpStream, is_forgetful: bool) {
    if !is_forgetful {
        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
        return;
    }
    let (mut from_client, _to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let mut answer = [0; 1];
    tokio::select! {
        _ = tokio::io::copy(&mut from_client, &mut to_server) => {}
        _ = from_server.read_exact(&mut answer) => {}
    }
}
