//! The span of a push: one per request to a receiver, in the trace of the event.

use url::Url;

use super::attempt::Attempt;
use crate::domain::subscription::SubscriptionSpec;
use crate::domain::trace_context::TraceContext;
use crate::traces::{Span, SpanKind};
use crate::webhook::Exchange;

/// The span of an attempt, which ends with the answer of the receiver.
pub(super) struct PushSpan(Span);

impl PushSpan {
    /// Begins the span. Of the receiver's URL it has the host and the port: its path may be a secret.
    pub(super) fn begin(attempt: &Attempt, spec: &SubscriptionSpec) -> Self {
        let tracer = attempt.engine.tracer();
        let (push, event) = (&attempt.push, &attempt.push.row.event);
        let parent = event.traceparent.as_deref().filter(|_| tracer.is_on()).and_then(TraceContext::parse);
        let mut span = tracer.span("push", SpanKind::Client, parent);
        if span.is_recorded() {
            span.set("http.request.method", spec.method.as_str());
            if let Ok(url) = Url::parse(&spec.url) {
                url.host_str().into_iter().for_each(|host| span.set("server.address", host.to_owned()));
                url.port_or_known_default().into_iter().for_each(|port| span.set("server.port", i64::from(port)));
            }
            span.set("messaging.system", "waybill");
            span.set("messaging.message.id", event.id.to_string());
            span.set("waybill.namespace_id", i64::from(push.namespace.0));
            span.set("waybill.delivery_id", push.delivery_id.0);
            span.set("waybill.subscription_id", push.subscription_id.0);
            span.set("waybill.attempt", i64::from(push.row.work.retry_count) + 1);
        }
        PushSpan(span)
    }

    /// Returns the `traceparent` for the receiver, or `None` if the span is not recorded.
    pub(super) fn traceparent(&self) -> Option<String> {
        self.0.context().map(|context| context.to_string())
    }

    /// Notes that nothing was sent, because it was too late.
    pub(super) fn release(mut self) {
        self.0.fail("late");
    }

    pub(super) fn finish(mut self, exchange: &Exchange) {
        match &exchange.result {
            Ok(response) => {
                self.0.set("http.response.status_code", i64::from(response.status));
                if !response.is_success() {
                    self.0.fail(response.status.to_string());
                }
            }
            Err(error) => self.0.fail(error.kind.to_string()),
        }
    }
}
