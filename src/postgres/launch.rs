//! One run of the server process: spawn it, read its stderr, signal it, wait for its end.
//!
//! `postgres` itself is started, not `pg_ctl`: so it is our child, we get its
//! exit, and the kernel can tell it when we are gone.

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

/// How long a lagging last line of a dead process is waited for.
const LAST_LINE: Duration = Duration::from_secs(1);

/// All that is needed to start the server, as often as it takes.
#[derive(Debug)]
pub(super) struct Launch {
    pub(super) program: PathBuf,
    pub(super) cluster: PathBuf,
    pub(super) socket_dir: PathBuf,
    pub(super) settings: Vec<(String, String)>,
    pub(super) owner: Owner,
}

impl Launch {
    /// `wake` is called when there is something new to see: ready, or no more output.
    pub(super) fn spawn(&self, wake: impl Fn() + Send + 'static) -> Result<Postmaster, PostgresError> {
        let mut command = self.command();
        let mut child = command.spawn().map_err(PostgresError::io("run", &self.program))?;
        let pipe = child.stderr.take();
        let stderr = Arc::new(Stderr::default());
        let postmaster = Postmaster { child, stderr: Arc::clone(&stderr) };
        // `command` asked for the pipe, so it is there.
        if let Some(Err(error)) = pipe.map(|pipe| stderr.listen(pipe, wake)) {
            // Never leave a server behind that nobody hears or reaps.
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
            // PostgreSQL takes this one for a relative instead of a rival.
            command.env("PG_GRANDPARENT_PID", pid.to_string());
        }
        die_with_parent(&mut command, ParentDeath::Stop);
        command
    }
}

/// The process of the server, and what it has said.
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
            // Somebody else reaped our child: it has ended, nobody knows how.
            Err(_) => Some(ExitStatus::from_raw(0)),
        }
    }

    /// What it said before it exited, once its pipe has run dry.
    pub(super) fn last_output(&self) -> String {
        self.stderr.wait_closed(LAST_LINE);
        self.stderr.last_lines()
    }

    /// SIGINT (fast: disconnect everyone, checkpoint, exit), then SIGQUIT (drop
    /// everything, recover at the next start), then SIGKILL.
    pub(super) fn shut_down(self) -> Result<(), PostgresError> {
        // On SIGQUIT the server gives its own children 5 s before it kills them.
        self.end_by(&[(Signal::SIGINT, 5), (Signal::SIGQUIT, 7), (Signal::SIGKILL, 5)])
    }

    /// The same without anything being written: its directory is not there any more.
    pub(super) fn abort(self) -> Result<(), PostgresError> {
        self.end_by(&[(Signal::SIGQUIT, 7), (Signal::SIGKILL, 5)])
    }

    fn end_by(mut self, signals: &[(Signal, u64)]) -> Result<(), PostgresError> {
        for &(signal, patience) in signals {
            self.signal(signal);
            if self.exits_within(Duration::from_secs(patience)) {
                return Ok(());
            }
            log::warn!(pid = self.pid(); "PostgreSQL did not stop within {patience} s of {signal}");
        }
        Err(PostgresError::NotStopped { pid: self.pid() })
    }

    /// Only ever called by the one who reaps it, so the pid cannot be a stranger's.
    fn signal(&mut self, signal: Signal) {
        if self.exited().is_some() {
            return;
        }
        // Pids fit: the kernel gave us this one.
        let pid = Pid::from_raw(self.pid().cast_signed());
        if let Err(error) = kill(pid, signal) {
            log::warn!(pid = self.pid(); "cannot send {signal} to PostgreSQL: {error}");
        }
    }

    fn exits_within(&mut self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        while self.exited().is_none() {
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(Duration::from_millis(5));
        }
        true
    }
}

/// Whether there is no cluster.
pub(super) fn is_missing(cluster: &Path) -> bool {
    std::fs::metadata(cluster.join("PG_VERSION")).is_err_and(|error| is_not_there(&error))
}

fn is_not_there(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// Whether a cluster does not know this server any more: it was removed, or another was put in its
/// place. What cannot be read for any other reason says nothing.
pub(super) fn has_lost(cluster: &Path, pid: u32) -> bool {
    match std::fs::read_to_string(cluster.join("postmaster.pid")) {
        Ok(text) => {
            text.lines().next().and_then(|line| line.trim().parse().ok()).is_some_and(|other: u32| other != pid)
        }
        Err(error) => is_not_there(&error),
    }
}

/// The pid in `postmaster.pid`.
pub(super) fn recorded_pid(cluster: &Path) -> Option<u32> {
    let text = std::fs::read_to_string(cluster.join("postmaster.pid")).ok()?;
    text.lines().next()?.trim().parse().ok()
}

/// The recorded pid, when it now belongs to a process that is surely no server
/// of this cluster: after a power cut (or in a container, where pids repeat) it
/// may be anything, even a thread of ours, and PostgreSQL would refuse to start
/// as long as that lives. A server has the cluster as its working directory;
/// whoever works elsewhere is none. What cannot be read is taken for one.
#[cfg(target_os = "linux")]
fn recycled_pid(cluster: &Path) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    let pid = recorded_pid(cluster)?;
    let here = std::fs::metadata(cluster).ok()?;
    let there = std::fs::metadata(format!("/proc/{pid}/cwd")).ok()?;
    ((here.dev(), here.ino()) != (there.dev(), there.ino())).then_some(pid)
}

#[cfg(not(target_os = "linux"))]
fn recycled_pid(_cluster: &Path) -> Option<u32> {
    None
}

/// What becomes of a child when we are gone, even by `kill -9`.
#[derive(Debug, Clone, Copy)]
pub(super) enum ParentDeath {
    Stop,
    Kill,
}

/// The kernel ties this to the *thread* that spawns: it must live as long as the
/// child is wanted. It must be set after the change of user, which clears it; std
/// runs `pre_exec` last.
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
        // We may have died between fork and here: then no signal will ever come.
        if nix::unistd::getppid() != parent {
            return Err(std::io::Error::from_raw_os_error(nix::errno::Errno::ESRCH as i32));
        }
        Ok(())
    };
    #[expect(unsafe_code, reason = "a hook between fork and exec has no safe form")]
    // SAFETY: runs in the forked child, where only async-signal-safe calls are
    // allowed: it makes two system calls and allocates nothing.
    unsafe {
        command.pre_exec(arm)
    };
}

/// Elsewhere nobody tells the child; the next start finds it and says so.
#[cfg(not(target_os = "linux"))]
pub(super) fn die_with_parent(_command: &mut Command, _death: ParentDeath) {}
