//! The overview: whether all is well, and what is not.

use actix_web::{HttpRequest, HttpResponse};
use maud::{Markup, html};

use super::attention::Attention;
use super::chart::sparkline;
use super::first_steps::first_steps;
use super::frame::{Section, respond};
use super::history::{ChartSpan, History, SPANS};
use super::numbers::{duration, short};
use super::parts::{count, filtered, with_parameter};
use super::slow::slow_tags;
use super::viewer::Viewer;
use crate::error::Error;
use crate::http::stats::{NamespaceStats, StatsView, stats_of_namespace};
use crate::store::lists::events::{EventFilter, list_events};
use crate::store::lists::pages::Page;

/// The age from which on the oldest waiting event stands out.
const OLD_SECONDS: f64 = 900.0;

/// The percentages of successful pushes below which the figure stands out.
const PUSHES_WARNING: f64 = 99.0;
const PUSHES_BAD: f64 = 90.0;

/// `GET /`: shows the overview.
pub(crate) async fn overview_page(mut viewer: Viewer, request: HttpRequest) -> Result<HttpResponse, Error> {
    let mut query = viewer.take_query();
    let span = query.choice("span", |name| SPANS.iter().find(|span| span.name == name), "1h, 24h, 7d");
    query.finish()?;
    let span = span.unwrap_or(&SPANS[0]);
    viewer.engine.record_sightings().await?;
    let now = stats_of_namespace(&viewer.engine, &viewer.scope).await?;
    let all = now.namespace.as_ref().ok_or_else(|| Error::Internal("the stats of a namespace were not read".into()))?;
    let hour = History::read(&viewer, 1).await?;
    let content = match is_new(&viewer, &now, all, &hour).await? {
        true => html! { h1 { "Overview" } section data-live="figures" { (first_steps(&viewer)) } },
        false => page(&viewer, &now, all, &hour, span).await?,
    };
    Ok(respond(&request, &viewer, Section::Overview, "Overview", content))
}

/// Returns whether the namespace has had no events yet.
async fn is_new(viewer: &Viewer, now: &StatsView, all: &NamespaceStats, hour: &History) -> Result<bool, Error> {
    let is_quiet = now.waiting + all.running + all.failed + all.workers == 0 && hour.is_empty();
    if !is_quiet {
        return Ok(false);
    }
    let mut conn = viewer.engine.database().connection().await?;
    let first = Page { descending: true, after: None, limit: 1, scan: 1 };
    let found = list_events(&mut conn, &viewer.scope, &EventFilter::default(), first, 0).await?;
    Ok(found.events.is_empty())
}

async fn page(
    viewer: &Viewer,
    now: &StatsView,
    all: &NamespaceStats,
    hour: &History,
    span: &ChartSpan,
) -> Result<Markup, Error> {
    let attention = Attention::read(viewer, all).await?;
    let longer = if span.hours == 1 { None } else { Some(History::read(viewer, span.hours).await?) };
    let slow = slow_tags(viewer, &now.tags).await?;
    Ok(html! {
        h1.hidden-text { "Overview" }
        div data-live="figures" { (figures(viewer, now, all, hour, &attention)) }
        div data-live="attention" { (attention.render(viewer, now, all)) }
        div.head.above {
            h2 { "Rates and latency" }
            div.actions {
                @for other in &SPANS {
                    a.button href=(with_parameter(&viewer.address, "span", other.name))
                        aria-current=[(other.name == span.name).then_some("true")] { (other.name) }
                }
            }
        }
        div.charts data-live="charts" { (longer.as_ref().unwrap_or(hour).charts(viewer, span)) }
        div data-live="slow" { (slow) }
    })
}

/// A figure: what it is, how much, and where it leads.
struct Figure<'a> {
    label: &'a str,
    value: String,
    path: String,
    /// `bad` and `warning` stand out.
    kind: &'a str,
    /// What the line below it shows, which is not its own history.
    line: &'a str,
    /// The latest value of the line.
    latest: String,
    history: &'a [Option<f64>],
}

