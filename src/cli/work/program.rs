//! Runs a program for an event.
//!
//! The program is the leader of a process group, so that what it starts can be stopped with it. Its exit status says how
//! the work ended, with the numbers of `sysexits.h`: 75 is a temporary failure, 65 is data that will never do.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::value::RawValue;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::timeout;

use super::output::{Beginning, read_beginning, show_and_keep_end};
use super::progress_file::ProgressFile;
use crate::client::{ClaimedEvent, Handler, Job, Outcome, StopReason};
use crate::domain::json::is_too_deep;
use crate::domain::limits;

/// Exit statuses with a meaning.
const TEMPORARY_FAILURE: i32 = 75;
const BAD_DATA: i32 = 65;

/// What is kept of the end of standard error.
const ERROR_BYTES: usize = 4 * 1024;
const ERROR_LINES: usize = 20;

/// How long an event waits whose program could not be started: the reason is here, and not with the event.
const NOT_STARTED_DELAY: Duration = Duration::from_secs(10);

/// A program that works on events.
pub(super) struct Program {
    path: OsString,
    arguments: Vec<OsString>,
    kill_after: Duration,
    /// The key for the program, if it should have one.
    key: Option<String>,
}

impl Program {
    pub(super) fn new(command: &[OsString], kill_after: Duration, key: Option<String>) -> Result<Self, String> {
        let (path, arguments) = command.split_first().ok_or("there is no program to run")?;
        Ok(Program { path: path.clone(), arguments: arguments.to_vec(), kill_after, key })
    }

    pub(super) fn path(&self) -> &Path {
        Path::new(&self.path)
    }

    fn start(&self, event: &ClaimedEvent, progress: &ProgressFile) -> std::io::Result<Child> {
        Command::new(&self.path)
            .args(&self.arguments)
            // What a program does with a payload of somebody else must not be done with the worker's key.
            .env_remove("WAYBILL_KEY")
            .envs(self.key.as_ref().map(|key| ("WAYBILL_KEY", key)))
            .envs(fields_of(event))
            .env("WAYBILL_PROGRESS_FILE", progress.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
    }

    /// Waits for the end of a program, and returns its status and whether it was asked to stop. If it does not stop then,
    /// it is killed.
    async fn wait(&self, child: &mut Child, job: &Job) -> std::io::Result<(ExitStatus, bool)> {
        let group = child.id().map(|id| Pid::from_raw(id.cast_signed()));
        tokio::select! {
            status = child.wait() => return Ok((status?, false)),
            _ = job.stopped() => {}
        }
        send(group, Signal::SIGTERM);
        let ended = timeout(self.kill_after, child.wait()).await;
        // The leader may have ended and left others behind.
        send(group, Signal::SIGKILL);
        let status = match ended {
            Ok(status) => status?,
            Err(_) => child.wait().await?,
        };
        Ok((status, true))
    }
}

/// Sends a signal to a process group. It may have ended.
fn send(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        let _ = killpg(group, signal);
    }
}

impl Handler for Program {
    async fn handle(&self, event: Arc<ClaimedEvent>, job: Job) -> Outcome {
        let started = ProgressFile::create().and_then(|file| Ok((self.start(&event, &file)?, file)));
        let (mut child, progress) = match started {
            Ok(started) => started,
            Err(error) => {
                log::error!(event_id = event.id; "cannot run {}: {error}", self.path().display());
                return Outcome::Release { delay: NOT_STARTED_DELAY };
            }
        };
        let feeding = child.stdin.take().map(|input| tokio::spawn(feed(input, Arc::clone(&event))));
        let printed = child.stdout.take().map(|output| read_beginning(output, limits::RESULT_BYTES));
        let errors = child.stderr.take().map(|output| show_and_keep_end(output, ERROR_BYTES));
        let status = tokio::select! {
            status = self.wait(&mut child, &job) => status,
            never = progress.watch(&job) => match never {},
        };
        if let Some(feeding) = feeding {
            feeding.abort();
        }
        let printed = match printed {
            Some(output) => output.collect().await,
            None => Beginning::default(),
        };
        let errors = match errors {
            Some(output) => output.collect().await,
            None => Vec::new(),
        };
        match status {
            Ok((status, was_stopped)) => {
                outcome_of(&event, status, job.reason().filter(|_| was_stopped), &printed, &errors)
            }
            Err(error) => Outcome::Fail { error: format!("cannot wait for the program: {error}"), retryable: true },
        }
    }
}

