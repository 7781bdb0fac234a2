//! One subscription: the health of its endpoint, its latest attempts, and its settings.

use actix_web::{HttpRequest, HttpResponse};
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::asking::AskingAction;
use super::attempts::attempts_table;
use super::frame::{Section, respond};
use super::json_text::pretty;
use super::parts::{Action, empty, exact_time, time};
use super::push_parts::subscription_state;
use super::subscriptions::{GOOD_PERCENT, dead_letters, success_percent, waiting};
use super::viewer::Viewer;
use crate::domain::address::masked;
use crate::domain::limits;
use crate::error::Error;
use crate::http::body::path_id;
use crate::http::subscriptions::{EndpointView, view};
use crate::store::lists::subscription_health::{
    HealthSample, SubscriptionHealth, attempts_of_subscription, read_subscription_health,
};
use crate::store::tables::endpoints::load_endpoints;
use crate::store::tables::event_log::LogEntry;
use crate::store::tables::filter_overruns::load_filter_overruns;
use crate::store::tables::subscriptions::{SubscriptionRow, get_subscription};

/// What is read of one subscription.
pub(super) const SAMPLE: HealthSample = HealthSample { waiting: 10_000, scan: 1_000, pushes: 100, dead_letters: 1_000 };

/// The number of attempts on the page.
const ATTEMPTS: i64 = 25;

/// A subscription, and how it is doing.
struct Shown {
    row: SubscriptionRow,
    /// As the API shows it.
    view: Map<String, Value>,
    endpoint: EndpointView,
    health: Option<SubscriptionHealth>,
    attempts: Vec<LogEntry>,
}

/// `GET /ui/subscriptions/{id}`: shows a subscription.
pub(crate) async fn subscription_page(mut viewer: Viewer, request: HttpRequest) -> Result<HttpResponse, Error> {
    let id = path_id(&request).await?;
    viewer.take_query().finish()?;
    let scope = &viewer.scope;
    let mut conn = viewer.engine.database().connection().await?;
    let row = get_subscription(&mut conn, scope, id).await?.ok_or(Error::SubscriptionNotFound(id))?;
    let endpoints = load_endpoints(&mut conn, scope, &[&row.url]).await?;
    let overruns = load_filter_overruns(&mut conn, scope, &[id]).await?;
    let health = read_subscription_health(&mut conn, scope, &[id], SAMPLE).await?.pop();
    let attempts = attempts_of_subscription(&mut conn, scope, id, SAMPLE, ATTEMPTS).await?;
    drop(conn);
    let view = view(&row, endpoints.first(), overruns.first());
    let shown = Shown { endpoint: EndpointView::of(endpoints.first()), view, row, health, attempts };
    let title = shown.name();
    Ok(respond(&request, &viewer, Section::Subscriptions, &title, content(&viewer, &shown)))
}

impl Shown {
    fn name(&self) -> String {
        let name = self.view.get("name").and_then(Value::as_str);
        name.map_or_else(|| format!("Subscription {}", self.row.id), str::to_owned)
    }
}

fn content(viewer: &Viewer, shown: &Shown) -> Markup {
    html! {
        div.head {
            span data-live="state" { (subscription_state(&shown.row, &shown.endpoint)) }
            h1 dir="auto" { (shown.name()) }
            @if viewer.may_operate() { div.actions data-live="actions" { (actions(viewer, shown)) } }
        }
        p.mono { (shown.view.get("method").and_then(Value::as_str).unwrap_or_default()) " " (masked(&shown.row.url)) }
        div data-live="figures" { (figures(viewer, shown)) }
        div.columns {
            section aria-label="Attempts" data-live="attempts" {
                h2 { "Latest attempts" }
                @if shown.attempts.is_empty() { (empty("No push to this subscription was tried yet.", None)) }
                @else { (attempts_table(viewer, &shown.attempts, true)) }
            }
            section aria-label="Settings" {
                h2 { "Settings" }
                (settings(&shown.view))
                @if viewer.may_operate() { (rotation(shown)) }
            }
        }
    }
}

fn actions(viewer: &Viewer, shown: &Shown) -> Markup {
    let (id, own) = (shown.row.id, viewer.link(&format!("/ui/subscriptions/{}", shown.row.id)));
    let button = |label, method, verb: &str, body: Option<Value>, question: &str, next: &str| {
        let action = Action {
            label,
            method,
            path: format!("/subscriptions/{id}{verb}"),
            body: body.map(|body| body.to_string()),
            question: question.to_owned(),
            is_danger: label == "Delete" || label == "Disable",
        };
        AskingAction { action, reason: None, shows_answer: verb == "/test", next: Some(next.to_owned()) }.button()
    };
    let is_held_up = shown.endpoint.breaker != "closed" || shown.endpoint.paused_until.is_some();
    html! {
        (button("Send a test", "POST", "/test", None, "A signed event of the type waybill.test is sent to the URL, even if the subscription is disabled.", &own))
        @if is_held_up {
            (button("Resume", "POST", "/resume", None, "The pause of the endpoint ends and its breaker is closed. What waits is sent at once.", &own))
        }
        @if shown.row.is_active {
            (button("Disable", "PATCH", "", Some(json!({"is_active": false})), "Events that are published from now on are not sent, and those that wait are kept back.", &own))
        } @else {
            (button("Enable", "PATCH", "", Some(json!({"is_active": true})), "Events are sent again.", &own))
        }
        a.button href=(viewer.link(&format!("/ui/subscriptions/{id}/edit"))) { "Edit" }
        (button("Delete", "DELETE", "", None, "The subscription is removed, and its waiting deliveries are cancelled.", &viewer.link("/ui/subscriptions")))
        button type="button" data-curl data-method="GET" data-path=(format!("/subscriptions/{id}")) { "Copy as curl" }
    }
}

