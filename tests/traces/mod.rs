//! Traces, from a request to the spans that a collector decodes.

mod joined;
mod outages;
mod pushes;
mod sampling;
mod secrets;
mod settings;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use reqwest::RequestBuilder;
use serde_json::Value;

use crate::support::receiver::{Receiver, Recorded, Reply as Answer};
use crate::support::{App, Options, Reply, until};

/// The trace of a publisher, its span, and its header.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PUBLISHER: &str = "00f067aa0ba902b7";
const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const UNSAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

/// A collector: a real server that takes OTLP over HTTP, decodes it with the generated types of OpenTelemetry, and answers
/// as collectors do. What it cannot decode gets 400.
pub(crate) struct Collector {
    pub(crate) receiver: Receiver,
    spans: Arc<Mutex<Vec<SeenSpan>>>,
}

/// A span that a collector has taken.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SeenSpan {
    pub trace: String,
    pub id: String,
    /// Empty for the first span of a trace.
    pub parent: String,
    pub name: String,
    pub kind: i32,
    pub attributes: BTreeMap<String, String>,
    /// The attributes of the process.
    pub resource: BTreeMap<String, String>,
    /// The traces and spans that it is linked to.
    pub links: Vec<(String, String)>,
    pub has_failed: bool,
    pub nanoseconds: (u64, u64),
}

impl Collector {
    pub(crate) async fn start() -> Self {
        let collector = Collector { receiver: Receiver::start().await, spans: Arc::default() };
        collector.reject(0);
        collector
    }

    /// Answers from now on that it has rejected so many spans of each request.
    fn reject(&self, rejected_spans: i64) {
        let spans = self.spans.clone();
        self.receiver.answer_with(move |request| match decode(request) {
            Some(decoded) => {
                spans.lock().expect("the spans").extend(decoded);
                let partial = ExportTracePartialSuccess { rejected_spans, error_message: "not these".into() };
                let answer = ExportTraceServiceResponse { partial_success: (rejected_spans > 0).then_some(partial) };
                Answer::ok().header("content-type", "application/x-protobuf").body(answer.encode_to_vec())
            }
            None => Answer::status(400),
        });
    }

    /// Returns the flag of a server that sends its spans here.
    pub(crate) fn flag(&self) -> String {
        format!("--otlp-endpoint={}", self.receiver.url(""))
    }

    /// Starts a server that sends its spans here.
    async fn app(&self, flags: &[&str]) -> App {
        let flags = flags.iter().map(|flag| (*flag).to_owned()).chain([self.flag()]).collect();
        App::start_with(Options { flags, ..Options::default() }).await
    }

    /// Returns the spans so far. A span that was sent twice is returned once.
    pub(crate) fn so_far(&self) -> Vec<SeenSpan> {
        let mut spans = self.spans.lock().expect("the spans").clone();
        spans.sort_by(|a, b| a.id.cmp(&b.id));
        spans.dedup_by(|a, b| a.id == b.id);
        spans.sort_by_key(|span| span.nanoseconds);
        spans
    }

    /// Waits for a span of this name, and returns the spans so far.
    pub(crate) async fn until_named(&self, name: &str) -> Vec<SeenSpan> {
        self.until_count(name, 1).await
    }

    /// Waits until so many spans of this name have arrived, and returns all spans so far.
    async fn until_count(&self, name: &str, count: usize) -> Vec<SeenSpan> {
        let arrived = async || self.so_far().iter().filter(|span| span.name == name).count() >= count;
        until(&format!("{count} of {name} arrive"), arrived).await;
        self.so_far()
    }
}

/// Returns the only span of this name.
#[track_caller]
fn only<'a>(spans: &'a [SeenSpan], name: &str) -> &'a SeenSpan {
    let mut found = spans.iter().filter(|span| span.name == name);
    match (found.next(), found.next()) {
        (Some(span), None) => span,
        _ => panic!("not one {name} in {spans:#?}"),
    }
}

impl SeenSpan {
    #[track_caller]
    fn attribute(&self, name: &str) -> &str {
        self.attributes.get(name).unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }

    fn link(&self) -> (String, String) {
        (self.trace.clone(), self.id.clone())
    }

    /// Returns the `traceparent` of what the span has caused.
    fn traceparent(&self) -> String {
        format!("00-{}-{}-01", self.trace, self.id)
    }
}

/// Returns the spans of a request, or `None` if it is not OTLP over HTTP.
fn decode(request: &Recorded) -> Option<Vec<SeenSpan>> {
    let is_otlp = request.method == "POST"
        && request.path == "/v1/traces"
        && request.header("content-type") == Some("application/x-protobuf");
    let decoded = ExportTraceServiceRequest::decode(request.body.as_slice()).ok().filter(|_| is_otlp)?;
    let mut seen = Vec::new();
    for of_resource in decoded.resource_spans {
        let resource = attributes(of_resource.resource?.attributes);
        for of_scope in of_resource.scope_spans {
            seen.extend(of_scope.spans.into_iter().map(|span| seen_span(span, &resource)));
        }
    }
    Some(seen)
}

fn seen_span(span: Span, resource: &BTreeMap<String, String>) -> SeenSpan {
    SeenSpan {
        trace: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        name: span.name,
        kind: span.kind,
        attributes: attributes(span.attributes),
        resource: resource.clone(),
        links: span.links.iter().map(|link| (hex(&link.trace_id), hex(&link.span_id))).collect(),
        has_failed: span.status.is_some_and(|status| status.code == 2),
        nanoseconds: (span.start_time_unix_nano, span.end_time_unix_nano),
    }
}

fn attributes(of: Vec<KeyValue>) -> BTreeMap<String, String> {
    let text = |value: Option<AnyValue>| match value.and_then(|value| value.value) {
        Some(Any::StringValue(text)) => text,
        Some(Any::IntValue(number)) => number.to_string(),
        Some(Any::BoolValue(truth)) => truth.to_string(),
        other => format!("{other:?}"),
    };
    of.into_iter().map(|attribute| (attribute.key, text(attribute.value))).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

/// Posts with a `traceparent`.
async fn post_traced(app: &App, path: &str, traceparent: &str, body: &Value) -> Reply {
    send(app.client.post(format!("{}{path}", app.base)).header("traceparent", traceparent).json(body)).await
}

async fn send(request: RequestBuilder) -> Reply {
    Reply::of(request.send().await.expect("a response")).await
}

/// Returns the value of a counter of `/metrics`.
async fn counter(app: &App, name: &str) -> usize {
    let text = app.get("/metrics").await.expect(200).text;
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("waybill_{name}_total ")));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().expect("a number")
}
