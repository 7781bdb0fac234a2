//! Traces: spans about requests, events and pushes, sent to a collector by OTLP.
//!
//! A [`Tracer`] begins [`Span`]s. A span that is dropped has ended, and goes to a bounded queue. One task takes spans from
//! the queue and sends them in batches; nothing else ever waits for the collector. If the queue is full, the span is
//! dropped and counted.
//!
//! Whether a span is recorded is decided by its parent: the `traceparent` of the request or of the event. What has no
//! parent begins a trace, and is recorded in `--trace-ratio` of all cases. A span that is not recorded costs nothing but
//! the decision.
//!
//! Without the Cargo feature `otlp` there is another `Tracer` with the same methods, which do nothing (`absent.rs`).
//! docs/tracing.md describes the spans, and docs/decisions/0043 has the reasons.

#[cfg(not(feature = "otlp"))]
mod absent;
#[cfg(feature = "otlp")]
mod collector;
#[cfg(feature = "otlp")]
mod exporter;
#[cfg(feature = "otlp")]
mod otlp;
#[cfg(feature = "otlp")]
mod recorder;
#[cfg(feature = "otlp")]
mod remembered;
mod value;

#[cfg(not(feature = "otlp"))]
pub(crate) use absent::{Span, Tracer};
#[cfg(feature = "otlp")]
pub(crate) use recorder::{Span, Tracer};
pub(crate) use value::Value;

/// Where spans go, and which ones are recorded.
#[derive(Debug, Clone)]
#[cfg_attr(not(feature = "otlp"), expect(dead_code, reason = "read only by the tracer of the feature"))]
pub(crate) struct TraceSettings {
    /// The base URL of the collector; `/v1/traces` is added to its path.
    pub endpoint: String,
    /// Headers of every request to the collector, such as `authorization`. Their values are secret.
    pub headers: Vec<(String, String)>,
    /// The part of traces without a parent that is recorded, 0 to 1.
    pub ratio: f64,
}

/// The role of a span, as OpenTelemetry defines it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpanKind {
    /// Serves a request.
    Server,
    /// Sends a request.
    Client,
    /// Takes an event from a publisher.
    Producer,
    /// Gives an event to a worker, or takes its outcome.
    Consumer,
}
