//! What `waybill doctor` says: which facts about a server and its database are fine, and what to do about the others.
//!
//! A rule takes facts and returns a [`Check`]. Facts that come from the database are one JSON document per examination:
//! they are read into a type of these modules, and what is worth showing becomes the details of the check. Rules know
//! neither the database nor the time.

pub(crate) mod server;
pub(crate) mod settings;
pub(crate) mod storage;
pub(crate) mod transactions;
mod words;
pub(crate) mod work;

use serde::Serialize;
use serde_json::{Value, json};

/// How a check ended. The order is that of gravity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CheckStatus {
    Ok,
    /// It could not be found out: the database did not answer in time, or does not let this role look.
    Unknown,
    /// Somebody should look at it.
    Warning,
    /// Work is lost, late or about to stop.
    Problem,
}

/// What one check has found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Check {
    pub name: &'static str,
    pub status: CheckStatus,
    pub summary: String,
    /// What to do. `None` if all is well.
    pub advice: Option<String>,
    pub details: Value,
}

impl Check {
    pub(crate) fn ok(name: &'static str, summary: impl Into<String>) -> Self {
        Check { name, status: CheckStatus::Ok, summary: summary.into(), advice: None, details: json!({}) }
    }

    pub(crate) fn unknown(name: &'static str, reason: impl Into<String>, advice: Option<&str>) -> Self {
        let advice = advice.map(str::to_owned);
        Check { name, status: CheckStatus::Unknown, summary: reason.into(), advice, details: json!({}) }
    }

    fn warning(name: &'static str, summary: impl Into<String>, advice: impl Into<String>) -> Self {
        let (summary, advice) = (summary.into(), Some(advice.into()));
        Check { name, status: CheckStatus::Warning, summary, advice, details: json!({}) }
    }

    fn problem(name: &'static str, summary: impl Into<String>, advice: impl Into<String>) -> Self {
        Check { status: CheckStatus::Problem, ..Self::warning(name, summary, advice) }
    }

    /// Returns a warning, or a problem if `is_problem`.
    fn graded(name: &'static str, is_problem: bool, summary: impl Into<String>, advice: impl Into<String>) -> Self {
        let check = Self::warning(name, summary, advice);
        if is_problem { Check { status: CheckStatus::Problem, ..check } } else { check }
    }

    fn with(self, details: Value) -> Self {
        Check { details, ..self }
    }
}

/// Returns the gravest status of some checks.
pub(crate) fn gravest(checks: &[Check]) -> CheckStatus {
    checks.iter().map(|check| check.status).max().unwrap_or(CheckStatus::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_graver_than_a_warning_and_a_warning_than_what_is_unknown() {
        let unknown = Check::unknown("a", "nobody knows", None);
        let warning = Check::warning("b", "look", "do");
        let problem = Check::problem("c", "help", "do");
        assert_eq!(gravest(&[]), CheckStatus::Ok);
        assert_eq!(gravest(&[Check::ok("d", "fine"), unknown.clone()]), CheckStatus::Unknown);
        assert_eq!(gravest(&[unknown.clone(), warning.clone()]), CheckStatus::Warning);
        assert_eq!(gravest(&[problem, unknown, warning]), CheckStatus::Problem);
    }
}
