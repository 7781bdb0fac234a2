//! The list of deliveries (pushes), and what can be done with those that match.

use actix_web::{HttpRequest, HttpResponse};
use maud::{Markup, html};

use super::asking::ReasonIn;
use super::bulk::{BulkVerb, BulkWay, bulk_bar, select_all, select_one};
use super::filter_fields::{FilterField, filter_fields, reasons};
use super::frame::{Section, respond};
use super::parts::{empty, pager, time};
use super::push_parts::{delivery_link, delivery_state, event_name, next_attempt, subscription_name};
use super::viewer::Viewer;
use crate::domain::history::Numbers;
use crate::domain::operation::OperationKind;
use crate::domain::status::Status;
use crate::error::Error;
use crate::http::deliveries::{DeliveryView, read_filter};
use crate::http::query::read_page;
use crate::store::lists::push_context::{PushContext, read_push_context};
use crate::store::lists::pushes::{PushFilter, PushRow, list_pushes};

pub(super) const ROWS_PER_PAGE: i64 = 50;

const FILTERS: &[FilterField<'_>] = &[
    FilterField::Choice { name: "status", choices: &["PENDING", "PROCESSING", "COMPLETED", "FAILED", "CANCELLED"] },
    FilterField::Choice { name: "failing", choices: &["true", "false"] },
    FilterField::Text { name: "subscription_id", placeholder: "17" },
    FilterField::Text { name: "event_id", placeholder: "4211" },
    FilterField::Text { name: "since", placeholder: "24h, or a time" },
    FilterField::Text { name: "until", placeholder: "15m, or a time" },
];

/// What can be done with all deliveries, or with the selected ones: the label, the operation, and its path.
const VERBS: &[(&str, OperationKind, &str)] = &[
    ("Retry", OperationKind::RetryDeliveries, "/deliveries/retry"),
    ("Cancel", OperationKind::CancelDeliveries, "/deliveries/cancel"),
];

/// `GET /ui/deliveries`: shows deliveries.
pub(crate) async fn deliveries_page(mut viewer: Viewer, request: HttpRequest) -> Result<HttpResponse, Error> {
    let form = filter_fields(&viewer, FILTERS);
    let mut query = viewer.take_query_with_ages();
    let filter = read_filter(&mut query);
    let mut page = read_page(&mut query, ROWS_PER_PAGE);
    page.descending = true;
    let content = match query.finish() {
        Ok(()) => {
            let (page, cursors) =
                page.by_id(&viewer.engine, viewer.scope.namespace, "deliveries", Numbers::Ids, &filter).await?;
            let mut conn = viewer.engine.database().connection().await?;
            let (rows, end) = list_pushes(&mut conn, &viewer.scope, &filter, page).await?;
            let events = rows.iter().map(|row| row.event_id).collect();
            let subscriptions = rows.iter().map(|row| row.subscription_id).collect();
            let context = read_push_context(&mut conn, &viewer.scope, &events, &subscriptions).await?;
            drop(conn);
            let next = cursors.next(end).await?;
            list(&viewer, &filter, &Found { rows, context }, next.as_deref())
        }
        Err(error) => html! { p.error role="alert" { (reasons(&Error::from(error))) } },
    };
    let content = html! {
        h1 { "Deliveries" }
        (form)
        (content)
    };
    Ok(respond(&request, &viewer, Section::Deliveries, "Deliveries", content))
}

/// Deliveries, and what they are about.
struct Found {
    rows: Vec<PushRow>,
    context: PushContext,
}

fn list(viewer: &Viewer, filter: &PushFilter, found: &Found, next: Option<&str>) -> Markup {
    html! {
        div data-list {
            @if !found.rows.is_empty() { div.pager { (bulk_bar(viewer, "deliveries", filter, &verbs(filter.status), &html! {})) } }
            button.new-rows type="button" hidden {}
            @if !found.rows.is_empty() { (table(viewer, found)) }
            @else {
                div data-live="deliveries" {
                    @if next.is_some() { (empty("No delivery matches among those that were searched so far.", None)) }
                    @else if *filter == PushFilter::default() { (no_deliveries_yet(viewer)) }
                    @else { (empty("No delivery matches.", None)) }
                }
            }
            (pager(viewer, next, None))
        }
    }
}

/// Returns what can be done with deliveries in a state.
fn verbs(status: Option<Status>) -> Vec<BulkVerb<'static>> {
    let fits = |kind: OperationKind| status.is_none_or(|status| kind.allowed_statuses().contains(&status));
    let operation = |(label, kind, path): &(&'static str, OperationKind, &'static str)| BulkVerb {
        label,
        way: BulkWay::Operation { path, chosen: None },
        is_danger: *kind == OperationKind::CancelDeliveries,
    };
    let mut verbs: Vec<_> = VERBS.iter().filter(|(_, kind, _)| fits(*kind)).map(operation).collect();
    if status.is_none_or(|status| status == Status::Pending) {
        let way = BulkWay::EachRow { path: "/deliveries/{id}/dead-letter", reason: ReasonIn::Query };
        verbs.push(BulkVerb { label: "Dead-letter", way, is_danger: true });
    }
    verbs
}

fn no_deliveries_yet(viewer: &Viewer) -> Markup {
    let event = r#"{"event_type": "order.paid", "payload": {"order": 17}}"#;
    let command = viewer.curl("POST", "/events", Some(event));
    empty("No deliveries yet. An event that matches a subscription is delivered to it; publish one:", Some(&command))
}

fn table(viewer: &Viewer, found: &Found) -> Markup {
    html! {
        div.table {
            table.rows data-rows {
                thead {
                    tr {
                        (select_all(viewer))
                        th { "State" } th { "Id" } th { "Event" } th { "Subscription" } th.number.roomy { "Attempts" }
                        th { "Last error" } th.roomy { "Next attempt" } th.right { "Changed" }
                    }
                }
                tbody data-live="deliveries" { @for row in &found.rows { (delivery_row(viewer, row, &found.context)) } }
            }
        }
    }
}

fn delivery_row(viewer: &Viewer, row: &PushRow, context: &PushContext) -> Markup {
    let delivery = DeliveryView::of(row).for_reader(&viewer.principal);
    html! {
        tr data-id=(row.id) {
            (select_one(viewer, "delivery", row.id.0))
            td.states { (delivery_state(row, &delivery, context)) }
            td { (delivery_link(viewer, row.id)) }
            td.wide { span.only-phone { "event " } (event_name(viewer, row.event_id, context)) }
            td.name { span.only-phone { "to " } (subscription_name(viewer, row.subscription_id, context)) }
            td.number.nowrap.optional.roomy { (delivery.attempts_made) "/" (delivery.max_attempts) }
            td.wide { (first_line(delivery.last_error)) }
            td.nowrap.optional.roomy { @if let Some(at) = next_attempt(viewer, &delivery) { (time(at)) } }
            td.right.nowrap { (time(row.updated_at)) }
        }
    }
}

const ERROR_CHARS: usize = 200;

fn first_line(error: Option<&str>) -> String {
    error.and_then(|error| error.lines().next()).unwrap_or_default().chars().take(ERROR_CHARS).collect()
}
