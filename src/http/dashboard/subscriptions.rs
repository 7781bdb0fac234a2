//! The subscriptions, whether their receivers answer, and what waits for them.

use actix_web::{HttpRequest, HttpResponse};
use maud::{Markup, html};
use serde_json::{Map, Value};

use super::filter_fields::{FilterField, filter_fields};
use super::frame::{Section, respond};
use super::parts::{count, empty, pager, time};
use super::push_parts::subscription_state;
use super::viewer::Viewer;
use crate::domain::address::masked;
use crate::domain::history::Numbers;
use crate::domain::ids::SubscriptionId;
use crate::error::Error;
use crate::http::query::read_page;
use crate::http::subscriptions::EndpointView;
use crate::store::lists::pages::page_end;
use crate::store::lists::subscription_health::{HealthSample, SubscriptionHealth, read_subscription_health};
use crate::store::tables::endpoints::{EndpointRow, load_endpoints};
use crate::store::tables::subscriptions::{SubscriptionFilter, SubscriptionRow, list_subscriptions};

const SUBSCRIPTIONS_PER_PAGE: i64 = 50;

/// What is read of each subscription on a page of many.
pub(super) const SAMPLE: HealthSample = HealthSample { waiting: 1_000, scan: 100, pushes: 20, dead_letters: 50 };

/// The success rate below which it is marked.
pub(super) const GOOD_PERCENT: i64 = 90;

const FILTERS: &[FilterField<'_>] = &[FilterField::Choice { name: "is_active", choices: &["true", "false"] }];

/// A subscription in the list.
struct Listed<'a> {
    row: &'a SubscriptionRow,
    endpoint: EndpointView,
    health: Option<&'a SubscriptionHealth>,
}

/// `GET /ui/subscriptions`: shows subscriptions.
pub(crate) async fn subscriptions_page(mut viewer: Viewer, request: HttpRequest) -> Result<HttpResponse, Error> {
    let mut query = viewer.take_query();
    let filter = SubscriptionFilter { is_active: query.boolean("is_active") };
    let mut page = read_page(&mut query, SUBSCRIPTIONS_PER_PAGE);
    query.finish()?;
    // The health of each is looked at.
    page.limit = page.limit.min(SUBSCRIPTIONS_PER_PAGE);
    let (page, cursors) =
        page.by_id(&viewer.engine, viewer.scope.namespace, "subscriptions", Numbers::Ids, &filter).await?;
    let mut conn = viewer.engine.database().connection().await?;
    let rows = list_subscriptions(&mut conn, &viewer.scope, &filter, page).await?;
    let urls: Vec<&str> = rows.iter().map(|row| row.url.as_str()).collect();
    let endpoints = load_endpoints(&mut conn, &viewer.scope, &urls).await?;
    let ids: Vec<SubscriptionId> = rows.iter().map(|row| row.id).collect();
    let health = read_subscription_health(&mut conn, &viewer.scope, &ids, SAMPLE).await?;
    drop(conn);
    let next = cursors.next(page_end(&rows, page.limit, |row| row.id.0)).await?;
    let listed: Vec<Listed<'_>> = rows.iter().map(|row| listed(row, &endpoints, &health)).collect();
    let content = html! {
        div.head {
            h1 { "Subscriptions" }
            @if viewer.may_operate() {
                div.actions { a.button href=(viewer.link("/ui/subscriptions/new")) { "New subscription" } }
            }
        }
        (filter_fields(&viewer, FILTERS))
        button.new-rows type="button" hidden {}
        @if !listed.is_empty() { (table(&viewer, &listed)) }
        @else {
            div data-live="subscriptions" {
                @if filter.is_active.is_some() { (empty("No subscription matches.", None)) }
                @else { (no_subscriptions_yet(&viewer)) }
            }
        }
        (pager(&viewer, next.as_deref(), None))
    };
    Ok(respond(&request, &viewer, Section::Subscriptions, "Subscriptions", content))
}

fn listed<'a>(row: &'a SubscriptionRow, endpoints: &[EndpointRow], health: &'a [SubscriptionHealth]) -> Listed<'a> {
    Listed {
        row,
        endpoint: EndpointView::of(endpoints.iter().find(|endpoint| endpoint.url == row.url)),
        health: health.iter().find(|health| health.subscription_id == row.id),
    }
}

