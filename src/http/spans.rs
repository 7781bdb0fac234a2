//! The spans of requests: of the request itself, of what it publishes, claims and settles.
//!
//! A span about one event belongs to the trace of the event, and is linked to the request; if the request belongs to the
//! same trace, the span stands below it. A span about several events stands below the request, and is linked to the traces
//! of the events. No span contains a body, a key, a query or a token.

use std::sync::Arc;

use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::web::Data;
use actix_web::{HttpMessage as _, HttpRequest};
use chrono::{DateTime, Utc};

use super::new_event::traceparent;
use super::problem::code_of;
use crate::domain::event::NewEvent;
use crate::domain::ids::{EventId, NamespaceId};
use crate::domain::trace_context::TraceContext;
use crate::engine::Engine;
use crate::engine::settle::SettleOutcome;
use crate::error::Error;
use crate::store::tables::event_columns::EventRow;
use crate::store::tables::events::StoredEvent;
use crate::traces::{Span, SpanKind};

/// Paths that monitoring requests all the time. They begin no traces.
const UNTRACED: [&str; 3] = ["/health", "/ready", "/metrics"];

/// The context of a request's span; not sampled if the request is not recorded.
#[derive(Clone, Copy)]
struct RequestContext(TraceContext);

/// Stands for a request that is not recorded.
const UNRECORDED: TraceContext = TraceContext { trace_id: [0; 16], span_id: [0; 8], is_sampled: false };

/// The span of a request, which ends with its response.
pub(crate) struct RequestSpan {
    span: Span,
    is_answered: bool,
}

impl RequestSpan {
    /// Begins the span of a request. `path` is the path without what is secret in it.
    pub(crate) fn begin(
        request: &ServiceRequest,
        request_id: &str,
        path: impl Fn(&ServiceRequest) -> String,
    ) -> Option<Self> {
        let engine = request.app_data::<Data<Engine>>()?;
        if !engine.tracer().is_on() {
            return None;
        }
        let parent = traceparent(request.request()).as_deref().and_then(TraceContext::parse);
        let parent = parent.or_else(|| UNTRACED.contains(&request.path()).then_some(UNRECORDED));
        let mut span = engine.tracer().span("HTTP", SpanKind::Server, parent);
        if span.is_recorded() {
            let method = known_method(request.method());
            let route = request.match_pattern();
            span.rename(route.as_ref().map_or_else(|| method.to_owned(), |route| format!("{method} {route}")));
            span.set("http.request.method", method);
            route.into_iter().for_each(|route| span.set("http.route", route));
            span.set("url.path", path(request));
            span.set("waybill.request_id", request_id.to_owned());
        }
        request.extensions_mut().insert(RequestContext(span.context().unwrap_or(UNRECORDED)));
        Some(RequestSpan { span, is_answered: false })
    }

    pub(crate) fn finish<B>(mut self, response: &ServiceResponse<B>) {
        self.is_answered = true;
        let status = response.status();
        self.span.set("http.response.status_code", i64::from(status.as_u16()));
        if status.is_server_error() {
            self.span.fail(status.as_u16().to_string());
        }
    }
}

impl Drop for RequestSpan {
    fn drop(&mut self) {
        if !self.is_answered {
            self.span.fail("client_gone");
        }
    }
}

/// Returns a method of the standards by its name: clients may invent others.
fn known_method(method: &Method) -> &'static str {
    const KNOWN: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"];
    KNOWN.into_iter().find(|known| *known == method.as_str()).unwrap_or("_OTHER")
}

fn context_of(request: &HttpRequest) -> Option<TraceContext> {
    request.extensions().get::<RequestContext>().map(|context| context.0)
}

/// Begins a span about one event.
fn span_about(
    engine: &Engine,
    name: &'static str,
    kind: SpanKind,
    request: Option<TraceContext>,
    event: Option<TraceContext>,
) -> Span {
    let Some(event) = event else { return engine.tracer().span(name, kind, request) };
    let request = request.filter(|request| request.is_sampled);
    let (parent, link) = match request {
        Some(request) if request.trace_id == event.trace_id => (request, None),
        other => (event, other),
    };
    let mut span = engine.tracer().span(name, kind, Some(parent));
    link.into_iter().for_each(|link| span.link(link));
    span
}

fn trace_of(traceparent: Option<&String>) -> Option<TraceContext> {
    TraceContext::parse(traceparent?)
}

/// Events that are about to be stored, and the span about it.
pub(crate) struct TracedEvents {
    pub(crate) events: Arc<Vec<NewEvent>>,
    span: Span,
}

impl TracedEvents {
    /// Begins the span. Events without a trace get that of the span, if it is recorded: workers and receivers join it.
    pub(crate) fn begin(
        engine: &Engine,
        request: &HttpRequest,
        namespace: NamespaceId,
        mut events: Vec<NewEvent>,
    ) -> Self {
        let span = publish_span(engine, request, &events);
        if let Some(context) = span.context() {
            for event in events.iter_mut().filter(|event| event.traceparent.is_none()) {
                event.traceparent = Some(context.to_string());
            }
        }
        let mut traced = TracedEvents { events: Arc::new(events), span };
        traced.span.set("messaging.system", "waybill");
        traced.span.set("messaging.operation.type", "send");
        traced.span.set("messaging.batch.message_count", traced.events.len() as i64);
        traced.span.set("waybill.namespace_id", i64::from(namespace.0));
        traced
    }

