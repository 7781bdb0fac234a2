//! The document is written so that generators make good clients from it, and so that responses can grow.

use std::collections::BTreeSet;

use serde_json::Value;

use super::document::{Document, Operation, escape};

/// Schemas of settings that requests set and responses show. They are open, as all of a response is.
const IN_BOTH: [&str; 8] = [
    "FixedBackoff",
    "ExponentialBackoff",
    "ScheduleBackoff",
    "Filter",
    "Transform",
    "EventTypeFrom",
    "IdempotencyKeyFrom",
    "WebhookResponse",
];

/// Keywords that generators turn into empty models or unions, and what they say is better said in prose.
const FOR_VALIDATORS_ONLY: [&str; 8] =
    ["anyOf", "not", "if", "then", "else", "dependentRequired", "patternProperties", "unevaluatedProperties"];

/// Returns the locations of all objects at a location, below it, and behind references.
pub(super) fn reachable(document: &Document, pointer: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![pointer.to_owned()];
    while let Some(pointer) = open.pop() {
        let inner: Vec<String> = match document.at(&pointer) {
            Value::Object(members) => {
                let target = members.get("$ref").and_then(Value::as_str).and_then(|target| target.strip_prefix('#'));
                let members = members.keys().filter(|name| !["examples", "example"].contains(&name.as_str()));
                let members = members.map(|name| format!("{pointer}/{}", escape(name)));
                target.map(str::to_owned).into_iter().chain(members).collect()
            }
            Value::Array(items) => (0..items.len()).map(|index| format!("{pointer}/{index}")).collect(),
            _ => continue,
        };
        if found.insert(pointer) {
            open.extend(inner);
        }
    }
    found
}

fn responses(document: &Document, operation: &Operation) -> Vec<(String, String)> {
    let responses = format!("{}/responses", operation.pointer());
    let pointer = |status: &String| document.inside(&responses, status).expect("a response");
    document.keys(&responses).into_iter().map(|status| (status.clone(), pointer(&status))).collect()
}

#[test]
fn responses_are_open() {
    let document = Document::load();
    for operation in document.operations() {
        for pointer in reachable(&document, &format!("{}/responses", operation.pointer())) {
            assert_ne!(document.at(&pointer).get("additionalProperties"), Some(&Value::Bool(false)), "{pointer}");
        }
    }
}

#[test]
fn requests_are_closed() {
    let document = Document::load();
    for operation in document.operations() {
        let body = format!("{}/requestBody", operation.pointer());
        if document.get(&body).is_none() {
            continue;
        }
        for pointer in reachable(&document, &body) {
            let schema = document.at(&pointer);
            let is_in_both = IN_BOTH.iter().any(|name| pointer == format!("/components/schemas/{name}"));
            if schema["type"] == "object" && !is_in_both {
                assert!(schema.get("additionalProperties").is_some(), "{pointer} is open");
            }
        }
    }
}

/// A generated client would send a default back, and so reset a field that it did not mean to change.
#[test]
fn bodies_have_no_defaults() {
    let document = Document::load();
    for operation in document.operations() {
        let body = format!("{}/requestBody", operation.pointer());
        if document.get(&body).is_some() {
            for pointer in reachable(&document, &body) {
                assert_eq!(document.at(&pointer).get("default"), None, "{pointer}");
            }
        }
    }
}

#[test]
fn schemas_use_only_what_generators_understand() {
    let document = Document::load();
    for pointer in reachable(&document, "/components/schemas") {
        let is_list_of_fields = pointer.ends_with("/properties");
        for keyword in FOR_VALIDATORS_ONLY.iter().filter(|_| !is_list_of_fields) {
            assert!(document.at(&pointer).get(keyword).is_none(), "{pointer} has {keyword}");
        }
        if let Some(target) = document.at(&pointer).get("$ref") {
            assert!(!target.as_str().expect("a reference").contains("/properties/"), "{pointer}: {target}");
        }
    }
}

/// A union is a named schema, or a named schema and `null`.
#[test]
fn unions_have_names() {
    let document = Document::load();
    for pointer in reachable(&document, "/components/schemas") {
        let Some(choices) = document.at(&pointer).get("oneOf").and_then(Value::as_array) else { continue };
        let is_nullable = choices.len() == 2 && choices[1]["type"] == "null";
        let has_name = pointer.matches('/').count() == 3;
        assert!(is_nullable || has_name, "{pointer}");
        assert!(choices.iter().all(|choice| choice.get("$ref").is_some() || choice["type"] == "null"), "{pointer}");
    }
}

#[test]
fn every_operation_can_answer_with_the_one_problem_schema() {
    let document = Document::load();
    for operation in document.operations() {
        let responses = responses(&document, &operation);
        assert!(responses.iter().any(|(status, _)| status == "default"), "{operation:?}");
        for (status, response) in responses.iter().filter(|(status, _)| status.as_str() >= "400") {
            let schema = document.at(&format!("{response}/content/application~1problem+json/schema"));
            assert_eq!(schema["$ref"], "#/components/schemas/Problem", "{operation:?} {status}");
        }
    }
}

#[test]
fn every_success_with_a_body_has_an_example() {
    let document = Document::load();
    // A script needs no example.
    for operation in document.operations().iter().filter(|operation| operation.path != "/docs/scalar.js") {
        let responses = responses(&document, operation);
        for (status, response) in responses.iter().filter(|(status, _)| status.starts_with('2')) {
            let content = format!("{response}/content");
            if document.get(&content).is_some() {
                for kind in document.keys(&content) {
                    let examples = format!("{content}/{}/examples", escape(&kind));
                    assert!(document.get(&examples).is_some(), "{operation:?} {status} {kind}");
                }
            }
        }
    }
}

#[test]
fn the_id_of_a_request_is_described_once() {
    let document = Document::load();
    for operation in document.operations() {
        let names = document.parameters(&operation).into_iter().map(|pointer| document.at(&pointer)["name"].clone());
        assert!(!names.into_iter().any(|name| name == "X-Request-ID"), "{operation:?}");
    }
    assert!(document.at("/info/description").as_str().expect("text").contains("`X-Request-ID`"));
}
