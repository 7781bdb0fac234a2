//! The tracer that records spans, and the spans.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use chrono::{DateTime, Utc};
use prometheus_client::metrics::counter::Counter;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::collector::Collector;
use super::exporter::{Exporter, Losses};
use super::remembered::Remembered;
use super::{SpanKind, TraceSettings, Value};
use crate::domain::ids::EventKey;
use crate::domain::trace_context::TraceContext;
use crate::metrics::Metrics;

/// The maximum number of spans that wait to be sent; further ones are dropped.
const QUEUED_SPANS: usize = 4_096;

/// The maximum number of links of a span; further ones are only counted.
const MAX_LINKS: usize = 64;

/// The time that the last spans may take to be sent when the server stops.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// A handle by which spans are begun. All clones share their queue.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tracer(Option<Arc<Shared>>);

#[derive(Debug)]
struct Shared {
    queue: mpsc::Sender<FinishedSpan>,
    /// Traces without a parent are recorded if this part of their id is below it.
    threshold: u64,
    remembered: Remembered,
    dropped: Counter,
    /// The number of dropped spans that no log line has told about.
    unreported: Arc<AtomicU64>,
    stopping: CancellationToken,
    exporter: Mutex<Option<JoinHandle<()>>>,
}

/// A span that has begun, or nothing if it is not recorded. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Span(Option<Box<OpenSpan>>);

#[derive(Debug)]
struct OpenSpan {
    span: FinishedSpan,
    tracer: Arc<Shared>,
}

/// A span as it waits to be sent.
#[derive(Debug, Clone)]
pub(super) struct FinishedSpan {
    pub(super) context: TraceContext,
    /// The id of the parent; `None` for the first span of a trace.
    pub(super) parent: Option<[u8; 8]>,
    pub(super) name: Cow<'static, str>,
    pub(super) kind: SpanKind,
    pub(super) began_at: SystemTime,
    pub(super) ended_at: SystemTime,
    pub(super) attributes: Vec<(&'static str, Value)>,
    pub(super) links: Vec<TraceContext>,
    pub(super) dropped_links: u32,
    pub(super) has_failed: bool,
}

impl Tracer {
    /// Starts to send spans to a collector; without settings nothing is recorded. Must be called on the main runtime.
    pub(crate) fn start(settings: Option<&TraceSettings>, metrics: &Metrics) -> Result<Self, String> {
        let Some(settings) = settings else { return Ok(Tracer::default()) };
        let collector = Collector::new(settings)?;
        let (queue, spans) = mpsc::channel(QUEUED_SPANS);
        let (stopping, unreported) = (CancellationToken::new(), Arc::<AtomicU64>::default());
        let losses = Losses::new(metrics.spans_failed.clone(), unreported.clone());
        let exporter = Exporter::new(collector, spans, losses, metrics.spans_exported.clone(), stopping.clone());
        Ok(Tracer(Some(Arc::new(Shared {
            queue,
            threshold: threshold(settings.ratio),
            remembered: Remembered::default(),
            dropped: metrics.spans_dropped.clone(),
            unreported,
            stopping,
            exporter: Mutex::new(Some(tokio::spawn(exporter.run()))),
        }))))
    }

    /// Returns whether spans may be recorded at all.
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Begins a span. It is recorded if its parent is; without a parent, chance decides.
    pub(crate) fn span(&self, name: &'static str, kind: SpanKind, parent: Option<TraceContext>) -> Span {
        let Some(tracer) = &self.0 else { return Span(None) };
        let Some(context) = tracer.context(parent) else { return Span(None) };
        let now = SystemTime::now();
        let span = FinishedSpan {
            context,
            parent: parent.map(|parent| parent.span_id),
            name: Cow::Borrowed(name),
            kind,
            began_at: now,
            ended_at: now,
            attributes: Vec::new(),
            links: Vec::new(),
            dropped_links: 0,
            has_failed: false,
        };
        Span(Some(Box::new(OpenSpan { span, tracer: tracer.clone() })))
    }

