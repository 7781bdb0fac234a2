//! `waybill publish --batch`: an event on each line.
//!
//! Lines are sent as they are, many in a request, which stores all of them or none. If every line of a request has an
//! idempotency key, it is sent again when its answer is lost. Otherwise a request whose outcome is unknown ends the
//! command, which says which lines it was about: they may have been published.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::time::Duration;

use reqwest::Method;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::cli::client::ApiClient;
use crate::cli::error::CliError;
use crate::cli::output::progress::{Progress, Total, Unit};
use crate::cli::output::{Output, clean, plural};
use crate::client::{ClientError, FieldError, LONGEST_PATIENCE, Pause};
use crate::config::PublishArgs;

/// The most events, and the most bytes, of one request.
const MAX_EVENTS: usize = 500;
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// The most bytes of a line.
const MAX_LINE_BYTES: u64 = 2 * 1024 * 1024;

/// The events of one request.
#[derive(Debug, Default)]
struct Request {
    /// The number of each event's line.
    lines: Vec<u64>,
    events: Vec<Box<RawValue>>,
    bytes: usize,
    /// Whether some event has no idempotency key.
    lacks_key: bool,
}

/// The fields of an event that make it safe to send it again.
#[derive(Deserialize)]
struct Keys {
    idempotency_key: Option<serde::de::IgnoredAny>,
    event_id: Option<serde::de::IgnoredAny>,
}

/// What was published so far.
#[derive(Debug, Default)]
struct Tally {
    published: u64,
    repeated: u64,
    bytes: u64,
}

#[derive(Deserialize)]
struct Receipts {
    events: Vec<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Receipt {
    repeated: bool,
}

pub(super) async fn run(args: &PublishArgs, file: &Path) -> Result<(), CliError> {
    let (output, client) = (Output::new(&args.server), ApiClient::new(&args.server)?);
    let (mut lines, total) = open(file)?;
    let progress = Progress::new("Publishing", Unit::Bytes);
    let mut tally = Tally::default();
    let mut request = Request::default();
    while let Some((number, line)) = lines.next().map_err(|error| tally.stopped(error))? {
        tally.bytes += line.len() as u64 + 1;
        if line.trim().is_empty() {
            continue;
        }
        request.add(number, line).map_err(|error| tally.stopped(error))?;
        if request.is_full() {
            publish(&client, &output, std::mem::take(&mut request), args.retry_seconds, &mut tally).await?;
            progress.set(tally.bytes, total, &plural(tally.published, "event"));
        }
    }
    if !request.events.is_empty() {
        publish(&client, &output, request, args.retry_seconds, &mut tally).await?;
    }
    progress.finish();
    if output.json {
        return Ok(());
    }
    let repeated = match tally.repeated {
        0 => String::new(),
        repeated => format!(", {repeated} of them were published before"),
    };
    output.line(&format!("published {}{repeated}", plural(tally.published, "event")))
}

/// Sends a request, and counts its receipts. With `--json` they are printed, one on each line.
async fn publish(
    client: &ApiClient,
    output: &Output,
    request: Request,
    retry_seconds: u64,
    tally: &mut Tally,
) -> Result<(), CliError> {
    let receipts = send(client, &request, retry_seconds).await.map_err(|error| request.failed(error, tally))?;
    for receipt in receipts.events {
        let read: Receipt =
            serde_json::from_str(receipt.get()).map_err(|error| ClientError::Unreadable(error.to_string()))?;
        tally.published += 1;
        tally.repeated += u64::from(read.repeated);
        if output.json {
            output.line(receipt.get()).map_err(|error| tally.stopped(error))?;
        }
    }
    Ok(())
}

impl Tally {
    /// Returns the error of a command that ends before all lines are sent, with what is published already: whoever
    /// repeats the command must know. That nobody reads the receipts is an error, too.
    fn stopped(&self, error: CliError) -> CliError {
        match self.published {
            0 => CliError::Failed(error.to_string()),
            published => CliError::Failed(format!(
                "{error}; the first {} of the file are published, and no others",
                plural(published, "event")
            )),
        }
    }
}

async fn send(client: &ApiClient, request: &Request, retry_seconds: u64) -> Result<Receipts, ClientError> {
    let body = request.body();
    let patience = Duration::from_secs(retry_seconds).min(LONGEST_PATIENCE);
    let (until, mut pause) = (Instant::now() + patience, Pause::default());
    loop {
        let error = match client.inner().call(Method::POST, "/events/batch", Some(body.clone())).await {
            Ok(receipts) => return Ok(receipts),
            Err(error) => error,
        };
        // Without keys, a request that may have been carried out is not sent again.
        let is_safe = !request.lacks_key || error.had_no_effect();
        let next = pause.next(&error);
        if !error.is_retryable() || !is_safe || Instant::now() + next > until {
            return Err(error);
        }
        tokio::time::sleep(next).await;
    }
}

impl Request {
    fn add(&mut self, number: u64, line: String) -> Result<(), CliError> {
        let wrong = |error: serde_json::Error| CliError::Failed(format!("line {number} is not an event: {error}"));
        let keys: Keys = serde_json::from_str(&line).map_err(wrong)?;
        self.lacks_key |= keys.idempotency_key.is_none() && keys.event_id.is_none();
        self.bytes += line.len();
        self.lines.push(number);
        self.events.push(RawValue::from_string(line).map_err(wrong)?);
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.events.len() >= MAX_EVENTS || self.bytes >= MAX_BYTES
    }

