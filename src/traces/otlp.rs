//! The messages of OTLP that spans are sent in: the part of `opentelemetry/proto` that Waybill uses, with its field
//! numbers. A test decodes them with the generated types of OpenTelemetry.

use std::time::{SystemTime, UNIX_EPOCH};

use prost::{Message, Oneof};

use super::recorder::FinishedSpan;
use super::{SpanKind, Value};
use crate::domain::trace_context::TraceContext;

/// The flag of a sampled trace.
const SAMPLED: u32 = 1;

/// `Status.code` of a span that failed.
const STATUS_ERROR: i32 = 2;

#[derive(Clone, PartialEq, Message)]
pub(super) struct ExportTraceServiceRequest {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

/// What the spans of a process have in common.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    scope: Option<InstrumentationScope>,
    #[prost(message, repeated, tag = "2")]
    spans: Vec<OtlpSpan>,
}

#[derive(Clone, PartialEq, Message)]
struct InstrumentationScope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct OtlpSpan {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
    #[prost(message, repeated, tag = "13")]
    links: Vec<Link>,
    #[prost(uint32, tag = "14")]
    dropped_links_count: u32,
    #[prost(message, optional, tag = "15")]
    status: Option<Status>,
    #[prost(fixed32, tag = "16")]
    flags: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Link {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(fixed32, tag = "6")]
    flags: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(int32, tag = "3")]
    code: i32,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(oneof = "OneValue", tags = "1, 2, 3")]
    value: Option<OneValue>,
}

#[derive(Clone, PartialEq, Oneof)]
enum OneValue {
    #[prost(string, tag = "1")]
    String(String),
    #[prost(bool, tag = "2")]
    Bool(bool),
    #[prost(int64, tag = "3")]
    Int(i64),
}

/// The response of a collector.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ExportTraceServiceResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) partial_success: Option<PartialSuccess>,
}

/// What a collector has not accepted of a request that it answers with 200.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub(super) rejected_spans: i64,
    #[prost(string, tag = "2")]
    pub(super) error_message: String,
}

impl Resource {
    /// Returns the description of this process.
    pub(super) fn of_this_process() -> Self {
        let instance = format!("{}:{}", gethostname::gethostname().to_string_lossy(), std::process::id());
        let attributes = [
            ("service.name", Value::from("waybill")),
            ("service.version", env!("CARGO_PKG_VERSION").into()),
            ("service.instance.id", instance.into()),
        ];
        Resource { attributes: attributes.into_iter().map(KeyValue::from).collect() }
    }
}

impl ExportTraceServiceRequest {
    pub(super) fn of(resource: &Resource, spans: Vec<FinishedSpan>) -> Self {
        let scope = InstrumentationScope { name: "waybill".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
        let spans = spans.into_iter().map(OtlpSpan::from).collect();
        let scope_spans = vec![ScopeSpans { scope: Some(scope), spans }];
        ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans { resource: Some(resource.clone()), scope_spans }],
        }
    }
}

impl From<FinishedSpan> for OtlpSpan {
    fn from(span: FinishedSpan) -> Self {
        OtlpSpan {
            trace_id: span.context.trace_id.to_vec(),
            span_id: span.context.span_id.to_vec(),
            parent_span_id: span.parent.map(|id| id.to_vec()).unwrap_or_default(),
            name: span.name.into_owned(),
            kind: match span.kind {
                SpanKind::Server => 2,
                SpanKind::Client => 3,
                SpanKind::Producer => 4,
                SpanKind::Consumer => 5,
            },
            start_time_unix_nano: nanoseconds(span.began_at),
            end_time_unix_nano: nanoseconds(span.ended_at),
            attributes: span.attributes.into_iter().map(KeyValue::from).collect(),
            links: span.links.into_iter().map(Link::from).collect(),
            dropped_links_count: span.dropped_links,
            status: span.has_failed.then_some(Status { code: STATUS_ERROR }),
            flags: SAMPLED,
        }
    }
}

impl From<TraceContext> for Link {
    fn from(context: TraceContext) -> Self {
        Link {
            trace_id: context.trace_id.to_vec(),
            span_id: context.span_id.to_vec(),
            flags: u32::from(context.is_sampled),
        }
    }
}

impl From<(&'static str, Value)> for KeyValue {
    fn from((key, value): (&'static str, Value)) -> Self {
        let value = match value {
            Value::Text(text) => OneValue::String(text.into_owned()),
            Value::Number(number) => OneValue::Int(number),
            Value::Truth(truth) => OneValue::Bool(truth),
        };
        KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
    }
}

fn nanoseconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