/// Gives a program the payload. One that does not read it is right, too.
async fn feed(mut input: ChildStdin, event: Arc<ClaimedEvent>) {
    let _ = input.write_all(event.payload.get().as_bytes()).await;
}

fn outcome_of(
    event: &ClaimedEvent,
    status: ExitStatus,
    stopped: Option<StopReason>,
    printed: &Beginning,
    errors: &[u8],
) -> Outcome {
    log::info!(event_id = event.id, attempt = event.attempt; "{}", text_of(status));
    // A program that was asked to stop and did so in good order has not done its work.
    if status.success() && stopped.is_none() {
        return Outcome::Complete { result: result_of(event, printed) };
    }
    let last_lines = lines_of(errors);
    let reason = match stopped {
        Some(StopReason::Cancelled) => "cancelled: ".to_owned(),
        _ => String::new(),
    };
    let error = error_text(&text_of(status), &last_lines);
    let retryable = match status.code() {
        Some(TEMPORARY_FAILURE) => true,
        code => code != Some(BAD_DATA),
    };
    Outcome::Fail { error: format!("{reason}{error}"), retryable }
}

/// Returns what a program has printed if it is JSON.
fn result_of(event: &ClaimedEvent, printed: &Beginning) -> Option<Box<RawValue>> {
    if printed.is_cut {
        log::warn!(event_id = event.id; "the program printed more than {} bytes: no result is kept", limits::RESULT_BYTES);
        return None;
    }
    let text = std::str::from_utf8(&printed.bytes).ok()?.trim();
    // The server refuses what is nested too deeply, and the event would come back.
    RawValue::from_string(text.to_owned()).ok().filter(|json| !is_too_deep(json.get()))
}

fn text_of(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => status.to_string(),
    }
}

/// Returns standard error as lines of text that the API takes.
fn lines_of(errors: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(errors).replace('\0', "\u{fffd}");
    text.trim_end().lines().map(str::to_owned).collect()
}

/// Returns the error of a program: its status and the last line of standard error, which most often says why, and below
/// them the lines before. Lists show the first line alone.
fn error_text(status: &str, lines: &[String]) -> String {
    let Some((last, before)) = lines.split_last() else { return status.to_owned() };
    let before = &before[before.len().saturating_sub(ERROR_LINES - 1)..];
    [format!("{status}: {}", last.trim_start())].iter().chain(before).cloned().collect::<Vec<_>>().join("\n")
}

/// Returns the fields of an event as variables of the program's environment.
fn fields_of(event: &ClaimedEvent) -> Vec<(&'static str, String)> {
    let mut fields = vec![
        ("WAYBILL_EVENT_ID", event.id.to_string()),
        ("WAYBILL_TITLE", event.title.clone()),
        ("WAYBILL_TAGS", event.tags.clone()),
        ("WAYBILL_PRIORITY", event.priority.to_string()),
        ("WAYBILL_ATTEMPT", event.attempt.to_string()),
        ("WAYBILL_MAX_RETRIES", event.max_retries.to_string()),
        ("WAYBILL_LEASE_ID", event.lease_id.to_string()),
        ("WAYBILL_CREATED_AT", event.created_at.clone()),
    ];
    let optional = [
        ("WAYBILL_EVENT_TYPE", event.event_type.clone()),
        ("WAYBILL_LABELS", event.labels.as_ref().map(|labels| labels.get().to_owned())),
        ("WAYBILL_ORDERING_KEY", event.ordering_key.clone()),
        ("WAYBILL_CORRELATION_ID", event.correlation_id.clone()),
        ("WAYBILL_TRACEPARENT", event.traceparent.clone()),
    ];
    fields.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?))));
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_an_error_has_the_last_line_of_the_program() {
        let text = |errors: &str| error_text("exit status 1", &lines_of(errors.as_bytes()));
        assert_eq!(text(""), "exit status 1");
        assert_eq!(text("  disk full\n\n"), "exit status 1: disk full");
        assert_eq!(
            text("Traceback:\n  main.py:7\nValueError: x\n"),
            "exit status 1: ValueError: x\nTraceback:\n  main.py:7"
        );
        let many: Vec<String> = (1..=50).map(|number| format!("line {number}")).collect();
        let lines: Vec<String> = text(&many.join("\n")).lines().map(str::to_owned).collect();
        assert_eq!(lines.len(), ERROR_LINES);
        assert_eq!((lines[0].as_str(), lines[1].as_str()), ("exit status 1: line 50", "line 31"));
        assert_eq!(lines[ERROR_LINES - 1], "line 49");
    }
}
