//! The thread that keeps the server running.
//!
//! One thread owns the process from start to stop. It spawns the process, waits for it, restarts it
//! when it dies, and stops it on request. It must be a dedicated thread: the kernel ties the
//! parent-death signal to the spawning *thread*, so if a pool thread ended, the database would end with
//! it. No other thread signals the process, so no signal can reach a pid that was reaped and reused.
//!
//! The thread waits on a channel with two messages: `Stop`, from [`Supervisor`], and `Check`, from the
//! reader of stderr. A message carries no state; the thread reads the state from the process. Therefore a
//! stale `Check` is harmless.

use std::process::ExitStatus;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::error::PostgresError;
use super::launch::{Launch, Postmaster, has_lost, is_missing, recorded_pid};
use super::lock::DirectoryLock;
use super::socket::SocketDir;

/// The interval of checks without a message. Orphans of a killed server keep its stderr open, so the end of
/// that pipe, which normally triggers a check, may come late.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// The time that the first start waits for a previous server to exit.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
const BUSY_PAUSE: Duration = Duration::from_millis(100);

/// The time without output after which a start has failed. It is measured from the last line, not from the
/// start: crash recovery reports its progress every 10 s, and killing it while it makes progress would
/// restart it forever.
const QUIET_LIMIT: Duration = Duration::from_secs(60);

const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const LONGEST_BACKOFF: Duration = Duration::from_secs(10);
/// A server that ran this long was healthy, so the backoff starts again at [`FIRST_BACKOFF`].
const HEALTHY_RUN: Duration = Duration::from_secs(30);

/// The resources that must be held as long as the server may run.
#[derive(Debug)]
pub(super) struct Resources {
    pub(super) lock: DirectoryLock,
    pub(super) sockets: SocketDir,
}

/// The handle of the supervisor thread.
#[derive(Debug)]
pub(super) struct Supervisor {
    messages: Sender<Message>,
    thread: Mutex<Option<JoinHandle<Result<(), PostgresError>>>>,
    pid: Arc<AtomicU32>,
}

#[derive(Debug, Clone, Copy)]
enum Message {
    Stop,
    Check,
}

impl Supervisor {
    /// Starts the thread and returns when the server accepts connections.
    pub(super) fn start(launch: Launch, resources: Resources) -> Result<Self, PostgresError> {
        let (messages, received) = mpsc::channel();
        let (report, reported) = mpsc::channel();
        let pid = Arc::new(AtomicU32::new(0));
        let supervision = SupervisorThread { launch, received, messages: messages.clone(), pid: Arc::clone(&pid) };
        let thread = thread::Builder::new()
            .name("pg-supervisor".into())
            .spawn(move || supervision.run(&report, resources))
            .map_err(PostgresError::io("start a thread for", std::path::Path::new("PostgreSQL")))?;
        let supervisor = Self { messages, thread: Mutex::new(Some(thread)), pid };
        match reported.recv() {
            Ok(Ok(())) => Ok(supervisor),
            // Joins the thread, so the lock is released before the caller gets the error.
            Ok(Err(error)) => supervisor.stop().and(Err(error)),
            Err(mpsc::RecvError) => Err(PostgresError::SupervisorLost),
        }
    }

    pub(super) fn pid(&self) -> Option<u32> {
        Some(self.pid.load(Ordering::Acquire)).filter(|&pid| pid != 0)
    }

    /// Stops the server. A concurrent second call waits for the first and does nothing.
    pub(super) fn stop(&self) -> Result<(), PostgresError> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(thread) = thread.take() else {
            return Ok(());
        };
        // Sending fails only if the thread has already ended; joining returns its result.
        let _ = self.messages.send(Message::Stop);
        thread.join().unwrap_or(Err(PostgresError::SupervisorLost))
    }
}

/// The state of the supervisor thread.
struct SupervisorThread {
    launch: Launch,
    received: Receiver<Message>,
    messages: Sender<Message>,
    pid: Arc<AtomicU32>,
}

/// The result of one attempt to start, unless it failed with an error.
enum Started {
    Ready(Postmaster),
    Busy,
    StopRequested,
}

/// The reason why a running server ended, or must end.
#[derive(Debug, Clone, Copy)]
enum End {
    Exited(ExitStatus),
    StopRequested,
    DirectoryGone,
}

impl SupervisorThread {
    /// Runs the server until it is stopped. Releases the lock last: everything else must be cleaned up before
    /// another Waybill can take it.
    fn run(self, report: &Sender<Result<(), PostgresError>>, resources: Resources) -> Result<(), PostgresError> {
        let outcome = match self.start_first() {
            Ok(postmaster) => {
                // The receiver waits for this message.
                let _ = report.send(Ok(()));
                self.supervise(postmaster)
            }
            Err(error) => {
                let _ = report.send(Err(error));
                Ok(())
            }
        };
        let Resources { lock, sockets } = resources;
        drop(sockets);
        drop(lock);
        outcome
    }

    /// Starts the server for the first time. PostgreSQL refuses to start while a previous server shuts down
    /// or is a zombie that has not been reaped, so the start is repeated.
    fn start_first(&self) -> Result<Postmaster, PostgresError> {
        let deadline = Instant::now() + BUSY_TIMEOUT;
        let mut logged = false;
        loop {
            match self.start_once()? {
                Started::Ready(postmaster) => return Ok(postmaster),
                Started::Busy if Instant::now() < deadline => {}
                Started::Busy | Started::StopRequested => return Err(self.still_running()),
            }
            if !logged {
                log::info!("waiting for a previous PostgreSQL in {} to exit", self.launch.cluster.display());
                logged = true;
            }
            thread::sleep(BUSY_PAUSE);
        }
    }

