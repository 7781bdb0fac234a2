//! Repeated settlements: does a settlement that is sent again say what is already on record?
//!
//! Its content is what it says of the work: the result, the status code, the error message, and
//! that there must be no other attempt. How long the work took and when to try again are not
//! content: a worker may measure them anew before it sends its settlement again.

use super::delivery::{LogLine, Report};
use super::json::RawJson;

/// A settlement on record.
#[derive(Debug, Clone, Copy)]
pub struct Recorded<'a> {
    /// What its log entry says; `None` once that has been pruned.
    pub line: Option<RecordedLine<'a>>,
    /// The result on the delivery's row.
    pub result: Option<&'a RawJson>,
}

/// What a log entry says of a settlement.
#[derive(Debug, Clone, Copy)]
pub struct RecordedLine<'a> {
    /// The worker's status code.
    pub status_code: Option<i32>,
    /// What went wrong.
    pub error_message: Option<&'a str>,
    /// Whether another attempt was scheduled.
    pub retry_scheduled: bool,
}

impl<'a> From<&'a LogLine> for RecordedLine<'a> {
    fn from(line: &'a LogLine) -> Self {
        RecordedLine {
            status_code: line.status_code,
            error_message: line.error_message.as_deref(),
            retry_scheduled: line.next_retry_at.is_some(),
        }
    }
}

impl Recorded<'_> {
    /// Returns whether this is a completion with the same content.
    pub fn is_completion(&self, report: &Report) -> bool {
        let is_same_line = self.line.is_none_or(|line| line.status_code == report.status_code);
        is_same_line && self.result == report.result.as_ref()
    }

    /// Returns whether this is a failure with the same content.
    pub fn is_failure(&self, report: &Report, retryable: bool) -> bool {
        self.line.is_none_or(|line| {
            line.status_code == report.status_code
                && line.error_message == report.error_message.as_deref()
                && (retryable || !line.retry_scheduled)
        })
    }
}
