//! Reads the server's stderr.
//!
//! Each line is logged under the target `postgres`. Some lines also change the state: the server is
//! ready, or it cannot start *yet* because the previous one still shuts down. A message may have several
//! lines: the following ones start with a tab or a word such as `DETAIL:`, and get the same log level.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use log::Level;

const LONGEST_LINE: usize = 2_000;
const KEPT_LINES: usize = 20;

/// The state derived from the server's output so far.
#[derive(Debug, Default)]
pub(super) struct Stderr {
    state: Mutex<StderrState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct StderrState {
    ready: bool,
    busy: bool,
    closed: bool,
    last_line_at: Option<Instant>,
    lines: VecDeque<String>,
}

impl Stderr {
    /// Reads on its own thread until the last process that holds the pipe has exited. Reading must never
    /// pause: a full pipe would block the server.
    pub(super) fn listen(
        self: Arc<Self>,
        pipe: impl Read + Send + 'static,
        wake: impl Fn() + Send + 'static,
    ) -> io::Result<()> {
        let read = move || {
            self.read(BufReader::new(pipe), &wake);
            self.lock().closed = true;
            self.changed.notify_all();
            wake();
        };
        thread::Builder::new().name("pg-stderr".into()).spawn(read).map(drop)
    }

    fn read(&self, mut pipe: impl BufRead, wake: &impl Fn()) {
        let mut parser = LineParser::default();
        let mut line = Vec::new();
        while read_capped_line(&mut pipe, &mut line).unwrap_or(false) {
            let mut text = String::from_utf8_lossy(&line).into_owned();
            text.truncate(text.floor_char_boundary(LONGEST_LINE));
            let meaning = parser.parse(&text);
            if let Some(level) = meaning.level {
                log::log!(target: "postgres", level, "{text}");
            }
            self.record(meaning, text);
            if meaning.ready {
                wake();
            }
        }
    }

