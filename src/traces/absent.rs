//! The tracer of a build without the feature `otlp`: it begins spans that record nothing.

use chrono::{DateTime, Utc};

use super::{SpanKind, TraceSettings, Value};
use crate::domain::ids::EventKey;
use crate::domain::trace_context::TraceContext;
use crate::metrics::Metrics;

#[derive(Debug, Clone, Default)]
pub(crate) struct Tracer;

#[derive(Debug)]
pub(crate) struct Span;

#[expect(clippy::unused_self, reason = "the same methods as those of the feature")]
impl Tracer {
    /// Returns an error if there is a collector to send spans to.
    pub(crate) fn start(settings: Option<&TraceSettings>, _: &Metrics) -> Result<Self, String> {
        match settings {
            None => Ok(Tracer),
            Some(_) => Err("--otlp-endpoint is given, but this program was built without traces. Build it with \
                            `cargo build --release --features otlp`, or leave the setting out"
                .into()),
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        false
    }

    pub(crate) fn span(&self, _: &'static str, _: SpanKind, _: Option<TraceContext>) -> Span {
        Span
    }

    pub(crate) fn remember(&self, _: EventKey, _: TraceContext) {}

    pub(crate) fn recall(&self, _: EventKey) -> Option<TraceContext> {
        None
    }

    pub(crate) async fn stop(&self) {}
}

#[expect(clippy::unused_self, reason = "the same methods as those of the feature")]
impl Span {
    pub(crate) fn is_recorded(&self) -> bool {
        false
    }

    pub(crate) fn context(&self) -> Option<TraceContext> {
        None
    }

    pub(crate) fn rename(&mut self, _: String) {}

    pub(crate) fn begin_at(&mut self, _: DateTime<Utc>) {}

    pub(crate) fn set(&mut self, _: &'static str, _: impl Into<Value>) {}

    pub(crate) fn link(&mut self, _: TraceContext) {}

    pub(crate) fn fail(&mut self, _: impl Into<Value>) {}
}
