//! `waybill doctor`: what is wrong with a server and its database, and what to do about it.

use serde_json::Value;

use super::Session;
use crate::cli::error::CliError;
use crate::cli::output::{Output, plural, state_style, word, wrapped};
use crate::config::DoctorArgs;

/// How checks end, the gravest first.
const STATUSES: [&str; 4] = ["problem", "warning", "unknown", "ok"];

pub(crate) async fn run(args: DoctorArgs) -> Result<(), CliError> {
    let session = Session::open(&args.server)?;
    let diagnosis = session.client.get("/doctor").await?;
    session.output.answer(&diagnosis, |diagnosis| print(&session.output, diagnosis))?;
    verdict(&diagnosis.value, args.strict)
}

fn print(output: &Output, diagnosis: &Value) -> Result<(), CliError> {
    for status in STATUSES {
        for check in checks(diagnosis).filter(|check| check["status"] == status) {
            print_check(output, status, check)?;
        }
    }
    Ok(())
}

fn checks(diagnosis: &Value) -> impl Iterator<Item = &Value> {
    diagnosis["checks"].as_array().into_iter().flatten()
}

/// Prints a check. What to do is on lines of its own, below what was found.
fn print_check(output: &Output, status: &str, check: &Value) -> Result<(), CliError> {
    let name = word(&check["name"]).replace('_', " ");
    let padded = format!("{status:<7}");
    let width = output.width.unwrap_or(usize::MAX).saturating_sub(9);
    let mut found = wrapped(&format!("{name}: {}", word(&check["summary"])), width).into_iter();
    let first = found.next().unwrap_or_default();
    output.line(&format!("{}  {first}", output.paint.paint(state_style(status), &padded)))?;
    for line in found {
        output.line(&format!("         {line}"))?;
    }
    for line in wrapped(&word(&check["advice"]), width.saturating_sub(2)) {
        output.line(&format!("           {}", output.paint.dim(&line)))?;
    }
    Ok(())
}

/// Returns an error if there are problems. With `strict`, warnings and what is unknown count, too.
fn verdict(diagnosis: &Value, strict: bool) -> Result<(), CliError> {
    let count = |status: &str| checks(diagnosis).filter(|check| check["status"] == status).count() as u64;
    let (problems, warnings, unknown) = (count("problem"), count("warning"), count("unknown"));
    if problems == 0 && !(strict && warnings + unknown > 0) {
        return Ok(());
    }
    Err(CliError::Findings(format!(
        "{}, {}, {unknown} unknown",
        plural(problems, "problem"),
        plural(warnings, "warning")
    )))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn warnings_count_only_if_they_should() {
        let diagnosis = |statuses: &[&str]| {
            let checks: Vec<Value> = statuses.iter().map(|status| json!({ "status": status })).collect();
            json!({ "checks": checks })
        };
        assert!(verdict(&diagnosis(&["ok", "warning", "unknown"]), false).is_ok());
        assert!(verdict(&diagnosis(&["ok"]), true).is_ok());
        assert!(verdict(&diagnosis(&["ok", "warning"]), true).is_err());
        assert!(verdict(&diagnosis(&["ok", "unknown"]), true).is_err());
        let text = verdict(&diagnosis(&["problem", "warning", "warning"]), false).unwrap_err().to_string();
        assert_eq!(text, "1 problem, 2 warnings, 0 unknown");
    }
}
