//! `waybill work`, with real programs against a real server.

mod fields;
mod nothing_lost;
mod outages;
mod outcomes;
mod stopping;

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::Arc;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::{NamedTempFile, TempDir};

use crate::support::process::{send, waybill};
use crate::support::{App, until};

/// A running `waybill work --tags a`, whose program is a script. It is killed when it is dropped.
struct Working {
    child: Child,
    stderr: NamedTempFile,
    /// A folder of the script, which is its variable `$FOLDER`.
    folder: Arc<TempDir>,
}

impl Working {
    fn start(url: &str, flags: &[&str], script: &str) -> Self {
        Self::with_key(url, None, flags, script)
    }

    fn with_key(url: &str, key: Option<&str>, flags: &[&str], script: &str) -> Self {
        let arguments = [&["work", "--tags", "a"], flags, &["--", "sh", "-c", script]].concat();
        Self::in_folder(url, key, tempfile::tempdir().expect("a folder").into(), &arguments)
    }

    /// Runs a worker whose script shares its folder with others.
    fn in_folder(url: &str, key: Option<&str>, folder: Arc<TempDir>, arguments: &[&str]) -> Self {
        let stderr = NamedTempFile::new().expect("a file");
        let mut command = waybill(arguments);
        command.env("WAYBILL_URL", url).envs(key.map(|key| ("WAYBILL_KEY", key))).env("FOLDER", folder.path());
        let log = stderr.reopen().expect("the same file");
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("it runs");
        Working { child, stderr, folder }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Waits for a file of the script, and returns what is in it.
    async fn written(&self, name: &str) -> String {
        let read = || fs::read_to_string(self.file(name)).unwrap_or_default();
        until("the script writes", async || read().ends_with('\n')).await;
        read().trim().to_owned()
    }

    /// Creates a file that the script waits for.
    fn allow(&self, name: &str) {
        fs::write(self.file(name), "").expect("a file");
    }

    fn send(&self, signal: Signal) {
        send(self.child.id(), signal);
    }

    fn stderr(&self) -> String {
        fs::read_to_string(self.stderr.path()).expect("text")
    }

    async fn until_logged(&self, text: &str) {
        until("it is logged", async || self.stderr().contains(text)).await;
    }

    /// Waits until it ends by itself.
    async fn exit_code(&mut self) -> Option<i32> {
        until("it ends", async || self.child.try_wait().expect("our child").is_some()).await;
        self.child.wait().expect("our child").code()
    }

    /// Asks it to stop, and asserts that it does so in order.
    async fn stop(mut self) {
        self.send(Signal::SIGTERM);
        assert_eq!(self.exit_code().await, Some(0), "{}", self.stderr());
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn publish(app: &App, payload: Value) -> i64 {
    app.publish(json!({"title": "a job", "tags": "a", "payload": payload})).await
}

async fn until_status(app: &App, id: i64, status: &str) {
    until(&format!("the event is {status}"), async || app.status(id).await == status).await;
}

/// Returns whether a process exists.
fn exists(pid: &str) -> bool {
    kill(Pid::from_raw(pid.parse().expect("a pid")), None).is_ok()
}