    fn record(&self, meaning: LineMeaning, text: String) {
        let mut state = self.lock();
        state.ready |= meaning.ready;
        state.busy |= meaning.busy;
        state.last_line_at = Some(Instant::now());
        if meaning.level.is_some() {
            state.lines.push_back(text);
        }
        if state.lines.len() > KEPT_LINES {
            state.lines.pop_front();
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.lock().ready
    }

    /// Whether the server could not start because a previous server still uses the cluster.
    pub(super) fn is_busy(&self) -> bool {
        self.lock().busy
    }

    pub(super) fn last_line_at(&self) -> Option<Instant> {
        self.lock().last_line_at
    }

    pub(super) fn last_lines(&self) -> String {
        let state = self.lock();
        let lines: Vec<&str> = state.lines.iter().map(String::as_str).collect();
        lines.join(" | ")
    }

    pub(super) fn wait_closed(&self, timeout: Duration) {
        let guard = self.lock();
        // After a timeout the caller continues with the output read so far.
        drop(self.changed.wait_timeout_while(guard, timeout, |state| !state.closed));
    }

    /// Locks the state. A poisoned lock only means that a logger panicked; the state is still valid.
    fn lock(&self) -> MutexGuard<'_, StderrState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The meaning of one line.
#[derive(Debug, Clone, Copy, PartialEq)]
struct LineMeaning {
    /// `None` if the line must not be logged.
    level: Option<Level>,
    ready: bool,
    busy: bool,
}

/// Classifies lines. Keeps the level of the last message for its continuation lines.
#[derive(Debug, Default)]
struct LineParser {
    #[expect(clippy::option_option, reason = "no message yet, or one that is not logged")]
    following: Option<Option<Level>>,
}

impl LineParser {
    fn parse(&mut self, line: &str) -> LineMeaning {
        let (word, message) = split(line);
        let busy = word == "FATAL" && is_busy(message);
        let level = match word {
            // Expected and retried, so not an error.
            "FATAL" if busy || is_routine(message) => Level::Debug,
            "FATAL" | "PANIC" => Level::Error,
            "ERROR" | "WARNING" => Level::Warn,
            "LOG" | "INFO" | "NOTICE" | "DEBUG" => Level::Debug,
            _ if is_continuation(line, word) => return self.continuation(),
            // Output without a known format, such as an error of the dynamic linker.
            _ => Level::Warn,
        };
        // The details of a failed statement quote the row, and the row contains payloads.
        self.following = Some((word != "ERROR").then_some(level));
        LineMeaning {
            level: Some(level),
            ready: word == "LOG" && message == "database system is ready to accept connections",
            busy,
        }
    }

    fn continuation(&self) -> LineMeaning {
        LineMeaning { level: self.following.unwrap_or(Some(Level::Warn)), ready: false, busy: false }
    }
}

/// Splits `[123] LOG:  text` into `LOG` and `text`. The number in `DEBUG1` is dropped.
fn split(line: &str) -> (&str, &str) {
    let unprefixed = match line.strip_prefix('[').and_then(|rest| rest.split_once("] ")) {
        Some((pid, rest)) if pid.bytes().all(|byte| byte.is_ascii_digit()) => rest,
        _ => line,
    };
    match unprefixed.split_once(":  ") {
        Some((word, message)) => (word.trim_end_matches(|c: char| c.is_ascii_digit()), message),
        None => ("", unprefixed),
    }
}

fn is_continuation(line: &str, word: &str) -> bool {
    line.starts_with('\t') || ["DETAIL", "HINT", "CONTEXT", "STATEMENT", "QUERY", "LOCATION"].contains(&word)
}

/// Whether a message reports the end of a session, which is normal at every start and stop. PostgreSQL logs
/// it as fatal, but it is fatal only for the session.
fn is_routine(message: &str) -> bool {
    const ROUTINE: [&str; 6] = [
        "connection to client lost",
        "terminating connection due to administrator command",
        "terminating autovacuum process due to administrator command",
        "the database system is starting up",
        "the database system is not yet accepting connections",
        "the database system is shutting down",
    ];
    ROUTINE.contains(&message)
}

/// Whether a previous server still holds the lock file of the data directory or of the socket, or orphans of a
/// killed server still hold its shared memory.
fn is_busy(message: &str) -> bool {
    (message.starts_with("lock file \"") && message.ends_with("\" already exists"))
        || message.starts_with("pre-existing shared memory block")
}

/// Reads one line and keeps at most `LONGEST_LINE` bytes of it. Returns `false` at the end of the input.
fn read_capped_line(pipe: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let mut any = false;
    loop {
        let buffer = match pipe.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        if buffer.is_empty() {
            return Ok(any);
        }
        any = true;
        let end = buffer.iter().position(|&byte| byte == b'\n');
        let text = &buffer[..end.unwrap_or(buffer.len())];
        line.extend_from_slice(&text[..text.len().min(LONGEST_LINE - line.len())]);
        let used = text.len() + usize::from(end.is_some());
        pipe.consume(used);
        if end.is_some() {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(lines: &[&str]) -> Vec<Option<Level>> {
        let mut parser = LineParser::default();
        lines.iter().map(|line| parser.parse(line).level).collect()
    }

    #[test]
    fn each_severity_has_its_level() {
        let lines = [
            "[1] LOG:  checkpoint starting: time",
            "[1] DEBUG2:  x",
            "[1] WARNING:  x",
            "[1] ERROR:  x",
            "[1] FATAL:  x",
            "[1] PANIC:  x",
            "postgres: error while loading shared libraries",
        ];
        use Level::{Debug, Error, Warn};
        let expected = [Debug, Debug, Warn, Warn, Error, Error, Warn].map(Some);
        assert_eq!(levels(&lines), expected);
    }

    #[test]
    fn a_hint_shares_the_level_of_its_message() {
        let lines = ["[1] FATAL:  could not map memory", "[1] HINT:  buy more", "\tor use less"];
        assert_eq!(levels(&lines), [Some(Level::Error); 3]);
    }

    #[test]
    fn the_details_of_a_failed_statement_are_not_logged() {
        let lines =
            ["[1] ERROR:  violates check", "[1] DETAIL:  Failing row contains (secret", "\tsecret).", "[1] LOG:  x"];
        assert_eq!(levels(&lines), [Some(Level::Warn), None, None, Some(Level::Debug)]);
    }

    #[test]
    fn only_the_servers_own_log_line_means_ready() {
        let ready = |line: &str| LineParser::default().parse(line).ready;
        assert!(ready("[7] LOG:  database system is ready to accept connections"));
        assert!(ready("LOG:  database system is ready to accept connections"));
        assert!(!ready("[7] ERROR:  LOG:  database system is ready to accept connections"));
        assert!(!ready("\t[7] LOG:  database system is ready to accept connections"));
        assert!(!ready("[7] LOG:  database system is ready to accept read-only connections"));
    }

    #[test]
    fn a_cluster_in_use_is_busy_and_not_an_error() {
        for line in [
            "[7] FATAL:  lock file \"postmaster.pid\" already exists",
            "[7] FATAL:  lock file \"/run/x/.s.PGSQL.5432.lock\" already exists",
            "[7] FATAL:  pre-existing shared memory block (key 5, ID 6) is still in use",
        ] {
            let meaning = LineParser::default().parse(line);
            assert!(meaning.busy && meaning.level == Some(Level::Debug), "{line}");
        }
        assert!(!LineParser::default().parse("[7] FATAL:  role \"x\" already exists").busy);
    }

    #[test]
    fn the_end_of_a_session_at_a_start_or_a_stop_is_not_an_error() {
        for message in ["connection to client lost", "terminating connection due to administrator command"] {
            assert_eq!(levels(&[&format!("[7] FATAL:  {message}")]), [Some(Level::Debug)]);
        }
        assert_eq!(levels(&["[7] FATAL:  data directory has wrong ownership"]), [Some(Level::Error)]);
    }

    #[test]
    fn a_long_line_is_cut_and_the_next_one_is_whole() {
        let text = format!("{}\nshort\nlast", "x".repeat(9_000));
        let mut pipe = BufReader::with_capacity(64, text.as_bytes());
        let mut line = Vec::new();
        let mut lengths = Vec::new();
        while read_capped_line(&mut pipe, &mut line).unwrap() {
            lengths.push(line.len());
        }
        assert_eq!(lengths, [2_000, 5, 4]);
    }
}