    /// Remembers the trace of an event that a worker has claimed.
    pub(crate) fn remember(&self, event: EventKey, context: TraceContext) {
        if let Some(tracer) = &self.0 {
            tracer.remembered.add(event, context);
        }
    }

    /// Returns the trace of an event that was claimed on this server.
    pub(crate) fn recall(&self, event: EventKey) -> Option<TraceContext> {
        self.0.as_ref()?.remembered.get(event)
    }

    /// Sends what waits to be sent, for a limited time.
    pub(crate) async fn stop(&self) {
        let Some(tracer) = &self.0 else { return };
        let exporter = tracer.exporter.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut exporter) = exporter else { return };
        tracer.stopping.cancel();
        if tokio::time::timeout(FLUSH_TIMEOUT, &mut exporter).await.is_err() {
            exporter.abort();
            log::warn!("the collector of traces did not take the last spans in time");
        }
    }
}

impl Shared {
    /// Returns the context of a new span, or `None` if it is not recorded.
    fn context(&self, parent: Option<TraceContext>) -> Option<TraceContext> {
        if parent.is_some_and(|parent| !parent.is_sampled) {
            return None;
        }
        let mut random = [0; 24];
        getrandom::fill(&mut random).ok()?;
        let (trace_id, span_id) = random.split_first_chunk::<16>()?;
        let span_id = *span_id.first_chunk::<8>()?;
        let Some(parent) = parent else {
            let chance = u64::from_be_bytes(*trace_id.last_chunk::<8>()?) >> 1;
            return (chance < self.threshold).then_some(TraceContext {
                trace_id: *trace_id,
                span_id,
                is_sampled: true,
            });
        };
        Some(TraceContext { span_id, ..parent })
    }

    fn send(&self, span: FinishedSpan) {
        if self.queue.try_send(span).is_err() {
            self.dropped.inc();
            self.unreported.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Returns the number below which the last 63 bits of a trace's id must be: what the samplers of OpenTelemetry compare, so
/// that services with the same ratio choose the same traces.
fn threshold(ratio: f64) -> u64 {
    (ratio.clamp(0.0, 1.0) * (1_u64 << 63) as f64) as u64
}

impl Span {
    /// Returns whether the span is recorded: whether it is worth computing attributes.
    pub(crate) fn is_recorded(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the context for what the span causes, or `None` if it is not recorded.
    pub(crate) fn context(&self) -> Option<TraceContext> {
        self.0.as_ref().map(|open| open.span.context)
    }

    pub(crate) fn rename(&mut self, name: String) {
        if let Some(open) = &mut self.0 {
            open.span.name = Cow::Owned(name);
        }
    }

    /// Moves the beginning of the span.
    pub(crate) fn begin_at(&mut self, time: DateTime<Utc>) {
        if let Some(open) = &mut self.0 {
            open.span.began_at = time.into();
        }
    }

    pub(crate) fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        if let Some(open) = &mut self.0 {
            open.span.attributes.push((key, value.into()));
        }
    }

    /// Links the span to another trace.
    pub(crate) fn link(&mut self, context: TraceContext) {
        let Some(open) = &mut self.0 else { return };
        if open.span.links.len() < MAX_LINKS {
            open.span.links.push(context);
        } else {
            open.span.dropped_links += 1;
        }
    }

    /// Marks the span as failed, for this reason.
    pub(crate) fn fail(&mut self, reason: impl Into<Value>) {
        if let Some(open) = &mut self.0 {
            open.span.has_failed = true;
            open.span.attributes.push(("error.type", reason.into()));
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if let Some(open) = self.0.take() {
            let OpenSpan { mut span, tracer } = *open;
            // The wall clock may have been set back meanwhile.
            span.ended_at = SystemTime::now().max(span.began_at);
            tracer.send(span);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_becomes_a_part_of_all_ids() {
        assert_eq!((threshold(0.0), threshold(1.0), threshold(0.5)), (0, 1 << 63, 1 << 62));
        assert_eq!((threshold(-1.0), threshold(7.0)), (0, 1 << 63));
    }
}
