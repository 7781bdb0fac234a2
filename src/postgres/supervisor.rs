//! The thread that keeps the server running.
//!
//! One thread owns the process for as long as it is wanted: it forks it (the
//! kernel's parent-death signal is tied to the forking *thread*, so a pool's
//! thread, which may end any time, would take the database with it), waits for
//! it, starts it again when it dies, and stops it when told. Nobody else touches
//! the process, so no signal can reach a pid that was reaped and given away.
//!
//! It sleeps on an inbox with two kinds of message: *stop*, from [`Supervisor`], and
//! *look*, from whoever reads stderr. What there is to see is never in the
//! message but in the process itself; so a stale *look* is harmless.

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

/// A look without being asked: orphans of a killed server keep its stderr open,
/// so the end of that pipe, which wakes us otherwise, may come late.
const TICK: Duration = Duration::from_millis(250);

/// How long an earlier server may take to go away before a first start gives up.
const BUSY_PATIENCE: Duration = Duration::from_secs(10);
const BUSY_PAUSE: Duration = Duration::from_millis(100);

/// Measured from the last line, not from the start: crash recovery reports its
/// progress every 10 s, and killing a recovery that moves would start it over, for ever.
const QUIET_LIMIT: Duration = Duration::from_secs(60);

const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const LONGEST_BACKOFF: Duration = Duration::from_secs(10);
/// A server that ran this long was healthy: its death is a new story.
const HEALTHY_RUN: Duration = Duration::from_secs(30);

/// What must be ours exactly as long as the server may run.
#[derive(Debug)]
pub(super) struct Resources {
    pub(super) lock: DirectoryLock,
    pub(super) sockets: SocketDir,
}

/// The handle on that thread.
#[derive(Debug)]
pub(super) struct Supervisor {
    inbox: Sender<Wake>,
    thread: Mutex<Option<JoinHandle<Result<(), PostgresError>>>>,
    pid: Arc<AtomicU32>,
}

#[derive(Debug, Clone, Copy)]
enum Wake {
    Stop,
    Look,
}

impl Supervisor {
    /// Returns when the server accepts connections.
    pub(super) fn start(launch: Launch, resources: Resources) -> Result<Self, PostgresError> {
        let (inbox, wakes) = mpsc::channel();
        let (report, reported) = mpsc::channel();
        let pid = Arc::new(AtomicU32::new(0));
        let watch = SupervisorThread { launch, wakes, inbox: inbox.clone(), pid: Arc::clone(&pid) };
        let thread = thread::Builder::new()
            .name("pg-supervisor".into())
            .spawn(move || watch.run(&report, resources))
            .map_err(PostgresError::io("start a thread for", std::path::Path::new("PostgreSQL")))?;
        let supervisor = Self { inbox, thread: Mutex::new(Some(thread)), pid };
        match reported.recv() {
            Ok(Ok(())) => Ok(supervisor),
            // Joined, so that the lock is free again when the caller hears of it.
            Ok(Err(error)) => supervisor.stop().and(Err(error)),
            Err(mpsc::RecvError) => Err(PostgresError::SupervisorLost),
        }
    }

    pub(super) fn pid(&self) -> Option<u32> {
        Some(self.pid.load(Ordering::Acquire)).filter(|&pid| pid != 0)
    }

    /// A second caller waits for the first and then finds nothing left to do.
    pub(super) fn stop(&self) -> Result<(), PostgresError> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(thread) = thread.take() else {
            return Ok(());
        };
        // It fails only when the thread has ended already, and then joining says how.
        let _ = self.inbox.send(Wake::Stop);
        thread.join().unwrap_or(Err(PostgresError::SupervisorLost))
    }
}

/// The thread's side.
struct SupervisorThread {
    launch: Launch,
    wakes: Receiver<Wake>,
    inbox: Sender<Wake>,
    pid: Arc<AtomicU32>,
}

/// How one try to start ended, when it did not fail for good.
enum Started {
    Ready(Postmaster),
    Busy,
    StopAsked,
}

/// Why a server that ran does not any more, or must not.
#[derive(Debug, Clone, Copy)]
enum End {
    Exited(ExitStatus),
    StopAsked,
    DirectoryGone,
}

