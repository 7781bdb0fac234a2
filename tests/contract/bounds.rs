//! The limits that the document states are those that the server enforces. Each is tried from both
//! sides.

use reqwest::Url;
use serde_json::{Value, json};

use super::document::{Document, Operation};
use crate::support::{App, Reply};

/// The pattern of text that may hold anything but U+0000.
const ANY_TEXT: &str = r"^[^\x00]*$";

/// Values on either side of a schema's bounds.
#[derive(Default)]
struct Probes {
    accepted: Vec<Value>,
    refused: Vec<Value>,
}

fn probes_of(document: &Document, schema: &str) -> Probes {
    let schema = document.at(schema);
    let mut probes = Probes::default();
    if let Some(strings) = schema["enum"].as_array() {
        probes.accepted.extend(strings.iter().cloned());
        probes.refused.push(json!("no_such_word"));
        return probes;
    }
    // A type that may also be `null` is a list.
    match schema["type"].as_str().or_else(|| schema["type"][0].as_str()) {
        Some("integer" | "number") => probe_number(schema, &mut probes),
        Some("boolean") => {
            probes.accepted.extend([json!(true), json!(false)]);
            probes.refused.push(json!("maybe"));
        }
        Some("string") => probe_text(schema, &mut probes),
        _ => {}
    }
    probes
}

fn probe_number(schema: &Value, probes: &mut Probes) {
    if let Some(minimum) = schema["minimum"].as_i64() {
        probes.accepted.push(json!(minimum));
        probes.refused.push(json!(minimum - 1));
    }
    if let Some(maximum) = schema["maximum"].as_i64() {
        probes.accepted.push(json!(maximum));
        probes.refused.push(json!(maximum + 1));
    }
    probes.refused.push(json!("a dozen"));
}

fn probe_text(schema: &Value, probes: &mut Probes) {
    if schema["format"] == "date-time" {
        probes.accepted.push(json!("2099-03-09T08:15:02+01:00"));
        probes.refused.push(json!("yesterday"));
    }
    if schema["pattern"] == ANY_TEXT {
        probes.refused.push(json!("a\0b"));
        let longest = schema["maxLength"].as_u64().expect("text is bounded") as usize;
        probes.accepted.push(json!("é".repeat(longest)));
        probes.refused.push(json!("é".repeat(longest + 1)));
        let shortest = schema["minLength"].as_u64().unwrap_or(0);
        if shortest > 0 { &mut probes.refused } else { &mut probes.accepted }.push(json!(""));
    }
}

/// A call at the upper bound would really wait; that one second more is refused shows enough.
fn would_wait(name: &str, value: &Value) -> bool {
    name == "wait_seconds" && value.as_i64() > Some(0)
}

#[track_caller]
fn assert_accepted(reply: Reply, operation: &Operation, name: &str, value: &Value) {
    assert_ne!(reply.status, 400, "{operation:?} {name}={value}: {}", reply.text);
}

#[track_caller]
fn assert_refused(reply: Reply, operation: &Operation, name: &str, value: &Value) {
    assert_eq!(reply.status, 400, "{operation:?} {name}={value}: {}", reply.text);
    reply.names(&[name]);
}

/// Sends a request with one parameter set to a value, and with the other parameters that it needs.
async fn send_with_parameter(
    app: &App,
    document: &Document,
    operation: &Operation,
    name: &str,
    value: &Value,
) -> Reply {
    let base = format!("{}{}{}", app.base, operation.with_id(7), operation.required_query());
    let base = Url::parse(&base).expect("a URL");
    let others = base.query_pairs().filter(|(other, _)| other != name);
    let mut query: Vec<(String, String)> = others.map(|(name, value)| (name.into(), value.into())).collect();
    query.push((name.to_owned(), value.as_str().map_or_else(|| value.to_string(), str::to_owned)));
    let mut url = base.clone();
    url.query_pairs_mut().clear().extend_pairs(query);
    let mut request = app.client.request(operation.method.parse().expect("a method"), url);
    if let Some(body) = document.request_example(operation) {
        request = request.json(body);
    }
    Reply::of(request.send().await.expect("a response")).await
}

/// What calls need that exists.
struct Subjects {
    subscription: i64,
    source: i64,
}

impl Subjects {
    async fn create(app: &App) -> Self {
        let subscription = app.subscribe("https://shop.example/hook", json!({"is_active": false})).await;
        let source = app.source(json!({"provider": "github", "verify": {"secret": "s"}})).await;
        let id = |view: &Value| view["id"].as_i64().expect("an id");
        Subjects { subscription: id(&subscription), source: id(&source) }
    }

