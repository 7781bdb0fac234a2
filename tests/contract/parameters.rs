//! Query parameters: the server accepts all that are documented, and no others.

use reqwest::Url;
use serde_json::Value;

use super::document::{Document, Operation};
use crate::support::{App, Reply};

/// Returns a value that a parameter accepts.
fn fitting_value(document: &Document, parameter: &str) -> String {
    let described = document.at(parameter);
    let schema = document.at(&document.follow(format!("{parameter}/schema")));
    let known = [&described["example"], &schema["default"], &schema["enum"][0]];
    match known.into_iter().find(|value| !value.is_null()) {
        Some(value) => text_of(value),
        None if schema["format"] == "date-time" => "2026-03-09T08:15:02Z".into(),
        None => schema["minimum"].as_i64().unwrap_or(7).to_string(),
    }
}

/// Returns the query parameters of an operation, with values that it accepts. All but `after`: a cursor
/// belongs to one list and its filters, and only a list can give one.
fn whole_query(document: &Document, operation: &Operation) -> Vec<(String, String)> {
    let parameters = document.parameters(operation);
    let of_query = parameters.iter().filter(|pointer| document.at(pointer)["in"] == "query");
    let named = of_query.flat_map(|pointer| {
        let described = document.at(pointer);
        // The members of an object are parameters of their own.
        if let Some(members) = described["example"].as_object() {
            return members.iter().map(|(name, value)| (name.clone(), text_of(value))).collect();
        }
        vec![(described["name"].as_str().expect("a name").to_owned(), fitting_value(document, pointer))]
    });
    named.filter(|(name, _)| name != "after").collect()
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

async fn send_query(app: &App, document: &Document, operation: &Operation, query: &[(String, String)]) -> Reply {
    let url = Url::parse_with_params(&format!("{}{}", app.base, operation.with_id(7)), query).expect("a URL");
    let mut request = app.client.request(operation.method.parse().expect("a method"), url);
    if let Some(body) = document.request_example(operation) {
        request = request.json(body);
    }
    Reply::of(request.send().await.expect("a response")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_documented_parameter_is_accepted() {
    let document = Document::load();
    let app = App::with_keys().await;
    for operation in document.operations() {
        let query = whole_query(&document, &operation);
        let reply = send_query(&app, &document, &operation, &query).await;
        assert_ne!(reply.status, 400, "{operation:?} {query:?}: {}", reply.text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parameter_that_is_not_documented_is_refused_by_name() {
    let document = Document::load();
    let app = App::with_keys().await;
    for operation in document.operations().into_iter().filter(|operation| !operation.is_foreign()) {
        let mut query = whole_query(&document, &operation);
        query.push(("colour".into(), "red".into()));
        send_query(&app, &document, &operation, &query).await.names(&["colour"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parameter_is_required_exactly_where_the_document_says_so() {
    let document = Document::load();
    let app = App::with_keys().await;
    for operation in document.operations() {
        let required: Vec<String> = document
            .parameters(&operation)
            .iter()
            .map(|pointer| document.at(pointer))
            .filter(|parameter| parameter["in"] == "query" && parameter["required"] == true)
            .map(|parameter| parameter["name"].as_str().expect("a name").to_owned())
            .collect();
        let reply = send_query(&app, &document, &operation, &[]).await;
        if required.is_empty() {
            assert_ne!(reply.status, 400, "{operation:?}: {}", reply.text);
        } else {
            reply.names(&required.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }
}