impl SupervisorThread {
    /// The lock goes last: whoever takes it next must find everything else gone.
    fn run(self, report: &Sender<Result<(), PostgresError>>, resources: Resources) -> Result<(), PostgresError> {
        let outcome = match self.start_first() {
            Ok(postmaster) => {
                // The receiver waits for exactly this message.
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

    /// An earlier server may still be shutting down, or be a zombie that nobody
    /// has reaped: PostgreSQL then refuses, and is asked again.
    fn start_first(&self) -> Result<Postmaster, PostgresError> {
        let deadline = Instant::now() + BUSY_PATIENCE;
        let mut said = false;
        loop {
            match self.start_once()? {
                Started::Ready(postmaster) => return Ok(postmaster),
                Started::Busy if Instant::now() < deadline => {}
                Started::Busy | Started::StopAsked => return Err(self.still_running()),
            }
            if !said {
                log::info!("waiting for an earlier PostgreSQL in {} to end", self.launch.cluster.display());
                said = true;
            }
            thread::sleep(BUSY_PAUSE);
        }
    }

    fn still_running(&self) -> PostgresError {
        PostgresError::StillRunning { cluster: self.launch.cluster.clone(), pid: recorded_pid(&self.launch.cluster) }
    }

    fn start_once(&self) -> Result<Started, PostgresError> {
        let inbox = self.inbox.clone();
        let postmaster = self.launch.spawn(move || {
            // Fails when the thread has ended: then nobody needs to look.
            let _ = inbox.send(Wake::Look);
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
            if self.stop_asked_within(TICK) {
                postmaster.shut_down()?;
                return Ok(Started::StopAsked);
            }
        }
    }

    fn supervise(&self, mut postmaster: Postmaster) -> Result<(), PostgresError> {
        let mut backoff = FIRST_BACKOFF;
        loop {
            let ready_at = Instant::now();
            let end = self.await_end(&mut postmaster);
            let stopped = match end {
                End::StopAsked => postmaster.shut_down(),
                End::DirectoryGone => postmaster.abort(),
                End::Exited(_) => Ok(()),
            };
            self.pid.store(0, Ordering::Release);
            match (end, stopped) {
                (End::StopAsked, stopped) => return stopped,
                (End::Exited(status), _) => {
                    log::error!("PostgreSQL ended unexpectedly ({status}); starting it again");
                    // It may have noticed before we did.
                    if is_missing(&self.launch.cluster) {
                        self.tell_of_missing_directory();
                    }
                }
                (End::DirectoryGone, Ok(())) => log::error!("PostgreSQL is stopped until its data directory is back"),
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

    /// What is written to a directory that was removed is lost, and PostgreSQL itself notices only
    /// after a minute. Looked at twice, so that nothing is stopped by a glance at the wrong moment.
    fn await_end(&self, postmaster: &mut Postmaster) -> End {
        let mut was_gone = false;
        loop {
            if let Some(status) = postmaster.exited() {
                return End::Exited(status);
            }
            let is_gone = has_lost(&self.launch.cluster, postmaster.pid());
            if is_gone && was_gone {
                self.tell_of_missing_directory();
                return End::DirectoryGone;
            }
            was_gone = is_gone;
            if self.stop_asked_within(TICK) {
                return End::StopAsked;
            }
        }
    }

    fn tell_of_missing_directory(&self) {
        log::error!("the data directory {} is gone", self.launch.cluster.display());
    }

    /// Tries for as long as it takes (a full disk may be emptied, orphans end);
    /// `None` when told to stop.
    fn restart(&self, backoff: &mut Duration) -> Option<Postmaster> {
        loop {
            if self.stop_asked_within(*backoff) {
                return None;
            }
            *backoff = (*backoff * 2).min(LONGEST_BACKOFF);
            match self.start_once() {
                Ok(Started::Ready(postmaster)) => {
                    log::info!(pid = postmaster.pid(); "PostgreSQL runs again");
                    return Some(postmaster);
                }
                Ok(Started::StopAsked) => return None,
                Ok(Started::Busy) => {
                    log::debug!("processes of the last PostgreSQL are not gone yet; trying again")
                }
                Err(error) => log::error!("PostgreSQL did not start again, will retry: {error}"),
            }
        }
    }

    /// Waits that long at most; a *look* ends the wait early.
    fn stop_asked_within(&self, patience: Duration) -> bool {
        matches!(self.wakes.recv_timeout(patience), Ok(Wake::Stop))
    }
}

fn explain_exit(postmaster: &Postmaster, status: ExitStatus) -> Result<Started, PostgresError> {
    let lines = postmaster.last_output();
    if postmaster.stderr().is_busy() {
        return Ok(Started::Busy);
    }
    Err(PostgresError::StartFailed { status: status.to_string(), lines })
}
