//! Closed lists: routes, error codes, actions, statuses.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use waybill::domain::action::Action;
use waybill::domain::attempt::ErrorKind;
use waybill::domain::status::Status;
use waybill::http::code::Code;

use super::document::{Document, Operation};

#[test]
fn every_route_is_documented_and_every_documented_route_exists() {
    let served = waybill::http::routes()
        .into_iter()
        .map(|endpoint| Operation { method: endpoint.method.to_string(), path: endpoint.path.to_owned() });
    assert_eq!(served.collect::<BTreeSet<_>>(), Document::load().operations().into_iter().collect());
}

#[test]
fn every_error_code_is_documented_with_its_status_and_no_other_is() {
    let document = Document::load();
    let codes: Vec<&str> = Code::ALL.iter().map(|code| code.name()).collect();
    assert_eq!(document.strings("/components/schemas/ErrorCode/enum"), codes);
    let meanings = document.at("/components/schemas/ErrorCode/x-enumDescriptions").as_object().expect("meanings");
    assert_eq!(meanings.len(), codes.len());
    for code in Code::ALL {
        let meaning = meanings[code.name()].as_str().expect("a meaning");
        assert!(meaning.starts_with(&format!("`{}` ", code.status().as_u16())), "{}: {meaning}", code.name());
    }
}

#[test]
fn every_error_code_is_documented_under_its_own_status() {
    let document = Document::load();
    let mut documented: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    for name in document.keys("/components/responses") {
        let schema = format!("/components/responses/{name}/content/application~1problem+json/schema");
        if document.get(&schema).is_some() {
            collect_codes(&document, schema, &mut documented);
        }
    }
    let known = Code::ALL.iter().map(|code| (code.name().to_owned(), BTreeSet::from([u64::from(code.info().status)])));
    assert_eq!(documented, known.collect());
}

/// Collects the codes that a problem's schema allows, each with its status.
fn collect_codes(document: &Document, schema: String, codes: &mut BTreeMap<String, BTreeSet<u64>>) {
    let schema = document.follow(schema);
    if let Some(choices) = document.at(&schema).get("oneOf") {
        for index in 0..choices.as_array().expect("choices").len() {
            collect_codes(document, format!("{schema}/oneOf/{index}"), codes);
        }
        return;
    }
    let properties = &document.at(&schema)["properties"];
    let status = properties["status"]["const"].as_u64().expect("a status");
    let code = &properties["code"];
    let strings = code["enum"].as_array().cloned().unwrap_or_else(|| vec![code["const"].clone()]);
    for word in strings {
        codes.entry(word.as_str().expect("a code").to_owned()).or_default().insert(status);
    }
}

#[test]
fn problems_are_documented_under_the_status_that_they_name() {
    let document = Document::load();
    for operation in document.operations() {
        let responses = format!("{}/responses", operation.pointer());
        for status in document.keys(&responses).iter().filter(|status| status.as_str() >= "400") {
            let response = document.inside(&responses, status).expect("a response");
            let mut codes = BTreeMap::new();
            collect_codes(&document, format!("{response}/content/application~1problem+json/schema"), &mut codes);
            let statuses: BTreeSet<String> = codes.values().flatten().map(u64::to_string).collect();
            assert_eq!(statuses, BTreeSet::from([status.clone()]), "{operation:?}");
        }
    }
}

#[test]
fn the_actions_of_the_log_are_documented() {
    let document = Document::load();
    assert_eq!(document.strings("/components/schemas/Action/enum"), Action::ALL.map(Action::as_str));
    assert_eq!(meanings_of(&document, "Action"), names(Action::ALL.map(Action::as_str)));
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
    assert_eq!(document.strings("/components/schemas/ErrorKind/enum"), ErrorKind::ALL.map(ErrorKind::as_str));
    assert_eq!(meanings_of(&document, "ErrorKind"), names(ErrorKind::ALL.map(ErrorKind::as_str)));
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
fn every_operation_has_a_unique_name_a_summary_and_a_known_tag() {
    let document = Document::load();
    let tags: Vec<&Value> = document.at("/tags").as_array().expect("tags").iter().map(|tag| &tag["name"]).collect();
    let mut names = BTreeSet::new();
    for operation in document.operations() {
        let described = document.at(&operation.pointer());
        assert!(names.insert(described["operationId"].as_str().expect("a name")), "{operation:?}");
        assert!(described["summary"].is_string(), "{operation:?}");
        assert!(tags.contains(&&described["tags"][0]), "{operation:?}");
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
