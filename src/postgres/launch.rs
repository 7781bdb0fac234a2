//! One run of the server process: spawn it, read its stderr, signal it, wait for its exit.
//!
//! `postgres` is started directly, not through `pg_ctl`. This makes it a child of this process: its
//! exit status is available, and the kernel can signal it when this process dies.

use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::error::PostgresError;
use super::owner::Owner;
use super::settings;
use super::stderr::Stderr;

/// The time to wait for the last output of an exited process.
const LAST_LINE: Duration = Duration::from_secs(1);

/// The parameters for starting the server, once or repeatedly.
#[derive(Debug)]
pub(super) struct Launch {
    pub(super) program: PathBuf,
    pub(super) cluster: PathBuf,
    pub(super) socket_dir: PathBuf,
    pub(super) settings: Vec<(String, String)>,
    pub(super) owner: Owner,
}

impl Launch {
    /// Starts the server. `wake` is called when the server is ready and when its output ends.
    pub(super) fn spawn(&self, wake: impl Fn() + Send + 'static) -> Result<Postmaster, PostgresError> {
        let mut command = self.command();
        let mut child = command.spawn().map_err(PostgresError::io("run", &self.program))?;
        let pipe = child.stderr.take();
        let stderr = Arc::new(Stderr::default());
        let postmaster = Postmaster { child, stderr: Arc::clone(&stderr) };
        // `command` configures the pipe, so it is always `Some`.
        if let Some(Err(error)) = pipe.map(|pipe| stderr.listen(pipe, wake)) {
            // Without a reader the server would block on a full pipe, and no thread would reap it.
            postmaster.shut_down()?;
            return Err(PostgresError::io("listen to", &self.program)(error));
        }
        Ok(postmaster)
    }

    fn command(&self) -> Command {
        let mut command = self.owner.command(&self.program);
        command
            .arg("-D")
            .arg(&self.cluster)
            .args(settings::arguments(&self.socket_dir, &self.settings))
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        if let Some(pid) = recycled_pid(&self.cluster) {
            // PostgreSQL then treats this pid as its own ancestor and not as another server.
            command.env("PG_GRANDPARENT_PID", pid.to_string());
        }
        die_with_parent(&mut command, ParentDeath::Stop);
        command
    }
}

/// A server process and its output.
#[derive(Debug)]
pub(super) struct Postmaster {
    child: Child,
    stderr: Arc<Stderr>,
}

impl Postmaster {
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn stderr(&self) -> &Stderr {
        &self.stderr
    }

    pub(super) fn exited(&mut self) -> Option<ExitStatus> {
        match self.child.try_wait() {
            Ok(status) => status,
            // The child was reaped elsewhere: it has exited with an unknown status.
            Err(_) => Some(ExitStatus::from_raw(0)),
        }
    }

    /// Returns the last output of an exited process, after its pipe has closed.
    pub(super) fn last_output(&self) -> String {
        self.stderr.wait_closed(LAST_LINE);
        self.stderr.last_lines()
    }

    /// Stops the server: SIGINT (fast shutdown: disconnect clients, checkpoint, exit), then SIGQUIT
    /// (immediate shutdown, recovery at the next start), then SIGKILL.
    pub(super) fn shut_down(self) -> Result<(), PostgresError> {
        // On SIGQUIT the server gives its own children 5 s before it kills them.
        self.end_by(&[(Signal::SIGINT, 5), (Signal::SIGQUIT, 7), (Signal::SIGKILL, 5)])
    }

    /// Stops the server without a checkpoint, because its data directory no longer exists.
    pub(super) fn abort(self) -> Result<(), PostgresError> {
        self.end_by(&[(Signal::SIGQUIT, 7), (Signal::SIGKILL, 5)])
    }

    fn end_by(mut self, signals: &[(Signal, u64)]) -> Result<(), PostgresError> {
        for &(signal, seconds) in signals {
            self.signal(signal);
            if self.exits_within(Duration::from_secs(seconds)) {
                return Ok(());
            }
            log::warn!(pid = self.pid(); "PostgreSQL did not stop within {seconds} s of {signal}");
        }
        Err(PostgresError::NotStopped { pid: self.pid() })
    }

