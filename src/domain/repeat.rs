//! Repeated settlements: whether a settlement has the same content as the one already recorded.
//!
//! The content is the result, the status code, the error message, and whether another attempt is
//! allowed. The duration of the work and the time of the next attempt are not content, because a
//! worker may measure them again before it repeats a settlement.

use super::delivery::{LogLine, Report};
use super::json::RawJson;

/// A recorded settlement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recorded<'a> {
    /// Its log entry; `None` once that has been pruned.
    pub line: Option<RecordedLine<'a>>,
    /// The result on the delivery's row.
    pub result: Option<&'a RawJson>,
}

/// The part of a log entry that describes a settlement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordedLine<'a> {
    /// The status code that the worker reported.
    pub status_code: Option<i32>,
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
    /// Returns whether a completion with this report has the recorded content.
    pub(crate) fn is_completion(&self, report: &Report) -> bool {
        let is_same_line = self.line.is_none_or(|line| line.status_code == report.status_code);
        is_same_line && self.result == report.result.as_ref()
    }

    /// Returns whether a failure with this report has the recorded content.
    pub(crate) fn is_failure(&self, report: &Report, retryable: bool) -> bool {
        self.line.is_none_or(|line| {
            line.status_code == report.status_code
                && line.error_message == report.error_message.as_deref()
                && (retryable || !line.retry_scheduled)
        })
    }
}