impl Figure<'_> {
    fn render(&self, viewer: &Viewer) -> Markup {
        html! {
            a class=(format!("figure {}", self.kind)) href=(viewer.link(&self.path)) {
                span.label { (self.label) }
                span.value { (self.value) }
                span.note { (self.line) ": " (self.latest) }
                (sparkline(self.history, &format!("{}, last hour", self.line)))
            }
        }
    }
}

fn figures(viewer: &Viewer, now: &StatsView, all: &NamespaceStats, hour: &History, attention: &Attention) -> Markup {
    let rates = &all.per_minute;
    let waiting = Figure {
        label: "Waiting",
        value: count(now.waiting, now.waiting_is_exact),
        // Those that can be claimed, by tag. In the list of events, PENDING has what waits for its time as well.
        path: "/ui/tags".into(),
        kind: "",
        line: "published per minute",
        latest: short(rates.published),
        history: hour.values("published"),
    };
    let running = Figure {
        label: "Running",
        value: count(all.running, all.running_is_exact),
        path: filtered("status:PROCESSING"),
        kind: "",
        line: "completed per minute",
        latest: short(rates.completed),
        history: hour.values("completed"),
    };
    html! {
        div.figures {
            (waiting.render(viewer))
            (running.render(viewer))
            (failed(hour, attention, all).render(viewer))
            (oldest(hour, all).render(viewer))
            (pushes(hour).render(viewer))
        }
    }
}

fn failed<'a>(hour: &'a History, attention: &Attention, all: &NamespaceStats) -> Figure<'a> {
    let failures = &attention.last_hour;
    let kind = match (failures.count, attention.earlier.count) {
        (0, 0) => "",
        (0, _) => "warning",
        _ => "bad",
    };
    Figure {
        label: "Failed in the last hour",
        value: count(failures.count, failures.is_exact || failures.count == 0),
        path: filtered(&if failures.count > 0 { failures.words() } else { attention.earlier.words() }),
        kind,
        line: "failures per minute",
        latest: short(all.per_minute.failed),
        history: hour.values("failed"),
    }
}

fn oldest<'a>(hour: &'a History, all: &NamespaceStats) -> Figure<'a> {
    let event = all.oldest_event.as_ref();
    let age = event.and_then(|event| event.age_seconds);
    let p95 = hour.values("latency_p95_ms");
    let latest = p95.iter().rev().flatten().next();
    Figure {
        label: "Oldest waiting",
        value: age.map_or("–".to_owned(), |seconds| duration(seconds.max(0.0) * 1_000.0)),
        path: event.map_or(filtered("status:PENDING"), |event| format!("/ui/events/{}", event.id)),
        kind: if age.is_some_and(|age| age >= OLD_SECONDS) { "warning" } else { "" },
        line: "latency p95 of what completed",
        latest: latest.map_or("–".to_owned(), |latest| duration(*latest)),
        history: p95,
    }
}

fn pushes(hour: &History) -> Figure<'_> {
    let (succeeded, failed) = (hour.total("pushes_succeeded"), hour.total("pushes_failed"));
    let sent = hour.values("pushes_sent");
    let latest = sent.iter().rev().flatten().next().copied().unwrap_or(0.0);
    let percent = 100.0 * succeeded as f64 / (succeeded + failed) as f64;
    let kind = match percent {
        percent if percent < PUSHES_BAD => "bad",
        percent if percent < PUSHES_WARNING => "warning",
        _ => "",
    };
    Figure {
        label: "Pushes in the last hour",
        // 99.96 % are not all.
        value: if succeeded + failed == 0 { "–".into() } else { format!("{} %", (percent * 10.0).floor() / 10.0) },
        path: if failed > 0 { "/ui/deliveries?failing=true".into() } else { "/ui/deliveries".into() },
        kind,
        line: "sent per minute",
        latest: format!("{} ({} sent, {} failed)", short(latest), count(succeeded + failed, true), count(failed, true)),
        history: sent,
    }
}
