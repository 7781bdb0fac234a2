//! Every example fits its schema, and the server accepts those of requests.

use serde_json::Value;

use super::document::{Document, escape};
use crate::support::{App, Reply};

#[test]
fn every_example_and_every_default_fits_its_schema() {
    let document = Document::load();
    assert!(check_below(&document, "") > 60, "the examples were found");
}

/// Checks the examples and defaults at a location and below it. Returns their number.
fn check_below(document: &Document, pointer: &str) -> usize {
    let members = match document.at(pointer) {
        Value::Object(members) => members,
        Value::Array(items) => return (0..items.len()).map(|n| check_below(document, &format!("{pointer}/{n}"))).sum(),
        _ => return 0,
    };
    let mut checked = 0;
    for (name, value) in members {
        let inner = format!("{pointer}/{}", escape(name));
        match (name.as_str(), value) {
            // Of a schema.
            ("examples", Value::Array(examples)) => {
                examples.iter().for_each(|example| document.validate(pointer, example));
                checked += examples.len();
            }
            // Of a schema; under `responses` it is the name of a response.
            ("default", default) if !pointer.ends_with("/responses") => {
                document.validate(pointer, default);
                checked += 1;
            }
            // Of a body, a parameter or a header.
            ("example", example) => {
                document.validate(&format!("{pointer}/schema"), example);
                checked += 1;
            }
            // Of a body; in a list of fields, it is the name of a field.
            ("examples", Value::Object(examples))
                if members.contains_key("schema") && !pointer.ends_with("/properties") =>
            {
                for name in examples.keys() {
                    let example = document.inside(&inner, name).expect("an example");
                    document.validate(&format!("{pointer}/schema"), &document.at(&example)["value"]);
                }
                checked += examples.len();
            }
            // Reusable components are checked where they are used.
            ("examples", _) => {}
            _ => checked += check_below(document, &inner),
        }
    }
    checked
}

#[test]
fn every_request_that_has_a_body_has_an_example_of_it() {
    let document = Document::load();
    for operation in document.operations() {
        let has_body = document.get(&format!("{}/requestBody", operation.pointer())).is_some();
        assert_eq!(has_body, document.request_example(&operation).is_some(), "{operation:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_example_of_a_request_is_accepted_by_the_server() {
    let document = Document::load();
    let app = App::with_keys().await;
    let id = app.publish_tagged("unclaimed").await;
    for operation in document.operations() {
        for example in document.request_examples(&operation) {
            let url = format!("{}{}", app.base, operation.with_id(id));
            let mut example = example.clone();
            // The event that an example names is the one that is there.
            if let Some(event_id) = example.get_mut("event_id").filter(|event_id| event_id.is_number()) {
                *event_id = id.into();
            }
            let request = app.client.request(operation.method.parse().expect("a method"), url).json(&example);
            let reply = Reply::of(request.send().await.expect("a response")).await;
            // A call about an unclaimed event is understood and refused, and there is nothing else
            // here but that event.
            let is_elsewhere = !operation.path.starts_with("/events") && operation.path.contains(['{']);
            let is_understood =
                [200, 201, 202, 204, 409].contains(&reply.status) || (is_elsewhere && reply.status == 404);
            assert!(is_understood, "{operation:?} {example}: {reply:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_backoff_of_the_document_is_accepted() {
    let document = Document::load();
    let app = App::with_keys().await;
    for strategy in ["FixedBackoff", "ExponentialBackoff", "ScheduleBackoff"] {
        let backoff = document.at(&format!("/components/schemas/{strategy}/examples/0"));
        app.publish(serde_json::json!({"title": strategy, "tags": "any", "backoff": backoff})).await;
    }
}
