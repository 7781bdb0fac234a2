//! Closed lists: routes, error codes, actions, statuses.

use std::collections::BTreeSet;

use serde_json::Value;
use waybill::domain::action::Action;
use waybill::domain::attempt::ErrorKind;
use waybill::domain::audit::AuditAction;
use waybill::domain::operation::{OperationKind, OperationStatus};
use waybill::domain::stats::Metric;
use waybill::domain::stats::window::Step;
use waybill::domain::status::Status;
use waybill::http::code::Code;

use super::document::{Document, Operation};
use super::shape::reachable;

#[test]
fn every_route_is_documented_and_every_documented_route_exists() {
    let served = waybill::http::routes()
        .into_iter()
        .map(|endpoint| Operation { method: endpoint.method.to_string(), path: endpoint.path.to_owned() });
    assert_eq!(served.collect::<BTreeSet<_>>(), Document::load().operations().into_iter().collect());
}

#[test]
fn every_operation_is_named_after_its_handler() {
    let document = Document::load();
    let table = include_str!("../../src/http/mod.rs");
    for operation in document.operations() {
        let id = document.at(&operation.pointer())["operationId"].as_str().expect("a name");
        let ending = format!("::{id}");
        let path = format!("\"{}\"", operation.path);
        let is_its_route = |line: &str| {
            let names_it = line.contains(&format!("{ending})")) || line.contains(&format!("{ending},"));
            line.contains(&path) && names_it
        };
        assert!(table.lines().any(is_its_route), "{operation:?} is not served by {id}");
    }
}

#[test]
fn every_error_code_is_documented_with_its_status_and_its_meaning_and_no_other_is() {
    let codes: Vec<_> = Code::ALL.iter().map(|code| code.info()).map(|it| (it.name, it.status, it.meaning)).collect();
    assert_eq!(Document::load().error_codes(), codes);
}

#[test]
fn the_actions_of_the_log_are_documented() {
    let document = Document::load();
    assert_eq!(document.open_values("Action"), Action::ALL.map(Action::as_str));
    assert_eq!(document.strings("/components/schemas/ActionFilter/enum"), Action::ALL.map(Action::as_str));
}

#[test]
fn the_states_of_an_event_are_documented() {
    let document = Document::load();
    assert_eq!(document.strings("/components/schemas/Status/enum"), Status::ALL.map(Status::as_str));
    assert_eq!(meanings_of(&document, "Status"), names(Status::ALL.map(Status::as_str)));
}

#[test]
fn the_kinds_of_failures_are_documented() {
    let document = Document::load();
    assert_eq!(document.open_values("ErrorKind"), ErrorKind::ALL.map(ErrorKind::as_str));
}

#[test]
fn the_reasons_of_dead_letters_are_documented() {
    let document = Document::load();
    assert_eq!(
        document.open_values("DeadLetterReason"),
        document.strings("/components/schemas/DeadLetterReasonFilter/enum")
    );
}

#[test]
fn the_kinds_and_the_states_of_operations_are_documented() {
    let document = Document::load();
    let kinds = OperationKind::ALL.map(OperationKind::as_str);
    assert_eq!(document.open_values("OperationKind"), kinds);
    assert_eq!(document.strings("/components/schemas/OperationKindFilter/enum"), kinds);
    let states = OperationStatus::ALL.map(OperationStatus::as_str);
    let documented: BTreeSet<String> =
        document.strings("/components/schemas/OperationStatus/enum").into_iter().map(str::to_owned).collect();
    assert_eq!(documented, names(states));
    assert_eq!(meanings_of(&document, "OperationStatus"), names(states));
}

#[test]
fn the_actions_of_the_audit_log_are_documented() {
    let document = Document::load();
    let actions = AuditAction::ALL.map(AuditAction::as_str);
    assert_eq!(document.open_values("AuditAction"), actions);
    assert_eq!(document.strings("/components/schemas/AuditActionFilter/enum"), actions);
}

#[test]
fn the_steps_and_the_metrics_of_stats_are_documented() {
    let document = Document::load();
    let parameters = document.parameters(&document.operation("get_stats_history"));
    let parameter = |name: &str| {
        let described = parameters.iter().map(|pointer| document.at(pointer)).find(|known| known["name"] == name);
        described.unwrap_or_else(|| panic!("{name} is not documented")).clone()
    };
    assert_eq!(parameter("step")["schema"]["enum"], serde_json::json!(Step::ALL.map(Step::as_str)));
    let metrics = parameter("metric")["description"].as_str().expect("text").to_owned();
    let documented: Vec<&str> = metrics.lines().filter_map(|line| line.strip_prefix("- ")).collect();
    let documented: Vec<&str> = documented.iter().filter_map(|line| line.split(':').next()).collect();
    let names = Metric::ALL.map(|metric| format!("`{}`", metric.as_str()));
    assert_eq!(documented.join(", "), names.join(", "));
}

/// A response may gain values, and a client that was generated before must read them.
#[test]
fn the_enums_of_responses_are_closed_for_ever() {
    let document = Document::load();
    let mut found = BTreeSet::new();
    for operation in document.operations() {
        for pointer in reachable(&document, &format!("{}/responses", operation.pointer())) {
            if document.at(&pointer).get("enum").is_some() {
                found.insert(pointer.rsplit('/').next().expect("a name").to_owned());
            }
        }
    }
    let of_settings = ["CloudEventsMode", "Jitter", "OnExhausted", "Ordering", "ReplayConfig", "WebhookMethod"];
    let of_state = ["BreakerState", "CheckStatus", "Effect", "OperationStatus", "Status"];
    assert_eq!(found, of_settings.into_iter().chain(of_state).map(str::to_owned).collect());
}

fn meanings_of(document: &Document, schema: &str) -> BTreeSet<String> {
    document.keys(&format!("/components/schemas/{schema}/x-enumDescriptions")).into_iter().collect()
}

fn names<const N: usize>(strings: [&str; N]) -> BTreeSet<String> {
    strings.map(str::to_owned).into()
}

#[test]
fn the_document_has_the_version_of_the_crate() {
    assert_eq!(Document::load().at("/info/version"), env!("CARGO_PKG_VERSION"));
}

#[test]
fn every_operation_has_a_unique_name_a_summary_a_description_and_a_known_tag() {
    let document = Document::load();
    let tags: Vec<&Value> = document.at("/tags").as_array().expect("tags").iter().map(|tag| &tag["name"]).collect();
    let mut names = BTreeSet::new();
    for operation in document.operations() {
        let described = document.at(&operation.pointer());
        assert!(names.insert(described["operationId"].as_str().expect("a name")), "{operation:?}");
        assert!(described["summary"].is_string() && described["description"].is_string(), "{operation:?}");
        assert!(tags.contains(&&described["tags"][0]), "{operation:?}");
    }
}

#[test]
fn every_schema_has_a_description() {
    let document = Document::load();
    for name in document.keys("/components/schemas") {
        assert!(document.get(&format!("/components/schemas/{name}/description")).is_some(), "{name}");
    }
}

#[test]
fn every_reusable_component_is_referenced_or_mentioned() {
    let text = waybill::http::docs::OPENAPI;
    let document = Document::load();
    for kind in document.keys("/components") {
        for name in document.keys(&format!("/components/{kind}")) {
            let is_used = text.contains(&format!("'#/components/{kind}/{name}'"));
            assert!(is_used || text.contains(&format!("`{name}`")), "{kind}/{name} is not used");
        }
    }
}