    fn of(&self, operation: &Operation) -> i64 {
        if operation.path.starts_with("/sources") { self.source } else { self.subscription }
    }
}

/// Returns the operations whose requests are described completely.
fn described(document: &Document) -> impl Iterator<Item = Operation> {
    document.operations().into_iter().filter(|operation| !operation.is_foreign())
}

async fn send(app: &App, operation: &Operation, id: i64, body: &Value) -> Reply {
    let url = format!("{}{}{}", app.base, operation.with_id(id), operation.required_query());
    let request = app.client.request(operation.method.parse().expect("a method"), url).json(body);
    Reply::of(request.send().await.expect("a response")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bounds_of_parameters_are_those_of_the_server() {
    let document = Document::load();
    let app = App::with_keys().await;
    let mut tried = 0;
    for operation in document.operations() {
        for parameter in document.parameters(&operation) {
            let described = document.at(&parameter);
            let name = described["name"].as_str().expect("a name");
            if described["in"] != "query" {
                continue;
            }
            let probes = probes_of(&document, &document.follow(format!("{parameter}/schema")));
            for value in probes.accepted.iter().filter(|value| !would_wait(name, value)) {
                assert_accepted(
                    send_with_parameter(&app, &document, &operation, name, value).await,
                    &operation,
                    name,
                    value,
                );
            }
            for value in &probes.refused {
                assert_refused(
                    send_with_parameter(&app, &document, &operation, name, value).await,
                    &operation,
                    name,
                    value,
                );
            }
            tried += probes.accepted.len() + probes.refused.len();
        }
    }
    assert!(tried > 150, "only {tried} bounds were found");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bounds_of_fields_are_those_of_the_server() {
    let document = Document::load();
    let app = App::with_keys().await;
    let subjects = Subjects::create(&app).await;
    let mut tried = 0;
    for operation in described(&document) {
        let Some(example) = document.request_example(&operation) else { continue };
        let schema = body_schema(&document, &operation);
        for field in document.keys(&format!("{schema}/properties")) {
            let inner = document.inside(&format!("{schema}/properties"), &field).expect("a field");
            let probes = probes_of(&document, &inner);
            let with = |value: &Value| {
                let mut body = example.clone();
                body[&field] = value.clone();
                if field == "publish_burst" {
                    // It is the burst of a rate.
                    body["publishes_per_second"] = 1.into();
                }
                body
            };
            for value in probes.accepted.iter().filter(|value| !would_wait(&field, value)) {
                let reply = send(&app, &operation, subjects.of(&operation), &with(value)).await;
                assert_accepted(reply, &operation, &field, value);
            }
            for value in &probes.refused {
                let reply = send(&app, &operation, subjects.of(&operation), &with(value)).await;
                assert_refused(reply, &operation, &field, value);
            }
            tried += probes.accepted.len() + probes.refused.len();
        }
    }
    assert!(tried > 100, "only {tried} bounds were found");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_field_is_required_exactly_where_the_document_says_so() {
    let document = Document::load();
    let app = App::with_keys().await;
    let subjects = Subjects::create(&app).await;
    for operation in described(&document) {
        if document.request_example(&operation).is_none() {
            continue;
        }
        let schema = document.at(&body_schema(&document, &operation));
        let reply = send(&app, &operation, subjects.of(&operation), &json!({})).await;
        match schema["required"].as_array() {
            Some(list) => {
                let names = list.iter().map(|name| name.as_str().expect("a name"));
                reply.names(&names.collect::<Vec<_>>());
            }
            // An event needs a type, or a title and tags; each missing field is reported once.
            None if operation.path == "/events" => reply.names(&["tags", "title"]),
            None => assert_ne!(reply.status, 400, "{operation:?}: {}", reply.text),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_field_that_is_not_documented_is_refused_by_name() {
    let document = Document::load();
    let app = App::with_keys().await;
    let subjects = Subjects::create(&app).await;
    for operation in described(&document).filter(|operation| operation.method != "GET") {
        let mut body = json!({});
        if let Some(example) = document.request_example(&operation) {
            let schema = body_schema(&document, &operation);
            assert_eq!(document.at(&schema)["additionalProperties"], false, "{operation:?}");
            body = example.clone();
        }
        body["colour"] = json!("red");
        send(&app, &operation, subjects.of(&operation), &body).await.names(&["colour"]);
    }
}

fn body_schema(document: &Document, operation: &Operation) -> String {
    document.follow(format!("{}/requestBody/content/application~1json/schema", operation.pointer()))
}