fn figures(viewer: &Viewer, shown: &Shown) -> Markup {
    let id = shown.row.id;
    let deliveries = |query: &str| viewer.link(&format!("/ui/deliveries?subscription_id={id}{query}"));
    let Some(health) = &shown.health else { return html! {} };
    let percent = success_percent(health);
    let milliseconds = |ms: Option<i64>| ms.map_or("–".to_owned(), |ms| format!("{ms} ms"));
    html! {
        div.figures {
            a.figure href=(deliveries("&status=PENDING")) { span.label { "Waiting" } span.value { (waiting(health, SAMPLE)) } }
            a class=(if percent.is_some_and(|percent| percent < GOOD_PERCENT) { "figure bad" } else { "figure" }) href=(deliveries("")) {
                span.label { "Success of " (health.attempts) }
                span.value { (percent.map_or("–".to_owned(), |percent| format!("{percent} %"))) }
            }
            a.figure href=(deliveries("")) { span.label { "Latency p50" } span.value { (milliseconds(health.p50_ms)) } }
            a.figure href=(deliveries("")) { span.label { "Latency p95" } span.value { (milliseconds(health.p95_ms)) } }
            a class=(if shown.endpoint.failures_in_row > 0 { "figure bad" } else { "figure" }) href=(deliveries("&status=FAILED")) {
                span.label { "Failures in a row" } span.value { (shown.endpoint.failures_in_row) }
            }
            a class=(if health.dead_letters > 0 { "figure warning" } else { "figure" })
                href=(viewer.link(&format!("/ui/dead-letters?subscription_id={id}&replayed=false"))) {
                span.label { "Dead letters" } span.value { (dead_letters(health, SAMPLE)) }
            }
        }
        p.hint {
            "Success and latency are those of the last attempts of the newest " (SAMPLE.pushes) " pushes that were tried"
            @if let Some(at) = health.last_attempt_at { ", the latest " (time(at)) }
            ". Of the endpoint: breaker " (shown.endpoint.breaker)
            @if let Some(at) = &shown.endpoint.paused_until { ", paused until " (exact_time(at.0)) }
            "."
        }
    }
}

/// The settings in the order in which they matter.
const SETTINGS: [&str; 20] = [
    "event_types",
    "tags",
    "labels",
    "filter",
    "transform",
    "header_names",
    "timeout_ms",
    "max_attempts",
    "backoff",
    "retry_on",
    "ordering",
    "ordering_key_path",
    "on_exhausted",
    "max_concurrency",
    "rate_per_second",
    "inactive_reason",
    "filter_over_budget",
    "version",
    "created_at",
    "updated_at",
];

/// The number of bytes of a setting that are shown, and of one that is shown in a line.
const SETTING_BYTES: usize = 16 * 1024;
const LINE_BYTES: usize = 80;

fn settings(view: &Map<String, Value>) -> Markup {
    html! {
        dl.facts {
            @for name in SETTINGS {
                @if let Some(value) = view.get(name) { dt { (name) } dd { (setting(value)) } }
            }
        }
    }
}

fn setting(value: &Value) -> Markup {
    html! {
        @match value {
            Value::Null => span.muted { "–" },
            Value::String(text) => (text),
            Value::Array(items) if items.is_empty() => span.muted { "–" },
            Value::Array(items) if items.iter().all(Value::is_string) => {
                @for item in items { span.chip { (item.as_str().unwrap_or_default()) } " " }
            },
            Value::Object(fields) if fields.is_empty() => span.muted { "–" },
            Value::Object(_) | Value::Array(_) if value.to_string().len() <= LINE_BYTES => code { (value.to_string()) },
            Value::Object(_) | Value::Array(_) => pre.json tabindex="0" { (pretty(&value.to_string(), SETTING_BYTES).0) },
            other => (other.to_string()),
        }
    }
}

/// Returns the form that makes a new secret.
fn rotation(shown: &Shown) -> Markup {
    let own = format!("/ui/subscriptions/{}", shown.row.id);
    html! {
        h2 { "Rotate secret" }
        form data-form data-path=(format!("/subscriptions/{}/rotate-secret", shown.row.id)) data-secret="secret" data-next=(own) {
            label for="overlap_seconds" { "overlap_seconds" }
            input #overlap_seconds type="number" min="0" name="overlap_seconds" data-kind="number"
                value=(limits::DEFAULT_SECRET_OVERLAP_SECONDS) aria-describedby="overlap-hint";
            p.hint #overlap-hint { "How long requests are signed with the old secret, too. 0 ends it at once." }
            p.error data-error-of="overlap_seconds" {}
            div.actions { button { "Rotate secret" } button type="button" data-form-curl { "Copy as curl" } }
        }
    }
}