    fn body(&self) -> String {
        let events = self.events.iter().map(|event| event.get()).collect::<Vec<_>>().join(",");
        format!("{{\"events\":[{events}]}}")
    }

    /// Returns what to say if the request failed: which lines were published, and which perhaps.
    fn failed(&self, error: ClientError, tally: &Tally) -> CliError {
        let (first, last) = (self.lines.first().unwrap_or(&0), self.lines.last().unwrap_or(&0));
        let before = if tally.published > 0 { "; the lines before are published" } else { "" };
        let outcome = match error.had_no_effect() || error.is_final() {
            true => format!("lines {first} to {last} are not published"),
            false => format!("nobody knows whether lines {first} to {last} are published"),
        };
        match error {
            ClientError::Refused(mut problem) => {
                for error in &mut problem.errors {
                    self.name_line(error);
                }
                problem.title = format!("{outcome}{before}: {}", problem.title);
                CliError::Request(ClientError::Refused(problem))
            }
            ClientError::Unreachable { .. } => {
                CliError::Unavailable(format!("{}; {outcome}{before}", clean(&error.to_string())))
            }
            other => CliError::Failed(format!("{}; {outcome}{before}", clean(&other.to_string()))),
        }
    }

    /// Turns `events[3].title` into `line 504: title`.
    fn name_line(&self, error: &mut FieldError) {
        let parts = error.field.strip_prefix("events[").and_then(|rest| rest.split_once(']'));
        let line = parts.and_then(|(index, _)| self.lines.get(index.parse::<usize>().ok()?));
        if let (Some(line), Some((_, field))) = (line, parts) {
            error.field = format!("line {line}: {}", field.trim_start_matches('.'));
        }
    }
}

/// The lines of a file, each of a bounded length.
struct Lines {
    from: BufReader<Box<dyn Read>>,
    number: u64,
}

/// Opens a file, or standard input, of which the length is not known.
fn open(path: &Path) -> Result<(Lines, Total), CliError> {
    if path.as_os_str() == "-" {
        return Ok((Lines { from: BufReader::new(Box::new(io::stdin())), number: 0 }, Total::Unknown));
    }
    let failed = |error: io::Error| CliError::Failed(format!("{}: {error}", path.display()));
    let file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    Ok((Lines { from: BufReader::new(Box::new(file)), number: 0 }, Total::Exactly(length)))
}

impl Lines {
    /// Returns the next line with its number.
    fn next(&mut self) -> Result<Option<(u64, String)>, CliError> {
        self.number += 1;
        let number = self.number;
        let mut line = String::new();
        let failed = |why: String| CliError::Failed(format!("line {number}: {why}"));
        let read = self.from.by_ref().take(MAX_LINE_BYTES).read_line(&mut line);
        match read.map_err(|error| failed(error.to_string()))? as u64 {
            0 => Ok(None),
            MAX_LINE_BYTES if !line.ends_with('\n') => Err(failed(format!("more than {MAX_LINE_BYTES} bytes"))),
            _ => {
                line.truncate(line.trim_end_matches(['\n', '\r']).len());
                Ok(Some((number, line)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_field_is_named_by_its_line() {
        let mut request = Request::default();
        request.add(3, r#"{"title": "a"}"#.to_owned()).unwrap();
        request.add(7, r#"{"title": "b", "idempotency_key": "k"}"#.to_owned()).unwrap();
        let mut error = FieldError { field: "events[1].tags".into(), reason: "is missing".into() };
        request.name_line(&mut error);
        assert_eq!(error.field, "line 7: tags");
        assert!(request.lacks_key);
        assert_eq!(request.body(), r#"{"events":[{"title": "a"},{"title": "b", "idempotency_key": "k"}]}"#);
        assert!(request.add(8, "x".to_owned()).is_err());
    }
}