    fn still_running(&self) -> PostgresError {
        PostgresError::StillRunning { cluster: self.launch.cluster.clone(), pid: recorded_pid(&self.launch.cluster) }
    }

    fn start_once(&self) -> Result<Started, PostgresError> {
        let messages = self.messages.clone();
        let postmaster = self.launch.spawn(move || {
            // Fails if the thread has ended; then no check is needed.
            let _ = messages.send(Message::Check);
        })?;
        self.pid.store(postmaster.pid(), Ordering::Release);
        let started = self.await_ready(postmaster);
        if !matches!(started, Ok(Started::Ready(_))) {
            self.pid.store(0, Ordering::Release);
        }
        started
    }

    fn await_ready(&self, mut postmaster: Postmaster) -> Result<Started, PostgresError> {
        let spawned_at = Instant::now();
        loop {
            if postmaster.stderr().is_ready() {
                return Ok(Started::Ready(postmaster));
            }
            if let Some(status) = postmaster.exited() {
                return explain_exit(&postmaster, status);
            }
            let quiet_since = postmaster.stderr().last_line_at().unwrap_or(spawned_at);
            if quiet_since.elapsed() >= QUIET_LIMIT {
                let lines = postmaster.stderr().last_lines();
                postmaster.shut_down()?;
                return Err(PostgresError::NotReady { seconds: QUIET_LIMIT.as_secs(), lines });
            }
            if self.stop_requested_within(CHECK_INTERVAL) {
                postmaster.shut_down()?;
                return Ok(Started::StopRequested);
            }
        }
    }

    fn supervise(&self, mut postmaster: Postmaster) -> Result<(), PostgresError> {
        let mut backoff = FIRST_BACKOFF;
        loop {
            let ready_at = Instant::now();
            let end = self.await_end(&mut postmaster);
            let stopped = match end {
                End::StopRequested => postmaster.shut_down(),
                End::DirectoryGone => postmaster.abort(),
                End::Exited(_) => Ok(()),
            };
            self.pid.store(0, Ordering::Release);
            match (end, stopped) {
                (End::StopRequested, stopped) => return stopped,
                (End::Exited(status), _) => {
                    log::error!("PostgreSQL exited unexpectedly ({status}); restarting it");
                    // PostgreSQL may have noticed the missing directory first.
                    if is_missing(&self.launch.cluster) {
                        self.log_missing_directory();
                    }
                }
                (End::DirectoryGone, Ok(())) => {
                    log::error!("PostgreSQL stays stopped until its data directory is restored");
                }
                (End::DirectoryGone, Err(error)) => log::error!("{error}"),
            }
            if ready_at.elapsed() >= HEALTHY_RUN {
                backoff = FIRST_BACKOFF;
            }
            match self.restart(&mut backoff) {
                Some(restarted) => postmaster = restarted,
                None => return Ok(()),
            }
        }
    }

    /// Waits until the server exits, must be stopped, or loses its data directory. Writes to a removed directory
    /// are lost, and PostgreSQL notices only after a minute. The directory must be missing in two checks in a
    /// row, so a transient state does not stop the server.
    fn await_end(&self, postmaster: &mut Postmaster) -> End {
        let mut was_gone = false;
        loop {
            if let Some(status) = postmaster.exited() {
                return End::Exited(status);
            }
            let is_gone = has_lost(&self.launch.cluster, postmaster.pid());
            if is_gone && was_gone {
                self.log_missing_directory();
                return End::DirectoryGone;
            }
            was_gone = is_gone;
            if self.stop_requested_within(CHECK_INTERVAL) {
                return End::StopRequested;
            }
        }
    }

    fn log_missing_directory(&self) {
        log::error!("the data directory {} is gone", self.launch.cluster.display());
    }

    /// Retries until the server runs, because the cause may disappear (a full disk, orphan processes). Returns
    /// `None` if the supervisor must stop.
    fn restart(&self, backoff: &mut Duration) -> Option<Postmaster> {
        loop {
            if self.stop_requested_within(*backoff) {
                return None;
            }
            *backoff = (*backoff * 2).min(LONGEST_BACKOFF);
            match self.start_once() {
                Ok(Started::Ready(postmaster)) => {
                    log::info!(pid = postmaster.pid(); "PostgreSQL runs again");
                    return Some(postmaster);
                }
                Ok(Started::StopRequested) => return None,
                Ok(Started::Busy) => {
                    log::debug!("processes of the previous PostgreSQL still run; retrying");
                }
                Err(error) => log::error!("PostgreSQL did not restart, will retry: {error}"),
            }
        }
    }

    /// Waits for at most `timeout` and returns whether a stop was requested. A `Check` ends the wait early.
    fn stop_requested_within(&self, timeout: Duration) -> bool {
        matches!(self.received.recv_timeout(timeout), Ok(Message::Stop))
    }
}

fn explain_exit(postmaster: &Postmaster, status: ExitStatus) -> Result<Started, PostgresError> {
    let lines = postmaster.last_output();
    if postmaster.stderr().is_busy() {
        return Ok(Started::Busy);
    }
    Err(PostgresError::StartFailed { status: status.to_string(), lines })
}
