//! `waybill` in its own process.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::NamedTempFile;

use super::{App, http_client, until};

/// Returns a `waybill` command whose environment holds nothing but `PATH`.
pub(crate) fn waybill(arguments: &[&str]) -> Command {
    waybill_at(Path::new(env!("CARGO_BIN_EXE_waybill")), arguments)
}

pub(crate) fn waybill_at(program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    command
}

/// A running `waybill serve`. It is stopped when it is dropped.
pub(crate) struct Process {
    child: Child,
    pub app: App,
    stderr: NamedTempFile,
}

/// A `waybill` that has ended, with what it printed.
pub(crate) struct Ended {
    pub status: ExitStatus,
    pub stderr: String,
}

impl Process {
    /// Starts a server and panics if it does not start.
    pub(crate) fn start(command: Command) -> Self {
        Self::spawn(command).unwrap_or_else(|ended| panic!("{}: {}", ended.status, ended.stderr))
    }

    /// Returns when the server has printed its address, or has ended.
    pub(crate) fn spawn(mut command: Command) -> Result<Self, Ended> {
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
        let client = http_client();
        Ok(Self { child, app: App { server: None, url: String::new(), base, client }, stderr })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn stderr(&self) -> String {
        fs::read_to_string(self.stderr.path()).expect("text")
    }

    /// Waits until the process ends on its own.
    pub(crate) async fn exit(&mut self) -> ExitStatus {
        let mut status = None;
        until("it ends", async || {
            status = self.child.try_wait().expect("our child");
            status.is_some()
        })
        .await;
        status.expect("it ended")
    }

    pub(crate) async fn kill_9(mut self) {
        send(self.pid(), Signal::SIGKILL);
        self.exit().await;
    }

    pub(crate) async fn stop(mut self) {
        send(self.pid(), Signal::SIGTERM);
        assert!(self.exit().await.success(), "{}", self.stderr());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            send(self.pid(), Signal::SIGTERM);
            // A test that failed may have left it suspended.
            send(self.pid(), Signal::SIGCONT);
            let _ = self.child.wait();
        }
    }
}

pub(crate) fn send(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.cast_signed()), signal).unwrap_or_else(|error| panic!("{signal} to {pid}: {error}"));
}
