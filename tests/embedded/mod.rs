//! `waybill` as its users run it: a separate process with its embedded PostgreSQL.

mod commands;
mod crashes;
mod keys;
mod refusals;
mod removed;
mod starting;
mod stopping;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use nix::unistd::{User, geteuid};

use crate::support::process::{Ended, Process, send, waybill, waybill_at};
use crate::support::{ClusterDir, until};

/// Returns `waybill serve` on a data directory and a free port.
fn serve(cluster_dir: &ClusterDir) -> Command {
    let mut command = waybill(&["serve", "--bind", "127.0.0.1:0", "--data-dir"]);
    command.arg(cluster_dir.data_dir());
    command
}

/// Starts a server on a data directory.
fn start(cluster_dir: &ClusterDir) -> Process {
    Process::start(serve(cluster_dir))
}

/// The user `nobody` if the tests run as root, otherwise the user that runs them.
struct OrdinaryUser(Option<User>);

impl OrdinaryUser {
    fn find() -> Self {
        Self(geteuid().is_root().then(|| User::from_name("nobody").ok().flatten().expect("a user `nobody`")))
    }

    /// Creates a folder that belongs to the user.
    fn home(&self, cluster_dir: &ClusterDir) -> PathBuf {
        let home = cluster_dir.root().join("home");
        fs::create_dir(&home).expect("a folder");
        if let Some(user) = &self.0 {
            std::os::unix::fs::chown(&home, Some(user.uid.as_raw()), Some(user.gid.as_raw())).expect("we are root");
        }
        home
    }

    /// Returns a `waybill` command run as this user. It is a copy, because only the owner may be
    /// able to reach the build.
    fn waybill(&self, cluster_dir: &ClusterDir, arguments: &[&str]) -> Command {
        let program = cluster_dir.root().join("waybill");
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

/// Returns whether a process runs; a zombie does not.
fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
}

async fn until_gone(pid: u32) {
    until("the process is gone", async || !is_alive(pid)).await;
}

/// Runs a command to its end.
fn run(mut command: Command) -> (Ended, String) {
    let output = command.stdin(Stdio::null()).output().expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (Ended { status: output.status, stderr: text(output.stderr) }, text(output.stdout))
}