    /// Notes what became of the events.
    pub(crate) fn note(&mut self, outcome: &Result<Vec<StoredEvent>, Error>) {
        if !self.span.is_recorded() {
            return;
        }
        match outcome {
            Ok(stored) => {
                if let [only] = stored.as_slice() {
                    self.span.set("messaging.message.id", only.id.to_string());
                }
                let repeated = stored.iter().filter(|stored| stored.is_repeated).count();
                self.span.set("waybill.repeated_count", repeated as i64);
            }
            Err(error) => self.span.fail(code_of(error).info().name),
        }
    }
}

fn publish_span(engine: &Engine, request: &HttpRequest, events: &[NewEvent]) -> Span {
    if !engine.tracer().is_on() {
        return engine.tracer().span("publish", SpanKind::Producer, None);
    }
    let request = context_of(request);
    if let [only] = events {
        let event = trace_of(only.traceparent.as_ref());
        return span_about(engine, "publish", SpanKind::Producer, request, event);
    }
    let mut span = engine.tracer().span("publish", SpanKind::Producer, request);
    if span.is_recorded() {
        let traces = events.iter().filter_map(|event| trace_of(event.traceparent.as_ref()));
        let own = request.map(|request| request.trace_id);
        traces.filter(|trace| Some(trace.trace_id) != own).for_each(|trace| span.link(trace));
    }
    span
}

/// Records what a worker has claimed, since `began_at`. A claim of nothing has no span.
pub(crate) fn note_claim(
    engine: &Engine,
    request: &HttpRequest,
    namespace: NamespaceId,
    began_at: DateTime<Utc>,
    claimed: &[EventRow],
) {
    if !engine.tracer().is_on() || claimed.is_empty() {
        return;
    }
    let traces: Vec<Option<TraceContext>> =
        claimed.iter().map(|row| trace_of(row.event.traceparent.as_ref())).collect();
    for (row, trace) in claimed.iter().zip(&traces) {
        if let Some(trace) = trace {
            engine.tracer().remember(namespace.event(row.event.id), *trace);
        }
    }
    let mut span = claim_span(engine, context_of(request), began_at, claimed, &traces);
    span.set("messaging.system", "waybill");
    span.set("messaging.operation.type", "receive");
    span.set("messaging.batch.message_count", claimed.len() as i64);
    span.set("waybill.namespace_id", i64::from(namespace.0));
}

fn claim_span(
    engine: &Engine,
    request: Option<TraceContext>,
    began_at: DateTime<Utc>,
    claimed: &[EventRow],
    traces: &[Option<TraceContext>],
) -> Span {
    let ([row], [trace]) = (claimed, traces) else {
        let mut span = engine.tracer().span("claim", SpanKind::Consumer, request);
        traces.iter().flatten().for_each(|trace| span.link(*trace));
        span.begin_at(began_at);
        return span;
    };
    let mut span = span_about(engine, "claim", SpanKind::Consumer, request, *trace);
    if span.is_recorded() {
        span.set("messaging.message.id", row.event.id.to_string());
        span.set("waybill.attempt", i64::from(row.work.retry_count) + 1);
        // A worker may have waited long before the event existed.
        span.begin_at(began_at.max(row.event.created_at).min(Utc::now()));
    }
    span
}

/// A settlement of a worker, and what became of it.
pub(crate) struct NotedSettlement<'a> {
    pub(crate) namespace: NamespaceId,
    pub(crate) event_id: EventId,
    /// The last word of the path: `complete`, `fail`, …
    pub(crate) verb: &'static str,
    pub(crate) began_at: DateTime<Utc>,
    pub(crate) outcome: &'a Result<SettleOutcome, Error>,
}

impl NotedSettlement<'_> {
    /// Records the settlement. A heartbeat has no span.
    pub(crate) fn note(&self, engine: &Engine, request: &HttpRequest) {
        if !engine.tracer().is_on() || matches!(self.outcome, Ok(SettleOutcome::Extended { .. })) {
            return;
        }
        let event = engine.tracer().recall(self.namespace.event(self.event_id));
        let mut span = span_about(engine, self.verb, SpanKind::Consumer, context_of(request), event);
        if !span.is_recorded() {
            return;
        }
        span.begin_at(self.began_at);
        span.set("messaging.system", "waybill");
        span.set("messaging.operation.type", "settle");
        span.set("messaging.message.id", self.event_id.to_string());
        span.set("waybill.namespace_id", i64::from(self.namespace.0));
        match self.outcome {
            Ok(SettleOutcome::Recorded(record)) => {
                span.set("waybill.outcome", record.status.as_str());
                span.set("waybill.failures", i64::from(record.retry_count));
                span.set("waybill.repeated", record.is_repeat);
            }
            Ok(SettleOutcome::Extended { .. }) => {}
            Err(error) => span.fail(code_of(error).info().name),
        }
    }
}
