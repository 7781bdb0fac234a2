//! The alert rules, the dashboard and the documents, compared with each other and with a server.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::{Scrape, all_traffic, start};

/// Returns the path of a file below `deploy/`.
pub(super) fn deployed(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(file)
}

fn document(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name)).expect(name)
}

/// Returns the names of the alerts, with their lines in the file.
pub(super) fn alerts() -> BTreeMap<String, String> {
    let text = fs::read_to_string(deployed("prometheus/alerts.yaml")).expect("the rules");
    let rules = text.split("- alert: ").skip(1);
    let alerts: BTreeMap<String, String> =
        rules.map(|rule| (rule.lines().next().unwrap_or_default().to_owned(), rule.to_owned())).collect();
    assert!(alerts.len() > 20, "{alerts:?}");
    alerts
}

/// Runs `promtool` in the folder of the rules.
#[track_caller]
fn promtool(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new("promtool").args(arguments).current_dir(folder).output();
    let output = output.expect("promtool is installed: see scripts/prepare");
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {said}");
    said
}

#[test]
fn promtool_accepts_the_rules_their_cases_and_the_example() {
    let folder = deployed("prometheus");
    promtool(&folder, &["check", "rules", "alerts.yaml"]);
    promtool(&folder, &["test", "rules", "tests.yaml"]);
    // The example names a file with a key, which everybody must make for themselves.
    let copy = tempfile::tempdir().expect("a folder");
    for file in ["prometheus.yaml", "alerts.yaml"] {
        fs::copy(folder.join(file), copy.path().join(file)).expect("a copy");
    }
    fs::write(copy.path().join("waybill.key"), "a key").expect("a file");
    promtool(copy.path(), &["check", "config", "prometheus.yaml"]);
}

#[test]
fn every_rule_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() {
    let cases = fs::read_to_string(deployed("prometheus/tests.yaml")).expect("the cases");
    let named = |alert: &str| {
        let of_alert = cases.split("\n  - name: ").skip(1);
        of_alert.filter(|case| case.contains(&format!("alertname: {alert}\n"))).collect::<Vec<_>>()
    };
    for alert in alerts().keys() {
        let (silent, firing): (Vec<&str>, Vec<&str>) =
            named(alert).into_iter().partition(|case| case.contains("exp_alerts: []"));
        assert!(!firing.is_empty() && !silent.is_empty(), "{alert}");
        assert!(firing.iter().all(|case| case.contains("exp_labels:")), "{alert}");
    }
}

#[test]
fn every_rule_has_a_severity_texts_and_a_link_to_its_part_of_the_runbook() {
    for (alert, rule) in alerts() {
        let has = |line: &str| rule.lines().any(|other| other.trim() == line);
        let severities = ["critical", "warning", "info"];
        assert!(severities.iter().any(|severity| has(&format!("severity: {severity}"))), "{rule}");
        assert!(rule.contains("summary: \"") && rule.contains("description: \""), "{rule}");
        assert!(has(&format!("runbook_url: docs/operations.md#{}", alert.to_lowercase())), "{rule}");
    }
}

#[test]
fn every_alert_has_a_heading_in_the_runbook_and_every_such_heading_an_alert() {
    let runbook = document("operations.md");
    let headings = runbook.lines().filter_map(|line| line.strip_prefix("### Waybill"));
    let headings: BTreeSet<String> = headings.map(|rest| format!("Waybill{rest}")).collect();
    assert_eq!(headings, alerts().into_keys().collect());
    for alert in &headings {
        let (_, part) = runbook.split_once(&format!("### {alert}\n")).expect("its part");
        let part = part.split("\n#").next().unwrap_or_default();
        for question in ["**What it means.**", "**What to look at.**", "**What to do.**"] {
            assert!(part.contains(question), "{alert}: {question}");
        }
    }
}

/// Returns the names of metrics in an expression.
fn metrics_in(expression: &str) -> BTreeSet<String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = expression.split(|c: char| !is_word(c));
    let names = words.filter(|word| word.starts_with("waybill_") || word.starts_with("process_") || *word == "up");
    names.map(str::to_owned).collect()
}

/// Returns all expressions of the dashboard.
fn dashboard_expressions() -> Vec<String> {
    fn collect(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("expr").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|value| collect(value, found));
            }
            Value::Array(values) => values.iter().for_each(|value| collect(value, found)),
            _ => {}
        }
    }
    let text = fs::read_to_string(deployed("grafana/waybill.json")).expect("the dashboard");
    let mut found = Vec::new();
    collect(&serde_json::from_str(&text).expect("JSON"), &mut found);
    assert!(found.len() > 40, "{found:?}");
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_and_dashboard_use_only_metrics_that_a_server_has() {
    let app = start(&[]).await;
    all_traffic(&app).await;
    let scrape = Scrape::of(&app).await;
    let known = scrape.names();
    let rules: Vec<String> =
        alerts().into_values().map(|rule| rule.split("labels:").next().unwrap_or_default().to_owned()).collect();
    for expression in rules.iter().chain(&dashboard_expressions()) {
        let used = metrics_in(expression);
        assert!(!used.is_empty(), "{expression}");
        for name in used {
            // `up` is made by Prometheus itself.
            assert!(name == "up" || known.contains(name.as_str()), "{name} in {expression}");
        }
    }
}

#[test]
fn every_expression_of_the_dashboard_can_be_parsed() {
    // What Grafana replaces.
    let replaced = |expression: &str| expression.replace("$__rate_interval", "5m").replace("$job", "waybill");
    let rules: Vec<String> = dashboard_expressions()
        .iter()
        .enumerate()
        .map(|(index, expression)| {
            let expression = serde_json::to_string(&replaced(expression)).expect("JSON");
            format!("      - record: expression_{index}\n        expr: {expression}\n")
        })
        .collect();
    let folder = tempfile::tempdir().expect("a folder");
    let file = format!("groups:\n  - name: dashboard\n    rules:\n{}", rules.concat());
    fs::write(folder.path().join("rules.yaml"), file).expect("a file");
    let said = promtool(folder.path(), &["check", "rules", "rules.yaml"]);
    assert!(said.contains(&format!("{} rules found", rules.len())), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_is_documented_with_its_type_and_every_documented_one_exists() {
    let app = start(&[]).await;
    all_traffic(&app).await;
    let scrape = Scrape::of(&app).await;
    let text = document("metrics.md");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    let cells = |row: &str| row.split('|').map(|cell| cell.trim().trim_matches('`').to_owned()).collect::<Vec<_>>();
    let mut documented = BTreeMap::new();
    for row in rows.map(cells) {
        assert!(row.len() >= 4 && !row[3].is_empty(), "{row:?}");
        assert_eq!(documented.insert(row[0].clone(), row[1].clone()), None, "{} is listed twice", row[0]);
        // The labels are those of a series, apart from the bounds of buckets.
        let series = scrape.samples.keys().filter(|series| {
            let name = series.split('{').next().unwrap_or_default();
            name == row[0] || name == format!("{}_count", row[0])
        });
        let labels = series.map(|series| labels_of(series)).next().unwrap_or_default();
        assert_eq!(row[2], labels, "the labels of {}", row[0]);
    }
    assert_eq!(documented, scrape.families);
}

/// Returns the names of the labels of a series, as the document writes them.
fn labels_of(series: &str) -> String {
    let Some((_, labels)) = series.trim_end_matches('}').split_once('{') else { return "–".to_owned() };
    let names: Vec<&str> =
        labels.split("\",").filter_map(|label| label.split_once('=')).map(|(name, _)| name).collect();
    names.join(", ")
}
