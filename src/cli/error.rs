//! Why a command did not succeed, and the exit code that says so.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | the server refused, or the command failed |
//! | 2 | wrong usage |
//! | 3 | not found |
//! | 4 | the key is missing or does not allow it |
//! | 5 | the server cannot be reached, or cannot serve now |
//! | 6 | done, with findings |
//! | 130 | interrupted by Ctrl-C |

use std::io::{self, Write};
use std::process::ExitCode;

use super::output::clean;
use crate::client::{ClientError, FieldError, Problem};
use crate::error::Error;
use crate::startup::StartError;

/// The most invalid fields that are listed.
const MAX_FIELDS: usize = 20;

#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// A request failed.
    #[error("{0}")]
    Request(#[from] ClientError),
    /// A command that does not ask a server failed.
    #[error("{0}")]
    Start(#[from] StartError),
    /// The arguments do not fit each other, or the situation.
    #[error("{0}")]
    Usage(String),
    /// The key does not show what was asked for.
    #[error("{0}")]
    NotAllowed(String),
    #[error("{0}")]
    Failed(String),
    /// The server is away for too long, as this text says.
    #[error("{0}")]
    Unavailable(String),
    /// The command was carried out, and what it found needs attention.
    #[error("{0}")]
    Findings(String),
    /// Ctrl-C ended the command; the text says what goes on without it.
    #[error("{0}")]
    Interrupted(String),
    /// Nobody reads what is printed.
    #[error("cannot write: {0}")]
    Output(#[from] io::Error),
}

impl From<Error> for CliError {
    fn from(error: Error) -> Self {
        CliError::Start(error.into())
    }
}

impl CliError {
    /// Prints the error, and returns the exit code for it.
    pub(crate) fn report(&self) -> ExitCode {
        // `waybill events list | head`: whoever reads has all that was wanted.
        if matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe) {
            return ExitCode::SUCCESS;
        }
        // Unlike `eprintln!`, this does not panic if the terminal was closed.
        let _ = writeln!(io::stderr(), "waybill: {}", self.text());
        ExitCode::from(self.exit_code())
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Request(error) => exit_code_of(error),
            Self::Usage(_) => 2,
            Self::NotAllowed(_) => 4,
            Self::Unavailable(_) => 5,
            Self::Findings(_) => 6,
            Self::Interrupted(_) => 130,
            Self::Start(_) | Self::Failed(_) | Self::Output(_) => 1,
        }
    }

    /// Returns the message. What the server has said is cleaned, line by line.
    fn text(&self) -> String {
        match self {
            Self::Request(ClientError::Refused(problem)) => refusal_text(problem),
            Self::Request(error) => clean(&error.to_string()),
            other => other.to_string(),
        }
    }
}

fn exit_code_of(error: &ClientError) -> u8 {
    match error {
        ClientError::Unreachable { .. } => 5,
        ClientError::Refused(problem) => match problem.status {
            401 | 403 => 4,
            404 => 3,
            429 | 503 => 5,
            500.. if problem.retryable => 5,
            _ => 1,
        },
        ClientError::Settings(_) => 2,
        ClientError::Unreadable(_) => 1,
    }
}

fn refusal_text(problem: &Problem) -> String {
    // The detail names the invalid fields in one sentence. Several are easier to read on lines of their own.
    let mut text = match problem.errors.len() {
        0 | 1 => clean(&problem.to_string()),
        _ => clean(&format!("{} ({})", problem.title, problem.status)),
    };
    if problem.status == 401 {
        text.push_str(". Set WAYBILL_KEY to a key that may do this");
    }
    if problem.errors.len() > 1 {
        let line = |error: &FieldError| format!("\n  {} {}", clean(&error.field), clean(&error.reason));
        text.extend(problem.errors.iter().take(MAX_FIELDS).map(line));
        if problem.errors.len() > MAX_FIELDS {
            text.push_str(&format!("\n  and {} more", problem.errors.len() - MAX_FIELDS));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, retryable: bool) -> CliError {
        let problem = Problem { status, retryable, title: "x".into(), detail: "y".into(), ..Problem::default() };
        ClientError::Refused(Box::new(problem)).into()
    }

    #[test]
    fn the_exit_code_tells_what_kind_of_failure_it_was() {
        let codes: Vec<u8> =
            [400, 401, 403, 404, 409, 422, 429, 503].map(|status| refused(status, false).exit_code()).to_vec();
        assert_eq!(codes, [1, 4, 4, 3, 1, 1, 5, 5]);
        assert_eq!((refused(500, false).exit_code(), refused(502, true).exit_code()), (1, 5));
        let away = ClientError::Unreachable { url: "u".into(), cause: "c".into(), was_sent: false };
        assert_eq!(CliError::from(away).exit_code(), 5);
    }

    #[test]
    fn invalid_fields_are_listed_and_cannot_control_the_terminal() {
        let errors = vec![
            FieldError { field: "title".into(), reason: "must\u{1b}[31m not".into() },
            FieldError { field: "tags".into(), reason: "is missing".into() },
        ];
        let problem =
            Problem { status: 400, title: "Invalid".into(), detail: "2 fields".into(), errors, ..Problem::default() };
        let text = CliError::from(ClientError::Refused(Box::new(problem))).text();
        assert_eq!(text, "Invalid (400)\n  title must\u{fffd}[31m not\n  tags is missing");
    }
}
