//! `waybill backup` and `waybill restore`, as operators run them.

mod files;
mod killed;
mod majors;
mod targets;
mod under_load;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::ClusterDir;
use crate::support::process::{Process, waybill};

/// The database that a command works on.
enum Place<'a> {
    Embedded(&'a ClusterDir),
    Url(&'a str),
}

impl Place<'_> {
    fn add_to(&self, command: &mut Command) {
        match self {
            Place::Embedded(cluster_dir) => command.arg("--data-dir").arg(cluster_dir.data_dir()),
            Place::Url(url) => command.env("DATABASE_URL", url),
        };
    }

    fn backup(&self, target: &Path) -> Command {
        let mut command = waybill(&["backup", "--json"]);
        command.arg(target);
        self.add_to(&mut command);
        command
    }

    fn restore(&self, file: &Path) -> Command {
        let mut command = waybill(&["restore", "--json"]);
        command.arg(file);
        self.add_to(&mut command);
        command
    }

    /// Starts a server on it.
    fn serve(&self, flags: &[&str]) -> Process {
        let mut command = waybill(&["serve", "--bind", "127.0.0.1:0"]);
        command.args(flags);
        self.add_to(&mut command);
        let mut server = tokio::task::block_in_place(|| Process::start(command));
        server.app.url = match self {
            Place::Embedded(cluster_dir) => cluster_dir.url(),
            Place::Url(url) => (*url).to_owned(),
        };
        server
    }
}

/// Runs a command to its end, away from the threads that serve the test.
async fn run(mut command: Command) -> Output {
    let running = tokio::task::spawn_blocking(move || command.stdin(Stdio::null()).output().expect("it runs"));
    running.await.expect("a result")
}

/// Runs a command that must succeed. Returns the JSON that it prints.
async fn summary_of(command: Command) -> Value {
    let output = run(command).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON and nothing else")
}

/// Runs a command that must fail and print these words.
async fn refused(command: Command, words: &[&str]) {
    let output = run(command).await;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    for word in words {
        assert!(stderr.contains(word), "{word} in {stderr}");
    }
    assert_eq!(output.stdout, b"", "a failure prints no summary");
}

/// Writes a script into a folder of programs. `$REAL` is the folder of the real ones.
fn write_program(folder: &TempDir, name: &str, script: &str) {
    let path = folder.path().join(name);
    let real = real_programs().display().to_string();
    fs::write(&path, format!("#!/bin/sh\nREAL='{real}'\n{script}\n")).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("our file");
}

/// Returns a folder of client programs of which `name` runs `script` unless it is asked for its version.
fn programs_with(name: &str, script: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for program in ["pg_dump", "pg_restore", "psql"] {
        write_program(&folder, program, &format!("exec \"$REAL/{program}\" \"$@\""));
    }
    let version = format!("if [ \"$1\" = --version ]; then exec \"$REAL/{name}\" --version; fi");
    write_program(&folder, name, &format!("{version}\n{script}"));
    folder
}

fn real_programs() -> PathBuf {
    crate::support::database::cluster().bin_dir().to_path_buf()
}