fn no_subscriptions_yet(viewer: &Viewer) -> Markup {
    let subscription = r#"{"name": "orders", "url": "https://shop.example/hook", "event_types": ["order.*"]}"#;
    let command = viewer.curl("POST", "/subscriptions", Some(subscription));
    empty("No subscriptions yet. A subscription sends events to a URL as signed webhooks:", Some(&command))
}

fn table(viewer: &Viewer, listed: &[Listed<'_>]) -> Markup {
    html! {
        div.table {
            table.rows data-rows {
                thead {
                    tr {
                        th { "State" } th { "Name" } th { "URL" } th.roomier { "Event types" } th.number { "Waiting" }
                        th.number { "Success" } th.number.roomy { "Latency" } th.number { "Dead letters" } th.right.roomier { "Last attempt" }
                    }
                }
                tbody data-live="subscriptions" { @for one in listed { (row(viewer, one)) } }
            }
        }
        p.hint {
            "Success and latency (p50) are those of the last attempts of the newest " (SAMPLE.pushes) " pushes that were tried."
        }
    }
}

fn row(viewer: &Viewer, Listed { row, endpoint, health }: &Listed<'_>) -> Markup {
    let spec: Map<String, Value> = serde_json::from_str(row.spec.0.as_str()).unwrap_or_default();
    let name =
        spec.get("name").and_then(Value::as_str).map_or_else(|| format!("subscription {}", row.id), str::to_owned);
    html! {
        tr data-id=(row.id) {
            td.nowrap { (subscription_state(row, endpoint)) }
            td.name dir="auto" { a href=(viewer.link(&format!("/ui/subscriptions/{}", row.id))) { (name) } }
            td.wide.mono { (masked(&row.url)) }
            td.optional.roomier { (event_types(&spec)) }
            @match health {
                Some(health) => (figures(viewer, health)),
                None => { td.optional colspan="5" {} }
            }
        }
    }
}

/// The number of event types that are shown of a subscription.
const SHOWN_TYPES: usize = 2;

fn event_types(spec: &Map<String, Value>) -> Markup {
    let types: Vec<&str> =
        spec.get("event_types").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    html! {
        @if types.is_empty() { span.muted { "all" } }
        @for name in types.iter().take(SHOWN_TYPES) { span.chip { (name) } " " }
        @if types.len() > SHOWN_TYPES { span.muted { "+" (types.len() - SHOWN_TYPES) } }
    }
}

fn figures(viewer: &Viewer, health: &SubscriptionHealth) -> Markup {
    let id = health.subscription_id;
    html! {
        td.number.nowrap {
            span.only-phone { "waiting " }
            a href=(viewer.link(&format!("/ui/deliveries?subscription_id={id}&status=PENDING"))) { (waiting(health, SAMPLE)) }
        }
        td.number.nowrap {
            span.only-phone { "success " }
            a href=(viewer.link(&format!("/ui/deliveries?subscription_id={id}"))) { (success(health)) }
        }
        td.number.nowrap.optional.roomy { @if let Some(ms) = health.p50_ms { (ms) " ms" } }
        td.number.nowrap {
            span.only-phone { "dead letters " }
            a href=(viewer.link(&format!("/ui/dead-letters?subscription_id={id}&replayed=false"))) { (dead_letters(health, SAMPLE)) }
        }
        td.right.nowrap.optional.roomier { @if let Some(at) = health.last_attempt_at { (time(at)) } @else { span.muted { "never" } } }
    }
}

pub(super) fn waiting(health: &SubscriptionHealth, sample: HealthSample) -> String {
    let (number, is_exact) = health.waiting(sample);
    count(number, is_exact)
}

pub(super) fn dead_letters(health: &SubscriptionHealth, sample: HealthSample) -> String {
    count(health.dead_letters.min(sample.dead_letters), health.dead_letters <= sample.dead_letters)
}

/// Returns the share of attempts that succeeded in percent, if there were any.
pub(super) fn success_percent(health: &SubscriptionHealth) -> Option<i64> {
    (health.attempts > 0).then(|| 100 * health.succeeded / health.attempts)
}

fn success(health: &SubscriptionHealth) -> Markup {
    html! {
        @match success_percent(health) {
            None => span.muted { "–" },
            Some(percent) if percent < GOOD_PERCENT => span.state.bad { (percent) " %" },
            Some(percent) => { (percent) " %" },
        }
        @if (1..SAMPLE.pushes).contains(&health.attempts) { span.muted { " of " (health.attempts) } }
    }
}
