//! `waybill` as its users run it: a process of its own, with a PostgreSQL of its own.

mod commands;
mod crashes;
mod refusals;
mod starting;
mod stopping;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User, geteuid};
use tempfile::NamedTempFile;

use crate::support::{App, Place, until};

/// `waybill`, with nothing in its environment that could lead it elsewhere.
fn waybill(arguments: &[&str]) -> Command {
    waybill_at(Path::new(env!("CARGO_BIN_EXE_waybill")), arguments)
}

fn waybill_at(program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    command
}

/// `waybill serve` on a data directory and a port of its own.
fn serve(place: &Place) -> Command {
    let mut command = waybill(&["serve", "--bind", "127.0.0.1:0", "--data-dir"]);
    command.arg(place.data_dir());
    command
}

/// The user `nobody` where the tests run as root, else whoever runs them.
struct OrdinaryUser(Option<User>);

impl OrdinaryUser {
    fn find() -> Self {
        Self(geteuid().is_root().then(|| User::from_name("nobody").ok().flatten().expect("a user `nobody`")))
    }

    /// A folder of the user's own.
    fn home(&self, place: &Place) -> PathBuf {
        let home = place.root().join("home");
        fs::create_dir(&home).expect("a folder");
        if let Some(user) = &self.0 {
            std::os::unix::fs::chown(&home, Some(user.uid.as_raw()), Some(user.gid.as_raw())).expect("we are root");
        }
        home
    }

    /// `waybill`, run as this user. The build may lie where only its owner can go.
    fn waybill(&self, place: &Place, arguments: &[&str]) -> Command {
        let program = place.root().join("waybill");
        if !program.exists() {
            fs::copy(env!("CARGO_BIN_EXE_waybill"), &program).expect("a copy");
        }
        let mut command = waybill_at(&program, arguments);
        if let Some(user) = &self.0 {
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
        command
    }
}

/// A running `waybill serve`. Stopped, if it still runs, when it is dropped.
struct Process {
    child: Child,
    app: App,
    stderr: NamedTempFile,
}

/// A `waybill` that has ended, and what it said.
struct Ended {
    status: ExitStatus,
    stderr: String,
}

impl Process {
    /// Starts a server on a data directory.
    fn start(place: &Place) -> Self {
        Self::spawn(serve(place)).unwrap_or_else(|ended| panic!("{}: {}", ended.status, ended.stderr))
    }

    /// Returns when the server has said where it listens, or has ended.
    fn spawn(mut command: Command) -> Result<Self, Ended> {
        let stderr = NamedTempFile::new().expect("a file");
        let log = stderr.reopen().expect("the same file");
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn().expect("it runs");
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        stdout.read_line(&mut line).expect("text");
        let Some(base) = line.trim().strip_prefix("waybill is listening on ").map(str::to_owned) else {
            let status = child.wait().expect("our child");
            return Err(Ended { status, stderr: fs::read_to_string(stderr.path()).expect("text") });
        };
        let client = reqwest::Client::builder().no_proxy().build().expect("a client");
        Ok(Self { child, app: App { server: None, url: String::new(), base, client }, stderr })
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn stderr(&self) -> String {
        fs::read_to_string(self.stderr.path()).expect("text")
    }

    /// Waits for it to end by itself.
    async fn exit(&mut self) -> ExitStatus {
        let mut status = None;
        until("it ends", async || {
            status = self.child.try_wait().expect("our child");
            status.is_some()
        })
        .await;
        status.expect("it ended")
    }

    async fn kill_9(mut self) {
        send(self.pid(), Signal::SIGKILL);
        self.exit().await;
    }

    async fn stop(mut self) {
        send(self.pid(), Signal::SIGTERM);
        assert!(self.exit().await.success(), "{}", self.stderr());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            send(self.pid(), Signal::SIGTERM);
            let _ = self.child.wait();
        }
    }
}

fn send(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.cast_signed()), signal).unwrap_or_else(|error| panic!("{signal} to {pid}: {error}"));
}

/// Whether a process runs; one that merely waits to be reaped does not.
fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
}

async fn until_gone(pid: u32) {
    until("the process is gone", async || !is_alive(pid)).await;
}

/// Runs a command that ends by itself.
fn run(mut command: Command) -> (Ended, String) {
    let output = command.stdin(Stdio::null()).output().expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (Ended { status: output.status, stderr: text(output.stderr) }, text(output.stdout))
}