    /// Sends a signal. Only the thread that reaps the process calls this, so the pid cannot belong to
    /// another process.
    fn signal(&mut self, signal: Signal) {
        if self.exited().is_some() {
            return;
        }
        // A pid from the kernel always fits.
        let pid = Pid::from_raw(self.pid().cast_signed());
        if let Err(error) = kill(pid, signal) {
            log::warn!(pid = self.pid(); "cannot send {signal} to PostgreSQL: {error}");
        }
    }

    fn exits_within(&mut self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        while self.exited().is_none() {
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(Duration::from_millis(5));
        }
        true
    }
}

pub(super) fn is_missing(cluster: &Path) -> bool {
    std::fs::metadata(cluster.join("PG_VERSION")).is_err_and(|error| is_absent(&error))
}

fn is_absent(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// Whether a cluster no longer belongs to this server: it was removed, or replaced by another cluster.
/// Returns `false` if the file cannot be read for any other reason.
pub(super) fn has_lost(cluster: &Path, pid: u32) -> bool {
    match std::fs::read_to_string(cluster.join("postmaster.pid")) {
        Ok(text) => {
            text.lines().next().and_then(|line| line.trim().parse().ok()).is_some_and(|other: u32| other != pid)
        }
        Err(error) => is_absent(&error),
    }
}

/// Returns the pid in `postmaster.pid`.
pub(super) fn recorded_pid(cluster: &Path) -> Option<u32> {
    let text = std::fs::read_to_string(cluster.join("postmaster.pid")).ok()?;
    text.lines().next()?.trim().parse().ok()
}

/// Returns the recorded pid if it now belongs to a process that is certainly not a server of this
/// cluster. After a power cut, or in a container, where pids repeat, the pid may belong to any process,
/// even to a thread of this one, and PostgreSQL would refuse to start as long as that process runs. A
/// server has the cluster as its working directory, so a process with another one is not a server. If the
/// working directory cannot be read, the process is treated as a server.
#[cfg(target_os = "linux")]
fn recycled_pid(cluster: &Path) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    let pid = recorded_pid(cluster)?;
    let own = std::fs::metadata(cluster).ok()?;
    let other = std::fs::metadata(format!("/proc/{pid}/cwd")).ok()?;
    ((own.dev(), own.ino()) != (other.dev(), other.ino())).then_some(pid)
}

#[cfg(not(target_os = "linux"))]
fn recycled_pid(_cluster: &Path) -> Option<u32> {
    None
}

/// How the kernel ends a child when this process dies, even by `kill -9`.
#[derive(Debug, Clone, Copy)]
pub(super) enum ParentDeath {
    Stop,
    Kill,
}

/// Ends the child when the spawning *thread* ends: the kernel ties the signal to the thread, so the thread
/// must live as long as the child is needed. A change of user clears the setting, so it must be made
/// afterwards; std runs `pre_exec` last.
#[cfg(target_os = "linux")]
pub(super) fn die_with_parent(command: &mut Command, death: ParentDeath) {
    use std::os::unix::process::CommandExt;
    let signal = match death {
        ParentDeath::Stop => Signal::SIGINT,
        ParentDeath::Kill => Signal::SIGKILL,
    };
    let parent = nix::unistd::getpid();
    let arm = move || {
        nix::sys::prctl::set_pdeathsig(signal)?;
        // If the parent died between fork and this point, the signal will never arrive.
        if nix::unistd::getppid() != parent {
            return Err(std::io::Error::from_raw_os_error(nix::errno::Errno::ESRCH as i32));
        }
        Ok(())
    };
    #[expect(unsafe_code, reason = "a hook between fork and exec has no safe interface")]
    // SAFETY: the hook runs in the forked child, where only async-signal-safe calls are allowed. It makes
    // two system calls and allocates nothing.
    unsafe {
        command.pre_exec(arm)
    };
}

/// Other systems have no such signal. The next start detects a leftover server and reports it.
#[cfg(not(target_os = "linux"))]
pub(super) fn die_with_parent(_command: &mut Command, _death: ParentDeath) {}
