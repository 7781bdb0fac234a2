//! What the client programs say when they fail.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr};
use std::thread::JoinHandle;

use super::BackupError;

/// How many of the last lines are kept, and how many bytes a line may have; a longer one counts as several.
const KEPT_LINES: usize = 10;
const LINE_BYTES: u64 = 2_000;

/// Collects the last lines of a program. Without a reader it would block on a full pipe.
pub(super) fn collect(stderr: Option<ChildStderr>) -> JoinHandle<String> {
    std::thread::spawn(move || stderr.map(last_lines).unwrap_or_default())
}

fn last_lines(stderr: ChildStderr) -> String {
    let mut reader = BufReader::new(stderr);
    let mut kept = VecDeque::new();
    loop {
        let mut line = Vec::new();
        match reader.by_ref().take(LINE_BYTES).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => break,
            Ok(_) if kept.len() == KEPT_LINES => drop(kept.pop_front()),
            Ok(_) => {}
        }
        kept.push_back(String::from_utf8_lossy(&line).trim_end().to_owned());
    }
    kept.make_contiguous().join(" | ")
}

/// Waits for a program, and returns an error with its last lines if it has not succeeded.
pub(super) fn finish(program: &'static str, child: &mut Child, lines: JoinHandle<String>) -> Result<(), BackupError> {
    let status = match child.wait() {
        Ok(status) if status.success() => return Ok(()),
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    };
    Err(BackupError::Program { program, status, lines: lines.join().unwrap_or_default() })
}

/// Returns what went wrong first: a program that fails breaks its pipe, so its own message says more than that of
/// whoever reads from it. If only the reader has failed, the program was ended by the closed pipe.
pub(super) fn finish_after<T>(
    passed: Result<T, BackupError>,
    finished: Result<(), BackupError>,
) -> Result<T, BackupError> {
    match (passed, finished) {
        (Err(BackupError::Io { source, .. }), Err(program)) if source.kind() == std::io::ErrorKind::BrokenPipe => {
            Err(program)
        }
        (Err(error), _) | (_, Err(error)) => Err(error),
        (Ok(value), Ok(())) => Ok(value),
    }
}
